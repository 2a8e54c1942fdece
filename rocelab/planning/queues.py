"""The queues of switch ports: rate, buffer, traffic classes and marking line.

`plan_queues` makes a `QueuePlan` from a `Fabric`, with every switch port numbered. Rates are those
of the lab (the modelled network's divided by the dilation), bytes are the modelled network's. Pure:
`rocelab.dataplane.queues` makes the queues in the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rocelab.base.family import Family
from rocelab.labfile.portsettings import STRICT_CLASSES, ClassQueues, PortSettings
from rocelab.labfile.queues import DSCPS, EcnSpec
from rocelab.labfile.switchports import PlaceOfPort
from rocelab.planning.fabric import Fabric, Link, Port
from rocelab.wire.headers import IP_OFFSET, most_header_bytes

ETHERNET_OVERHEAD_BYTES = 24
"""A frame's bytes on the wire that the kernel does not count: preamble and start of frame 8,
frame check sequence 4, gap 12 (IEEE 802.3 clauses 3 and 4)."""

MIN_WIRE_BYTES = 84
"""The smallest frame's bytes on the wire."""

ETHERNET_HEADER_BYTES = 14
"""A frame's header, without the check sequence, which the kernel does not count."""

BURST_NS = 200_000
"""A port's timer may fire this late without a loss of rate, however short a frame is."""

CLASS_ALPHA = 8
"""A class may hold so many times what is free of its port's memory, which is the buffer and an
`CLASS_ALPHA`th of it (the dynamic threshold of switches, usually 2^3 for lossy queues): one that is
alone holds the buffer, n that are full hold 9 / (1 + 8 n) of it each, and there is always room for
those that come. Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
switches", IEEE/ACM Transactions on Networking 6(2), 1998."""

PATH_MTUS = (256, 512, 1024, 2048, 4096)
"""Payloads of a RoCE packet, in bytes."""

MOST_LAB_MTU = PATH_MTUS[-1]
"""The longest payload that ports of a lab save up for (`roce_wire_bytes`)."""

BINS_BELOW, BINS_BETWEEN, BINS_ABOVE = 8, 16, 8
BINS = BINS_BELOW + BINS_BETWEEN + BINS_ABOVE
"""Bins of the histogram of depths: below kmin, from kmin to kmax, and above."""


@dataclass(frozen=True, slots=True)
class QueuedPort:
    """A port. `slot` counts switch ports from 1, in the order of the fabric's links."""

    slot: int
    node: str
    interface: str
    index: int
    rate_bps: int
    mtu: int
    kind: int = 0
    """Of its settings in `QueuePlan.kinds`."""


@dataclass(frozen=True)
class QueuePlan:
    """The queues of all switch ports."""

    ports: tuple[QueuedPort, ...]
    buffer_bytes: int
    ecn: EcnSpec
    class_of_dscp: tuple[int, ...]
    """An entry per DSCP."""

    marked_classes: tuple[int, ...]
    bin_edges_bytes: tuple[int, ...]
    """The lower edges of the bins in which depths are counted; the last bin has no upper edge."""

    kinds: tuple[ClassQueues, ...]
    """What ports have, by class; `buffer_bytes`, `ecn` and `marked_classes` are the lab's own."""

    lossless_classes: tuple[int, ...] = ()
    strict_classes: tuple[int, ...] = STRICT_CLASSES
    """Those that go before all others, in descending order."""
    nics: tuple[QueuedPort, ...] = ()
    """Ports of servers: they have a rate, and no slot, as their queues are not counted."""

    @cached_property
    def port_of(self) -> dict[tuple[str, str], QueuedPort]:
        """Each port by node and interface."""
        return {(port.node, port.interface): port for port in self.ports}

    @cached_property
    def ports_of(self) -> dict[str, tuple[QueuedPort, ...]]:
        """The ports of each switch and server."""
        by_node: dict[str, list[QueuedPort]] = {}
        for port in (*self.ports, *self.nics):
            by_node.setdefault(port.node, []).append(port)
        return {node: tuple(ports) for node, ports in by_node.items()}

    @cached_property
    def classes(self) -> tuple[int, ...]:
        """The classes that any DSCP maps to, and the lossless ones, whose gates need a queue."""
        return tuple(sorted({*self.class_of_dscp, *self.lossless_classes}))

    def quanta(self, kind: int, mtu: int) -> dict[int, int]:
        """The bytes that each class that is not strict sends before the next one."""
        sharing = [number for number in self.classes if number not in self.strict_classes]
        return quanta_of(self.kinds[kind].weights, sharing, mtu + ETHERNET_HEADER_BYTES)


def plan_queues(fabric: Fabric) -> QueuePlan:
    """The queues of every switch port of one network. Empty if it has no server: nothing could
    send."""
    assert not fabric.parts, "networks have queues of their own"
    queues = fabric.spec.queues
    settings = PortSettings(queues)
    kinds: dict[ClassQueues, int] = {}
    return QueuePlan(
        ports=_ports(fabric, settings, kinds) if fabric.servers else (),
        buffer_bytes=queues.buffer,
        ecn=queues.ecn,
        class_of_dscp=class_of_dscp(queues.dscp),
        marked_classes=queues.marked,
        bin_edges_bytes=bin_edges_bytes(queues.ecn.kmin, queues.ecn.kmax, queues.buffer),
        kinds=tuple(kinds),
        lossless_classes=() if queues.pfc is None else queues.pfc.classes,
        strict_classes=settings.strict_classes,
        nics=tuple(
            _port(fabric, 0, link, link.a) for link in fabric.links if not link.is_between_switches
        ),
    )


