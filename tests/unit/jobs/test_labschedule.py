"""A workload as sends of a lab: what each rank waits for, and what it cannot know."""

from __future__ import annotations

import numpy as np
import pytest

from rocelab.base.errors import InputError
from rocelab.jobs.collectives import Pattern, schedule
from rocelab.jobs.flow_list import FlowList
from rocelab.jobs.labschedule import MOST_ROUNDS, MOST_SENDS, LabSchedule, lab_schedule
from rocelab.jobs.merged_sends import sends_of
from rocelab.jobs.parallelism import between
from rocelab.jobs.steps import Steps
from rocelab.jobs.workload import Sends

MS = 10**6


def ranks(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(numbers, np.int32)


def message(source: int, destination: int, size: int = 1000, repeats: int = 1) -> Sends:
    sends = between(ranks(source), ranks(destination), size, repeats)
    assert sends is not None
    return sends


def of_steps(steps: Steps, count: int) -> LabSchedule:
    return lab_schedule(steps.workload(count, 1))


def test_a_rank_waits_for_what_it_got_and_then_computes() -> None:
    steps = Steps()
    first = steps.add("forward 0", (), 0.001)
    passed = steps.add("pass 0", (first,), sends=message(0, 1))
    then = steps.add("forward 1", (passed,), 0.002)
    steps.add("pass 1", (then,), sends=message(1, 2))
    a, b = of_steps(steps, 3).schedule.sends
    assert (a.after, a.lags_ns, a.at_ns) == ((), (), MS)
    assert (b.after, b.lags_ns, b.at_ns) == ((0,), (2 * MS,), 0)


def test_computing_behind_the_last_send_ends_the_iteration_of_each_rank() -> None:
    steps = Steps()
    passed = steps.add("pass", (), sends=message(0, 1))
    steps.add("optimizer", (passed,), 0.003)
    made = of_steps(steps, 3)
    assert {rank: (end.after, end.lags_ns) for rank, end in made.schedule.ends.items()} == {
        0: ((0,), (3 * MS,)),
        1: ((0,), (3 * MS,)),
        2: ((), ()),
    }
    assert made.schedule.ends[2].at_ns == 3 * MS


def test_two_waits_are_each_counted_from_their_own_send() -> None:
    steps = Steps()
    one, two = (steps.add(f"to {rank}", (), sends=message(rank, 2)) for rank in (0, 1))
    slow = steps.add("slow", (one,), 0.005)
    steps.add("on", (slow, two), sends=message(2, 3))
    send = of_steps(steps, 4).schedule.sends[-1]
    assert dict(zip(send.after, send.lags_ns, strict=True)) == {0: 5 * MS, 1: 0}


def test_sends_between_others_take_no_time_and_are_said() -> None:
    steps = Steps()
    begun = steps.add("begin", (), sends=message(0, 1))
    others = steps.add("others", (begun,), sends=message(1, 2))
    last = steps.add("computed", (others,), 0.001)
    steps.add("back", (last,), sends=message(0, 2))
    made = of_steps(steps, 3)
    assert (made.schedule.sends[-1].after, made.schedule.sends[-1].lags_ns) == ((0,), (MS,))
    (said,) = made.differs
    assert "in 1 step some begin without waiting" in said
    assert "back, after others" in said


def test_a_rank_that_can_know_nothing_is_refused() -> None:
    steps = Steps()
    others = steps.add("others", (), sends=message(1, 2))
    steps.add("alone", (others,), sends=message(0, 2))
    with pytest.raises(InputError, match="rank 0 begins step alone after sends between other"):
        of_steps(steps, 3)


@pytest.mark.parametrize("pattern", [Pattern.ALLREDUCE, Pattern.ALLGATHER, Pattern.REDUCESCATTER])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_merged_ring_is_taken_apart_to_the_sends_of_its_collective(
    pattern: Pattern, count: int
) -> None:
    steps = Steps()
    steps.add("ring", (), sends=sends_of(pattern, count, 8 * count * 100))
    made, planned = of_steps(steps, count).schedule.sends, schedule(pattern, count, 8 * count * 100)

    def shape(sends: object) -> list[tuple[int, int, int, int]]:
        return sorted(
            (send.source, send.destination, send.size_bytes, len(send.after))
            for send in sends  # type: ignore[attr-defined]
        )

    assert shape(made) == shape(planned.sends)
    by_id = {send.id: send for send in made}
    for send in made:
        assert all(by_id[before].destination == send.source for before in send.after)


def test_more_rounds_than_a_lab_sends_are_joined_and_every_byte_is_kept() -> None:
    steps = Steps()
    steps.add("many", (), sends=message(0, 1, 3, 10 * MOST_ROUNDS - 1))
    made = of_steps(steps, 2)
    assert len(made.schedule.sends) == MOST_ROUNDS
    assert made.schedule.size_bytes == 3 * (10 * MOST_ROUNDS - 1)
    assert "1 step of more than 64 sends one after the other, as many" in made.differs[0]


def test_sends_in_turn_wait_for_the_one_before() -> None:
    steps = Steps()
    size = np.full(3, 10, np.int64)
    steps.add("turns", (), sends=Sends(ranks(0, 0, 1), ranks(1, 2, 2), size, turn=ranks(0, 0, 1)))
    assert [send.after for send in of_steps(steps, 3).schedule.sends] == [(), (0,), ()]


def test_a_flow_begins_at_its_time_on_a_queue_pair_of_its_own() -> None:
    starts = np.array([0.0, 0.001, 0.0015])
    flows = FlowList(3, ranks(0, 1, 0), ranks(1, 2, 2), np.array([10, 20, 30]), starts)
    made = lab_schedule(flows.workload())
    assert [(send.at_ns, send.after) for send in made.schedule.sends] == [
        (0, ()),
        (MS, ()),
        (1_500_000, ()),
    ]
    assert made.schedule.own_queue_pairs
    assert made.differs == ()


def test_steps_are_over_when_their_last_send_is_and_when_they_have_computed() -> None:
    steps = Steps()
    passed = steps.add("pass", (), 0.001, sends=message(0, 1))
    steps.add("optimizer", (passed,), 0.002)
    made = of_steps(steps, 2)
    begins, ends = made.step_times(np.array([1.0 * MS]), np.array([4.0 * MS]))
    assert (begins.tolist(), ends.tolist()) == ([MS, 6 * MS], [4 * MS, 6 * MS])
    assert [times.tolist() for times in made.spans(ends)] == [[0], [6 * MS]]


def test_what_no_lab_holds_is_refused_with_the_simulation_that_does() -> None:
    count = MOST_SENDS + 1
    many = FlowList(2, *np.repeat([[0], [1]], count, 1).astype(np.int32), *np.ones((2, count)))
    with pytest.raises(InputError, match="more than 32,768 sends") as refused:
        lab_schedule(many.workload())
    assert refused.value.hint is not None
    assert "rocelab simulate" in refused.value.hint
