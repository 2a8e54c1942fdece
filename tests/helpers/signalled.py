"""Runs `rocelab`, which sends itself real signals when its progress reaches a stage.

    python -m tests.helpers.signalled STAGE[,STAGE...] NUMBER ARGUMENT...

At the first progress that begins with STAGE, such as `cells` or `cells 1` (its name and how much is
done), it sends the signal to the process group, like a terminal; then it waits for the next STAGE.
So every signal has a known moment. For a command without progress STAGE is a function, as
`rocelab.lab.doctor:diagnose`, and the moment is its first call.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from rocelab.base.progress import Progress, ProgressSink
from rocelab.report import console


def main(stages: list[str], number: int, arguments: list[str]) -> None:
    """Run the command line."""

    def come_to(stage: str) -> None:
        if stages and stage.startswith(stages[0]):
            stages.pop(0)
            os.killpg(0, number)

    @contextmanager
    def progress_bars() -> Iterator[ProgressSink]:
        def sink(step: Progress) -> None:
            come_to(f"{step.stage} {step.done}")

        yield sink

    @contextmanager
    def steps() -> Iterator[ProgressSink]:
        def sink(step: Progress) -> None:
            come_to(step.stage)

        yield sink

    def come_to_call(module: str, name: str) -> None:
        function = getattr(import_module(module), name)

        def called(*arguments: object, **named: object) -> object:
            come_to(f"{module}:{name}")
            return function(*arguments, **named)

        setattr(import_module(module), name, called)

    console.progress_bars = progress_bars
    for stage in stages:
        module, _, name = stage.partition(":")
        if module.startswith("rocelab."):
            come_to_call(module, name)
    # Here and not above: the commands take what shows progress from where it was replaced.
    from rocelab.cli.main import main as rocelab

    if arguments[0] == "compare":
        from rocelab.cli import compare

        compare._steps = steps
    rocelab(arguments)


if __name__ == "__main__":
    main(sys.argv[1].split(","), int(sys.argv[2]), sys.argv[3:])
