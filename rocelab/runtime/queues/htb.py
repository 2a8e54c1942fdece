"""A port's rate and its queues: an HTB tree with a queue per traffic class.

The root class has the port's rate. Every queue below it has almost no rate of its own and borrows
from the root: HTB then serves the classes in order of priority, and those of equal priority by
deficit round robin. (Its own rate lets a queue send one packet a minute at once.) A packet of no
class takes the direct queue, at once and without a rate limit.

Source: net/sched/sch_htb.c; struct tc_htb_opt and tc_ratespec of include/uapi/linux/pkt_sched.h.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from rocelab.kernel import netlink, tc
from rocelab.plan.queues import (
    ETHERNET_HEADER_BYTES,
    ETHERNET_OVERHEAD_BYTES,
    MIN_WIRE_BYTES,
    burst_bytes,
    strictness,
)

HANDLE = 0x1_0000
ROOT_CLASS = HANDLE | 1
FIRST_MINOR = 0x10

OWN_RATE_BYTES_PER_S = 1
UNLIMITED_BYTES_PER_S = 1 << 40
_VERSION = 3
_LINKLAYER_ETHERNET = 1
_TICK_NS = 64
_MAX_U32 = 2**32 - 1
RATESPEC = struct.Struct("=BBHhHI")
_PARAMETERS = struct.Struct("=IIIII")


def class_id(traffic_class: int) -> int:
    """The HTB class of a traffic class: `1:13` in tc's notation is class 3."""
    return HANDLE | (FIRST_MINOR + traffic_class)


def tree(rate_bps: int, mtu: int, classes: Sequence[int]) -> list[bytes]:
    """The messages that give a port its rate and a queue for each class, on interface index 0."""
    root = netlink.attribute(2, struct.pack("=IIIII", _VERSION, 10, 0, 0, 0))
    return [
        tc.message(tc.RTM_NEWQDISC, "htb", handle=HANDLE, parent=tc.TC_H_ROOT, options=root),
        _root_class(rate_bps, mtu, netlink.REQUEST_ACK_CREATE_EXCL),
        *(leaf_class(class_id(number), mtu, strictness(number)) for number in classes),
    ]


def leaf_class(handle: int, mtu: int, priority: int) -> bytes:
    """The message that makes a class with a queue below the root class, 0 the highest priority."""
    quantum = mtu + ETHERNET_HEADER_BYTES
    return tc.message(
        tc.RTM_NEWTCLASS,
        "htb",
        handle=handle,
        parent=ROOT_CLASS,
        options=_parameters(OWN_RATE_BYTES_PER_S, UNLIMITED_BYTES_PER_S, 0, quantum, priority),
    )


def rate_change(rate_bps: int, mtu: int) -> bytes:
    """The message that changes a tree's rate, on interface index 0. Queues keep their packets."""
    return _root_class(rate_bps, mtu, netlink.REQUEST_ACK)


def _root_class(rate_bps: int, mtu: int, flags: int) -> bytes:
    rate = max(1, rate_bps // 8)
    burst = _ticks(burst_bytes(rate_bps, mtu), rate)
    return tc.message(
        tc.RTM_NEWTCLASS,
        "htb",
        handle=ROOT_CLASS,
        parent=HANDLE,
        options=_parameters(rate, rate, burst, mtu + ETHERNET_HEADER_BYTES, 0),
        flags=flags,
    )


def _parameters(rate: int, ceil: int, burst_ticks: int, quantum: int, priority: int) -> bytes:
    numbers = _PARAMETERS.pack(burst_ticks, burst_ticks, quantum, 0, priority)
    return (
        netlink.attribute(1, ratespec(rate) + ratespec(ceil) + numbers)
        + netlink.attribute(6, struct.pack("=Q", rate))
        + netlink.attribute(7, struct.pack("=Q", ceil))
    )


def ratespec(rate_bytes_per_s: int) -> bytes:
    """struct tc_ratespec; a rate beyond 32 bits is in an attribute of its own."""
    return RATESPEC.pack(
        0,
        _LINKLAYER_ETHERNET,
        ETHERNET_OVERHEAD_BYTES,
        0,
        MIN_WIRE_BYTES,
        min(rate_bytes_per_s, _MAX_U32),
    )


def _ticks(size_bytes: int, rate_bytes_per_s: int) -> int:
    """The time a size takes at a rate, in the ticks that HTB takes bursts in."""
    return min(_MAX_U32, size_bytes * 10**9 // (rate_bytes_per_s * _TICK_NS))
