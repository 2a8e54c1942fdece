"""A vty socket with a test's answer, or with one that never ends, as from a daemon that was taken
over."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event

DRIP_INTERVAL_S = 0.05


def answer_all(listening: socket.socket, answer: bytes) -> None:
    """Give every command this answer (FRR lib/vty.c: three zero bytes and a status end it), until
    the socket is shut."""
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            while connection.recv(1 << 16):
                connection.sendall(answer + b"\0\0\0\0")


def drip(listening: socket.socket, begun: Event, over: Event) -> None:
    """Send each client an endless answer byte by byte until `over` is set and the socket is shut.
    `begun` is set at its first byte."""
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            while not over.wait(DRIP_INTERVAL_S):
                connection.sendall(b"{")
                begun.set()
