"""Records a session in a terminal, for the tour: a replay, and a still of its result.

    sudo .venv/bin/python -m docs.record

The replay is an asciicast (docs.asciinema.org/manual/asciicast/v2), which `asciinema play` shows;
the still is an SVG of the commands and what they wrote to stdout, so that no progress bar is in it.
Neither loads anything. Nothing is written if a command fails.
"""

from __future__ import annotations

import codecs
import fcntl
import io
import json
import os
import pty
import re
import selectors
import shlex
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
NAME = "session"
FLOW = "zone-small --src srv1-1 --dst srv3-1 --sport 50000"
SESSION = (
    "rocelab up zone-small",
    f"rocelab path {FLOW}",
    "rocelab fault inject zone-small carrier-down link=rtsw1:ctsw2",
    f"rocelab path {FLOW}",
    "rocelab fault restore zone-small --all",
    "rocelab down zone-small",
)
"""A flow takes another cable when its own is pulled."""
COLUMNS, ROWS = 104, 30
LONGEST_PAUSE_S = 1.0
"""What players make of longer ones."""


@dataclass(frozen=True, slots=True)
class Output:
    """What was written at a time since the session began, and whether to stdout."""

    seconds: float
    text: str
    is_stdout: bool


def main() -> None:
    """Record the session and write its files. Exits with 1 if a command fails."""
    recording = record(SESSION)
    if recording is None:
        sys.exit(1)
    (HERE / f"{NAME}.cast").write_text(asciicast(recording))
    (HERE / f"{NAME}.svg").write_text(still(recording))


def record(lines: Sequence[str]) -> tuple[Output, ...] | None:
    """Run command lines one after the other, all of them, and keep what they write; None if one
    failed."""
    began = time.monotonic()
    output = []
    succeeded = True
    for line in lines:
        prompt = f"\x1b[1m# {line}\x1b[0m\r\n"
        output.append(Output(time.monotonic() - began, prompt, is_stdout=True))
        process, terminals = _started(shlex.split(line))
        output += _written(terminals, began)
        succeeded = process.wait() == 0 and succeeded
    return tuple(output) if succeeded else None


def _started(words: Sequence[str]) -> tuple[subprocess.Popen[bytes], dict[int, bool]]:
    """A command whose stdout and stderr are terminals, and the other ends of these: whether each
    is that of stdout."""
    ends = [pty.openpty() for _ in range(2)]
    for _, end in ends:
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    (out, out_end), (err, err_end) = ends
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=out_end,
        stderr=err_end,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TERM": "xterm-256color",
        },
    )
    for end in (out_end, err_end):
        os.close(end)
    return process, {out: True, err: False}


def _written(terminals: dict[int, bool], began: float) -> Iterator[Output]:
    """What comes from terminals, until their last writers are gone."""
    with selectors.DefaultSelector() as selector:
        for terminal in terminals:
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            selector.register(terminal, selectors.EVENT_READ, decoder)
        while selector.get_map():
            for key, _ in selector.select():
                try:
                    data = os.read(key.fd, 1 << 16)
                except OSError:  # EIO: the last writer is gone
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    continue
                seconds = time.monotonic() - began
                yield Output(seconds, key.data.decode(data), terminals[key.fd])


def asciicast(recording: Sequence[Output]) -> str:
    """The recording as an asciicast, version 2."""
    header = {
        "version": 2,
        "width": COLUMNS,
        "height": ROWS,
        "idle_time_limit": LONGEST_PAUSE_S,
        "title": "rocelab",
    }
    events = [[round(piece.seconds, 3), "o", piece.text] for piece in recording]
    return "".join(f"{json.dumps(line)}\n" for line in (header, *events))


def still(recording: Sequence[Output]) -> str:
    """The commands and what they wrote to stdout, as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    written = "".join(piece.text for piece in recording if piece.is_stdout)
    # A terminal's lines end in CR LF, of which rich takes the CR for one that overwrites the line.
    console.print(Text.from_ansi(written.replace("\r\n", "\n")))
    svg = console.export_svg(title="", unique_id=NAME)
    # Rich's own fonts would come from elsewhere; a viewer's monospaced font does.
    svg = re.sub(r" *@font-face \{.*?\}\n", "", svg, flags=re.S)
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines())


if __name__ == "__main__":
    main()
