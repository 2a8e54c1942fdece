"""The cells of the validation, measured side by side.

Each task is a function with its arguments. The values are by key, in the order of the tasks, for
any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.validation.document import Values
from rocelab import worker_processes
from rocelab.base.progress import Progress, ProgressSink, no_progress

Found = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Task:
    """A piece of work that returns values by cell."""

    function: Callable[..., Found]
    arguments: tuple[object, ...] = ()


def measure(
    tasks: Sequence[Task], workers: int, progress: ProgressSink = no_progress
) -> dict[str, Values]:
    """The values of all tasks; those of one key concatenated."""
    results: dict[str, list[float]] = {}
    with worker_processes(workers) as pool:
        waiting = [pool.executor.submit(task.function, *task.arguments) for task in tasks]
        for number, task in enumerate(waiting, 1):
            for key, values in task.result().items():
                results.setdefault(key, []).extend(map(float, values))
            progress(Progress("validating", number, len(tasks)))
    return {key: tuple(values) for key, values in results.items()}
