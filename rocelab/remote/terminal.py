"""Connects this terminal to a command on the other machine: shell, vtysh, a program in a node.

Like a shell, the command ends with the connection.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from rocelab.remote.runs import RemoteRun

_CHUNK = 1 << 15


def talk(run: RemoteRun, words: tuple[str, ...], folder: str) -> int:
    """Run the command with this terminal until it ends; returns its exit code. Raises
    ConnectionLostError, UnfitError."""
    connection, installed = run.connection, run.installed
    inside = shlex.quote(f"{run.folder}/files/{folder}")
    command = installed.command(*installed.rocelab(words)[2:])
    size = shutil.get_terminal_size()
    with connection.watched(), connection.channel() as channel:
        channel.get_pty(os.environ.get("TERM", "vt100"), size.columns, size.lines)
        channel.exec_command(f"mkdir -p {inside} && cd {inside} && exec {command}")

        def resize(*_: object) -> None:
            now = shutil.get_terminal_size()
            channel.resize_pty(now.columns, now.lines)

        with _raw(resize):
            while True:
                ready, _, _ = select.select([channel, sys.stdin], [], [])
                if channel in ready:
                    data = channel.recv(_CHUNK)
                    if not data:
                        break
                    sys.stdout.buffer.write(data)
                    sys.stdout.flush()
                if sys.stdin in ready:
                    channel.sendall(os.read(sys.stdin.fileno(), _CHUNK))
        return connection.exit_code_of(channel)


@contextmanager
def _raw(resize: object) -> Iterator[None]:
    """The terminal in raw mode: no key has a local meaning."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    handler = signal.signal(signal.SIGWINCH, resize)  # type: ignore[arg-type]
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
