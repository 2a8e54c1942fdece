"""Who may use a lab at once: a drill, a job, or faults by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rocelab import record
from rocelab.base.errors import InputError
from rocelab.drills.labuse import _in_drill
from rocelab.faults.asked import asked_fault
from rocelab.faults.kinds.carrier_down import CarrierDownSpec
from rocelab.faults.running import _by_hand, inject_and_leave, inject_and_wait
from rocelab.jobs.job import JobSpec
from rocelab.lab.inuse import Use, User, in_use, user_of
from rocelab.lab.lab import Lab, RunningLab
from rocelab.record import LabFiles
from rocelab.runs import jobs

ASKED = asked_fault("carrier-down", ["link=rtsw1:ctsw1"])


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunningLab:
    """A lab that is up according to its files."""
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path)
    monkeypatch.setattr(jobs, "_check_ready", lambda *_: None)
    made = Lab.planned("tiny").unstarted()
    LabFiles(made.name).root.mkdir()
    return made


def run_a_job(lab: RunningLab) -> None:
    spec = {"pattern": "allreduce", "size": "1MB", "ranks": 2}
    jobs.run_job(lab, JobSpec.model_validate(spec))


def leave_a_fault(lab: RunningLab) -> None:
    assert isinstance(ASKED, CarrierDownSpec)
    inject_and_leave(lab, ASKED)


def wait_for_a_fault(lab: RunningLab) -> None:
    inject_and_wait(lab, ASKED)


def begin_a_drill(lab: RunningLab) -> None:
    with _in_drill(lab):
        pass


@pytest.mark.parametrize("what", ["a drill", "a job (allreduce)"])
@pytest.mark.parametrize(
    "begin", [run_a_job, leave_a_fault, wait_for_a_fault, begin_a_drill], ids=lambda f: f.__name__
)
def test_what_measures_a_lab_has_it_alone(
    lab: RunningLab, what: str, begin: Callable[[RunningLab], None]
) -> None:
    expected = f"lab tiny is in use by {what}, process {os.getpid()}"
    with in_use(LabFiles("tiny"), what), pytest.raises(InputError) as caught:
        begin(lab)
    assert caught.value.message == expected


@pytest.mark.parametrize("begin", [run_a_job, begin_a_drill], ids=lambda f: f.__name__)
def test_nothing_is_measured_while_a_fault_by_hand_is_carried_out(
    lab: RunningLab, begin: Callable[[RunningLab], None]
) -> None:
    with _by_hand(lab), pytest.raises(InputError, match="in use by a fault by hand"):
        begin(lab)


def test_who_has_left_is_not_named_as_the_holder(lab: RunningLab) -> None:
    files = LabFiles("tiny")
    with in_use(files, "a program", Use.PROGRAM):
        (files.root / "use.lock").write_text("a program, process 4194305")  # above any process id
        with pytest.raises(InputError, match="in use by another command"), in_use(files, "a drill"):
            pass


def test_faults_by_hand_may_come_together(lab: RunningLab) -> None:
    with _by_hand(lab), _by_hand(lab):
        pass


def test_faults_by_hand_come_and_go_beside_traffic_that_allows_them(lab: RunningLab) -> None:
    files = LabFiles("tiny")
    with _by_hand(lab), in_use(files, "a job (allreduce)", Use.UNDER_FAULTS), _by_hand(lab):
        assert user_of(files) == User("a job (allreduce)", os.getpid())
    assert user_of(files) is None


@pytest.mark.parametrize("use", [Use.ALONE, Use.UNDER_FAULTS, Use.UNSENT])
def test_traffic_that_allows_faults_excludes_all_else_and_is_named(
    lab: RunningLab, use: Use
) -> None:
    files = LabFiles("tiny")
    with in_use(files, "probes", Use.UNDER_FAULTS), _by_hand(lab):
        refused = pytest.raises(InputError, match=f"in use by probes, process {os.getpid()}")
        with refused, in_use(files, "another", use):
            pass


@pytest.mark.parametrize("use", list(Use))
def test_who_is_refused_is_never_named_as_the_holder(lab: RunningLab, use: Use) -> None:
    files, refused = LabFiles("tiny"), pytest.raises(InputError, match="in use by a drill")
    with in_use(files, "a drill"), refused, in_use(files, "another", use):
        pass


def test_a_fault_beside_what_measures_is_told_what_to_do(lab: RunningLab) -> None:
    with in_use(LabFiles("tiny"), "a drill"), pytest.raises(InputError) as caught:
        leave_a_fault(lab)
    assert "rocelab traffic --allow-faults" in (caught.value.hint or "")


def test_a_lab_that_was_used_is_free_again(lab: RunningLab) -> None:
    with in_use(LabFiles("tiny"), "a job that is named at length"):
        pass
    with in_use(LabFiles("tiny"), "a drill"):
        text = (LabFiles("tiny").root / "use.lock").read_text()
        assert text == f"a drill, process {os.getpid()}"


def test_a_lab_that_is_not_up_is_used_by_nobody(lab: RunningLab) -> None:
    with pytest.raises(InputError, match="is not up"), in_use(LabFiles("other"), "a drill"):
        pass


def test_who_has_a_lab_for_itself_is_known_while_it_does(lab: RunningLab) -> None:
    files = LabFiles("tiny")
    assert user_of(files) is None
    with in_use(files, "a job (allreduce)"):
        assert user_of(files) == User("a job (allreduce)", os.getpid())
    assert user_of(files) is None
    with _by_hand(lab):
        assert user_of(files) is None


def test_a_lock_whose_holder_has_not_written_its_name_has_no_user_yet(lab: RunningLab) -> None:
    files = LabFiles("tiny")
    with in_use(files, "a drill"):
        (files.root / "use.lock").write_text("a drill, process 1")
        assert user_of(files) is None
