"""Priority-based flow control of a lab: the ports that pause and obey, and each one's memory.

`plan_pauses` makes a `PausePlan` from a `Fabric` whose spec has `queues.pfc`, with every port of a
switch and every port of a NIC numbered. Times and rates are the lab's (`Fabric.spec.dilation`),
bytes are the modelled network's. Pure: `rocelab.dataplane.pfc` makes it work in the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rocelab.base.errors import InputError
from rocelab.labfile.base import SECOND
from rocelab.labfile.headroom import Headroom, headroom_of, response_quanta
from rocelab.labfile.model import LabSpec
from rocelab.labfile.pfc import PfcSpec
from rocelab.labfile.portsettings import PortPauses, PortSettings
from rocelab.planning.fabric import Fabric, Link, Port
from rocelab.planning.pfc import carving_of, nic_thresholds, slack_of
from rocelab.planning.queues import lab_rate_bps, place_of, plan_queues

QUANTUM_BITS = 512
"""Bit times of a quantum (IEEE 802.3 annex 31B)."""

MAX_SLOTS = 0x1000
"""A packet's slot and class are in its 16-bit tc_index, with one bit of their own."""


@dataclass(frozen=True, slots=True)
class NicBuffer:
    """The receive buffer of a NIC's port, in bytes, with what the lab's emulation may add: pauses
    are sent above `full` and end below `empty`. `drain_bps`: how fast the host takes packets; 0: as
    fast as they come."""

    size: int
    full: int
    empty: int
    drain_bps: int


@dataclass(frozen=True, slots=True)
class PausePort:
    """A port of a switch or NIC. `slot` counts from 1, ports of switches first; `peer` is that of
    the cable's other end. `pool` is the memory of its switch, 0 for a NIC."""

    slot: int
    peer: int
    pool: int
    node: str
    port: Port
    rate_bps: int
    mtu: int
    headroom: int
    """For each class, with what the lab's emulation may add."""
    pauses: PortPauses | None
    """The thresholds of each class; None for a NIC."""
    delay_ns: int
    """From a threshold crossed here until the peer has stopped or gone on: what the lab does not
    hold itself of the cable, there and back, and the peer's response."""
    quantum_ns: float
    """The time of a pause frame's quantum at this port."""
    buffer: NicBuffer | None

    @property
    def is_nic(self) -> bool:
        return self.pool == 0

    def __str__(self) -> str:
        return str(self.port)


@dataclass(frozen=True, slots=True)
class BufferPool:
    """A switch's memory for lossless classes, in bytes: shared by its ports, and headroom."""

    node: str
    shared: int
    headroom: int


@dataclass(frozen=True)
class PausePlan:
    """Lossless classes of a lab. `pools` count from 1, in the order of `Fabric.switches`."""

    pfc: PfcSpec
    class_of_dscp: tuple[int, ...]
    ports: tuple[PausePort, ...]
    pools: tuple[BufferPool, ...]
    dilation: float

    @cached_property
    def by_slot(self) -> dict[int, PausePort]:
        """Each port by its slot."""
        return {port.slot: port for port in self.ports}

    @cached_property
    def slots(self) -> dict[tuple[str, str], int]:
        """The slot of each port, by node and interface."""
        return {(port.node, port.port.interface): port.slot for port in self.ports}

    @cached_property
    def ports_of(self) -> dict[str, tuple[PausePort, ...]]:
        """The ports of each node."""
        by_node: dict[str, list[PausePort]] = {}
        for port in self.ports:
            by_node.setdefault(port.node, []).append(port)
        return {node: tuple(ports) for node, ports in by_node.items()}


def plan_pauses(fabric: Fabric) -> PausePlan | None:
    """The lossless classes of a fabric; None if its spec has none.

    Raises InputError for more ports than a packet can name.
    """
    pfc = fabric.spec.queues.pfc
    queues = plan_queues(fabric)
    if pfc is None or not queues.ports:
        return None
    slots = {place: port.slot for place, port in queues.port_of.items()}
    for link in fabric.links:
        for end in (link.a, link.b):
            slots.setdefault((end.node, end.interface), len(slots) + 1)
    if len(slots) >= MAX_SLOTS:
        raise InputError(
            f"lab {fabric.name} has {len(slots):,} ports, and lossless classes work with at most "
            f"{MAX_SLOTS - 1:,}",
            "without queues.pfc the lab comes up; `rocelab plan` works at any size",
        )
    settings = PortSettings(fabric.spec.queues)
    pool_of = {node.name: number for number, node in enumerate(fabric.switches, start=1)}

    def port(link: Link, end: Port) -> PausePort:
        far = link.far(end.node)
        terms = headroom_of(pfc, link.rate_bps, link.mtu, link.cable_ns)
        rate_bps = lab_rate_bps(link, fabric.spec.dilation)
        delay_ns, quantum_ns = obedience_ns(pfc, fabric.spec, link, end)
        slack = slack_of(terms, fabric.spec)
        is_switch = end.role.is_switch
        pauses = settings.pauses(place_of(link, end)) if is_switch else None
        headroom = pfc.headroom if pauses is None else pauses.headroom
        return PausePort(
            slot=slots[end.node, end.interface],
            peer=slots[far.node, far.interface],
            pool=pool_of.get(end.node, 0),
            node=end.node,
            port=end,
            rate_bps=rate_bps,
            mtu=link.mtu,
            headroom=(headroom or terms.total) + slack,
            pauses=pauses,
            delay_ns=delay_ns,
            quantum_ns=quantum_ns,
            buffer=None if is_switch else _buffer(pfc, terms, rate_bps, slack),
        )

    ports = [port(link, end) for link in fabric.links for end in (link.a, link.b)]
    return PausePlan(
        pfc=pfc,
        class_of_dscp=queues.class_of_dscp,
        ports=tuple(sorted(ports, key=lambda port: port.slot)),
        pools=tuple(_pool(fabric, pfc, node.name) for node in fabric.switches),
        dilation=fabric.spec.dilation,
    )


def obedience_ns(pfc: PfcSpec, spec: LabSpec, link: Link, pauser: Port) -> tuple[int, float]:
    """The time from a threshold crossed at one end of a link until the other end has stopped, and
    that of a quantum, in the lab's clock.

    A pause crosses the cable, and then what was on it arrives. Where the lab itself holds that
    (`links.delay`, towards a switch), the first counts the cable once, else twice: towards a server
    packets cross the cable before the queue that is stopped.
    """
    quantum_ns = QUANTUM_BITS * SECOND * spec.dilation / link.rate_bps
    crossings = 1 if link.delay_ns and pauser.role.is_switch else 2
    on_the_way_ns = crossings * link.cable_ns * spec.dilation
    return round(on_the_way_ns + response_quanta(pfc, link.rate_bps) * quantum_ns), quantum_ns


def _pool(fabric: Fabric, pfc: PfcSpec, node: str) -> BufferPool:
    carving = carving_of(fabric, pfc, node)
    slack = sum(count * slack_of(needed, fabric.spec) for needed, count in carving.headroom)
    return BufferPool(node, carving.shared, carving.headroom_pool + slack * len(pfc.classes))


def _buffer(pfc: PfcSpec, needed: Headroom, rate_bps: int, slack: int) -> NicBuffer:
    nic = pfc.nic
    full, empty = nic_thresholds(pfc, needed.total)
    drain_bps = 0 if nic.drain is None else max(8, round(rate_bps * nic.drain / 10**6))
    return NicBuffer(nic.buffer + slack, full, empty, drain_bps)
