"""The adversarial suite's observer: records what the kernel saw on a lab's wires.

It records every RoCEv2 packet that left or reached a server of a running lab, with the kernel's
timestamp, and every change of a port. It shares no code with the checked product except for
entering a namespace: it uses neither agents' records nor the product's capture or watches.

Nothing reads during a run: the kernel writes into rings that hold a whole run, so that the observer
costs no wake-up and a busy machine cannot make it late. Changes of ports have no kernel timestamp;
a process of the highest real-time priority stamps them on arrival.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rocelab.lab.lab import RunningLab
from rocelab.linux import namespaces
from tests.adversary import portwatch

SLOT_BYTES = 256
_BLOCK_BYTES = 1 << 16
_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION = 5, 6, 10
_TPACKET_V2 = 1
_TP_STATUS_USER = 1
_PACKET_OUTGOING = 4
_SO_ATTACH_FILTER = 26
_SO_RCVBUFFORCE = 33
_RTMGRP_LINK = 1

_ROCE = (
    # IPv4, UDP, without options, to port 4791: everything else is no business of a probe or job.
    (0x28, 0, 0, 12),
    (0x15, 0, 7, 0x0800),
    (0x30, 0, 0, 14),
    (0x15, 0, 5, 0x45),
    (0x30, 0, 0, 23),
    (0x15, 0, 3, 17),
    (0x28, 0, 0, 36),
    (0x15, 0, 1, 4791),
    (0x06, 0, 0, 0x40000),
    (0x06, 0, 0, 0),
)

# struct tpacket2_hdr and struct sockaddr_ll (linux/if_packet.h), then the frame, which a raw socket
# has at byte 66: Ethernet, IPv4, UDP, BTH, and the beginning of the payload.
_MAC = 66
_FIELDS: tuple[tuple[str, str, int], ...] = (
    ("status", "<u4", 0),
    ("mac", "<u2", 12),
    ("seconds", "<u4", 16),
    ("nanoseconds", "<u4", 20),
    ("kind", "u1", 42),
    ("tos", "u1", _MAC + 15),
    ("ip_bytes", ">u2", _MAC + 16),
    ("source", ">u4", _MAC + 26),
    ("destination", ">u4", _MAC + 30),
    ("opcode", "u1", _MAC + 42),
    ("pad", "u1", _MAC + 43),
    ("queue_pair", ">u4", _MAC + 46),
    ("psn", ">u4", _MAC + 50),
    ("magic", ">u4", _MAC + 54),
    ("flow", ">u4", _MAC + 58),
    ("sequence", ">u8", _MAC + 62),
    ("stamp_ns", ">u8", _MAC + 70),
)
_SLOT = np.dtype(
    {
        "names": [name for name, _, _ in _FIELDS],
        "formats": [form for _, form, _ in _FIELDS],
        "offsets": [offset for _, _, offset in _FIELDS],
        "itemsize": SLOT_BYTES,
    }
)
Packets = npt.NDArray[Any]
"""Rows of `_SLOT`, with added `time_ns` and `outgoing` (`Taken.packets`)."""

PACKET = np.dtype(
    [("time_ns", "<i8"), ("outgoing", "?")]
    + [
        (name, form.replace(">", "<"))
        for name, form, _ in _FIELDS
        if name not in ("status", "mac", "seconds", "nanoseconds", "kind")
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """The packets on the servers' ports since the last call. `lost` packets found no room: then the
    run cannot be judged."""

    packets: Packets
    lost: int


@dataclass(frozen=True, slots=True)
class PortChange:
    """A port's change as its kernel reported it: `running` is with carrier, up, and not dormant."""

    time_ns: int
    node: str
    interface: str
    running: bool


