"""The output of commands: results to stdout, progress and errors to stderr.

Progress bars show only on a terminal. Tables are as wide as the terminal, or `_PIPE_WIDTH` if
stdout is a file or a pipe, and cut no value. Text is never interpreted as markup, and control
characters are shown as escapes.
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rocelab.base.quantities import Unit
from rocelab.base.wording import visible
from rocelab.report.document import Column, Table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    from rocelab.base.progress import Progress, ProgressSink
    from rocelab.report.document import Block, Document

_PIPE_WIDTH = 160


def out() -> Console:
    """The console for a command's result."""
    return _console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def err() -> Console:
    """The console for progress and errors."""
    return _console(stderr=True)


def _console(*, width: int | None = None, stderr: bool = False) -> Console:
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        """Leaves a closed pipe to `rocelab.cli.app`: rich would exit with 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

        def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - as rich has them
            # Before rich measures it, so that columns stay aligned.
            return super().render_str(visible(text), **options)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                # A control segment is the console's own, such as the cursor's way up in a bar.
                text = segment.text if segment.control else visible(segment.text)
                yield Segment(text, segment.style, segment.control)

    return PlainConsole(width=width, stderr=stderr, highlight=False, markup=False, emoji=False)


def is_reader_gone() -> bool:
    """Whether stdout or stderr is a pipe without a reader."""
    try:
        streams = [stream.fileno() for stream in (sys.stdout, sys.stderr)]
    except (OSError, ValueError):
        return False
    poll = select.poll()
    for descriptor in streams:
        poll.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def say(text: str) -> None:
    """Print a line on stdout, verbatim."""
    out().print(text, markup=False, soft_wrap=True)


def show_blocks(*blocks: Block) -> None:
    """Print blocks of a document on stdout."""
    from rocelab.report.renderers.terminal import print_blocks

    print_blocks(blocks, out())


def show_document(document: Document, console: Console | None = None) -> None:
    """Print a document on stdout, or on another console."""
    from rocelab.report.renderers.terminal import print_document

    print_document(document, console or out())


def note(text: str) -> None:
    """Print a remark about a result on stderr."""
    err().print(f"note: {text}", style="yellow", markup=False, soft_wrap=True)


def write(pieces: Iterable[str]) -> None:
    """Write text for a program to stdout, verbatim."""
    sys.stdout.writelines(pieces)
    sys.stdout.flush()


def write_json(document: object) -> None:
    """Write one JSON document to stdout."""
    write([json.dumps(document, indent=1), "\n"])


@contextmanager
def progress_bars() -> Iterator[ProgressSink]:
    """A sink that shows one bar per stage while the block runs."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = err()
    columns = (
        TextColumn("{task.description:<12}", markup=False),
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
    return Table(
        "",
        (Column("stage"), Column("seconds", Unit.FIGURE)),
        tuple((stage, f"{taken:.2f}") for stage, taken in seconds.items()),
        foot=("total", f"{sum(seconds.values()):.2f}"),
    )
