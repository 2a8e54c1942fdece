"""Faults by hand: none stays in the lab's record that had no visible effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rocelab import Lab, RunningLab, record
from rocelab.base.errors import ExpectationError
from rocelab.faults import injector
from rocelab.faults.asked import asked_fault
from rocelab.faults.kinds.carrier_down import CarrierDownSpec
from rocelab.faults.record import read_faults
from rocelab.faults.running import inject_and_leave
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles


@dataclass(eq=False)
class Cable:
    """A fault on paper. The kernel shows it once it was asked `shown_after` times."""

    subject: str
    shown_after: int = 0
    has_carrier: bool = True
    leaves_trace: bool = True
    log: str = ""
    kind: str = "carrier-down"

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self.subject.split(":"))

    def prepare(self, lab: RunningLab) -> None:
        self.log += "prepare "

    def intact(self, lab: RunningLab) -> frozenset[str]:
        self.shown_after -= "inject" in self.log
        intact = self.has_carrier and ("inject" not in self.log or self.shown_after >= 0)
        return frozenset({f"{self.subject} has carrier"} if intact else ())

    def inject(self, lab: RunningLab) -> Bracket:
        self.log += "inject "
        return Bracket.now()

    def restore(self, lab: RunningLab) -> Bracket:
        self.log += "restore "
        return Bracket.now()

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        is_pulled = self.leaves_trace and "inject" in self.log and "restore" not in self.log
        return (f"{self.subject} has no carrier",) if is_pulled else ()


Cabling = Callable[..., Cable]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunningLab:
    """One that is up as far as its files go."""
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path)
    monkeypatch.setattr(injector, "PROOF_STEP_S", 0.0)
    made = Lab.planned("zone-small").unstarted()
    LabFiles(made.name).root.mkdir()
    return made


@pytest.fixture
def cable(monkeypatch: pytest.MonkeyPatch) -> Cabling:
    """Makes what a fault on a link turns out to be."""
    cables: dict[str, Cable] = {}

    def resolved(spec: CarrierDownSpec, _: Fabric) -> Cable:
        assert spec.link is not None
        return cables[f"{spec.link.node}:{spec.link.interface}"]

    def make(subject: str, **how: Any) -> Cable:
        return cables.setdefault(subject, Cable(subject, **how))

    monkeypatch.setattr(CarrierDownSpec, "resolve", resolved)
    return make


def leave(lab: RunningLab, link: str) -> None:
    spec = asked_fault("carrier-down", [f"link={link}"])
    assert isinstance(spec, CarrierDownSpec)
    inject_and_leave(lab, spec)


def test_a_fault_is_left_once_its_effect_is_seen(lab: RunningLab, cable: Cabling) -> None:
    pulled = cable("rtsw1:ctsw1", shown_after=3)
    leave(lab, "rtsw1:ctsw1")
    assert pulled.log == "prepare inject "
    assert pulled.shown_after == -1
    assert len(read_faults(LabFiles(lab.name))) == 1


def test_a_fault_without_effect_is_undone_and_said(
    lab: RunningLab, cable: Cabling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injector, "PROOF_TIMEOUT_S", 0.0)
    idle = cable("rtsw1:ctsw1", shown_after=10**9)
    with pytest.raises(ExpectationError, match="had no visible effect: rtsw1:ctsw1 has"):
        leave(lab, "rtsw1:ctsw1")
    assert idle.log == "prepare inject restore "
    assert read_faults(LabFiles(lab.name)) == ()


def test_a_fault_that_only_says_that_it_took_effect_is_undone_and_said(
    lab: RunningLab, cable: Cabling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injector, "PROOF_TIMEOUT_S", 0.0)
    cable("rtsw1:ctsw1", leaves_trace=False)
    with pytest.raises(ExpectationError, match="no visible effect: nothing of it is left to undo"):
        leave(lab, "rtsw1:ctsw1")
    assert read_faults(LabFiles(lab.name)) == ()


def test_a_fault_that_has_nothing_to_change_is_refused_at_once(
    lab: RunningLab, cable: Cabling
) -> None:
    cable("rtsw1:ctsw1", has_carrier=False)
    with pytest.raises(ExpectationError, match="there was nothing that carrier-down of rtsw1:ctsw"):
        leave(lab, "rtsw1:ctsw1")
    assert read_faults(LabFiles(lab.name)) == ()


def test_a_lab_s_fault_is_seen_before_its_block_begins(
    lab: RunningLab, cable: Cabling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injector, "PROOF_TIMEOUT_S", 0.0)
    monkeypatch.setattr(injector, "_start_guardian", lambda _: None)
    cable("rtsw1:ctsw1")
    cable("rtsw1:ctsw2", shown_after=10**9)
    with lab.fault("carrier-down", link="rtsw1:ctsw1") as pulled:
        assert not pulled.intact(lab)
    idle = lab.fault("carrier-down", link="rtsw1:ctsw2")
    with pytest.raises(ExpectationError, match="had no visible effect"):
        idle.__enter__()
    assert read_faults(LabFiles(lab.name)) == ()


def test_what_another_fault_took_away_is_not_looked_at(lab: RunningLab, cable: Cabling) -> None:
    cable("rtsw1:ctsw1")
    cable("rtsw1:ctsw2", has_carrier=False)
    leave(lab, "rtsw1:ctsw1")
    leave(lab, "rtsw1:ctsw2")
    assert len(read_faults(LabFiles(lab.name))) == 2
