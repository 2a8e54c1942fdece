"""Timed faults, with a concurrent caller and alone: in order, late or not, ended or not."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import partial

import pytest

from rocelab.base.errors import MachineError
from rocelab.faults import injector as injecting
from rocelab.faults.injector import Injector
from rocelab.faults.timetable import LATE_LIMIT_NS, carried_out, carry_out, events_of, prepare_first
from rocelab.lab.lab import RunningLab
from rocelab.linux import bracket
from rocelab.linux.bracket import Bracket
from tests.helpers.limits import LIMIT_S
from tests.helpers.noted_faults import (
    MS,
    ZERO_NS,
    Clock,
    DoesNothing,
    Noted,
    OnPaper,
    Scheduled,
    down,
)
from tests.helpers.scheduling import FIRST, may_run_first

LONG_MS = 3_600_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock.moved_by_test(monkeypatch)


def changes(injector: Injector) -> list[tuple[str, bool, int]]:
    return [
        (change.fault.subject, change.begins, (change.t_ns - ZERO_NS) // MS)
        for change in injector.changes
    ]


# --- in time -------------------------------------------------------------------------------------


def test_faults_begin_and_end_at_their_times_each_prepared_before(clock: Clock) -> None:
    injector = OnPaper()
    faults = [down("ctsw1", 100, 900), down("ctsw2", 500)]
    assert carry_out(injector, faults, ZERO_NS, clock.wait) == ()
    assert injector.log == [
        "prepare rtsw1:ctsw1",
        "inject rtsw1:ctsw1",
        "prepare rtsw1:ctsw2",
        "inject rtsw1:ctsw2",
        "restore rtsw1:ctsw1",
    ]
    assert changes(injector) == [
        ("rtsw1:ctsw1", True, 100),
        ("rtsw1:ctsw2", True, 500),
        ("rtsw1:ctsw1", False, 900),
    ]


@dataclass(eq=False)
class Scheduling(Noted):
    """A fault that records how the thread is scheduled that works on it."""

    def prepare(self, lab: RunningLab) -> None:
        self.log.append(f"prepare {os.sched_getscheduler(0)}")

    def intact(self, lab: RunningLab) -> frozenset[str]:
        self.log.append(f"look {os.sched_getscheduler(0)}")
        return super().intact(lab)

    def inject(self, lab: RunningLab) -> Bracket:
        self.log.append(f"inject {os.sched_getscheduler(0)}")
        return super().inject(lab)


def test_a_fault_begins_before_other_work_of_the_machine_and_is_looked_at_after(
    clock: Clock,
) -> None:
    injector = OnPaper()
    injector.kind = Scheduling
    policy = os.sched_getscheduler(0)
    carry_out(injector, [down("ctsw1", 100, 900)], ZERO_NS, clock.wait)
    first = FIRST if may_run_first() else policy
    assert injector.log == [
        f"prepare {policy}",
        f"look {policy}",
        f"inject {first}",
        "inject rtsw1:ctsw1",
        f"look {policy}",
        "restore rtsw1:ctsw1",
    ]


class ScheduledScheduling(Scheduled):
    """A fault that the kernel begins, and that records how its thread is scheduled meanwhile."""

    def schedule(self, lab: RunningLab, start_ns: int, end_ns: int | None) -> Bracket:
        self.log.append(f"schedule {os.sched_getscheduler(0)}")
        return super().schedule(lab, start_ns, end_ns)


def test_the_kernel_is_told_of_a_fault_before_other_work_of_the_machine(clock: Clock) -> None:
    """Behind a lab's senders that took 6.35 s, and the instant was as uncertain."""
    injector = OnPaper()
    injector.kind = ScheduledScheduling
    policy = os.sched_getscheduler(0)
    carry_out(injector, [down("ctsw1", 100, 900)], ZERO_NS, clock.wait)
    assert f"schedule {FIRST if may_run_first() else policy}" in injector.log


