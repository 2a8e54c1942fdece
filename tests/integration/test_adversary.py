"""The short form of the adversarial suite: a drill's figures match the captured packets, and a
fault without effect gives no result. `make adversary` tests every drill."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.adversary.run import Outcome, run_against
from tests.helpers.measured import measured

pytestmark = [pytest.mark.few_at_once, pytest.mark.long]

DRILL = """name: t-adversary
lab: {lab}
traffic: {{flows: 4, rate_pps: 500, warmup: 200ms, duration: 1800ms, seed: 3}}
measure: {{sampling_interval: 50ms, sustained: 300ms}}
faults:
  - {{kind: carrier-down, at: 300ms, link: "rtsw1:ctsw1", lasts: 600ms}}
"""
LAB = "name: t-adversary\nfabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 1}\n"


@pytest.fixture
def drill(tmp_path: Path) -> str:
    lab, file = tmp_path / "lab.yaml", tmp_path / "drill.yaml"
    lab.write_text(LAB)
    file.write_text(DRILL.format(lab=lab))
    return str(file)


def _problems(outcome: Outcome) -> Sequence[str]:
    lost = ("not valid because the capture lost packets itself",) if outcome.unseen else ()
    return () if outcome.valid > outcome.unseen else (*outcome.problems, *lost)


def test_a_valid_repeat_is_what_was_captured(drill: str) -> None:
    outcome = measured(lambda: run_against(drill, "none", seed=1), _problems)
    assert len(outcome.comparisons) > 12
    assert list(map(str, outcome.wrong)) == []


def test_a_fault_that_does_nothing_gives_no_valid_repeat(drill: str) -> None:
    outcome = run_against(drill, "nothing", seed=1)
    assert not outcome.valid
    assert "had no visible effect" in "".join(outcome.problems)
