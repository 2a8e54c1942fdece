"""Commands to FRR's daemons, over vtysh's own sockets (FRR lib/vty.c)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from rocelab.base.errors import MachineError
from rocelab.routing.answers import ANSWER_TIMEOUT_S, UnreadableAnswerError, await_bytes, connect
from rocelab.routing.files import DaemonFiles

MOST_ANSWER_BYTES = 16 << 20
"""The BGP table of 252 racks by 18 paths, of 320 bytes each as JSON, takes a tenth of this."""

T = TypeVar("T", dict[str, Any], list[Any])


def vty_command(
    files: DaemonFiles, daemon: str, *commands: str, timeout_s: float = ANSWER_TIMEOUT_S
) -> str:
    """A daemon's answer to the last of `commands`, over vtysh's own socket (FRR lib/vty.c).

    Raises OSError when the daemon is not there or has not answered them all within `timeout_s`, and
    when the thread was cancelled (`rocelab.base.workers`).
    """
    return _vty_answers(files, daemon, commands, timeout_s)[-1]


def vty_configure(files: DaemonFiles, daemon: str, *lines: str) -> None:
    """Change a running daemon's configuration; its file stays as it is.

    Raises OSError as `vty_command` does, MachineError with the first line that the daemon refused,
    after all have been sent.
    """
    answers = _vty_answers(files, daemon, ("configure terminal", *lines))
    for line, answer in zip(lines, answers[1:], strict=True):
        if answer.lstrip().startswith("%"):
            raise MachineError(
                f"{daemon} of {files.folder.name} rejects `{line}`: {answer.strip()}"
            )


def _vty_answers(
    files: DaemonFiles, daemon: str, commands: Sequence[str], timeout_s: float = ANSWER_TIMEOUT_S
) -> list[str]:
    # One deadline for all: with a limit per read, a slow daemon could send byte by byte for ever.
    deadline_s = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as vty:
        vty.settimeout(timeout_s)
        connect(vty, files, daemon)
        answers = []
        for line in ("enable", *commands):
            vty.sendall(line.encode() + b"\0")
            answers.append(_read_answer(vty, deadline_s).decode(errors="replace"))
    return answers[1:]


def vty_json(
    files: DaemonFiles,
    daemon: str,
    command: str,
    shape: type[T],
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> T:
    """The answer to a `show ... json` command, of that type; an empty answer is an empty value.

    Raises OSError as `vty_command` does, UnreadableAnswerError for anything else.
    """
    text = vty_command(files, daemon, command, timeout_s=timeout_s)
    try:
        parsed = json.loads(text) if text.strip() else shape()
    except (ValueError, RecursionError):
        raise UnreadableAnswerError(files, daemon, "it is not JSON") from None
    if not isinstance(parsed, shape):
        wanted = "object" if shape is dict else "array"
        raise UnreadableAnswerError(files, daemon, f"it is no {wanted}")
    return parsed


def _read_answer(vty: socket.socket, deadline_s: float) -> bytearray:
    """Read until the three zero bytes and the status byte that end every answer."""
    data = bytearray()
    while len(data) < 4 or data[-4:-1] != b"\0\0\0":
        await_bytes(vty, deadline_s)
        chunk = vty.recv(1 << 16)
        if not chunk:
            raise ConnectionError("the daemon closed its vty socket")
        data += chunk
        if len(data) > MOST_ANSWER_BYTES:
            raise ConnectionError("the daemon's answer does not end")
    return data[:-4]
