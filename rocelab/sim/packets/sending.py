"""What the packet engine needs to know of senders and queues, as arrays.

`sending_of` takes it from the jobs' transports, `queues_of` from the lab's file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rocelab.agent.nic import moderation_ns
from rocelab.base.arrays import NONE, Bools, Floats, Longs
from rocelab.base.family import Family
from rocelab.jobs.messages import Messages
from rocelab.jobs.performance import wire_overhead_bytes
from rocelab.jobs.transport import Ecn, Strategy, TransportSpec, message_bytes
from rocelab.labfile.model import LabSpec
from rocelab.labfile.portsettings import STRICT_CLASSES, ClassQueues, PortSettings
from rocelab.planning.queues import (
    ETHERNET_HEADER_BYTES,
    burst_bytes,
    class_of_dscp,
    strictness,
)
from rocelab.results.engines import PortModel
from rocelab.routes.arrays.flows import Flows
from rocelab.routes.arrays.network import Network
from rocelab.sim.packets import control
from rocelab.sim.packets import state as at
from rocelab.sim.packets.pausing import Pausing, pausing_of, places_of
from rocelab.sim.packets.state import Rates
from rocelab.wire.headers import CNP_PAYLOAD_BYTES, Opcode, extension_bytes

WAKE_LATE_NS = 100_000
"""How late an agent is taken to wake at most, in the lab's clock. Agents' own lateness was not
measured apart: pauses of a quiet lab are half as late in the median (bench/lossless.md)."""

_ECN = {Ecn.NOT_ECT: at.NOT_ECT, Ecn.ECT0: at.ECT, Ecn.CE: at.ALL_CE}


@dataclass(frozen=True, eq=False)
class SendAdmission:
    """Clear-to-sends of receivers. The last G flows carry them. waits_for: of each flow, F, which
    of these; -1 if it sends without. Of each of these: initial: how many messages it clears at the
    beginning; parts: how many it takes to post one, a part on each queue pair, or 1."""

    waits_for: Longs
    initial: Longs
    parts: Longs


@dataclass(frozen=True, eq=False)
class Gathering:
    """Hosts that gather what arrives, as a lab's agents do: each wakes once in `moderation_ns` at
    most, up to `late_ns` late, both in the modelled network. server: of each send, 2L, the host of
    the port, NONE for a switch."""

    moderation_ns: float
    late_ns: float
    server: Longs


@dataclass(frozen=True, eq=False)
class Sending:
    """How F flows send X transfers."""

    messages: Messages
    """X."""

    source: Longs
    """F. The NICs that send."""

    destination: Longs
    """F. The NICs that receive."""

    mtu: Longs
    window: Longs
    """F. The most packets in flight."""

    ack_every: Longs
    """F. The most packets per ACK."""

    ack_timeout_ns: Longs
    """F. Until packets are sent again."""

    retries: Longs
    """F. How often in a row packets are sent again."""

    ecn: Longs
    """F. The ECN field of data."""

    data_class: Longs
    """F. The traffic class of data."""

    ack_class: Longs
    cnp_class: Longs
    control: Longs
    """F. The row of `rules`, -1 for no congestion control."""

    reach: Longs
    """F. The window within which a receiver takes packets beyond a gap, 0 for in order only."""

    selective: Longs
    """F. Whether NAKs then name what came, and senders send again only what is missing."""

    rules: Rates
    admission: SendAdmission | None = None
    """None without."""

    gathering: Gathering | None = None
    """Of all hosts, behind ports as a lab's; None: they take and send each packet when they may."""

    family: Family = Family.IPV4
    """Of all packets."""

    @property
    def overhead_bytes(self) -> int:
        """What a packet takes of a cable besides its payload."""
        return wire_overhead_bytes(self.family)

    @property
    def ack_bytes(self) -> int:
        """An acknowledgement on the wire."""
        return ack_bytes(self.family)

    @property
    def cnp_bytes(self) -> int:
        """A congestion notification on the wire."""
        return self.overhead_bytes + CNP_PAYLOAD_BYTES

    @property
    def clearance_bytes(self) -> int:
        """A clear-to-send on the wire."""
        return self.overhead_bytes + extension_bytes(Opcode.RC_WRITE_ONLY_WITH_IMM)

    def wire_bytes(self, opcode: Opcode, payload_bytes: Longs) -> Longs:
        """Packets of a kind on the wire, padded as the lab's (`rocelab.agent.rc.frames`)."""
        headers = self.overhead_bytes + extension_bytes(opcode)
        sizes: Longs = headers + payload_bytes + -payload_bytes % 4
        return sizes


@dataclass(frozen=True, eq=False)
class Queues:
    """The queues of switch ports: buffer, marking line and marked classes
    (`rocelab.labfile.queues`)."""

    buffer_bytes: int
    kmin: int
    kmax: int
    pmax: float
    marked: tuple[int, ...]
    quantum: int
    """Bytes that a class sends before the next one where they share a port."""

    ports: PortModel = PortModel.STORE_AND_FORWARD
    burst_bytes: Longs | int = 0
    """Bytes on the wire that a lab's port saves up while it is idle: of each send, or of all."""

    seed: int = 1
    pausing: Pausing | None = None
    """None without lossless classes."""

    kinds: tuple[ClassQueues, ...] = ()
    """What ports have instead, by class, where they differ."""

    kind: Longs | int = 0
    """2L, or of all: the place in `kinds`."""

    strict: tuple[int, ...] = STRICT_CLASSES
    """The classes that go before all others, in descending order."""

    unlimited: Bools | None = None
    """2L. Ports that are not of the network, and take all that comes; None: none is."""