def lab_rate_bps(link: Link, dilation: float) -> int:
    """The rate at which the lab carries a link, at least 8 bit/s."""
    return max(8, round(link.rate_bps / dilation))


def roce_wire_bytes(mtu: int) -> int:
    """The longest RoCE frame over IPv4 on links of this MTU, with what Ethernet adds on the
    wire."""
    headers = most_header_bytes(Family.IPV4)
    payload = max(
        (mtu_bytes for mtu_bytes in PATH_MTUS if mtu_bytes + headers <= mtu + IP_OFFSET),
        default=min(PATH_MTUS),
    )
    return payload + headers + ETHERNET_OVERHEAD_BYTES


def port_bytes(buffer_bytes: int) -> int:
    """What all classes of a port hold together at most."""
    return buffer_bytes + buffer_bytes // CLASS_ALPHA


def full_classes_bytes(buffer_bytes: int, classes: int) -> int:
    """What each of so many classes of a port holds if all of them are full."""
    return buffer_bytes * (CLASS_ALPHA + 1) // (1 + CLASS_ALPHA * classes)


def burst_bytes(rate_bps: int, mtu: int) -> int:
    """What a port saves up while it is idle or its timer is late: one RoCE frame, or more if its
    timer is too coarse for that. HTB sends until nothing is left, so longer frames, as those of
    IPv6, pass too."""
    return max(roce_wire_bytes(mtu), rate_bps * BURST_NS // (8 * 10**9))


def class_of_dscp(overrides: Mapping[int, int]) -> tuple[int, ...]:
    """The traffic class of each DSCP from 0 to 63: DSCP / 8 unless `overrides` has it."""
    return tuple(overrides.get(dscp, dscp >> 3) for dscp in range(DSCPS))


def bin_edges_bytes(kmin: int, kmax: int, buffer_bytes: int) -> tuple[int, ...]:
    """The lower edges of the `BINS` bins of depth, not descending.

    Up to kmin no packet is marked, so a bin's edge is one byte above it: no bin mixes packets of
    two parts of the line.
    """
    kmin, kmax = kmin + 1, kmax + 1
    top = max(kmax, buffer_bytes)
    below = [kmin * i // BINS_BELOW for i in range(BINS_BELOW)]
    between = [kmin + (kmax - kmin) * i // BINS_BETWEEN for i in range(BINS_BETWEEN)]
    above = [kmax + (top - kmax) * i // BINS_ABOVE for i in range(BINS_ABOVE)]
    return tuple(below + between + above)


@dataclass(frozen=True, slots=True)
class DscpBlock:
    """DSCPs of one class: those whose bits under `mask` are `value`."""

    value: int
    mask: int
    traffic_class: int


def dscp_blocks(classes: tuple[int, ...]) -> tuple[DscpBlock, ...]:
    """Aligned blocks of at most 16 DSCPs that map every DSCP to its class: one per filter rule."""

    def split(start: int, size: int) -> list[DscpBlock]:
        here = classes[start : start + size]
        if len(set(here)) == 1:
            return [DscpBlock(start, DSCPS - size, here[0])]
        half = size // 2
        return split(start, half) + split(start + half, half)

    return tuple(block for start in range(0, DSCPS, 16) for block in split(start, 16))


def strictness(traffic_class: int, strict: Sequence[int] = STRICT_CLASSES) -> int:
    """0 for the class with the highest priority, then ascending; equal for classes that share.

    Source: the queues of SONiC's RoCEv2 test plan, where control has priority over data.
    """
    return strict.index(traffic_class) if traffic_class in strict else len(strict)


def quanta_of(weights: Sequence[int], sharing: Sequence[int], least_bytes: int) -> dict[int, int]:
    """The bytes that each of the classes that share a port sends before the next one, in proportion
    to its weight, of the least weight `least_bytes`."""
    least = min((weights[number] for number in sharing), default=1)
    return {number: least_bytes * weights[number] // least for number in sharing}


def place_of(link: Link, port: Port) -> PlaceOfPort:
    """What decides on a port's settings."""
    return PlaceOfPort(port.role.name, link.rate_bps, link.delay_ns, port.name, link.queues)


def _ports(
    fabric: Fabric, settings: PortSettings, kinds: dict[ClassQueues, int]
) -> tuple[QueuedPort, ...]:
    """The ports of switches; `kinds` gets their settings, numbered as they come."""
    ends = (
        (link, port) for link in fabric.links for port in (link.a, link.b) if port.role.is_switch
    )
    ports = []
    for slot, (link, port) in enumerate(ends, start=1):
        queues = settings.queues(place_of(link, port))
        ports.append(_port(fabric, slot, link, port, kinds.setdefault(queues, len(kinds))))
    return tuple(ports)


def _port(fabric: Fabric, slot: int, link: Link, port: Port, kind: int = 0) -> QueuedPort:
    rate_bps = lab_rate_bps(link, fabric.spec.dilation)
    return QueuedPort(slot, port.node, port.interface, port.index, rate_bps, link.mtu, kind)
