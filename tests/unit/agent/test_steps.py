"""Records of a rank's sends, and of a process that stood still."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocelab.agent.steps import MOST_STALLS, STALL_NS, Backlog, Stalls, StepClock
from rocelab.jobs.jobplan import RECORDED_SENDS, JobPlan
from tests.unit.agent.test_endpoint import servers

MS = 10**6


def test_the_steps_of_a_job_are_those_of_its_schedule_in_the_order_of_its_dependencies() -> None:
    lab = servers()
    lab.run(lambda: lab.idle and len(lab.told) == 4 * 4)
    (result,) = lab.results()
    steps, schedule = result.steps, lab.plan.schedule
    assert steps is not None
    assert schedule is not None
    assert steps.first == 0
    assert steps.posted_ns.shape == (4, len(schedule.sends))
    assert steps.posted_ns.min() >= 0
    assert (steps.arrived_ns > steps.posted_ns).all()
    assert (steps.acked_ns >= steps.arrived_ns).all()
    for row in range(4):
        for send in schedule.sends:
            over = [
                steps.arrived_ns[row, before]
                if schedule.sends[before].destination == send.source
                else steps.acked_ns[row, before]
                for before in send.after
            ]
            assert steps.posted_ns[row, send.id] == max(over, default=steps.posted_ns[row].min())
    ended = np.max([rank.ended_ns for rank in result.ranks], axis=0)
    assert np.maximum(steps.arrived_ns, steps.acked_ns).max(axis=1).tolist() == ended.tolist()


def test_only_the_last_iterations_are_kept_in_their_order() -> None:
    times = StepClock([7, 9], [8], kept=3)
    for iteration in range(8):
        for send in (7, 9):
            times.posted(iteration, send, 100 * iteration + send)
            times.acked(iteration, send, 100 * iteration + send + 50)
        times.arrived(iteration, 8, 100 * iteration + 8)
    # Iterations 5, 6 and 7 are in rows 2, 0 and 1.
    assert times.posted_ns.tolist() == [607, 609, 707, 709, 507, 509]
    assert times.acked_ns.tolist() == [657, 659, 757, 759, 557, 559]
    assert times.arrived_ns.tolist() == [608, 708, 508]


def test_a_plan_keeps_whole_iterations_up_to_its_limit() -> None:
    def kept(**keys: Any) -> tuple[JobPlan, int]:
        plan = servers(**keys).plan
        return plan, plan.recorded_iterations

    plan, few = kept()
    assert few == plan.iterations == 4
    plan, many = kept(iterations=9999)
    assert plan.schedule is not None
    assert many == RECORDED_SENDS // len(plan.schedule.sends) < plan.iterations


def test_only_what_waited_long_is_a_stall_and_it_ends_when_it_is_seen() -> None:
    stalls = Stalls()
    stalls.note(100 * MS, 100 * MS - STALL_NS + 1)
    stalls.note(200 * MS, 1 << 62)
    assert len(stalls.ended_ns) == 0
    stalls.note(500 * MS, 300 * MS)
    assert (stalls.ended_ns.tolist(), stalls.length_ns.tolist()) == ([500 * MS], [200 * MS])


@given(
    st.lists(
        st.tuples(st.integers(0, 100 * MS), st.integers(0, 300 * MS)),
        max_size=2 * MOST_STALLS // 1000,
    )
)
def test_stalls_never_overlap(turns: list[tuple[int, int]]) -> None:
    stalls, now = Stalls(), 10**9
    for after, waited in turns:
        now += after
        stalls.note(now, now - waited)
    spans = [
        (end - length, end) for end, length in zip(stalls.ended_ns, stalls.length_ns, strict=True)
    ]
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert all(begin <= end for begin, end in spans)


def test_a_backlog_is_the_time_in_which_any_frame_waited() -> None:
    backlog = Backlog()
    backlog.note(1 << 62, 100)
    backlog.note(150, 140)
    assert backlog.total_ns == 0
    backlog.note(100, 130)
    backlog.note(110, 150)  # it waited for part of the same time
    backlog.note(190, 200)
    assert backlog.total_ns == 50 + 10


def test_stalls_are_bounded() -> None:
    stalls = Stalls()
    for turn in range(MOST_STALLS + 10):
        stalls.note((turn + 2) * 20 * MS, turn * 20 * MS)
    assert len(stalls.ended_ns) == len(stalls.length_ns) == MOST_STALLS


def test_a_clock_that_was_set_makes_no_backlog_of_before_the_run() -> None:
    """Frames are stamped with the clock that was set: one of 1970 once made 413138643019%."""
    backlog = Backlog()
    backlog.start(1_000_000)
    backlog.note(-1_790_000_000_000_000_000, 1_500_000)
    backlog.note(-1_790_000_000_000_000_000, 2_000_000)
    assert backlog.total_ns == 1_000_000
    backlog.note(9_000_000_000_000_000_000, 3_000_000)
    assert backlog.total_ns == 1_000_000