def test_faults_that_begin_close_to_the_first_are_prepared_with_it(clock: Clock) -> None:
    injector = OnPaper()
    faults = [down("ctsw1", 100), down("ctsw2", 200), down("ctsw3", 201)]
    prepared = prepare_first(injector, faults)
    assert sorted(prepared) == [0, 1]
    assert carry_out(injector, faults, ZERO_NS, clock.wait, prepared) == ()
    assert [line for line in injector.log if line.startswith("prepare")] == [
        f"prepare rtsw1:ctsw{spine}" for spine in (1, 2, 3)
    ]
    assert injector.log[-2:] == ["inject rtsw1:ctsw2", "inject rtsw1:ctsw3"]


def test_what_the_work_on_one_fault_delays_is_not_late(clock: Clock) -> None:
    """Looking at the first, 240 ms in, takes 400 ms; the second begins when that is over."""

    class SlowToLook(Noted):
        def intact(self, lab: RunningLab) -> frozenset[str]:
            if self.broken:
                clock.advance(400)
            return super().intact(lab)

    injector = OnPaper()
    injector.kind = SlowToLook
    faults = [down("ctsw1", 0, 500), down("ctsw2", 250)]
    assert carry_out(injector, faults, ZERO_NS, clock.wait) == ()
    begun = [at_ms for _, begins, at_ms in changes(injector) if begins]
    assert begun[1] - 250 > LATE_LIMIT_NS // MS


def unseen(injector: Injector) -> list[str]:
    """The faults that were not seen to take effect."""
    return [
        text.removeprefix("not valid because ").split(" had no visible effect")[0]
        for text in injector.unseen
    ]


def test_a_fault_that_does_nothing_is_told_also_where_another_on_its_nodes_lasts(
    clock: Clock,
) -> None:
    injector = OnPaper()
    injector.kind = DoesNothing
    carry_out(injector, [down("ctsw1", 0), down("ctsw2", 300)], ZERO_NS, clock.wait)
    injector.restore_all()
    assert unseen(injector) == ["carrier-down of rtsw1:ctsw1", "carrier-down of rtsw1:ctsw2"]


def test_a_fault_is_not_looked_at_where_another_on_its_nodes_left_it_nothing_to_change(
    clock: Clock,
) -> None:
    class OfTheSwitch(DoesNothing):
        """What the first of them, or another fault, has changed on the switch."""

        def intact(self, lab: RunningLab) -> frozenset[str]:
            return frozenset() if is_dark else frozenset({"rtsw1 forwards"})

    is_dark = False
    injector = OnPaper()
    injector.kind = OfTheSwitch
    first, second = (prepare_first(injector, [down(spine, 0)])[0] for spine in ("ctsw1", "ctsw2"))
    injector.inject(first)
    is_dark = True
    injector.inject(second)
    injector.restore_all()
    assert unseen(injector) == []


def test_a_fault_that_the_kernel_schedules_is_not_begun_again(clock: Clock) -> None:
    injector = OnPaper()
    injector.kind = Scheduled
    assert carry_out(injector, [down("ctsw1", 100, 300)], ZERO_NS, clock.wait) == ()
    assert injector.log == ["prepare rtsw1:ctsw1", "schedule rtsw1:ctsw1", "restore rtsw1:ctsw1"]
    assert changes(injector) == [("rtsw1:ctsw1", True, 100), ("rtsw1:ctsw1", False, 300)]


def test_a_scheduled_fault_whose_end_comes_while_the_clock_is_set_back_is_not_valid(
    clock: Clock,
) -> None:
    def wait(instant_ns: int) -> None:
        clock.wait(instant_ns)
        if instant_ns == ZERO_NS + 300 * MS:
            clock.advance(-2000)

    injector = OnPaper()
    injector.kind = Scheduled
    (problem,) = carry_out(injector, [down("ctsw1", 100, 300)], ZERO_NS, wait)
    assert problem == (
        "not valid because carrier-down of rtsw1:ctsw1 ended before it had begun: this machine's "
        "clock was set back"
    )
    assert injector.log[-1] == "restore rtsw1:ctsw1"


