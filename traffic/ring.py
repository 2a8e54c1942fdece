"""The receiving end of a server: probes off every NIC of a namespace, with kernel timestamps.

A packet socket with a TPACKET_V3 ring (Linux Documentation/networking/packet_mmap.rst): the kernel
stamps each probe as it arrives, copies its headers into the ring and hands over whole blocks, so
that receiving costs no system call per packet. Out: columns of raw numbers in arrival order.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
from typing import NamedTuple

from traffic.probe import BTH_OFFSET, HEADER_END, IP_OFFSET, MAGIC, PAYLOAD_OFFSET, ROCE_PORT

BLOCK_BYTES = 16 * 1024
BLOCKS = 64
RETIRE_MS = 20
"""A block that is not full is handed over after this long: the longest a probe stays unseen."""

_ETH_P_IP = 0x0800
_SO_ATTACH_FILTER = 26
_SOL_PACKET = 263
_PACKET_RX_RING = 5
_PACKET_STATISTICS = 6
_PACKET_VERSION = 10
_TPACKET_V3 = 2
_TP_STATUS_USER = 1

# struct tpacket_block_desc with tpacket_hdr_v1, and tpacket3_hdr (linux/if_packet.h).
_BLOCK_STATUS = 8
_BLOCK_PACKETS = 12
_BLOCK_FIRST = 16
_PACKET_SECONDS = 4
_PACKET_NANOSECONDS = 8
_PACKET_MAC = 24

_SMALLEST_FRAME = 256

# Classic BPF (Linux Documentation/networking/filter.rst): code, jump if true, if false, operand.
_LD_WORD, _LD_HALF, _LD_BYTE = 0x20, 0x28, 0x30
_JUMP_EQUAL, _JUMP_SET, _RETURN = 0x15, 0x45, 0x06


class Columns(NamedTuple):
    """One value per probe, in arrival order, as packed bytes.

    `flow` (4 bytes), `sequence` and `send_ns` (8) are in network order as they stood in the packet;
    `seconds` and `nanoseconds` (4 each, CLOCK_REALTIME) are in the machine's; `ttl` is 1 byte.
    """

    flow: bytes
    sequence: bytes
    send_ns: bytes
    seconds: bytes
    nanoseconds: bytes
    ttl: bytes


def probe_filter() -> bytes:
    """Classic BPF: only whole probes pass, cut to their headers, so that all records are alike."""
    checks = (
        (_LD_HALF, 12, _ETH_P_IP),
        (_LD_BYTE, IP_OFFSET, 0x45),
        (_LD_BYTE, IP_OFFSET + 9, socket.IPPROTO_UDP),
        (_LD_HALF, BTH_OFFSET - 6, ROCE_PORT),
        (_LD_WORD, PAYLOAD_OFFSET, MAGIC),
    )
    fragment_bits = 0x3FFF
    length = 2 * len(checks) + 5
    reject = length - 1
    program = []
    for load, offset, expected in checks:
        program.append((load, 0, 0, offset))
        program.append((_JUMP_EQUAL, 0, reject - len(program) - 1, expected))
    program.append((_LD_HALF, 0, 0, IP_OFFSET + 6))
    program.append((_JUMP_SET, reject - len(program) - 1, 0, fragment_bits))
    # A load beyond the end of a packet rejects it: this one asks for the whole probe header.
    program.append((_LD_WORD, 0, 0, HEADER_END - 4))
    program.append((_RETURN, 0, 0, HEADER_END))
    program.append((_RETURN, 0, 0, 0))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def attach_filter(target: socket.socket, program: bytes) -> None:
    """Let only what `program` accepts into `target`. Raises OSError."""
    code = ctypes.create_string_buffer(program, len(program))
    target.setsockopt(
        socket.SOL_SOCKET,
        _SO_ATTACH_FILTER,
        struct.pack("HL", len(program) // 8, ctypes.addressof(code)),
    )


def _bind_to_all_interfaces(target: socket.socket) -> None:
    # Python's own bind wants the name of one interface; the kernel takes index 0 for all.
    address = struct.pack("HHiHBB8x", socket.AF_PACKET, socket.htons(_ETH_P_IP), 0, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).bind(target.fileno(), address, len(address)) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"bind packet socket: {os.strerror(errno)}")


def open_sink() -> socket.socket:
    """A UDP socket on the RoCEv2 port that takes nothing.

    Without it the server's kernel would answer probes with ICMP port unreachable, which a RoCE NIC
    never does. Raises OSError where the port is taken.
    """
    sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    attach_filter(sink, struct.pack("HBBI", _RETURN, 0, 0, 0))
    sink.bind(("0.0.0.0", ROCE_PORT))  # noqa: S104 - inside a lab's namespace
    return sink


class ProbeRing:
    """Receives the probes of the namespace it is made in, on every interface."""

    def __init__(self) -> None:
        """Starts receiving. Raises OSError without CAP_NET_RAW or memory."""
        # Protocol 0 until filter and ring stand: nothing else ever gets in. ETH_P_IP, not
        # ETH_P_ALL, keeps the socket off the path of outgoing packets.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        attach_filter(self._socket, probe_filter())
        self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V3)
        frames = BLOCK_BYTES // _SMALLEST_FRAME * BLOCKS
        request = (BLOCK_BYTES, BLOCKS, _SMALLEST_FRAME, frames, RETIRE_MS, 0, 0)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, struct.pack("7I", *request))
        self._memory = mmap.mmap(self._socket.fileno(), BLOCK_BYTES * BLOCKS)
        self._bytes = memoryview(self._memory)
        self._halves = self._bytes.cast("H")
        self._words = self._bytes.cast("I")
        self._longs = self._bytes.cast("Q")
        self._next_block = 0
        self._chunks: list[Columns] = []
        _bind_to_all_interfaces(self._socket)

    def fileno(self) -> int:
        """Readable once a block is ready."""
        return self._socket.fileno()

    def drain(self) -> int:
        """Take every block that is ready; how many probes they held."""
        taken = 0
        while True:
            start = self._next_block * BLOCK_BYTES
            status = (start + _BLOCK_STATUS) // 4
            if not self._words[status] & _TP_STATUS_USER:
                return taken
            count = self._words[(start + _BLOCK_PACKETS) // 4]
            if count:
                first = start + self._words[(start + _BLOCK_FIRST) // 4]
                self._chunks.append(self._columns(first, count))
                taken += count
            self._words[status] = 0
            self._next_block = (self._next_block + 1) % BLOCKS

    def _columns(self, first: int, count: int) -> Columns:
        # The filter cuts every probe to one length, so records follow at one distance; the last
        # of a block names none.
        stride = self._words[first // 4] or BLOCK_BYTES
        end = first + stride * (count - 1) + 1
        ip = first + self._halves[(first + _PACKET_MAC) // 2] + IP_OFFSET
        payload = ip + PAYLOAD_OFFSET - IP_OFFSET

        def column(view: memoryview, item_bytes: int, offset: int) -> bytes:
            last = end + offset - first
            return view[
                offset // item_bytes : -(-last // item_bytes) : stride // item_bytes
            ].tobytes()

        return Columns(
            flow=column(self._words, 4, payload + 4),
            sequence=column(self._longs, 8, payload + 8),
            send_ns=column(self._longs, 8, payload + 16),
            seconds=column(self._words, 4, first + _PACKET_SECONDS),
            nanoseconds=column(self._words, 4, first + _PACKET_NANOSECONDS),
            ttl=column(self._bytes, 1, ip + 8),
        )

    def drops(self) -> int:
        """Probes the ring had no room for, since the last call. Raises OSError."""
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 12)
        _, drops, _ = struct.unpack("3I", statistics)
        return int(drops)

    def columns(self) -> Columns:
        """All probes drained so far, in arrival order."""
        if not self._chunks:
            return Columns(b"", b"", b"", b"", b"", b"")
        return Columns(*(b"".join(column) for column in zip(*self._chunks, strict=True)))
