"""A drill of jobs through the command line: its files, its exit codes, and nothing left behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocelab.results.drill import DrillResult, from_json
from tests.helpers.command import Outcome, rocelab
from tests.helpers.measured import measured, problems_of_drill
from tests.integration.test_ownership import belongings

LAB = """name: it-jobs
fabric: {kind: clos, racks: 1, spines: 1, servers_per_rack: 3}
links: {rate: 25G, server_rate: 25G}
dilation: 100
queues: {ecn: {kmin: 100KB, kmax: 400KB, pmax: 0.2}}
"""
DRILL = """name: short
lab: lab.yaml
phases:
  - name: idle
    jobs:
      - pattern: pairs
        ranks: 2
        size: 64KB
        iterations: 2
        transport: {window: 1, ack_every: 1}
    expect:
      completed: true
      accounted: true
      switch_marks: 0
      dropped_packets: "DROPPED"
      class_5_packets: 0
      class_6_packets: ">= 32"
      diagnosis: none
  - name: shared
    jobs:
      - pattern: incast
        ranks: 3
        duration: 30ms
        transport: {dcqcn: hpcc-dcqcn, window: 4096, ack_timeout: 100ms}
    model: {round_trip: idle, seeds: [1]}
    expect:
      completed: true
      accounted: true
      switch_marks: ">= 1"
      marks_outside_data: 0
      cnps: ">= 1"
      rate_ratio: "<= 2"
"""


IDLE_PHASE_ALONE = DRILL.partition("  - name: shared")[0]


def run(folder: Path, dropped: str, drill: str = IDLE_PHASE_ALONE) -> Outcome:
    (folder / "lab.yaml").write_text(LAB)
    (folder / "short.yaml").write_text(drill.replace("DROPPED", dropped))
    return rocelab("drill", "run", folder / "short.yaml", "--retries=0", "--out", folder / "out")


def measured_run(
    folder: Path, dropped: str, drill: str = IDLE_PHASE_ALONE
) -> tuple[Outcome, DrillResult]:
    """A drill with valid runs of every phase, and its result."""

    def once() -> tuple[Outcome, DrillResult]:
        shutil.rmtree(folder / "out", ignore_errors=True)
        outcome = run(folder, dropped, drill)
        return outcome, from_json((folder / "out" / "result.json").read_text())

    return measured(once, lambda ended: problems_of_drill(ended[1]))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DrillResult]:
    """A drill that passes: its folder of results, and the result in it."""
    folder = tmp_path_factory.mktemp("jobs")
    outcome, result = measured_run(folder, "<= 0", DRILL)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "short: passed" in outcome.stdout
    return folder / "out", result


def test_the_results_are_a_document_a_page_and_a_plot(ran: tuple[Path, DrillResult]) -> None:
    names = {path.name for path in ran[0].iterdir()}
    assert names == {"result.json", "report.html", "shared.svg"}
    assert "DCQCN in the lab and by its equations" in (ran[0] / "report.html").read_text()


def test_the_switch_marked_the_receiver_notified_and_the_senders_slowed_down(
    ran: tuple[Path, DrillResult],
) -> None:
    figures = ran[1].repeats[0][1].figures()[0]
    assert figures["switch_marks"] == figures["ce_packets"] == figures["cnps"]
    assert figures["class_5_packets"] == figures["cnps"]
    assert figures["dropped_packets"] == 0


def test_the_queue_that_was_sampled_is_the_one_that_the_senders_filled(
    ran: tuple[Path, DrillResult],
) -> None:
    jobs = ran[1].repeats[0][1].jobs
    assert jobs is not None
    fair = jobs.fair_shares
    assert fair is not None
    assert max(fair.lab.queue_bytes) > 100_000
    assert fair.lab_settled.use == pytest.approx(fair.model_settled.use, abs=0.15)


def test_the_lab_is_gone_after_the_drill(ran: tuple[Path, DrillResult]) -> None:
    assert belongings("it-jobs") == []


@pytest.mark.long
def test_an_expectation_that_is_not_met_exits_with_1_and_is_named(tmp_path: Path) -> None:
    outcome, result = measured_run(tmp_path, ">= 1")
    assert outcome.returncode == 1, outcome.stderr
    assert "not met" in outcome.stdout
    assert not result.passed
    assert belongings("it-jobs") == []


@pytest.mark.side_by_side
def test_a_file_that_is_wrong_exits_with_2_its_place_and_what_is_expected(tmp_path: Path) -> None:
    outcome = run(tmp_path, "few")
    assert outcome.returncode == 2
    assert "short.yaml:15: phases[0].expect.dropped_packets: expected 0" in outcome.stderr
    assert belongings("it-jobs") == []