@pytest.mark.parametrize(("late_ms", "problems"), [(100, 0), (101, 2)])
def test_a_change_later_than_the_limit_is_not_what_was_asked_for(
    clock: Clock, late_ms: int, problems: int
) -> None:
    assert LATE_LIMIT_NS == 100 * MS
    clock.extra_ns = late_ms * MS
    messages = carry_out(OnPaper(), [down("ctsw1", 0, 500)], ZERO_NS, clock.wait)
    assert len(messages) == problems
    if messages:
        assert messages == (
            "not valid because carrier-down of rtsw1:ctsw1 began 101 ms late (the limit is 100 ms)",
            "not valid because carrier-down of rtsw1:ctsw1 ended 101 ms late (the limit is 100 ms)",
        )


def test_a_fault_that_waits_for_the_one_before_it_is_not_late(clock: Clock) -> None:
    injector = OnPaper(ctsw1=partial(clock.advance, 100))
    faults = [down("ctsw1", 0), down("ctsw2", 0)]
    assert carry_out(injector, faults, ZERO_NS, clock.wait) == ()
    assert changes(injector)[1] == ("rtsw1:ctsw2", True, 100)
    assert injector.changes[0].took_ns == 100 * MS


# --- stamped -------------------------------------------------------------------------------------


def test_a_fault_is_stamped_when_it_reaches_the_kernel_and_not_when_it_is_asked_for(
    clock: Clock,
) -> None:
    injector = OnPaper(ctsw1=partial(clock.advance, 3))
    injector.reaches_kernel = partial(clock.advance, 939)
    late = carry_out(injector, [down("ctsw1", 0)], ZERO_NS, clock.wait)
    (change,) = injector.changes
    assert (change.t_ns - ZERO_NS, change.took_ns) == (939 * MS, 3 * MS)
    assert [text for text in late if "began 939 ms late" in text]


def test_one_that_the_kernel_is_told_of_late_is_stamped_when_it_was_told(clock: Clock) -> None:
    injector = OnPaper(ctsw1=partial(clock.advance, 3))
    injector.kind, injector.reaches_kernel = Scheduled, partial(clock.advance, 1000)
    carry_out(injector, [down("ctsw1", 100, 5000)], ZERO_NS, clock.wait)
    begin, end = injector.changes
    assert (begin.t_ns - ZERO_NS, begin.took_ns) == (1000 * MS, 3 * MS)
    assert (end.t_ns - ZERO_NS, end.took_ns) == (5000 * MS, 0)


def test_one_that_was_over_before_the_kernel_was_told_is_no_measurement(clock: Clock) -> None:
    """It looks as if it were there: the kernel has a rule whose time has passed."""
    injector = OnPaper()
    injector.kind, injector.reaches_kernel = Scheduled, partial(clock.advance, 106)
    carry_out(injector, [down("ctsw1", 100, 105)], ZERO_NS, clock.wait)
    assert injector.unseen == [
        "not valid because carrier-down of rtsw1:ctsw1 ended before the kernel received it"
    ]


def test_one_that_the_kernel_is_told_of_in_time_begins_at_the_instant_itself(clock: Clock) -> None:
    injector = OnPaper(ctsw1=partial(clock.advance, 3))
    injector.kind, injector.reaches_kernel = Scheduled, partial(clock.advance, 97)
    carry_out(injector, [down("ctsw1", 100, 300)], ZERO_NS, clock.wait)
    assert [(change.t_ns - ZERO_NS, change.took_ns) for change in injector.changes] == [
        (100 * MS, 0),
        (300 * MS, 0),
    ]


def test_an_instant_that_is_not_known_well_enough_is_no_measurement(clock: Clock) -> None:
    injector = OnPaper(ctsw1=partial(clock.advance, 101))
    assert carry_out(injector, [down("ctsw1", 0)], ZERO_NS, clock.wait) == (
        "not valid because carrier-down of rtsw1:ctsw1 may have begun up to 101 ms after its stamp "
        "(the limit is 100 ms)",
    )


