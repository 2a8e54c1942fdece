"""A port of this machine's loopback that leads to one of another machine's, over its connection.

For `rocelab --host vm live`: the page there is opened here.
"""

from __future__ import annotations

import re
import select
import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress

import paramiko

from rocelab.base.errors import RocelabError
from rocelab.remote.connection import Connection
from rocelab.remote.errors import UnfitError

_LOOPBACK = "127.0.0.1"
_URL = re.compile(rb"(?<=http://127\.0\.0\.1:)(\d{1,5})(?=/\?token=)")
_CHUNK = 1 << 15

MOST_LINE_BYTES = 1 << 16
"""Output that may wait for its end of line: more is shown as it is."""
MOST_PAGES = 8
MOST_CONNECTIONS = 64
"""Open connections. Anyone on this machine may connect, and each takes a thread and three
descriptors; more wait. The server of a page closes all but 32 of those that ask for nothing."""


class Tunnels:
    """Replaces the ports in URLs of pages on the other machine's loopback by ones that lead there.
    `note` tells the user why one could not be."""

    def __init__(self, connection: Connection, note: Callable[[str], None]) -> None:
        self._connection = connection
        self._note = note
        self._listeners: dict[int, socket.socket] = {}
        self._free = threading.Semaphore(MOST_CONNECTIONS)
        self._begun = b""

    def close(self) -> None:
        """End all of them; connections that they have end with the machine's."""
        for listener in self._listeners.values():
            # Closing alone does not wake a thread in accept.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def led(self, output: bytes) -> bytes:
        """The lines that this output completes, with ports of this machine."""
        *lines, self._begun = (self._begun + output).split(b"\n")
        whole = b"".join(_URL.sub(self._lead, line) + b"\n" for line in lines)
        if len(self._begun) > MOST_LINE_BYTES:
            whole, self._begun = whole + self._begun, b""
        return whole

    def _lead(self, match: re.Match[bytes]) -> bytes:
        port = int(match[1])
        if port not in self._listeners and not self._open(port):
            return match[1]
        return str(self._listeners[port].getsockname()[1]).encode()

    def _open(self, port: int) -> bool:
        """Listen for that port there; whether that is so."""
        if len(self._listeners) == MOST_PAGES:
            self._note(f"no tunnel leads to port {port}: there are {MOST_PAGES} already")
            return False
        try:
            self._connection.forwarded((_LOOPBACK, port), (_LOOPBACK, 0)).close()
        except UnfitError as error:
            self._note(f"{error.message}; {error.hint}")
            return False
        self._listeners[port] = listener = _listener(port)
        threading.Thread(target=self._serve, args=(listener, port), daemon=True).start()
        return True

    def _serve(self, listener: socket.socket, port: int) -> None:
        # Until the listener is closed, or its machine has no more descriptors.
        with suppress(OSError):
            while self._free.acquire():
                client, origin = listener.accept()
                ends = (client, origin, port)
                threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, client: socket.socket, origin: tuple[str, int], port: int) -> None:
        try:
            with (
                closing(client),
                suppress(RocelabError, OSError),
                self._connection.forwarded((_LOOPBACK, port), origin) as channel,
            ):
                _exchange(client, channel)
        finally:
            self._free.release()


def _listener(port: int) -> socket.socket:
    """Listen on this port of the loopback, or on another one that is free."""
    for wanted in (port, 0):
        listener = socket.socket()
        try:
            listener.bind((_LOOPBACK, wanted))
            listener.listen()
        except (OSError, OverflowError):
            listener.close()
            if not wanted:
                raise
        else:
            return listener
    raise AssertionError


def _exchange(client: socket.socket, channel: paramiko.Channel) -> None:
    """Pass on what either side sends until both have ended: one that sends nothing more may still
    wait for its answer."""
    other: dict[socket.socket | paramiko.Channel, socket.socket | paramiko.Channel]
    other = {client: channel, channel: client}
    sending = list(other)
    while sending:
        for ready in select.select(sending, [], [])[0]:
            data = ready.recv(_CHUNK)
            if data:
                other[ready].sendall(data)
            else:
                sending.remove(ready)
                other[ready].shutdown(socket.SHUT_WR)
