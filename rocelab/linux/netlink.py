"""rtnetlink: sends many messages at once and checks every answer, reads whole tables, and encodes
and decodes messages and attributes.

Batches matter: a fabric of 270 switches is some 20,000 messages, and one round trip each would
take longer than the kernel's own work. Decoding does too: such a fabric has a million next hops,
and its tables are read while packets are measured. Therefore `struct` encodes and decodes, and not
pyroute2, which takes some 20 times as long, and whose import takes a third of a second.

Source: include/uapi/linux/netlink.h and rtnetlink.h.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from itertools import count

SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
SOL_NETLINK = 270
NETLINK_ADD_MEMBERSHIP = 1
NETLINK_CAP_ACK = 10
NETLINK_GET_STRICT_CHK = 12
NLMSG_ERROR = 2
NLMSG_DONE = 3
BATCH_BYTES = 256 * 1024
DATAGRAM_BYTES = 128 * 1024
"""More than the kernel puts into one datagram (net/netlink/af_netlink.c)."""

REQUEST_ACK = 0x005
REQUEST_ACK_REPLACE = 0x505
REQUEST_ACK_CREATE = 0x405
REQUEST_ACK_CREATE_EXCL = 0x605
REQUEST_DUMP = 0x301
REQUEST_ACK_ECHO = 0x00D
"""The kernel answers some requests by a notification, which the sender receives only with this
flag."""

HEADER = struct.Struct("=IHHII")
_SEQUENCES = count(1)
_U32 = struct.Struct("=I")
_ERRNO = struct.Struct("=i")
_unpack_attribute = struct.Struct("=HH").unpack_from
_pack_attribute = struct.Struct("=HH").pack
_ATTRIBUTE_TYPE = 0x3FFF


def open_socket(groups: Sequence[int] = (), receive_buffer_bytes: int = 1 << 20) -> socket.socket:
    """An rtnetlink socket of the calling thread's namespace, joined to multicast `groups`.

    A dump request for one table gets only that table (NETLINK_GET_STRICT_CHK).
    """
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    netlink.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 4 * BATCH_BYTES)
    netlink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, receive_buffer_bytes)
    netlink.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
    netlink.setsockopt(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)
    netlink.bind((0, 0))
    for group in groups:
        netlink.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
    return netlink


def request(kind: int, body: bytes, flags: int = REQUEST_ACK) -> bytes:
    """A message; by default one that asks for an acknowledgement."""
    return HEADER.pack(HEADER.size + len(body), kind, flags, 0, 0) + body


def attribute(kind: int, value: bytes) -> bytes:
    """A netlink attribute, padded to four bytes."""
    return _pack_attribute(4 + len(value), kind) + value + bytes(-len(value) % 4)


def messages(datagram: bytes, sequence: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Type and body of each message in a datagram, with `sequence` only of the answers to that
    request: answers to one that timed out may come later."""
    offset = 0
    while offset + HEADER.size <= len(datagram):
        length, kind, _, answered, _ = HEADER.unpack_from(datagram, offset)
        if length < HEADER.size:
            return
        if sequence is None or answered == sequence:
            yield kind, datagram[offset + HEADER.size : offset + length]
        offset += (length + 3) & ~3


def attributes(data: bytes, start: int = 0) -> dict[int, bytes]:
    """Attributes by kind, from the bytes that hold them from `start` on."""
    values = {}
    last = len(data) - 4
    while start <= last:
        length, kind = _unpack_attribute(data, start)
        if length < 4:
            break
        values[kind & _ATTRIBUTE_TYPE] = data[start + 4 : start + length]
        start += (length + 3) & ~3
    return values


def find(data: bytes, start: int, kind: int) -> bytes:
    """The first attribute of a kind, empty if missing."""
    last = len(data) - 4
    while start <= last:
        length, attribute = _unpack_attribute(data, start)
        if attribute & _ATTRIBUTE_TYPE == kind:
            return data[start + 4 : start + length]
        if length < 4:
            break
        start += (length + 3) & ~3
    return b""


def u32(value: int) -> bytes:
    """A number as an attribute's value."""
    return _U32.pack(value)


def number(value: bytes) -> int:
    """The number in an attribute's value of any size; 0 if empty."""
    return int.from_bytes(value, sys.byteorder)


def text(value: bytes) -> str:
    """The string in an attribute's value."""
    return value.rstrip(b"\0").decode(errors="replace")


def send_batch(netlink: socket.socket, requests: Sequence[bytes]) -> None:
    """Send `requests`, each with a requested acknowledgement, and read all acknowledgements.

    Raises OSError with the kernel's errno for the first refused request; the rest of its batch has
    been carried out by then.
    """
    start = 0
    while start < len(requests):
        end, size = start, 0
        while end < len(requests) and (size == 0 or size + len(requests[end]) <= BATCH_BYTES):
            size += len(requests[end])
            end += 1
        refused = 0
        for kind, body in _answers(netlink, requests[start:end]):
            if kind == NLMSG_ERROR:
                refused = refused or -_ERRNO.unpack_from(body)[0]
        if refused:
            raise OSError(refused, f"netlink: {os.strerror(refused)}")
        start = end


def ask(netlink: socket.socket, requests: Sequence[bytes]) -> list[bytes]:
    """The body of each answer to `requests`, each with a requested acknowledgement: the kernel
    answers some neither with what was asked for nor with an error."""
    return [body for kind, body in _answers(netlink, requests) if kind != NLMSG_ERROR]


def _answers(netlink: socket.socket, requests: Sequence[bytes]) -> list[tuple[int, bytes]]:
    netlink.send(b"".join(requests))
    answers: list[tuple[int, bytes]] = []
    while sum(kind == NLMSG_ERROR for kind, _ in answers) < len(requests):
        answers += messages(netlink.recv(DATAGRAM_BYTES), 0)
    return answers


def dump(netlink: socket.socket, kind: int, body: bytes) -> list[bytes]:
    """The body of every message in the kernel's answer to a dump request.

    Raises OSError with the kernel's errno if it refuses.
    """
    sequence = next(_SEQUENCES)
    netlink.send(HEADER.pack(HEADER.size + len(body), kind, REQUEST_DUMP, sequence, 0) + body)
    bodies: list[bytes] = []
    while True:
        for answer, message in messages(netlink.recv(DATAGRAM_BYTES), sequence):
            if answer == NLMSG_DONE:
                return bodies
            if answer == NLMSG_ERROR:
                code = -_ERRNO.unpack_from(message)[0]
                raise OSError(code, f"netlink dump: {os.strerror(code)}")
            bodies.append(message)