def test_an_order_that_waits_between_two_readings_bounds_when_the_fault_began(clock: Clock) -> None:
    """The kernel had it before the instant or seconds after: senders that run first are on time."""
    injector = OnPaper(ctsw1=partial(clock.advance, 6450))
    injector.kind = Scheduled
    problems = carry_out(injector, [down("ctsw1", 100)], ZERO_NS, clock.wait)
    (change,) = injector.changes
    assert (change.t_ns - ZERO_NS, change.took_ns) == (100 * MS, 6350 * MS)
    assert "may have begun up to 6.35 s after its stamp" in problems[0]


def test_an_event_says_how_uncertain_its_instant_is(clock: Clock) -> None:
    injector = OnPaper(ctsw1=partial(clock.advance, 3))
    carry_out(injector, [down("ctsw1", 0, 500)], ZERO_NS, clock.wait)
    assert [event.took_ns for event in events_of(injector.changes, MS)] == [3 * MS, 0]


def test_what_ends_before_the_kernel_would_have_ended_it_ends_then(clock: Clock) -> None:
    injector = OnPaper()
    injector.kind = Scheduled
    prepared = prepare_first(injector, [down("ctsw1", 0, 500)])
    injector.schedule(prepared[0], ZERO_NS, ZERO_NS + 500 * MS)
    clock.advance(200)
    injector.restore(prepared[0])
    assert changes(injector) == [("rtsw1:ctsw1", True, 0), ("rtsw1:ctsw1", False, 200)]


# --- seen ----------------------------------------------------------------------------------------


class Looked(Noted):
    """A fault that records its checks."""

    def intact(self, lab: RunningLab) -> frozenset[str]:
        now_ms = (bracket.realtime_ns() - ZERO_NS) // MS
        self.log.append(f"look at {self.subject} at {now_ms}")
        return super().intact(lab)


def test_an_injection_that_does_nothing_is_no_measurement(clock: Clock) -> None:
    injector = OnPaper()
    injector.kind = DoesNothing
    carry_out(injector, [down("ctsw1", 100, 900)], ZERO_NS, clock.wait)
    assert injector.unseen == [
        "not valid because carrier-down of rtsw1:ctsw1 had no visible effect: rtsw1:ctsw1 "
        "has carrier"
    ]


def test_one_that_never_ends_is_looked_at_when_all_is_over(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injecting, "remove_fault", lambda *_: None)
    injector = OnPaper()
    injector.kind = DoesNothing
    carry_out(injector, [down("ctsw1", 100)], ZERO_NS, clock.wait)
    assert injector.unseen == []
    injector.restore_all()
    assert len(injector.unseen) == 1


def test_what_took_effect_is_no_problem(clock: Clock) -> None:
    injector = OnPaper()
    carry_out(injector, [down("ctsw1", 100, 900), down("ctsw2", 500, 901)], ZERO_NS, clock.wait)
    assert injector.unseen == []


def test_a_fault_is_looked_at_shortly_before_it_ends_and_not_when_it_begins(clock: Clock) -> None:
    injector = OnPaper()
    injector.kind = Looked
    carry_out(injector, [down("ctsw1", 100, 900)], ZERO_NS, clock.wait)
    looks = [line for line in injector.log if line.startswith("look")]
    assert looks[-1] == "look at rtsw1:ctsw1 at 800"
    assert len(looks) == 2


def test_a_fault_is_looked_at_before_another_on_its_nodes_may_hide_it(clock: Clock) -> None:
    injector = OnPaper()
    injector.kind = Looked
    carry_out(injector, [down("ctsw1", 100), down("ctsw2", 700)], ZERO_NS, clock.wait)
    assert "look at rtsw1:ctsw1 at 600" in injector.log


def test_a_link_that_flaps_fast_is_seen_to_fail_each_time(clock: Clock) -> None:
    injector = OnPaper()
    faults = [down("ctsw1", at_ms, at_ms + 40) for at_ms in (0, 50, 100)]
    carry_out(injector, faults, ZERO_NS, clock.wait)
    assert injector.unseen == []


def test_where_there_is_nothing_to_break_nothing_was_broken(clock: Clock) -> None:
    injector = OnPaper()
    held = injector.prepare(down("ctsw1", 0).spec)
    assert isinstance(held.fault, Noted)
    held.fault.broken = True
    injector._intact[held.recorded.number] = frozenset()
    injector.inject(held)
    injector.check_effect(held)
    assert injector.unseen == [
        "not valid because there was nothing that carrier-down of rtsw1:ctsw1 could change"
    ]


