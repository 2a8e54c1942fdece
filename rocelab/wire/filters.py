"""Classic BPF programs that select the frames that packet sockets receive.

For SO_ATTACH_FILTER (Linux Documentation/networking/filter.rst). Standard library only.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterable

from rocelab.wire.headers import (
    BTH_OFFSET,
    IP_OFFSET,
    PAYLOAD_OFFSET,
    ROCE_PORT,
    UDP_OFFSET,
    Opcode,
)
from rocelab.wire.probe import MAGIC

_SO_ATTACH_FILTER = 26
_ETH_P_IP = 0x0800

# Codes of instructions; the other fields are jump if true, jump if false and operand.
_LD_WORD, _LD_HALF, _LD_BYTE = 0x20, 0x28, 0x30
_JUMP_EQUAL, _JUMP_GREATER, _JUMP_AT_LEAST, _JUMP_SET = 0x15, 0x25, 0x35, 0x45
_AND, _RETURN = 0x54, 0x06
_WHOLE = 0x40000
_FRAGMENT_BITS = 0x3FFF
_QP_BITS = 0xFFFFFF

_ROCE = (
    (_LD_HALF, 12, _ETH_P_IP),
    (_LD_BYTE, IP_OFFSET, 0x45),
    (_LD_BYTE, IP_OFFSET + 9, socket.IPPROTO_UDP),
    (_LD_HALF, BTH_OFFSET - 6, ROCE_PORT),
)

NOTHING = struct.pack("HBBI", _RETURN, 0, 0, 0)


def roce_filter() -> bytes:
    """A filter that accepts only whole IPv4 packets to RoCEv2's port."""
    return _all_of(_ROCE)


def probe_filter() -> bytes:
    """A filter that accepts only probes."""
    return _all_of((*_ROCE, (_LD_WORD, PAYLOAD_OFFSET, MAGIC)))


def flow_filter(
    source: str, destination: str, source_port: int, destination_qp: int | None = None
) -> bytes:
    """A filter that accepts only RoCEv2 packets of a flow, by its IPv4 addresses and UDP source
    port, to one QP or to any."""
    of_qp = (
        ()
        if destination_qp is None
        else (
            (_LD_BYTE, BTH_OFFSET + 5, destination_qp >> 16),
            (_LD_HALF, BTH_OFFSET + 6, destination_qp & 0xFFFF),
        )
    )
    ends = (
        (_LD_WORD, IP_OFFSET + 12, int.from_bytes(socket.inet_aton(source))),
        (_LD_WORD, IP_OFFSET + 16, int.from_bytes(socket.inet_aton(destination))),
        (_LD_HALF, UDP_OFFSET, source_port),
    )
    return _all_of((*_ROCE, *ends, *of_qp))


def queue_pair_filter(first: int, last: int) -> bytes:
    """A filter that accepts only RoCEv2 packets to QPs from `first` to `last`."""
    in_range = (
        (_LD_WORD, 0, 0, BTH_OFFSET + 4),
        (_AND, 0, 0, _QP_BITS),  # before the QP's there are those of congestion
        (_JUMP_AT_LEAST, 0, 2, first),
        (_JUMP_GREATER, 1, 0, last),
    )
    return _all_of(_ROCE, in_range)


def data_filter() -> bytes:
    """A filter that accepts only data packets of reliable connections (SENDs and WRITEs), for IPv4
    sockets."""
    program = (
        (_LD_BYTE, 0, 0, IP_OFFSET + 9),
        (_JUMP_EQUAL, 0, 5, socket.IPPROTO_UDP),
        (_LD_HALF, 0, 0, BTH_OFFSET - 6),
        (_JUMP_EQUAL, 0, 3, ROCE_PORT),
        (_LD_BYTE, 0, 0, BTH_OFFSET),
        (_JUMP_GREATER, 1, 0, Opcode.RC_WRITE_ONLY_WITH_IMM),
        (_RETURN, 0, 0, _WHOLE),
        (_RETURN, 0, 0, 0),
    )
    return _packed(program)


def _all_of(
    checks: tuple[tuple[int, int, int], ...], further: tuple[tuple[int, int, int, int], ...] = ()
) -> bytes:
    """`further` are instructions that go on to the first or the second one after them: accept,
    reject."""
    reject = 2 * len(checks) + 3 + len(further)
    program = []
    for load, offset, expected in checks:
        program.append((load, 0, 0, offset))
        program.append((_JUMP_EQUAL, 0, reject - len(program) - 1, expected))
    program.append((_LD_HALF, 0, 0, IP_OFFSET + 6))
    program.append((_JUMP_SET, reject - len(program) - 1, 0, _FRAGMENT_BITS))
    program += further
    program.append((_RETURN, 0, 0, _WHOLE))
    program.append((_RETURN, 0, 0, 0))
    return _packed(program)


def _packed(program: Iterable[tuple[int, int, int, int]]) -> bytes:
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def attach_filter(target: socket.socket, program: bytes) -> None:
    """Attach `program` to the socket `target`. Raises OSError."""
    code = ctypes.create_string_buffer(program, len(program))
    target.setsockopt(
        socket.SOL_SOCKET,
        _SO_ATTACH_FILTER,
        struct.pack("HL", len(program) // 8, ctypes.addressof(code)),
    )
