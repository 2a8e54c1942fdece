"""Questions to BIRD, over the socket of its command line birdc.

A reply is lines `CODE-TEXT`, of which the last is `CODE TEXT`; a line that begins with a space
continues the one above (BIRD doc/reply_codes, nest/cli.c).
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator

from rocelab.base.wording import printable
from rocelab.routing.answers import (
    ANSWER_TIMEOUT_S,
    UnreadableAnswerError,
    await_bytes,
    connect,
)
from rocelab.routing.files import DaemonFiles

MOST_ANSWER_BYTES = 16 << 20
_LAST = re.compile(rb"(?:^|\n)(\d{4}) [^\n]*\n\Z")
_CODE = re.compile(r"\d{4}[- ]")


def greeted(files: DaemonFiles, daemon: str) -> None:
    """Return when BIRD greets: it does once it runs with its configuration. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        _open(control, files, daemon, ANSWER_TIMEOUT_S)


def ask(files: DaemonFiles, daemon: str, command: str, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
    """BIRD's reply without its codes. Raises OSError if it is not there or does not reply in time,
    UnreadableAnswerError if it refuses the command."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        deadline_s = _open(control, files, daemon, timeout_s)
        control.sendall(command.encode() + b"\n")
        code, text = _reply(control, deadline_s)
    if code >= 8000:
        why = f"it rejects `{command}`: {printable(text.strip())[:80]}"
        raise UnreadableAnswerError(files, daemon, why)
    return text


def _open(control: socket.socket, files: DaemonFiles, daemon: str, timeout_s: float) -> float:
    """Connect and read the greeting; returns the deadline for all replies."""
    deadline_s = time.monotonic() + timeout_s
    control.settimeout(timeout_s)
    connect(control, files, daemon)
    _reply(control, deadline_s)
    return deadline_s


def _reply(control: socket.socket, deadline_s: float) -> tuple[int, str]:
    data = bytearray()
    while (last := _LAST.search(data[-4096:])) is None:
        await_bytes(control, deadline_s)
        chunk = control.recv(1 << 16)
        if not chunk:
            raise ConnectionError("the daemon closed its socket")
        data += chunk
        if len(data) > MOST_ANSWER_BYTES:
            raise ConnectionError("the daemon's answer does not end")
    return int(last[1]), "".join(_lines(data.decode(errors="replace")))


def _lines(reply: str) -> Iterator[str]:
    for line in reply.splitlines(keepends=True):
        yield line[5:] if _CODE.match(line) else line[1:]
