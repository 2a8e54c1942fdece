"""The gate of a lossless class: a token bucket below its HTB class that lets all pass, or nothing.

To close it, the bucket gets a rate at which a packet costs more tokens than it holds; its packets
wait. To open it, the rate is huge; but a change of a bucket does not make the kernel send, so a
packet of a class that keeps none is sent after it: it is refused, and the port's queue runs. Pure.

Source: net/sched/sch_tbf.c tbf_change() and tbf_dequeue(), net/core/dev.c __dev_xmit_skb().
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from rocelab.dataplane.queues import htb
from rocelab.linux import netlink, tc

KICK_PRIORITY = htb.HANDLE | 0x1F
"""KICK_MINOR of rocelab/dataplane/bpf/queues.bpf.c."""

KICK_FRAME = bytes(12) + b"\x88\xb5" + bytes(46)
"""Of the ethertype for local experiments (IEEE 802)."""

_TCA_TBF_PARMS, _TCA_TBF_RATE64, _TCA_TBF_BURST = 1, 4, 6
_RATESPEC = struct.Struct("=BBHhHI")
_NUMBERS = struct.Struct("=III")  # limit, buffer in ticks of 64 ns, mtu
_LINKLAYER_ETHERNET = 1
_LIMIT_BYTES = 1 << 30
_OPEN_BYTES_PER_S = 1 << 40
_OPEN_BURST_BYTES = 1 << 20
_CLOSED_BYTES_PER_S = 10_000
_CLOSED_PACKET_BYTES = 0xFFFF
_CLOSED_TICKS = 4 * 10**9 // 64
"""A packet counts as 65,535 bytes, 6.6 s at this rate, and the bucket holds 4 s."""

_KICK_HANDLE = 0xFFF0000
REQUEST = 0x001
"""Without an acknowledgement: whoever moves a gate does not wait."""


def handle(traffic_class: int) -> int:
    """The handle of a class's gate."""
    return (0x100 + traffic_class) << 16


def gate_messages(classes: Sequence[int], mtu: int) -> list[bytes]:
    """The messages that put an open gate below each class of a port's tree, and make the class of
    kicks, on interface index 0."""
    gates = [
        _gate(traffic_class, closed=False, flags=netlink.REQUEST_ACK_CREATE_EXCL)
        for traffic_class in classes
    ]
    kick_class = htb.leaf_class(KICK_PRIORITY, mtu, 0)
    nothing = tc.message(
        tc.RTM_NEWQDISC,
        "pfifo",
        handle=_KICK_HANDLE,
        parent=KICK_PRIORITY,
        options=struct.pack("=I", 0),
    )
    return [*gates, kick_class, nothing]


def moved(traffic_class: int, index: int, *, closed: bool) -> bytes:
    """The message that closes or opens a gate."""
    return tc.on_interface(_gate(traffic_class, closed=closed, flags=REQUEST), index)


def _gate(traffic_class: int, *, closed: bool, flags: int) -> bytes:
    if closed:
        rate = _RATESPEC.pack(
            0, _LINKLAYER_ETHERNET, 0, 0, _CLOSED_PACKET_BYTES, _CLOSED_BYTES_PER_S
        )
        numbers = _NUMBERS.pack(_LIMIT_BYTES, _CLOSED_TICKS, 0)
        options = netlink.attribute(_TCA_TBF_PARMS, rate + bytes(_RATESPEC.size) + numbers)
    else:
        rate = _RATESPEC.pack(0, _LINKLAYER_ETHERNET, 0, 0, 0, 0xFFFF_FFFF)
        numbers = _NUMBERS.pack(_LIMIT_BYTES, 1000, 0)
        options = (
            netlink.attribute(_TCA_TBF_PARMS, rate + bytes(_RATESPEC.size) + numbers)
            + netlink.attribute(_TCA_TBF_RATE64, struct.pack("=Q", _OPEN_BYTES_PER_S))
            + netlink.attribute(_TCA_TBF_BURST, netlink.u32(_OPEN_BURST_BYTES))
        )
    return tc.message(
        tc.RTM_NEWQDISC,
        "tbf",
        handle=handle(traffic_class),
        parent=htb.class_id(traffic_class),
        options=options,
        flags=flags,
    )
