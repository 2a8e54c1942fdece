"""The faults of others, as who sends beside them learns of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab import record
from rocelab.faults import changewatch
from rocelab.faults.asked import asked_fault
from rocelab.faults.base import SingleFaultSpec
from rocelab.faults.changewatch import ChangeWatch
from rocelab.faults.record import RecordedFault, changes_file, note_change, write_fault
from rocelab.lab.lab import Lab, RunningLab
from rocelab.linux.bracket import Bracket
from rocelab.record import LabFiles

SPEC = asked_fault("carrier-down", ["link=rtsw1:ctsw1"])
OTHER = asked_fault("power-loss", ["switch=ctsw2"])
NOW_NS = 1_000


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunningLab:
    """A lab that is up according to its files."""
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path)
    monkeypatch.setattr(changewatch, "realtime_ns", lambda: NOW_NS)
    made = Lab.planned("tiny").unstarted()
    LabFiles(made.name).root.mkdir()
    return made


def note(number: int, at_ns: int, *, begins: bool, spec: object = SPEC) -> None:
    assert isinstance(spec, SingleFaultSpec)
    fault = RecordedFault(number, spec, None, "", ())
    note_change(LabFiles("tiny"), fault, Bracket(at_ns, at_ns + 5), begins=begins)


def spans(watch: ChangeWatch) -> list[tuple[str, int | None, int | None]]:
    disturbances = watch.disturbances(zero_ns=100)
    return [(fault.subject, fault.begins_ns, fault.ends_ns) for fault in disturbances]


def test_each_fault_has_the_instants_at_which_it_began_and_ended(lab: RunningLab) -> None:
    with ChangeWatch(lab) as watch:
        note(1, 200, begins=True)
        note(2, 300, begins=True, spec=OTHER)
        note(1, 500, begins=False)
        assert spans(watch) == [("rtsw1:ctsw1", 100, 400), ("ctsw2", 200, None)]
        assert [(c.t_ns, c.took_ns, c.begins) for c in watch.changes()] == [
            (200, 5, True),
            (300, 5, True),
            (500, 5, False),
        ]


def test_a_number_that_is_used_again_is_another_fault(lab: RunningLab) -> None:
    with ChangeWatch(lab) as watch:
        for at_ns in (200, 400):
            note(1, at_ns, begins=True)
            note(1, at_ns + 100, begins=False)
        assert spans(watch) == [("rtsw1:ctsw1", 100, 200), ("rtsw1:ctsw1", 300, 400)]


def test_a_fault_from_before_has_no_beginning_and_may_end(lab: RunningLab) -> None:
    assert isinstance(SPEC, SingleFaultSpec)
    write_fault(LabFiles("tiny"), SPEC, SPEC.resolve(lab.fabric), None)
    with ChangeWatch(lab) as watch:
        assert spans(watch) == [("rtsw1:ctsw1", None, None)]
        note(1, 300, begins=False)
        assert spans(watch) == [("rtsw1:ctsw1", None, 200)]


def test_a_fault_that_was_in_the_record_before_it_began_is_one(lab: RunningLab) -> None:
    assert isinstance(SPEC, SingleFaultSpec)
    write_fault(LabFiles("tiny"), SPEC, SPEC.resolve(lab.fabric), None)
    with ChangeWatch(lab) as watch:
        note(1, 300, begins=True)
        assert spans(watch) == [("rtsw1:ctsw1", 200, None)]


def test_a_fault_of_the_kernel_s_timer_counts_once_its_time_has_come(lab: RunningLab) -> None:
    with ChangeWatch(lab) as watch:
        note(1, NOW_NS + 1, begins=True)
        note(1, NOW_NS + 2, begins=False)
        assert spans(watch) == []


def test_a_fault_that_is_restored_before_its_time_has_never_been(
    lab: RunningLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChangeWatch(lab) as watch:
        note(1, 500, begins=True)
        note(1, 900, begins=False)
        note(1, 300, begins=False)
        assert watch.changes() == ()


def test_the_earlier_of_two_ends_counts(lab: RunningLab) -> None:
    with ChangeWatch(lab) as watch:
        note(1, 200, begins=True)
        note(1, 900, begins=False)
        note(1, 400, begins=False)
        assert spans(watch) == [("rtsw1:ctsw1", 100, 300)]


def test_nothing_is_written_while_nobody_watches(lab: RunningLab) -> None:
    note(1, 200, begins=True)
    assert not changes_file(LabFiles("tiny")).exists()
    with ChangeWatch(lab):
        assert changes_file(LabFiles("tiny")).stat().st_mode & 0o777 == 0o600
    assert not changes_file(LabFiles("tiny")).exists()


def test_what_a_killed_watch_left_is_not_of_the_next(lab: RunningLab) -> None:
    ChangeWatch(lab).__enter__()
    note(1, 200, begins=True)
    with ChangeWatch(lab) as watch:
        assert watch.changes() == ()
