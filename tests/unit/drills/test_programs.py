"""Phases of programs: their keys, their plan, their figures, and the document of a result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError, SpecError
from rocelab.drills.drill_spec import load_drill
from rocelab.drills.plan import ProgramPhase, planned_drill
from rocelab.report.answers.drill import drill_answer
from rocelab.report.drill import drill_document
from rocelab.report.programs import goodput_gbs
from rocelab.report.renderers.page import html
from rocelab.report.repeats import repeat_tables
from rocelab.results.drill import DrillResult, PhaseRun, conclude, from_json
from rocelab.results.kpis import program_figures
from rocelab.results.probes import Event
from rocelab.results.programs import (
    MetricSeries,
    ProgramReport,
    ProgramsRun,
    RankEnd,
    Stall,
    TcpConnection,
)
from tests.helpers.phases_sample import ENVIRONMENT

MS = 10**6
S = 10**9
DRILL = """name: ring
lab: zone-small
traffic:
  command: python3 ring.py --steps 80
  servers: [srv1-1, "srv2-*"]
  metrics: {step: {pattern: "took ([0-9.]+)", unit: s}}
faults:
  - {kind: carrier-down, link: "srv2-1:rtsw2", at: 1s, lasts: 1s}
expect: {failed_programs: 0, metric_max: "< 2"}
"""


def written(folder: Path, text: str = DRILL) -> Path:
    file = folder / "ring.yaml"
    file.write_text(text)
    return file


def test_programs_are_planned_in_the_folder_of_their_drill(tmp_path: Path) -> None:
    (phase,) = planned_drill(written(tmp_path)).phases
    assert isinstance(phase, ProgramPhase)
    assert [program.node for program in phase.programs] == ["srv1-1", "srv2-1", "srv2-2"]
    assert phase.programs[0].argv == ("python3", "ring.py", "--steps", "80")
    assert phase.traffic.folder == str(tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("([0-9.]+)", "[0-9.]+", "traffic.metrics.step.pattern: 'took [0-9.]+' has 0 groups"),
        ("([0-9.]+)", "(", "traffic.metrics.step.pattern: 'took (' is no regular expression"),
        ("python3 ring.py --steps 80", '"it\'s"', 'traffic.command: "it\'s" is no command line'),
        ("servers:", "srvs:", "traffic.srvs: unknown key"),
        ("failed_programs", "busbw", "expect: busbw is a figure of jobs, and the phase sends"),
        ("expect:", "crossing: 2\nexpect:", "crossing: crossing has no meaning beside programs"),
        ("faults:", "  env: {A=B: '1'}\nfaults:", "traffic.env: 'A=B' is no name of a variable"),
        ("expect:", "jobs: [allreduce]\nexpect:", "traffic: traffic is of probes"),
    ],
)
def test_what_programs_cannot_have_is_refused(
    tmp_path: Path, before: str, after: str, problem: str
) -> None:
    with pytest.raises(SpecError) as caught:
        load_drill(written(tmp_path, DRILL.replace(before, after)))
    assert problem in str(caught.value)


def test_a_figure_of_programs_is_none_of_probes(tmp_path: Path) -> None:
    text = (
        "name: flap\nlab: zone-small\nfaults:\n  - {kind: carrier-down, at: 2s, link: rtsw1:ctsw2}"
    )
    with pytest.raises(SpecError, match="metric_max is a figure of programs, and the phase sends"):
        load_drill(written(tmp_path, f"{text}\nexpect: {{metric_max: 1}}\n"))


def test_a_pattern_without_servers_is_refused_before_the_lab_is_up(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no server of lab zone-small matches 'srv7-\\*'"):
        planned_drill(written(tmp_path, DRILL.replace("srv2-*", "srv7-*")))


def test_a_metric_of_a_rank_that_does_not_run_is_refused(tmp_path: Path) -> None:
    text = DRILL.replace("unit: s", "unit: s, rank: RANK")
    planned_drill(written(tmp_path, text.replace("RANK", "2")))
    with pytest.raises(InputError, match="metric step is of rank 3: 3 programs from rank 0"):
        planned_drill(written(tmp_path, text.replace("RANK", "3")))


def connection(delivered: int, resent: int, *stalls: Stall) -> TcpConnection:
    return TcpConnection(
        "srv1-1:1", 40_000, "srv2-1:1", 7000, 0, 10 * S, delivered, resent, 300, 20, stalls
    )


def sample(**changes: Any) -> ProgramsRun:
    """Two connections, of which one stalled, and a metric of four values."""
    report = ProgramReport(
        schema_version=1,
        lab="zone-small",
        dilation=5000,
        command=("python3", "ring.py"),
        ranks=(RankEnd(0, "srv1-1", 0, 10 * S), RankEnd(1, "srv2-1", 0, 10 * S)),
        began_ns=-S,
        lasted_ns=10 * S,
        connections=(
            connection(30_000_000, 0, Stall(S, S + 300 * MS), Stall(3 * S, 5 * S)),
            connection(10_000_000, 10_000_000),
        ),
        delivered=((-S, 0), (0, 0), (2 * S, 16_000_000), (9 * S, 40_000_000)),
        stall_bin_ns=100 * MS,
        longest_interval_ns=60 * MS,
        cpu_share=0.4,
        warnings=(),
    )
    event = Event(S, "carrier-down", "begin", "srv2-1:rtsw2")
    points = tuple((place * S, value) for place, value in enumerate((0.1, 0.2, 2.5, 0.1)))
    run = ProgramsRun((), report, (event,), (MetricSeries("step", "s", points),))
    return replace(run, **changes)


def test_figures_are_those_of_the_connections_and_of_the_first_metric() -> None:
    figures = program_figures(sample())
    assert figures == {
        "failed_programs": 0,
        "stalled_connections": 1,
        "longest_stall": 2 * S,
        "tcp_goodput": pytest.approx(0.004),
        "tcp_resent": pytest.approx(0.2),
        "metric_median": pytest.approx(0.15),
        "metric_p99": 2.5,
        "metric_max": 2.5,
    }


def test_a_metric_that_nobody_printed_is_not_measured_and_none_is_not_applicable() -> None:
    silent = program_figures(sample(metrics=(MetricSeries("step", "s", ()),)))
    assert silent["metric_max"] is silent["metric_median"] is silent["metric_p99"] is None
    assert "metric_max" not in program_figures(sample(metrics=()))


def test_goodput_over_time_is_what_was_delivered_between_samples() -> None:
    rates = goodput_gbs(sample().report)
    assert [at_ns for at_ns, _ in rates] == [0, 2 * S, 9 * S]
    assert [rate for _, rate in rates] == pytest.approx([0, 0.008, 24 / 7000])


def result(tmp_path: Path, *runs: ProgramsRun) -> DrillResult:
    planned = planned_drill(written(tmp_path))
    return conclude(
        drill=planned.spec.model_dump(mode="json", exclude_none=True),
        lab=planned.fabric.spec.model_dump(mode="json", exclude_none=True),
        environment=ENVIRONMENT,
        dilation=5000,
        notes=(),
        repeats=[[PhaseRun("ring", programs=run)] for run in runs],
        expectations={"ring": planned.phases[0].spec.expect.expectations()},
        probes={},
        programs={"ring"},
    )


def test_a_result_is_read_back_judged_and_shown(tmp_path: Path) -> None:
    whole = result(tmp_path, sample(), sample(problems=("not valid because of x",)))
    assert from_json(to_json(whole)) == whole
    assert whole.outcome == "failed"
    answer = drill_answer(whole, repeat_tables(whole))
    assert answer.sentence.startswith(
        "Carrier-down of srv2-1:rtsw2: 1 of 2 connections stalled, for up to 2 s; "
        "step at most 2.5 s, in the median 0.2 s"
    )
    cards = [(card.title, card.value) for card in answer.figures]
    assert cards[:2] == [("step, maximum", "2.50 s"), ("step, median", "0.15 s")]
    page = html(drill_document(whole))
    for text in (
        "srv2-1:rtsw2",
        "python3 ring.py",
        "TCP connections",
        "goodput",
        "of the modelled",
    ):
        assert text in page


def test_a_program_that_failed_is_in_the_answer(tmp_path: Path) -> None:
    ranks = (RankEnd(0, "srv1-1", None, S), RankEnd(1, "srv2-1", 3, S))
    run = sample(report=replace(sample().report, ranks=ranks))
    whole = result(tmp_path, run)
    assert "1 program of 2 failed" in drill_answer(whole, repeat_tables(whole)).sentence
    assert "exit code 3" in html(drill_document(whole))
