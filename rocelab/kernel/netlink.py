"""A raw rtnetlink socket that sends many messages at once and checks every answer, or reads all of
a table.

Batches matter: a fabric of 270 switches is some 20,000 messages, and one round trip each would
take longer than the kernel's own work.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence

SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
SOL_NETLINK = 270
NETLINK_ADD_MEMBERSHIP = 1
NETLINK_CAP_ACK = 10
NLMSG_ERROR = 2
NLMSG_DONE = 3
REQUEST_DUMP = 0x301
BATCH_BYTES = 256 * 1024
DATAGRAM_BYTES = 128 * 1024
"""More than the kernel puts into one datagram (net/netlink/af_netlink.c)."""

HEADER = struct.Struct("=IHHII")
_ERRNO = struct.Struct("=i")


def open_socket(groups: Sequence[int] = (), receive_buffer_bytes: int = 1 << 20) -> socket.socket:
    """An rtnetlink socket of the calling thread's namespace, joined to multicast `groups`."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    netlink.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 4 * BATCH_BYTES)
    netlink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, receive_buffer_bytes)
    netlink.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
    netlink.bind((0, 0))
    for group in groups:
        netlink.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
    return netlink


def send_batch(netlink: socket.socket, messages: Sequence[bytes]) -> None:
    """Send `messages`, each asking for an acknowledgement, and read them all.

    Raises OSError with the kernel's errno for the first message refused; the rest of its batch
    has been carried out by then.
    """
    start = 0
    while start < len(messages):
        end, size = start, 0
        while end < len(messages) and (size == 0 or size + len(messages[end]) <= BATCH_BYTES):
            size += len(messages[end])
            end += 1
        netlink.send(b"".join(messages[start:end]))
        _read_acknowledgements(netlink, end - start)
        start = end


def dump(netlink: socket.socket, kind: int, body: bytes) -> list[bytes]:
    """The body of every message that the kernel answers a dump request with.

    Raises OSError with its errno where it refuses.
    """
    netlink.send(HEADER.pack(HEADER.size + len(body), kind, REQUEST_DUMP, 0, 0) + body)
    bodies: list[bytes] = []
    while True:
        data, offset = netlink.recv(DATAGRAM_BYTES), 0
        while offset < len(data):
            length, answer, _, _, _ = HEADER.unpack_from(data, offset)
            start = offset + HEADER.size
            if answer == NLMSG_DONE:
                return bodies
            if answer == NLMSG_ERROR:
                code = -_ERRNO.unpack_from(data, start)[0]
                raise OSError(code, f"netlink dump: {os.strerror(code)}")
            bodies.append(data[start : offset + length])
            offset += (length + 3) & ~3


def _read_acknowledgements(netlink: socket.socket, expected: int) -> None:
    refused = 0
    while expected:
        data = netlink.recv(1 << 16)
        offset = 0
        while offset < len(data):
            length, kind, _, _, _ = HEADER.unpack_from(data, offset)
            if kind == NLMSG_ERROR:
                refused = refused or -_ERRNO.unpack_from(data, offset + HEADER.size)[0]
                expected -= 1
            offset += (length + 3) & ~3
    if refused:
        raise OSError(refused, f"netlink: {os.strerror(refused)}")
