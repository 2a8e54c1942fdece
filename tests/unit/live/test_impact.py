"""What the strip of the page is told of probes and of jobs."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocelab.live.impact import job_impact, probes_impact
from rocelab.results.impact import Impact
from rocelab.results.job import JobReport
from rocelab.results.probereport import ProbeReport
from rocelab.results.probes import Disturbance, Event
from rocelab.results.stages import DetectionCause, Resolution, Stages, SwitchStages
from rocelab.runs.jobreport import job_reports
from rocelab.traffic.jobresult import AckGap
from tests.helpers import job_sample, phases_sample, report_sample

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


def ran(script: str) -> Any:
    """What a script for node prints, as JSON."""
    command = ["node", "--input-type=module", "--eval", script]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


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


def test_a_job_s_flows_that_were_out_are_named_with_what_they_sent_again_and_bgp_s_steps() -> None:
    report = job_sample_report()
    impact: Any = job_impact(report, 10**18)
    (outage,) = impact["outages"]
    assert outage["out_ns"] == 127 * MS
    assert (outage["retransmitted"], outage["lost"], outage["restored"]) == (32, None, True)
    assert (outage["t_ns"], outage["event"]) == (50 * MS, "carrier-down of rtsw1:ctsw1")
    names = {flow["name"]: flow["dest_qp"] for flow in impact["run"]["flows"]}
    assert names[outage["flow"]] == report.flows[report.outages[0].flow].dest_qp
    (step,) = impact["switches"]
    assert (step["node"], step["kernel_ns"]) == ("rtsw4", 180 * MS)
    assert json.dumps(impact)


def test_a_job_with_timeouts_says_what_the_ack_timeout_is_in_the_lab() -> None:
    report = job_sample_report()
    slow = replace(report, transport=replace(report.roce, timeouts=1))
    assert "ACK timeout of 1 ms, which is 1 s of this lab" in str(job_impact(slow, 0)["said"])


def job_sample_report() -> JobReport:
    """A job whose first flow was out for 127 ms at a fault, of which there are stages."""
    result = job_sample.result(job_sample.allreduce())
    pairs = list(result.queue_pairs)
    first = next(n for n, pair in enumerate(pairs) if pair.requester.packets)
    pairs[first] = replace(pairs[first], gaps=(AckGap(48 * MS, 175 * MS, True, 32),))
    result = replace(result, queue_pairs=tuple(pairs))
    record = job_sample.record(
        job_sample.traffic(result),
        job_sample.counts(result),
        events=(Event(50 * MS, "carrier-down", "begin", "rtsw1:ctsw1"),),
    )
    (report,) = job_reports(record)
    return replace(report, stages=(STAGES,))


STEPS = """
const impact = await import(%s);
const columns = impact.columnsOf({t_ns: 2e9, step_ns: 1e7, sent: [10, 10, 10, 10],
  received: [9, 11, 4, 10], retransmitted: [0, 0, 3, 1]}, 1e9);
console.log(JSON.stringify(["probes", "job"].map((kind) => impact.stepPlots(columns, kind))));
"""


def test_the_strip_plots_packets_per_step_and_what_did_not_arrive_or_was_sent_again() -> None:
    (rates, missing), (_, again) = ran(STEPS % json.dumps(OUTAGES.with_name("packets.js").as_uri()))
    times, sent, received = rates["data"]
    assert times == [1.0, 1.01, 1.02, 1.03]
    assert sent == [1000] * 4
    assert received == [900, 1100, 400, 1000]
    assert rates["title"] == "packets/s of all traffic, per 10 ms"
    # The packet that came a step later is not missing.
    assert [round(packets) for packets in missing["data"][1]] == [0, 0, 6, 0]
    assert again["title"] == "packets sent again, per 10 ms"
    assert again["data"][1] == [0, 0, 3, 1]


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
    assert ran(script) == [
        ["out < 14.7 ms, 2 lost", "out for less than 14.7 ms"],
        ["out < 14.7 ms, 2 lost", "out for less than 14.7 ms"],
        ["out 127 ms, 2 lost", "out for up to 127 ms"],
    ]


def test_the_outage_of_a_job_s_flow_has_what_was_sent_again() -> None:
    outage = {"out_ns": 127 * MS, "resolution_ns": 1, "lost": None, "retransmitted": 1200}
    script = SENTENCES % (json.dumps(OUTAGES.as_uri()), json.dumps([{**outage, "restored": True}]))
    assert ran(script)[0][0] == "out 127 ms, 1,200 sent again"
