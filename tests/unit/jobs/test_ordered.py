"""A schedule as single sends: waits of sends and ends of iterations are steps that compute."""

from __future__ import annotations

from rocelab.jobs.collectives import IterationEnd, Schedule
from rocelab.jobs.ordered import ordered
from rocelab.jobs.patterns.base import Send
from rocelab.jobs.steps import step_ends

MS = 10**6
GBPS = 8e9
"""A byte takes a nanosecond."""


def ends_ms(*sends: Send, iterations: int = 1, **ends: IterationEnd) -> list[list[float]]:
    """When each send of each iteration is over, and the iteration, in ms."""
    of_rank = {int(rank.removeprefix("rank")): end for rank, end in ends.items()}
    made = ordered(Schedule(None, 3, 0, sends, of_rank), iterations)
    over_s = step_ends(made.workload, GBPS)
    rows = []
    for iteration, row in enumerate(made.step_of.tolist()):
        last = max(
            over_s[number]
            for number, step in enumerate(made.workload.steps)
            if step.iteration == iteration
        )
        rows.append([round(over_s[step] * 1e3, 6) for step in row] + [round(last * 1e3, 6)])
    return rows


def test_a_send_leaves_when_its_last_wait_is_over() -> None:
    first, second = Send(0, 0, 1, MS, (), at_ns=2 * MS), Send(1, 2, 1, MS, (), at_ns=MS)
    third = Send(2, 1, 2, MS, (0, 1), (5 * MS, 0))
    assert ends_ms(first, second, third) == [[3, 2, 9, 9]]
    late = Send(2, 1, 2, MS, (0, 1), at_ns=20 * MS)
    assert ends_ms(first, second, late) == [[3, 2, 21, 21]]


def test_an_iteration_ends_when_its_ranks_have_computed_and_the_next_follows() -> None:
    send = Send(0, 0, 1, MS, ())
    assert ends_ms(send, iterations=2, rank0=IterationEnd((0,), (4 * MS,))) == [[1, 5], [6, 10]]
    assert ends_ms(send, iterations=2, rank0=IterationEnd(at_ns=7 * MS)) == [[1, 7], [8, 14]]


def test_ranks_that_compute_nothing_go_on_at_once() -> None:
    there, back = Send(0, 0, 1, MS, ()), Send(1, 1, 0, MS, (0,))
    assert ends_ms(there, back, iterations=3) == [[1, 2, 2], [3, 4, 4], [5, 6, 6]]
