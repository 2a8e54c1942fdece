"""`rocelab capture`: packets of ports of a running lab, as a pcapng file or stream."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from rocelab.base.interruption import is_output_whole, shielded, undone
from rocelab.base.wording import counted
from rocelab.cli.arguments import ForceOption, RunningLabArgument, complete_port, running_lab
from rocelab.linux.rights import need_root
from rocelab.report.console import err, is_reader_gone, say

if TYPE_CHECKING:
    from rocelab.base.outputs import OutputFile

STDOUT = Path("-")


def capture(
    lab: RunningLabArgument,
    ports: Annotated[
        list[str],
        typer.Argument(
            metavar="PORT...",
            help="Interfaces of nodes, such as rtsw1:ctsw1, or NICs, such as srv2-1:2; several are "
            "one capture.",
            autocompletion=complete_port,
            show_default=False,
        ),
    ],
    file: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="A pcapng file, or - for stdout.",
            show_default=False,
        ),
    ],
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after N packets.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.001, metavar="S", help="End after S seconds.")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Capture packets of ports until Ctrl-C, --count or --seconds. FILE is always complete;
    after Ctrl-C the exit code is 130.

    rocelab capture zone-small rtsw1:ctsw1 ctsw1:rtsw1 -o - | wireshark -k -i -

    With several ports, packets are written 0.1 s late, to be in order of time.
    """
    from rocelab.base.outputs import output_file
    from rocelab.observe.portcapture import PortCapture, ports_named

    need_root("capturing in a node")
    chosen = running_lab(lab)
    named = [port for text in ports for port in ports_named(chosen, text)]
    is_stream = file == STDOUT
    if is_stream:
        _check_stdout()
    with (
        nullcontext() if is_stream else output_file(file, overwrite=force) as named_file,
        PortCapture(chosen, named) as captured,
        shielded("writing the packets that tcpdump holds", captured.stop),
        _target(named_file) as target,
    ):
        until = "" if count or seconds else ", Ctrl-C ends it"
        err().print(f"capturing on {', '.join(map(str, named))}{until}")
        for blocks in captured.blocks(count, seconds):
            target.write(blocks)
            target.flush()
            if is_stream and is_reader_gone():
                raise BrokenPipeError
        lost = f", {captured.lost:,} more lost" if captured.lost else ""
        if is_stream:
            err().print(f"{counted(captured.packets, 'packet')}{lost}")
            is_whole = is_output_whole()
            undone("the stream is whole" if is_whole else "the stream's reader had stopped")
        else:
            say(f"{counted(captured.packets, 'packet')} in {file}{lost}")
            undone(f"{file} is whole")


def _target(file: OutputFile | None) -> AbstractContextManager[BinaryIO]:
    """The file, new, or stdout, open for writing. Raises InputError if it cannot be written."""
    return nullcontext(sys.stdout.buffer) if file is None else file.create()


def _check_stdout() -> None:
    """Raises InputError if stdout is a terminal."""
    from rocelab.base.errors import InputError

    if sys.stdout.isatty():
        raise InputError(
            "a capture is not text, and stdout is a terminal", hint="add `| wireshark -k -i -`"
        )
