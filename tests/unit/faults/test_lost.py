"""Faults in a lab's record whose package is not installed any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocelab import record
from rocelab.base.errors import InputError
from rocelab.faults.changewatch import ChangeWatch
from rocelab.faults.fault_spec import SINGLE_FAULT
from rocelab.faults.guardian import main
from rocelab.faults.injector import restore_faults
from rocelab.faults.kinds.carrier_down import CarrierDown
from rocelab.faults.lost import LostSpec
from rocelab.faults.record import Driver, RecordedFault, faults_folder, read_faults, write_fault
from rocelab.faults.running import faults_of
from rocelab.lab.lab import Lab
from rocelab.lab.status import KnownFault, _known_fault
from rocelab.record import LabFiles, recorded_faults

LAB = Lab.planned("tiny").unstarted()
GONE = "it is of lab-faults 1.2, which is not installed any more"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabFiles:
    """The files of a lab with a fault of a package that is gone."""
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path)
    files = LabFiles("tiny")
    files.root.mkdir()
    return files


def recorded(files: LabFiles, driver: Driver | None, **spec: object) -> RecordedFault:
    """A fault in the record whose keys are as another version, or another package, wrote them."""
    written = SINGLE_FAULT.validate_python({"kind": "carrier-down", "link": "rtsw1:ctsw1"})
    number = write_fault(files, written, written.resolve(LAB.fabric), driver).number
    path = faults_folder(files) / f"{number}.json"
    document = json.loads(path.read_text())
    document["spec"].update(spec)
    path.write_text(json.dumps(document | {"package": "lab-faults 1.2"}))
    return next(fault for fault in read_faults(files) if fault.number == number)


def test_it_is_listed_with_its_subject_and_the_reason(files: LabFiles) -> None:
    recorded(files, None, kind="duct-cut")
    (listed,) = faults_of(LAB)
    assert (listed.kind, listed.subject, listed.lost) == ("duct-cut", "rtsw1:ctsw1", GONE)
    ((number, document),) = recorded_faults(files).items()
    assert _known_fault(number, document) == KnownFault(1, "duct-cut", "lab-faults 1.2")


def test_one_whose_keys_have_changed_says_so(files: LabFiles) -> None:
    fault = recorded(files, None, depth=3)
    assert isinstance(fault.spec, LostSpec)
    assert fault.spec.why == "it was written by lab-faults 1.2, and its keys have changed since"


def test_one_that_its_kind_refuses_now_is_listed_and_keeps_nothing_else_from_it(
    files: LabFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, kept = recorded(files, None, link="rtsw9:ctsw1"), recorded(files, None)
    first, second = faults_of(LAB)
    assert (first.subject, second.lost) == ("rtsw1:ctsw1", None)
    assert first.lost == "this rocelab refuses it: lab tiny has no node rtsw9"
    assert lost.on(LAB.fabric).nodes == kept.on(LAB.fabric).nodes
    with ChangeWatch(LAB) as watch:
        assert [fault.subject for fault in watch.disturbances(0)] == ["rtsw1:ctsw1"] * 2
    monkeypatch.setattr(CarrierDown, "restore", lambda fault, lab: None)
    monkeypatch.setattr(CarrierDown, "remains", lambda fault, lab: ())
    with pytest.raises(InputError, match="rtsw1:ctsw1 cannot be undone: this rocelab refuses it"):
        restore_faults(LAB, [lost, kept])
    assert [fault.number for fault in read_faults(files)] == [lost.number]


def test_it_cannot_be_undone_and_keeps_nothing_else_from_it(
    files: LabFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, kept = recorded(files, None, kind="duct-cut"), recorded(files, None)
    monkeypatch.setattr(CarrierDown, "restore", lambda fault, lab: None)
    monkeypatch.setattr(CarrierDown, "remains", lambda fault, lab: ())
    with pytest.raises(InputError, match=f"duct-cut of rtsw1:ctsw1 cannot be undone: {GONE}") as no:
        restore_faults(LAB, [kept, lost])
    assert no.value.hint is not None
    assert "`rocelab down tiny`" in no.value.hint
    assert [fault.number for fault in read_faults(files)] == [lost.number]


def test_a_guardian_does_not_wait_for_it(files: LabFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.buffer.read", lambda _: b"", raising=False)
    driver = Driver.this_process()
    recorded(files, driver, kind="duct-cut")
    main("tiny", faults_folder(files), (driver.pid, driver.started))
    assert len(read_faults(files)) == 1