class _Ring:
    """The packets of one namespace, in memory that the kernel fills by itself."""

    def __init__(self, slots: int) -> None:
        blocks = -(-slots * SLOT_BYTES // _BLOCK_BYTES)
        self._slots = blocks * _BLOCK_BYTES // SLOT_BYTES
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        program = b"".join(struct.pack("HBBI", *instruction) for instruction in _ROCE)
        code = ctypes.create_string_buffer(program, len(program))
        self._socket.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", 10, ctypes.addressof(code))
        )
        self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        request = struct.pack("4I", _BLOCK_BYTES, blocks, SLOT_BYTES, self._slots)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
        self._memory = mmap.mmap(self._socket.fileno(), blocks * _BLOCK_BYTES)
        self._rows = np.frombuffer(self._memory, dtype=_SLOT)
        self._next = 0
        address = struct.pack("HHiHBB8x", socket.AF_PACKET, socket.htons(_ETH_P_ALL), 0, 0, 0, 0)
        if ctypes.CDLL(None, use_errno=True).bind(self._socket.fileno(), address, len(address)):
            raise OSError(ctypes.get_errno(), "bind packet socket")

    def take(self) -> tuple[Packets, int]:
        count = int(np.count_nonzero(self._rows["status"] & _TP_STATUS_USER))
        places = (self._next + np.arange(count)) % self._slots
        rows = self._rows[places]
        assert np.all(rows["mac"] == _MAC), "frames are not where they are read"
        self._rows["status"][places] = 0
        self._next = (self._next + count) % self._slots
        packets = np.empty(count, PACKET)
        for name in PACKET.names or ():
            if name in _SLOT.fields:  # type: ignore[operator]
                packets[name] = rows[name]
        packets["time_ns"] = rows["seconds"].astype(np.int64) * 10**9 + rows["nanoseconds"]
        packets["outgoing"] = rows["kind"] == _PACKET_OUTGOING
        packets["queue_pair"] &= 0xFFFFFF
        packets["psn"] &= 0xFFFFFF
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        return packets, struct.unpack("2I", statistics)[1]

    def close(self) -> None:
        del self._rows
        self._memory.close()
        self._socket.close()


def _inside(lab: RunningLab, node: str, function: Callable[[], Any]) -> Any:
    return namespaces.inside(lab.node(node).netns, function)


class Observer:
    """Watches a lab that is up, within its context. `slots` is the capacity of each server's ring
    in packets, sent and received together."""

    def __init__(self, lab: RunningLab, slots: Mapping[str, int]) -> None:
        self._lab = lab
        self._slots = slots
        self._rings: list[_Ring] = []
        self._ports: _PortWatch | None = None

    def __enter__(self) -> Self:
        try:
            for server, slots in self._slots.items():
                self._rings.append(_inside(self._lab, server, partial(_Ring, slots)))
            self._ports = _PortWatch(self._lab, [*self._slots, *_switches(self._lab)])
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        for ring in self._rings:
            ring.close()
        if self._ports is not None:
            self._ports.end()

    def take(self) -> Taken:
        """The packets since the last call, in no order over servers."""
        parts = [ring.take() for ring in self._rings]
        return Taken(np.concatenate([packets for packets, _ in parts]), sum(n for _, n in parts))

    def port_changes(self) -> tuple[PortChange, ...]:
        """Return all changes of ports and end the watch."""
        assert self._ports is not None
        return self._ports.end()


def _switches(lab: RunningLab) -> Collection[str]:
    return [node.name for node in lab.fabric.switches]


class _PortWatch:
    """A process that stamps rtnetlink's messages about ports, with priority over everything
    else."""

    def __init__(self, lab: RunningLab, nodes: Sequence[str]) -> None:
        self._told: tuple[PortChange, ...] | None = None
        self._nodes = nodes
        channels = [_inside(lab, node, _link_socket) for node in nodes]
        numbers = [channel.fileno() for channel in channels]
        self._process = subprocess.Popen(
            [sys.executable, "-m", portwatch.__name__, *map(str, numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=numbers,
            text=True,
        )
        for channel in channels:
            channel.close()
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def end(self) -> tuple[PortChange, ...]:
        if self._told is None:
            said, _ = self._process.communicate()
            self._told = tuple(map(self._read, said.splitlines()))
        return self._told

    def _read(self, line: str) -> PortChange:
        time_ns, place, interface, running = line.split()
        return PortChange(int(time_ns), self._nodes[int(place)], interface, running == "1")


def _link_socket() -> socket.socket:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    channel.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
    channel.bind((0, _RTMGRP_LINK))
    return channel


def slots_of(packets_per_server: float) -> int:
    """Room for as many packets, and for half as many again."""
    return max(4096, int(packets_per_server * 1.5))
