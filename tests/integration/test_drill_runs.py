"""A drill on a real lab reports what happened, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.base.errors import InputError
from rocelab.drills.run import run_drill
from rocelab.results.drill import DrillResult, from_json
from tests.helpers.measured import measured, probe_runs, problems_of_drill
from tests.integration.conftest import MakeLab
from tests.integration.test_ownership import belongings

LAB = """name: {name}
fabric: {{kind: clos, racks: 3, spines: 2, links_per_pair: 2, servers_per_rack: 2}}
"""
DRILL = """name: short
lab: {lab}
traffic: {{flows: 16, rate_pps: 500, payload: 256B, warmup: 500ms, duration: 3s, seed: 3}}
faults:
  - {{kind: carrier-down, at: 500ms, links: [rtsw1:ctsw1, rtsw1:ctsw1-2], lasts: 1s}}
compare_hashing: [{hashing}]
expect:
  restored: true
  affected_flows: ">= 1"
  lost_packets: "{lost}"
"""


def write_drill(folder: Path, name: str, lost: str, hashing: str = "per-node, shared") -> Path:
    lab = folder / f"{name}.yaml"
    lab.write_text(LAB.format(name=name))
    drill = folder / "short.yaml"
    drill.write_text(DRILL.format(lab=lab, lost=lost, hashing=hashing))
    return drill


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[DrillResult, Path]:
    """One short drill, its result and its folder."""
    folder = tmp_path_factory.mktemp("drill")
    out = folder / "out"
    drill = write_drill(folder, "it-drill", "<= 5000")
    result = measured(lambda: fault_drill(drill, out=out), problems_of_drill)
    # What is valid also meets what is expected.
    assert result.passed, result.phases[0].verdicts
    return result, out


def fault_drill(drill: Path, out: Path | None = None) -> DrillResult:
    """One repeat, made once."""
    return run_drill(drill, retries=0, out=out, overwrite=True)


@pytest.mark.few_at_once
def test_only_flows_that_crossed_the_dead_links_lost_packets(
    ran: tuple[DrillResult, Path],
) -> None:
    repeat = probe_runs(ran[0])[0]
    lost = {record.flow.name: record.measurement.lost for record in repeat.flows}
    assert sum(lost.values()) > 0
    assert 0 in lost.values()
    (fault,) = repeat.events[0].event.faults
    assert fault.links == ("rtsw1:ctsw1", "rtsw1:ctsw1-2")
    for record in repeat.flows:
        assert len(record.path) == 4
        if record.measurement.lost:
            assert set(record.path) & set(fault.links)


@pytest.mark.few_at_once
def test_the_fib_timeline_has_both_ends_of_the_link_and_the_racks_told_by_bgp(
    ran: tuple[DrillResult, Path],
) -> None:
    changed = {change.node for change in probe_runs(ran[0])[0].fib}
    assert {"rtsw1", "ctsw1", "rtsw2", "rtsw3"} <= changed


@pytest.mark.few_at_once
def test_shared_seeds_leave_half_of_the_parallel_links_unused(
    ran: tuple[DrillResult, Path],
) -> None:
    runs = {run.hashing: run.polarizations[0] for run in probe_runs(ran[0])[0].hashing}
    assert runs["shared"].used_fraction <= 0.5
    assert runs["shared"].information == pytest.approx(1.0)
    assert runs["per-node"].used_links > runs["shared"].used_links
    assert [run.misplaced_packets for run in probe_runs(ran[0])[0].hashing] == [0, 0]


@pytest.mark.few_at_once
def test_the_result_is_written_whole_and_nothing_is_left(ran: tuple[DrillResult, Path]) -> None:
    result, out = ran
    assert from_json((out / "result.json").read_text()) == result
    assert "<html" in (out / "report.html").read_text()
    assert belongings("it-drill") == []


@pytest.mark.long
@pytest.mark.few_at_once
def test_an_expectation_too_tight_fails_the_drill(tmp_path: Path) -> None:
    drill = write_drill(tmp_path, "it-tight", "<= 0", hashing="")
    result = measured(lambda: fault_drill(drill), problems_of_drill)
    assert not result.passed
    assert [verdict.kpi for verdict in result.phases[0].verdicts if not verdict.passed] == [
        "lost_packets"
    ]


@pytest.mark.side_by_side
def test_a_drill_does_not_touch_a_lab_that_is_up(make_lab: MakeLab, tmp_path: Path) -> None:
    lab = make_lab("it-busy", LAB.partition("\n")[2].format())
    lab.start()
    with pytest.raises(InputError, match="it-busy"):
        run_drill(write_drill(tmp_path, "it-busy", "<= 5000"))
    assert lab.is_running


@pytest.mark.few_at_once
def test_a_drill_runs_where_the_kernel_takes_no_hash_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocelab.linux.settings.seeds_supported", lambda: False)
    drill = write_drill(tmp_path, "it-noseed", "<= 5000")
    result = measured(lambda: fault_drill(drill), problems_of_drill)
    assert result.passed, result.phases[0].verdicts
    repeat = probe_runs(result)[0]
    assert [(run.hashing, run.misplaced_packets) for run in repeat.hashing] == [("seed 0", None)]
