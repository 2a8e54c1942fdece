"""What the strip of the page is told of probes and of jobs."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

from rocelab.live.impact import job_impact, probes_impact
from rocelab.results.impact import Impact
from rocelab.results.probereport import ProbeReport
from rocelab.results.probes import Disturbance
from rocelab.results.stages import DetectionCause, Resolution, Stages, SwitchStages
from tests.helpers import phases_sample, report_sample

MS = 10**6
OUTAGES = Path(__file__).parents[3] / "rocelab/live/page/outages.js"
STAGES = Stages(
    1,
    "carrier-down",
    Resolution(1000, None, None),
    (
        SwitchStages(
            "rtsw4",
            DetectionCause.PEER,
            68 * MS,
            None,
            118 * MS,
            129 * MS,
            130 * MS,
            None,
            "198.18.0.0/29",
            1,
        ),
    ),
)


def report(*stages: Stages) -> ProbeReport:
    run = replace(report_sample.repeat(0), stages=stages)
    document = report_sample.result(run)
    return ProbeReport(
        schema_version=1,
        probes={},
        lab=document.lab,
        environment=document.environment,
        zero_unix_ns=10**18,
        disturbed=(Disturbance("carrier-down", report_sample.LINK, 0, 2000 * MS),),
        run=run,
    )


def test_each_flow_that_was_out_is_named_with_how_long_and_what_it_lost() -> None:
    impact = probes_impact(report())
    outages = impact["outages"]
    assert isinstance(outages, list)
    assert [(outage["flow"], outage["lost"], outage["out_ns"]) for outage in outages] == [
        ("f10", 27, 27 * MS),
        ("f4", 24, 24 * MS),
        ("f1", 5, 5 * MS),
    ]
    assert {outage["event"] for outage in outages} == {f"carrier-down of {report_sample.LINK}"}


def test_rates_and_losses_are_those_of_a_page_of_a_drill_per_ten_milliseconds() -> None:
    run = probes_impact(report())["run"]
    assert isinstance(run, dict)
    assert run["totals"]["interval_ns"] == 10 * MS
    assert sum(flow["lost"] for flow in run["flows"]) == 56
    assert run["rates"] is None
    assert json.dumps(probes_impact(report()))


def test_what_bgp_did_is_at_instants_of_the_run() -> None:
    steps = probes_impact(report(STAGES))["switches"]
    assert steps == [
        {
            "node": "rtsw4",
            "by": "neighbour's update",
            "begins": True,
            "detected_ns": 68 * MS,
            "session_ns": None,
            "best_path_ns": 118 * MS,
            "zebra_ns": 129 * MS,
            "kernel_ns": 130 * MS,
        }
    ]


def test_a_job_s_impact_is_in_its_iterations() -> None:
    hit = Impact(6, 90 * MS, 5, 30.0 * MS, 31.0 * MS, 2.0, False)
    impact = job_impact(replace(phases_sample.idle(), impact=hit), 10**18)
    assert impact["outages"] == []
    sentences = impact["said"]
    assert isinstance(sentences, list)
    iteration, resent = sentences
    assert iteration.startswith("Iteration 7, which the first fault hit, took ")
    assert resent.endswith("data packets were sent again.")


SENTENCES = """
import * as outages from %s;
console.log(JSON.stringify(
  %s.map((outage) => [outages.outageText(outage), outages.longestText(outage)])));
"""


def test_an_outage_that_is_not_above_its_resolution_is_only_known_to_be_below_it() -> None:
    outages = [
        {"out_ns": out_ms * 10**6, "resolution_ns": 14_700_000, "lost": 2, "restored": True}
        for out_ms in (1.97, 14.7, 127)
    ]
    script = SENTENCES % (json.dumps(OUTAGES.as_uri()), json.dumps(outages))
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [
        ["out < 14.7 ms, 2 lost", "out for less than 14.7 ms"],
        ["out < 14.7 ms, 2 lost", "out for less than 14.7 ms"],
        ["out 127 ms, 2 lost", "out for up to 127 ms"],
    ]
