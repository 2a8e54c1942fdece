"""The engine `red`: the kernel's sch_red marks packets, and u32 filters classify them.

For kernels that have sch_red but cannot run the engine `bpf`. RED uses the present queue length
(Wlog 0: no averaging), so its marking line is close to the plan's. Each queue has the port's whole
buffer. Counters are those of qdiscs: no depths on arrival, no packets that arrived marked.

Source: net/sched/sch_red.c, include/net/red.h, net/sched/cls_u32.c and their uapi headers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from rocelab.dataplane.queues import htb
from rocelab.labfile.queues import DSCPS, EcnSpec
from rocelab.linux import netlink, tc
from rocelab.planning.queues import DscpBlock, QueuedPort, QueuePlan, dscp_blocks

CONTROL_DSCP = 48
ROCE_PORT = 4791

RED_ECN = 1
RED_NODROP = 8
_MAX_LIMIT = 2**32 - 1
_MAX_THRESHOLD = 2**31 - 1
_FORGET = 31

_ETH_P_IP = 0x0800
_ETH_P_IPV6 = 0x86DD
_UDP = 17
_ICMPV6 = 58
_TERMINAL = 1
_SELECTOR = struct.Struct("=BBBxHHhhI")

Key = tuple[int, int, int]
"""A u32 match: offset in the IP header, mask and value of a word."""

Rules = list[tuple[list[Key], int]]
"""Matches, all of which a packet must meet, with its class, in the order of evaluation."""

_ROCE_IPV4: list[Key] = [(8, 0x00FF_0000, _UDP << 16), (20, 0x0000_FFFF, ROCE_PORT)]


class RedQueues:
    """Makes queues whose marks are sch_red's."""

    def __init__(self, plan: QueuePlan) -> None:
        self._plan = plan
        self._filters = filters(plan)
        self._host_filters = host_filters()

    def messages(self, port: QueuedPort) -> list[bytes]:
        """The messages that make a port's queues, on interface index 0."""
        plan, kind = self._plan, self._plan.kinds[port.kind]
        leaves = []
        for number in plan.classes:
            line, buffer_bytes = kind.lines[number], kind.buffer_bytes[number]
            leaves.append(
                tc.message(
                    tc.RTM_NEWQDISC,
                    "bfifo" if line is None else "red",
                    handle=leaf_handle(number),
                    parent=htb.class_id(number),
                    options=struct.pack("=I", min(buffer_bytes, _MAX_LIMIT))
                    if line is None
                    else red_options(line, buffer_bytes),
                )
            )
        quanta = plan.quanta(port.kind, port.mtu)
        tree = htb.tree(port.rate_bps, port.mtu, plan.classes, plan.strict_classes, quanta)
        return tree + leaves + self._filters

    def host_messages(self, port: QueuedPort) -> list[bytes]:
        """The messages that make the queues of a server's NIC, on interface index 0."""
        return htb.host_tree(port.rate_bps, port.mtu, ()) + self._host_filters

    def close(self) -> None:
        """Nothing to close."""


def leaf_handle(traffic_class: int) -> int:
    """The handle of a class's own qdisc: `13:` is class 3's."""
    return (htb.FIRST_MINOR + traffic_class) << 16


def red_options(ecn: EcnSpec, buffer_bytes: int) -> bytes:
    """TCA_RED_PARMS and the attributes with it: the line over the present queue length.

    Nodrop: packets that are not ECN capable are queued, and dropped only when the buffer is full.
    With the table of idle times, RED forgets the queue length on the first packet after idling.
    """
    limit = min(buffer_bytes, _MAX_LIMIT)
    low, high = min(ecn.kmin, _MAX_THRESHOLD - 1), min(ecn.kmax, _MAX_THRESHOLD)
    probability = red_probability(ecn.pmax)
    p_log = min(31, max(0, round(math.log2((high - low) / probability))))
    flags = RED_ECN | RED_NODROP
    return (
        netlink.attribute(1, struct.pack("=IIIBBBB", limit, low, high, 0, p_log, 0, 0))
        + netlink.attribute(2, bytes([_FORGET]) * 256)
        + netlink.attribute(3, struct.pack("=I", min(_MAX_LIMIT, round(probability * 2**32))))
        + netlink.attribute(4, struct.pack("=II", flags, flags))
    )


