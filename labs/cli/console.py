"""What commands write with: results to stdout, progress and errors to stderr.

Progress bars show only on a terminal. Tables keep their full width where stdout is a file or a
pipe, so that no value is ever cut.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from labs.runtime.base import Progress, ProgressSink

_PIPE_WIDTH = 160


def out() -> Console:
    """Where a command's result goes."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def err() -> Console:
    """Where progress and errors go."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """A line for a person, as it is."""
    out().print(text, markup=False, soft_wrap=True)


def write(pieces: Iterable[str]) -> None:
    """Text for a program, as it is."""
    sys.stdout.writelines(pieces)
    sys.stdout.flush()


def write_json(document: object) -> None:
    """One JSON document on stdout."""
    write([json.dumps(document, indent=1), "\n"])


def table(title: str, columns: Iterable[str], *, left: int = 1) -> Table:
    """A plain table whose first `left` columns are text and the others figures."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index < left else "right")
    return made


@contextmanager
def progress_bars() -> Iterator[ProgressSink]:
    """A sink that shows one bar per stage while the block runs."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = err()
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bars(
        *columns,
        console=console,
        transient=True,
        refresh_per_second=4,
        disable=not console.is_terminal,
    ) as bars:
        tasks = {}

        def show(step: Progress) -> None:
            if step.stage not in tasks:
                tasks[step.stage] = bars.add_task(step.stage, total=step.total)
            bars.update(tasks[step.stage], completed=step.done, total=step.total)

        yield show


def seconds_table(seconds: Mapping[str, float]) -> Table:
    """Seconds by stage with their sum."""
    made = table("", ("stage", "seconds"))
    for stage, taken in seconds.items():
        made.add_row(stage, f"{taken:.2f}")
    made.add_section()
    made.add_row("total", f"{sum(seconds.values()):.2f}")
    return made