def gathering_of(network: Network) -> Gathering:
    """Of a lab's agents, one on each server."""
    dilation, sender = network.spec.dilation, network.sender.astype(np.int64)
    server = np.where(network.tier[sender] == 0, sender, NONE)
    return Gathering(moderation_ns(dilation) / dilation, WAKE_LATE_NS / dilation, server)


def queues_of(
    spec: LabSpec, network: Network, ports: PortModel, latency_ns: Floats, seed: int
) -> Queues:
    """Those of a lab, with ports of a model. latency_ns: of each send, 2L. seed: of marks. Raises
    as `pausing_of`."""
    queues, settings = spec.queues, PortSettings(spec.queues)
    kinds, kind = _kinds(settings, network)
    columns = (np.rint(network.capacity_bps).astype(np.int64), network.mtu)
    sends, rate = np.unique(np.stack(columns), axis=1, return_inverse=True)
    bursts = [burst_bytes(max(8, round(bps / spec.dilation)), mtu) for bps, mtu in sends.T.tolist()]
    return Queues(
        queues.buffer,
        queues.ecn.kmin,
        queues.ecn.kmax,
        queues.ecn.pmax,
        queues.marked,
        int(network.mtu.max()) + ETHERNET_HEADER_BYTES,
        ports,
        np.array(bursts, np.int64)[rate],
        seed,
        pausing_of(spec, network, ports, latency_ns),
        kinds,
        kind,
        settings.strict_classes,
    )


def _kinds(settings: PortSettings, network: Network) -> tuple[tuple[ClassQueues, ...], Longs | int]:
    """What ports have where they differ, and which each send has."""
    if settings.is_uniform:
        return (), 0
    kinds: dict[ClassQueues, int] = {}
    numbers = []
    for send, place in enumerate(places_of(network)):
        is_switch = network.roles[network.sender[send]].is_switch
        queues = settings.queues(place) if is_switch else None
        numbers.append(0 if queues is None else kinds.setdefault(queues, len(kinds)))
    return tuple(kinds), np.array(numbers, np.int64)


def ack_bytes(family: Family) -> int:
    """An acknowledgement on the wire."""
    return wire_overhead_bytes(family) + extension_bytes(Opcode.RC_ACKNOWLEDGE)


def most_acked(transport: TransportSpec) -> int:
    """The most packets that one ACK is for: the last of a message asks for one too."""
    pairs = transport.qps if transport.strategy is Strategy.SPLIT else 1
    part = -(-message_bytes(transport) // pairs)
    return min(transport.ack_every, -(-part // transport.mtu))


def sending_of(
    transports: Sequence[TransportSpec],
    job: Longs,
    flows: Flows,
    messages: Messages,
    waits_for: Longs,
    network: Network,
    gathering: Gathering | None = None,
) -> Sending:
    """How flows of jobs send: job: of each flow, F, those for clear-to-sends last. waits_for: of
    each, which of these, NONE without admission."""
    classes = class_of_dscp(network.spec.queues.dscp)

    def column(values: Sequence[int]) -> Longs:
        return np.array(values, np.int64)[job]

    line_bps = network.rate_bps[network.nic_links[flows.source, flows.port]]
    kinds, kind = np.unique(np.column_stack((job, line_bps)), axis=0, return_inverse=True)
    chosen = [transports[int(number)].control for number, _ in kinds]
    controlled = [choice is not None for choice in chosen]
    rules = [
        control.rule_of(choice, bps)
        for (_, bps), choice in zip(kinds, chosen, strict=True)
        if choice is not None
    ]
    row = np.where(controlled, np.cumsum(controlled) - 1, -1)
    return Sending(
        messages,
        source=flows.source.astype(np.int64),
        destination=flows.destination.astype(np.int64),
        mtu=column([transport.mtu for transport in transports]),
        window=column([transport.window for transport in transports]),
        ack_every=column([transport.ack_every for transport in transports]),
        ack_timeout_ns=column([transport.ack_timeout for transport in transports]),
        retries=column([transport.retries for transport in transports]),
        ecn=column([_ECN[transport.ecn] for transport in transports]),
        data_class=column([classes[transport.dscp] for transport in transports]),
        ack_class=column([classes[transport.ack_dscp] for transport in transports]),
        cnp_class=column([classes[transport.cnp_dscp] for transport in transports]),
        control=row[kind.reshape(-1)],
        reach=column(
            [
                transport.window * (transport.out_of_order or transport.selective_repeat)
                for transport in transports
            ]
        ),
        selective=column([transport.selective_repeat for transport in transports]),
        rules=np.array(rules).reshape(-1, control.RULE_CELLS),
        admission=admission_of(transports, job, waits_for),
        gathering=gathering,
        family=network.family,
    )


def admission_of(
    transports: Sequence[TransportSpec], job: Longs, waits_for: Longs
) -> SendAdmission | None:
    control = job[len(waits_for) :]
    if not len(control):
        return None
    parts = np.array(
        [transport.qps if transport.strategy is Strategy.SPLIT else 1 for transport in transports],
        np.int64,
    )
    messages = np.array(
        [
            transport.admission.channels * transport.admission.buffer // message_bytes(transport)
            if transport.admission
            else 0
            for transport in transports
        ],
        np.int64,
    )
    none = np.full(len(control), NONE)
    return SendAdmission(
        np.concatenate((waits_for, none)), (messages * parts)[control], parts[control]
    )


def class_order(sending: Sending, strict: Sequence[int] = STRICT_CLASSES) -> tuple[list[int], int]:
    """The traffic classes in use, the strict ones first, and how many are strict."""
    columns = (sending.data_class, sending.ack_class, sending.cnp_class)
    used = sorted(
        set(np.concatenate(columns).tolist()),
        key=lambda traffic_class: (strictness(traffic_class, strict), traffic_class),
    )
    return used, sum(traffic_class in strict for traffic_class in used)