def red_probability(wanted: float) -> float:
    """The max_P with which RED marks a share `wanted` of packets.

    RED spaces marks evenly: after one, the k-th packet is marked once k * p exceeds a number drawn
    from 0 to 1 (include/net/red.h red_mark_probability), so that it marks 2 p / (1 + p) of all
    packets.
    """
    return wanted / (2 - wanted)


def filters(plan: QueuePlan) -> list[bytes]:
    """The u32 filters of a port's root: control packets to the direct queue, then classes by DSCP.

    A packet that no filter matches (such as ARP) takes the direct queue.
    """
    blocks = dscp_blocks(plan.class_of_dscp)
    return [
        request
        for priority, protocol, rules in (
            (1, _ETH_P_IP, ipv4_rules(blocks)),
            (2, _ETH_P_IPV6, ipv6_rules(blocks)),
        )
        for request in (_u32(priority, protocol, keys, target) for keys, target in rules)
    ]


def host_filters() -> list[bytes]:
    """The u32 filters of a NIC's root."""
    ipv4, ipv6 = host_rules()
    return [
        _u32(priority, protocol, keys, target)
        for priority, protocol, rules in ((1, _ETH_P_IP, ipv4), (2, _ETH_P_IPV6, ipv6))
        for keys, target in rules
    ]


def host_rules() -> tuple[Rules, Rules]:
    """Matches of IPv4 and IPv6 with their HTB class at a NIC: control packets have the direct
    queue, RoCEv2 and all else one each. DSCPs are of no other concern there."""
    blocks, of = dscp_blocks((0,) * DSCPS), {htb.class_id(0): htb.OTHERS_CLASS}
    ipv4, ipv6 = (
        [(keys, of.get(target, target)) for keys, target in rules]
        for rules in (ipv4_rules(blocks), ipv6_rules(blocks))
    )
    return [(_ROCE_IPV4, htb.ROCE_CLASS), *ipv4], ipv6


def ipv4_rules(blocks: tuple[DscpBlock, ...]) -> list[tuple[list[Key], int]]:
    """Matches with their HTB class, in the order of evaluation; none for IP options."""

    def dscp(value: int, mask: int) -> Key:
        return (0, mask << 18, value << 18)

    return _rules(blocks, dscp, _ROCE_IPV4, [])


def ipv6_rules(blocks: tuple[DscpBlock, ...]) -> list[tuple[list[Key], int]]:
    """The rules of `ipv4_rules` for IPv6, whose neighbour discovery is control traffic as well."""

    def dscp(value: int, mask: int) -> Key:
        return (0, mask << 22, value << 22)

    udp, roce = (4, 0x0000_FF00, _UDP << 8), (40, 0x0000_FFFF, ROCE_PORT)
    return _rules(blocks, dscp, [udp, roce], [[(4, 0x0000_FF00, _ICMPV6 << 8)]])


def _rules(
    blocks: tuple[DscpBlock, ...],
    dscp: Callable[[int, int], Key],
    roce: list[Key],
    control: list[list[Key]],
) -> list[tuple[list[Key], int]]:
    high = [block for block in blocks if block.value >= CONTROL_DSCP]
    low = [block for block in blocks if block.value < CONTROL_DSCP]
    return [
        *((keys, htb.HANDLE) for keys in control),
        *(
            ([dscp(block.value, block.mask), *roce], htb.class_id(block.traffic_class))
            for block in high
        ),
        ([dscp(CONTROL_DSCP, CONTROL_DSCP)], htb.HANDLE),
        *(([dscp(block.value, block.mask)], htb.class_id(block.traffic_class)) for block in low),
    ]


def _u32(priority: int, protocol: int, keys: list[Key], target: int) -> bytes:
    """A filter that sends packets that match all `keys` to the HTB class `target`."""
    selector = _SELECTOR.pack(_TERMINAL, 0, len(keys), 0, 0, 0, 0, 0)
    for offset, mask, value in keys:
        selector += struct.pack(">II", mask, value) + struct.pack("=ii", offset, 0)
    return tc.message(
        tc.RTM_NEWTFILTER,
        "u32",
        parent=htb.HANDLE,
        info=tc.filter_info(priority, protocol),
        options=netlink.attribute(1, struct.pack("=I", target)) + netlink.attribute(5, selector),
    )
