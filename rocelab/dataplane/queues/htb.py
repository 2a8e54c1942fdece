"""A port's rate and its queues: an HTB tree with a queue per traffic class.

The root class has the port's rate. Every queue below it has almost no rate of its own and borrows
from the root: HTB then serves the classes in order of priority, and those of equal priority by
deficit round robin, in proportion to their quanta. (Its own rate lets a queue send one packet a
minute at once.) A packet of no class takes the direct queue, at once and without a rate limit.

Source: net/sched/sch_htb.c; struct tc_htb_opt and tc_ratespec of include/uapi/linux/pkt_sched.h.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from rocelab.labfile.portsettings import STRICT_CLASSES
from rocelab.linux import netlink, tc
from rocelab.planning.queues import (
    ETHERNET_HEADER_BYTES,
    ETHERNET_OVERHEAD_BYTES,
    MIN_WIRE_BYTES,
    burst_bytes,
    strictness,
)

HANDLE = 0x1_0000
ROOT_CLASS = HANDLE | 1
FIRST_MINOR = 0x10
HOST_CLASS, ROCE_CLASS, OTHERS_CLASS = HANDLE | 2, HANDLE | 0x20, HANDLE | 0x21
"""Of a server's NIC: its rate, RoCEv2 and all else."""

OTHERS_SHARE = 0.01
"""What a server sends beside RoCEv2 gets this share of its NIC's rate however much RoCEv2 there is:
a ping is answered."""

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


def tree(
    rate_bps: int,
    mtu: int,
    classes: Sequence[int],
    strict: Sequence[int] = STRICT_CLASSES,
    quanta: Mapping[int, int] | None = None,
) -> list[bytes]:
    """The messages that give a port its rate and a queue for each class, on interface index 0.
    quanta: what each sends before the next one that shares, if not a packet."""
    return [
        _qdisc(),
        _rate_class(ROOT_CLASS, HANDLE, rate_bps, mtu),
        *(
            leaf_class(
                class_id(number), mtu, strictness(number, strict), (quanta or {}).get(number)
            )
            for number in classes
        ),
    ]


def host_tree(rate_bps: int, mtu: int, lossless: Sequence[int]) -> list[bytes]:
    """The messages that give a server's NIC its rate and its queues, on interface index 0.

    RoCEv2 is sent at once and counts for the rate, since its agents pace themselves; so does a
    queue of a lossless class, at the link's rate and below a class of its own, whose tokens nothing
    else uses. All else gets the rate that these leave, and `OTHERS_SHARE` of it in any case.
    """
    least = max(1, int(rate_bps * OTHERS_SHARE) // 8)
    lossless_root = [_rate_class(ROOT_CLASS, HOST_CLASS, rate_bps, mtu)] if lossless else []
    return [
        _qdisc(),
        _rate_class(HOST_CLASS, HANDLE, rate_bps, mtu),
        *lossless_root,
        *(leaf_class(class_id(number), mtu, strictness(number)) for number in lossless),
        _leaf(ROCE_CLASS, HOST_CLASS, UNLIMITED_BYTES_PER_S, mtu, 0),
        _leaf(OTHERS_CLASS, HOST_CLASS, least, mtu, len(STRICT_CLASSES)),
    ]


def leaf_class(handle: int, mtu: int, priority: int, quantum: int | None = None) -> bytes:
    """The message that makes a class with a queue below the root class, 0 the highest priority."""
    return _leaf(handle, ROOT_CLASS, OWN_RATE_BYTES_PER_S, mtu, priority, quantum)


def _leaf(
    handle: int, parent: int, rate: int, mtu: int, priority: int, quantum: int | None = None
) -> bytes:
    """A class with a queue, with a rate of its own in bytes/s; it borrows what `parent` has."""
    quantum = quantum or mtu + ETHERNET_HEADER_BYTES
    return tc.message(
        tc.RTM_NEWTCLASS,
        "htb",
        handle=handle,
        parent=parent,
        options=_parameters(rate, UNLIMITED_BYTES_PER_S, 0, quantum, priority),
    )


def rate_change(rate_bps: int, mtu: int) -> bytes:
    """The message that changes a tree's rate, on interface index 0. Queues keep their packets."""
    return _rate_class(ROOT_CLASS, HANDLE, rate_bps, mtu, netlink.REQUEST_ACK)


def _qdisc() -> bytes:
    root = netlink.attribute(2, struct.pack("=IIIII", _VERSION, 10, 0, 0, 0))
    return tc.message(tc.RTM_NEWQDISC, "htb", handle=HANDLE, parent=tc.TC_H_ROOT, options=root)


def _rate_class(
    handle: int,
    parent: int,
    rate_bps: int,
    mtu: int,
    flags: int = netlink.REQUEST_ACK_CREATE_EXCL,
) -> bytes:
    """A class from which those below it borrow a port's rate."""
    rate = max(1, rate_bps // 8)
    burst = _ticks(burst_bytes(rate_bps, mtu), rate)
    return tc.message(
        tc.RTM_NEWTCLASS,
        "htb",
        handle=handle,
        parent=parent,
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
