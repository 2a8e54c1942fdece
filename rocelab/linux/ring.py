"""Receives frames from packet sockets, with kernel timestamps: a server's RoCEv2 frames, or a delay
line's input.

A socket has a TPACKET_V2 ring (Linux Documentation/networking/packet_mmap.rst): the kernel stamps
each frame as it arrives and copies it into the ring, where it is read in place, so that receiving
costs no system call per packet. Standard library only.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
from collections.abc import Iterator

from rocelab.base.family import Family
from rocelab.wire.filters import NOTHING, attach_filter, roce_filter
from rocelab.wire.headers import ROCE_PORT

RING_BYTES = 4 << 20
"""The kernel clears it in one step, during which nothing else runs on that CPU: 10 ms per server if
the hypervisor has to find the memory first."""

SECOND_NS = 10**9
DRAIN_LIMIT = 512
"""The most frames that a server reads at once, so that senders get their turn."""

_SOL_PACKET = 263
_PACKET_RX_RING = 5
_PACKET_STATISTICS = 6
_PACKET_VERSION = 10
_TPACKET_V2 = 1
_TP_STATUS_USER = 1
_TP_STATUS_VLAN_VALID = 16
_ALIGNMENT = 16
_BLOCK_BYTES = 64 * 1024

# struct tpacket2_hdr (linux/if_packet.h): status, length, captured, offset of the Ethernet header,
# of the IP header, seconds, nanoseconds, VLAN tag.
_FRAME = struct.Struct("=IIIHHIIH")
_MOST_HEADROOM_BYTES = 128


def _bind_to_all_interfaces(target: socket.socket, family: Family) -> None:
    # Python's bind needs the name of one interface; for the kernel index 0 means all.
    protocol = socket.htons(family.ethertype)
    address = struct.pack("HHiHBB8x", socket.AF_PACKET, protocol, 0, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).bind(target.fileno(), address, len(address)) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"bind packet socket: {os.strerror(errno)}")


def open_sink(family: Family) -> socket.socket:
    """A UDP socket of that family on the RoCEv2 port that accepts nothing.

    Without it the server's kernel would answer with ICMP port unreachable, which a RoCE NIC never
    does. Raises OSError if the port is in use.
    """
    sink = socket.socket(family.number, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    attach_filter(sink, NOTHING)
    sink.bind(("", ROCE_PORT))
    return sink


def slot_bytes(frame_bytes: int) -> int:
    """The least slot size that the kernel accepts for frames of that size."""
    return -(-(frame_bytes + _MOST_HEADROOM_BYTES) // _ALIGNMENT) * _ALIGNMENT


def open_ring(frame_bytes: int, family: Family) -> PacketRing:
    """A ring of the RoCEv2 frames of that family of the calling thread's namespace, on every
    interface.

    Raises OSError without CAP_NET_RAW or memory.
    """
    # Protocol 0 until filter and ring exist, so that no other frame gets in. An EtherType, not
    # ETH_P_ALL, keeps the socket off the path of outgoing packets.
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    attach_filter(packets, roce_filter(family))
    ring = PacketRing(packets, frame_bytes, DRAIN_LIMIT)
    _bind_to_all_interfaces(packets, family)
    return ring


class PacketRing:
    """The ring of a packet socket, which is bound after its ring is made."""

    def __init__(self, packets: socket.socket, frame_bytes: int, limit: int) -> None:
        """Makes room for frames of at most `frame_bytes` (below 64 KiB; longer ones are cut), of
        which up to `limit` are read at once.

        Raises OSError without memory.
        """
        self._socket = packets
        self._limit = limit
        packets.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        slot = slot_bytes(frame_bytes)
        self._starts = tuple(
            block + start
            for block in range(0, RING_BYTES, _BLOCK_BYTES)
            for start in range(0, _BLOCK_BYTES - slot + 1, slot)
        )
        blocks = RING_BYTES // _BLOCK_BYTES
        request = struct.pack("4I", _BLOCK_BYTES, blocks, slot, len(self._starts))
        packets.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
        self.memory = memoryview(mmap.mmap(packets.fileno(), RING_BYTES))
        """The ring; `frames` gives the places of the frames."""
        self._next = 0

    def fileno(self) -> int:
        """Readable when a frame has arrived."""
        return self._socket.fileno()

    def frames(self) -> Iterator[tuple[int, int, int]]:
        """Every waiting frame, up to the limit: the offset of its Ethernet header in `memory`, and
        the seconds and nanoseconds (CLOCK_REALTIME) of its arrival.

        A frame stays in place until the next is requested.
        """
        memory, starts, slots = self.memory, self._starts, len(self._starts)
        unpack = _FRAME.unpack_from
        for _ in range(self._limit):
            start = starts[self._next]
            status, _, _, mac, _, seconds, nanoseconds, _ = unpack(memory, start)
            if not status & _TP_STATUS_USER:
                return
            yield start + mac, seconds, nanoseconds
            memory[start : start + 4] = b"\0\0\0\0"
            self._next = (self._next + 1) % slots

    def tag_and_length(self) -> tuple[int, int] | None:
        """VLAN tag and bytes of the frame that `frames` gave last; None if it has no tag or was
        cut."""
        status, length, captured, _, _, _, _, tag = _FRAME.unpack_from(
            self.memory, self._starts[self._next]
        )
        return (tag, length) if status & _TP_STATUS_VLAN_VALID and captured == length else None

    def waiting_since_ns(self) -> int | None:
        """When the frame that `frames` gives next arrived (CLOCK_REALTIME), None for none."""
        status, _, _, _, _, seconds, nanoseconds, _ = _FRAME.unpack_from(
            self.memory, self._starts[self._next]
        )
        return seconds * SECOND_NS + nanoseconds if status & _TP_STATUS_USER else None

    def drops(self) -> int:
        """Frames that the ring had no room for since the last call. Raises OSError."""
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        _, drops = struct.unpack("2I", statistics)
        return int(drops)
