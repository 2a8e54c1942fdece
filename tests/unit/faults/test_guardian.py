"""The guardian of faults: when it may end, and that it does not give up."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocelab import record
from rocelab.base.errors import ExpectationError, InputError, MachineError, RocelabError
from rocelab.faults import guardian
from rocelab.faults import injector as injecting
from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.faults.injector import Injector, RunningFault
from rocelab.faults.record import Driver, RecordedFault, faults_folder, read_faults, write_fault
from rocelab.lab.lab import Lab, RunningLab
from rocelab.record import LabFiles
from tests.helpers.noted_faults import Noted

SPEC = SINGLE_FAULT.validate_python({"kind": "carrier-down", "link": "rtsw1:ctsw1"})
FAULT = SPEC.resolve(Lab.planned("tiny").fabric)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of faults of a lab that is up according to its files."""
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path)
    monkeypatch.setattr(guardian, "RETRY_S", 0.01)
    monkeypatch.setattr(RunningLab, "open", lambda name: Lab.planned(name).unstarted())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
    LabFiles("tiny").root.mkdir()
    return faults_folder(LabFiles("tiny"))


@pytest.fixture
def gone() -> Driver:
    """A driver that has ended."""
    with subprocess.Popen(["true"]) as process:
        pass
    return Driver(process.pid, 1)


def outcomes(*failing: Exception) -> Callable[..., None]:
    """A function that restores the lab's faults after it has failed with each of `failing`."""
    left = list(failing)

    def restore(lab: RunningLab, *, orphans_only: bool) -> None:
        assert orphans_only
        if left:
            raise left.pop(0)
        for path in faults_folder(LabFiles(lab.name)).glob("*.json"):
            path.unlink()

    return restore


def test_a_guardian_tries_until_nothing_remains(
    folder: Path, gone: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = (MachineError("bgpd does not answer"), ExpectationError("it is not undone"))
    monkeypatch.setattr(injecting, "restore_recorded", outcomes(*failing))
    write_fault(LabFiles("tiny"), SPEC, FAULT, gone)
    guardian.main("tiny", folder, (gone.pid, gone.started))
    assert read_faults(LabFiles("tiny")) == ()


def test_a_guardian_waits_for_a_driver_that_lives_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver could not restore its faults, and its end does not show on its standard output."""
    monkeypatch.setattr(injecting, "restore_recorded", outcomes())
    driver = Driver.this_process()
    write_fault(LabFiles("tiny"), SPEC, FAULT, driver)
    alive: Iterator[bool] = iter([True, True, False])
    monkeypatch.setattr(Driver, "is_alive", property(lambda _: next(alive)))
    guardian.main("tiny", folder, (driver.pid, driver.started))
    assert read_faults(LabFiles("tiny")) == ()
    assert list(alive) == []


def test_a_guardian_goes_when_somebody_else_has_mended_the_lab(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver.this_process()
    write_fault(LabFiles("tiny"), SPEC, FAULT, driver)
    monkeypatch.setattr(
        guardian.time, "sleep", lambda _: [path.unlink() for path in folder.glob("*.json")]
    )
    guardian.main("tiny", folder, (driver.pid, driver.started))


class Stuck(Noted):
    """A fault that cannot be restored."""

    def restore(self, lab: RunningLab) -> None:  # type: ignore[override]
        raise MachineError("bgpd of rtsw1 does not answer")


class Broken(Injector):
    """An injector with a fault of that class in a lab, under a guardian."""

    def __init__(self, kind: type[Noted]) -> None:
        super().__init__(Lab.planned("tiny").unstarted())
        held = RunningFault(
            kind("rtsw1:ctsw1", []), RecordedFault(1, SPEC, None, "rtsw1:ctsw1", ())
        )
        self._held[1] = held
        self.stdin = io.BytesIO()
        self.waited = 0
        self._guardian = self  # type: ignore[assignment]

    def wait(self) -> None:
        """Like the method of a process."""
        self.waited += 1


def test_a_restore_that_fails_during_another_error_leaves_the_guardian_and_says_so() -> None:
    injector = Broken(Stuck)
    with pytest.raises(InputError, match="something else") as caught, injector:
        raise InputError("something else went wrong")
    assert caught.value.__notes__ == [
        "and lab tiny is still broken: bgpd of rtsw1 does not answer; a guardian process "
        "continues to clear it when this one has ended"
    ]
    assert injector.stdin.closed
    assert injector.waited == 0
    assert injector in injecting._LEFT


def test_a_restore_that_fails_by_itself_leaves_the_guardian() -> None:
    injector = Broken(Stuck)
    with pytest.raises(RocelabError, match="does not answer"), injector:
        pass
    assert injector.waited == 0


def test_a_guardian_is_dismissed_when_all_is_proven_undone() -> None:
    injector = Broken(Noted)
    with pytest.raises(InputError) as caught, injector:
        raise InputError("something went wrong")
    assert injector.stdin.closed
    assert injector.waited == 1
    assert not hasattr(caught.value, "__notes__")
