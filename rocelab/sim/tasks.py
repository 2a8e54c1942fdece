"""A job's steps as the tasks of a program: one each, or many where sends of a step go in turn.

`tasks_of` says which tasks each step is, what each task waits for, and to which task each send
belongs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import NONE, Floats, Longs
from rocelab.jobs.workload import Step


@dataclass(frozen=True, eq=False)
class Tasks:
    """T tasks, those of a step together: step, delay_s: of each, T. first, S + 1: a step's tasks
    are first[s] up to first[s + 1], and the last ends when the step does."""

    step: Longs
    delay_s: Floats
    first: Longs
    task: Longs
    """Of each send, X."""
    after_start: Longs
    after: Longs
    """The tasks that task t waits for are after[after_start[t]:after_start[t + 1]]."""


def tasks_of(steps: Sequence[Step], step: Longs, turn: Longs, launch_s: float = 0.0) -> Tasks:
    """The tasks of steps, by step. `step` and `turn` are those of each send, X; launch_s is what a
    host takes before the first sends of a collective.

    A step with turns begins with a task that takes its compute time; the next has the sends that
    wait for none, each of the others is a task, and the last waits for all. All sends of any other
    step are one task.
    """
    (waiting,) = np.nonzero(turn != NONE)
    in_turn = np.bincount(step[waiting], minlength=len(steps))
    counts = np.where(in_turn > 0, in_turn + 3, 1)
    first = np.concatenate(([0], np.cumsum(counts)))
    begin, end = first[:-1], first[1:] - 1

    task = begin[step] + (in_turn[step] > 0)
    before = np.cumsum(in_turn) - in_turn
    task[waiting] = begin[step[waiting]] + 2 + np.arange(len(waiting)) - before[step[waiting]]
    order = waiting[np.lexsort((waiting, turn[waiting], step[waiting]))]
    queue = np.stack((step[order], turn[order]))
    opens = np.any(np.diff(queue, prepend=NONE) != 0, axis=0)
    closes = np.append(opens[1:], True)[: len(order)]
    (several,) = np.nonzero(in_turn)
    edges = np.concatenate(
        [
            np.array(
                [(begin[n], end[e]) for n, s in enumerate(steps) for e in s.after], np.int64
            ).reshape(-1, 2),
            np.stack((begin[several] + 1, begin[several]), axis=1),
            np.stack((end[several], begin[several] + 1), axis=1),
            np.stack(
                (task[order], np.where(opens, begin[step[order]], np.roll(task[order], 1))), axis=1
            ),
            np.stack((end[step[order[closes]]], task[order[closes]]), axis=1),
        ]
    )
    edges = edges[np.argsort(edges[:, 0], kind="stable")]
    delay_s = np.zeros(int(first[-1]))
    delay_s[begin] = [stage.compute_s for stage in steps]
    if launch_s:
        launches = [stage.launches and stage.sends is not None for stage in steps]
        delay_s[begin] += launch_s * np.array(launches)
    return Tasks(
        np.repeat(np.arange(len(steps)), counts),
        delay_s,
        first,
        task,
        np.searchsorted(edges[:, 0], np.arange(first[-1] + 1)),
        edges[:, 1],
    )
