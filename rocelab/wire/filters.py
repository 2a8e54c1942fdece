"""Classic BPF programs that select the frames that packet sockets receive.

For SO_ATTACH_FILTER (Linux Documentation/networking/filter.rst). Standard library only.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterable, Sequence

from rocelab.base.family import Family
from rocelab.wire.headers import IP_OFFSET, OFFSETS, ROCE_PORT, Opcode
from rocelab.wire.probe import MAGIC
from rocelab.wire.vxlan import VXLAN_BYTES, VXLAN_PORT

_SO_ATTACH_FILTER = 26

# Codes of instructions; the other fields are jump if true, jump if false and operand.
_LD_WORD, _LD_HALF, _LD_BYTE = 0x20, 0x28, 0x30
_JUMP_EQUAL, _JUMP_GREATER, _JUMP_AT_LEAST, _JUMP_SET = 0x15, 0x25, 0x35, 0x45
_AND, _RETURN = 0x54, 0x06
_LDX_NUMBER = 0x01
_RELATIVE = {_LD_WORD: 0x40, _LD_HALF: 0x48, _LD_BYTE: 0x50}
"""The loads at an offset from the register X in place of those at an offset from the start."""
_WHOLE = 0x40000
_FRAGMENT_BITS = 0x3FFF
_QP_BITS = 0xFFFFFF
_PROTOCOL_IN_IP = {Family.IPV4: 9, Family.IPV6: 6}

NOTHING = struct.pack("HBBI", _RETURN, 0, 0, 0)

_Check = tuple[int, int, int]
"""A load, its offset, and what it has to load."""


def roce_filter(family: Family) -> bytes:
    """A filter that accepts only whole packets of that family to RoCEv2's port."""
    return _all_of(family, ())


def probe_filter(family: Family) -> bytes:
    """A filter that accepts only probes."""
    return _all_of(family, ((_LD_WORD, OFFSETS[family].payload, MAGIC),))


def flow_filter(
    source: str, destination: str, source_port: int, destination_qp: int | None = None
) -> bytes:
    """A filter that accepts only RoCEv2 packets of a flow, by its addresses and UDP source port, to
    one QP or to any."""
    family = Family.of(source)
    offsets = OFFSETS[family]
    ends = b"".join(socket.inet_pton(family.number, address) for address in (source, destination))
    first = offsets.udp - len(ends)
    checks = [
        (_LD_WORD, first + start, int.from_bytes(ends[start : start + 4]))
        for start in range(0, len(ends), 4)
    ]
    checks.append((_LD_HALF, offsets.udp, source_port))
    if destination_qp is not None:
        checks.append((_LD_BYTE, offsets.bth + 5, destination_qp >> 16))
        checks.append((_LD_HALF, offsets.bth + 6, destination_qp & 0xFFFF))
    return _all_of(family, checks)


def queue_pair_filter(first: int, last: int, family: Family) -> bytes:
    """A filter that accepts only RoCEv2 packets to QPs from `first` to `last`."""
    in_range = (
        (_LD_WORD, 0, 0, OFFSETS[family].bth + 4),
        (_AND, 0, 0, _QP_BITS),  # before the QP's there are those of congestion
        (_JUMP_AT_LEAST, 0, 2, first),
        (_JUMP_GREATER, 1, 0, last),
    )
    return _all_of(family, (), in_range)


def data_filter(family: Family) -> bytes:
    """A filter that accepts only data packets of reliable connections (SENDs and WRITEs), for
    sockets of that family."""
    offsets = OFFSETS[family]
    program = (
        (_LD_BYTE, 0, 0, IP_OFFSET + _PROTOCOL_IN_IP[family]),
        (_JUMP_EQUAL, 0, 5, socket.IPPROTO_UDP),
        (_LD_HALF, 0, 0, offsets.udp + 2),
        (_JUMP_EQUAL, 0, 3, ROCE_PORT),
        (_LD_BYTE, 0, 0, offsets.bth),
        (_JUMP_GREATER, 1, 0, Opcode.RC_WRITE_ONLY_WITH_IMM),
        (_RETURN, 0, 0, _WHOLE),
        (_RETURN, 0, 0, 0),
    )
    return _packed(program)


def _roce(family: Family) -> tuple[_Check, ...]:
    """What makes a packet RoCEv2. One of IPv6 in fragments has another next header than UDP."""
    version = ((_LD_BYTE, IP_OFFSET, 0x45),) if family is Family.IPV4 else ()
    return (
        (_LD_HALF, IP_OFFSET - 2, family.ethertype),
        *version,
        (_LD_BYTE, IP_OFFSET + _PROTOCOL_IN_IP[family], socket.IPPROTO_UDP),
        (_LD_HALF, OFFSETS[family].udp + 2, ROCE_PORT),
    )


def _all_of(
    family: Family,
    checks: Sequence[_Check],
    further: tuple[tuple[int, int, int, int], ...] = (),
) -> bytes:
    """RoCEv2 that passes the checks. `further` are instructions that go on to the first or the
    second one after them: accept, reject."""
    checks = (*_roce(family), *checks)
    is_whole = 2 if family is Family.IPV4 else 0
    reject = 2 * len(checks) + is_whole + 1 + len(further)
    program = []
    for load, offset, expected in checks:
        program.append((load, 0, 0, offset))
        program.append((_JUMP_EQUAL, 0, reject - len(program) - 1, expected))
    if is_whole:
        program.append((_LD_HALF, 0, 0, IP_OFFSET + 6))
        program.append((_JUMP_SET, reject - len(program) - 1, 0, _FRAGMENT_BITS))
    program += further
    program.append((_RETURN, 0, 0, _WHOLE))
    program.append((_RETURN, 0, 0, 0))
    return _packed(program)


def within_vxlan(program: bytes) -> bytes:
    """The filter for ports where packets may be inside of VXLAN: it reads of these the frame
    inside, of others the frame itself.

    Every load becomes one relative to the register X, which has the start of the frame that counts
    (Linux Documentation/networking/filter.rst).
    """
    is_vxlan = (
        (_LD_HALF, IP_OFFSET - 2, Family.IPV4.ethertype),
        (_LD_BYTE, IP_OFFSET, 0x45),
        (_LD_BYTE, IP_OFFSET + _PROTOCOL_IN_IP[Family.IPV4], socket.IPPROTO_UDP),
        (_LD_HALF, OFFSETS[Family.IPV4].udp + 2, VXLAN_PORT),
    )
    start: list[tuple[int, int, int, int]] = [(_LDX_NUMBER, 0, 0, 0)]
    end = len(start) + 2 * len(is_vxlan) + 1
    for load, offset, expected in is_vxlan:
        start.append((load, 0, 0, offset))
        start.append((_JUMP_EQUAL, 0, end - len(start) - 1, expected))
    start.append((_LDX_NUMBER, 0, 0, VXLAN_BYTES))
    rest = struct.iter_unpack("HBBI", program)
    relative = ((_RELATIVE.get(code, code), yes, no, value) for code, yes, no, value in rest)
    return _packed((*start, *relative))


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
