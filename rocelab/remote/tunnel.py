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

from rocelab.errors import RocelabError
from rocelab.remote.connection import Connection
from rocelab.remote.errors import UnfitError

_LOOPBACK = "127.0.0.1"
_URL = re.compile(rb"(?<=http://127\.0\.0\.1:)(\d{1,5})(?=/\?token=)")
_CHUNK = 1 << 15


class Tunnels:
    """Replaces the ports in URLs of pages on the other machine's loopback by ones that lead there.
    `note` tells the user why one could not be."""

    def __init__(self, connection: Connection, note: Callable[[str], None]) -> None:
        self._connection = connection
        self._note = note
        self._listeners: list[socket.socket] = []
        self._begun = b""

    def close(self) -> None:
        """End all of them; connections that they have end with the machine's."""
        for listener in self._listeners:
            # Closing alone does not wake a thread in accept.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def led(self, output: bytes) -> bytes:
        """The lines that this output completes, with ports of this machine."""
        *lines, self._begun = (self._begun + output).split(b"\n")
        return b"".join(_URL.sub(self._lead, line) + b"\n" for line in lines)

    def _lead(self, found: re.Match[bytes]) -> bytes:
        port = int(found[1])
        try:
            self._connection.forwarded((_LOOPBACK, port), (_LOOPBACK, 0)).close()
        except UnfitError as error:
            self._note(f"{error.message}; {error.hint}")
            return found[1]
        listener = _listener(port)
        self._listeners.append(listener)
        threading.Thread(target=self._serve, args=(listener, port), daemon=True).start()
        return str(listener.getsockname()[1]).encode()

    def _serve(self, listener: socket.socket, port: int) -> None:
        # Until the listener is closed, or its machine has no more descriptors.
        with suppress(OSError):
            while True:
                client, origin = listener.accept()
                pump = threading.Thread(target=self._pump, args=(client, origin, port), daemon=True)
                pump.start()

    def _pump(self, client: socket.socket, origin: tuple[str, int], port: int) -> None:
        with (
            closing(client),
            suppress(RocelabError, OSError),
            self._connection.forwarded((_LOOPBACK, port), origin) as channel,
        ):
            _exchange(client, channel)


def _listener(port: int) -> socket.socket:
    """On this port of the loopback, or on another one that is free."""
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
    """Pass on what either side sends until one of them has ended."""
    other: dict[socket.socket | paramiko.Channel, socket.socket | paramiko.Channel]
    other = {client: channel, channel: client}
    while True:
        for ready in select.select(list(other), [], [])[0]:
            data = ready.recv(_CHUNK)
            if not data:
                return
            other[ready].sendall(data)
