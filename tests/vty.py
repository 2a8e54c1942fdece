"""A vty socket that answers what a test says, as a daemon that was taken over may."""

from __future__ import annotations

import socket
from contextlib import suppress


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