# --- beside a caller -----------------------------------------------------------------------------


def no_thread_is_left() -> bool:
    return all(thread.name != "faults" for thread in threading.enumerate())


def test_faults_are_carried_out_while_the_caller_works(clock: Clock) -> None:
    began = threading.Event()
    injector = OnPaper(ctsw2=began.set)
    faults = [down("ctsw1", 0), down("ctsw2", 1)]
    with carried_out(injector, faults, ZERO_NS, prepare_first(injector, faults)) as problems:
        assert began.wait(LIMIT_S)
    assert no_thread_is_left()
    assert problems == []
    assert [change.fault.subject for change in injector.changes] == ["rtsw1:ctsw1", "rtsw1:ctsw2"]


def test_faults_that_had_not_begun_when_the_caller_ended_are_a_problem(clock: Clock) -> None:
    began = threading.Event()
    injector = OnPaper(ctsw1=began.set)
    faults = [down("ctsw1", 0), down("ctsw2", LONG_MS), down("ctsw3", LONG_MS)]
    with carried_out(injector, faults, ZERO_NS, prepare_first(injector, faults)) as problems:
        assert began.wait(LIMIT_S)
        assert problems == []
    assert no_thread_is_left()
    assert problems == ["not valid because the run ended before 2 of 3 faults began"]
    assert "inject rtsw1:ctsw2" not in injector.log


def test_a_fault_that_the_kernel_had_yet_to_begin_when_the_caller_ended_is_a_problem(
    clock: Clock,
) -> None:
    """A job that ends before its blackhole begins does not measure a blackhole."""
    is_injected = threading.Event()
    injector = OnPaper(ctsw1=is_injected.set)
    injector.kind = Scheduled
    with carried_out(injector, [down("ctsw1", LONG_MS)], ZERO_NS, {}) as problems:
        assert is_injected.wait(LIMIT_S)
    assert problems == ["not valid because the run ended before 1 of 1 faults began"]
    assert injector.happened() == ()


def test_a_fault_that_had_not_ended_is_no_problem_and_left_to_the_injector(clock: Clock) -> None:
    began = threading.Event()
    injector = OnPaper(ctsw1=began.set)
    with carried_out(injector, [down("ctsw1", 0, LONG_MS)], ZERO_NS, {}) as problems:
        assert began.wait(LIMIT_S)
    assert no_thread_is_left()
    assert problems == []
    assert "restore rtsw1:ctsw1" not in injector.log
    assert len(injector._held) == 1


def test_lateness_is_among_the_problems(clock: Clock) -> None:
    began = threading.Event()
    injector = OnPaper(ctsw1=began.set)
    clock.advance(250)
    with carried_out(injector, [down("ctsw1", 0)], ZERO_NS, {}) as problems:
        assert began.wait(LIMIT_S)
    (problem,) = problems
    assert "began 250 ms late" in problem


def test_a_fault_that_fails_is_raised_when_the_callers_work_is_over(clock: Clock) -> None:
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise MachineError("no such device")

    injector = OnPaper(ctsw1=fail)
    worked = False
    with (
        pytest.raises(MachineError, match="no such device"),
        carried_out(injector, [down("ctsw1", 0)], ZERO_NS, {}),
    ):
        assert failed.wait(LIMIT_S)
        worked = True
    assert worked
    assert no_thread_is_left()


def test_what_goes_wrong_with_the_caller_ends_the_faults_and_is_what_is_raised(
    clock: Clock,
) -> None:
    injector = OnPaper()
    with (
        pytest.raises(KeyboardInterrupt),
        carried_out(injector, [down("ctsw1", LONG_MS)], ZERO_NS, {}) as problems,
    ):
        raise KeyboardInterrupt
    assert no_thread_is_left()
    assert problems == ["not valid because the run ended before 1 of 1 faults began"]
    assert "inject rtsw1:ctsw1" not in injector.log
