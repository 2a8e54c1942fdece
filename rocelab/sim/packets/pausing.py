"""Lossless classes of a network for the packet engine, and their tables at time 0.

`pausing_of` takes thresholds, headroom and times from the lab's file, as `rocelab plan` has them
(`rocelab.planning.pfc`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from rocelab.base import quantities
from rocelab.base.arrays import NONE, Floats, Longs
from rocelab.base.errors import InputError
from rocelab.labfile.base import SECOND
from rocelab.labfile.headroom import headroom_of, response_quanta
from rocelab.labfile.model import LabSpec
from rocelab.labfile.pfc import WatchdogAction
from rocelab.labfile.portsettings import PortSettings
from rocelab.labfile.switchports import PlaceOfPort
from rocelab.planning.pauses import QUANTUM_BITS
from rocelab.planning.pfc import LosslessPort, carving, nic_thresholds, slack_of, warnings
from rocelab.results.engines import PortModel
from rocelab.routes.arrays.network import Network
from rocelab.sim.packets.state import Buffer, Pause, Pool, Records, Rules, zeros

PS = 10**12


@dataclass(frozen=True, eq=False)
class WatchdogTimes:
    """Times in ps. discards: packets of a queue that it frees are lost."""

    detection_ps: int
    restoration_ps: int
    discards: bool


@dataclass(frozen=True, eq=False)
class BufferDrain:
    """Receive buffers of NICs with slow hosts, of each send, 2L: how fast the host takes what
    arrives, 0 of a send to a switch; in bytes the buffer, and where it pauses and resumes."""

    rate_bps: Longs
    size: Longs
    xoff: Longs
    xon: Longs


@dataclass(frozen=True, eq=False)
class Pausing:
    """Lossless classes (`rocelab.labfile.pfc`) of 2L sends and of the switches. Sizes are bytes."""

    classes: tuple[int, ...]
    pool: Longs
    """2L. The number of the switch that a send enters, NONE for a NIC."""

    headroom: Longs
    """2L. Of a class."""

    delay_ps: Longs
    """2L. From a threshold crossed at its end until its sender has stopped or goes on."""

    shared: Longs
    """Of each switch: memory for all its ports."""

    reserve: Longs
    """Of each switch: memory for headroom."""

    reserved: Longs | int
    """Of each send, or of all, like the next ones (`rocelab.labfile.portsettings.PortPauses`)."""

    xoff: Longs | int
    """0 if it is dynamic."""

    dynamic_th: Longs | int
    xon_offset: Longs | int
    watchdog: WatchdogTimes | None = None
    drain: BufferDrain | None = None
    xon: Longs | int = 0


def pausing_of(
    spec: LabSpec, network: Network, ports: PortModel, latency_ns: Floats
) -> Pausing | None:
    """Those of a lab, None without any. latency_ns: of each send, 2L. Ports of a lab have its slack
    as headroom too.

    A pause crosses the cable back, and its sender takes time to obey. What a link adds to a send
    beyond its cable is a switch's, which counts a packet before, so the pause is that much earlier.
    Raises InputError if that is before the crossing.
    """
    pfc = spec.queues.pfc
    if pfc is None:
        return None
    columns = (np.rint(network.capacity_bps).astype(np.int64), network.mtu, network.cable_ns)
    kinds, rate = np.unique(np.stack(columns), axis=1, return_inverse=True)
    bps: list[int] = kinds[0].tolist()
    cables: list[int] = kinds[2].tolist()
    needs = [headroom_of(pfc, *kind) for kind in kinds.T.tolist()]
    is_lab = ports is PortModel.LAB
    slack = [slack_of(need, spec) if is_lab else 0 for need in needs]
    obeyed_ns = np.array(
        [
            2 * cable + response_quanta(pfc, value) * QUANTUM_BITS * SECOND / value
            for value, cable in zip(bps, cables, strict=True)
        ]
    )[rate]
    delay_ns = obeyed_ns - latency_ns
    if (delay_ns < 0).any():
        worst = int(np.argmin(delay_ns))
        raise InputError(
            f"a pause is obeyed {quantities.duration(float(obeyed_ns[worst]))} after what crossed "
            f"the threshold was on the cable of {network.send_name(worst)}, and a hop latency of "
            f"{quantities.duration(float(latency_ns[worst]))} is longer",
            hint="set links.delay in the lab's file: headroom and pauses then have room for it",
        )
    is_switch = network.tier[network.receiver] > 0
    switches, pool = np.unique(network.receiver[is_switch], return_inverse=True)
    pools = np.full(network.sends, NONE, np.int64)
    pools[is_switch] = pool
    settings = PortSettings(spec.queues)
    entered = _entered(settings, network)
    ports_of, extra = _ports_of(entered, network), np.zeros(network.nodes, np.int64)
    np.add.at(extra, network.receiver, np.array(slack, np.int64)[rate])
    shared, reserve = [], []
    for switch in switches.tolist():
        memory = carving(settings, network.roles[switch], 1, list(ports_of[switch].items()))
        shared.append(memory.shared)
        reserve.append(memory.headroom_pool + int(extra[switch]) * len(pfc.classes))
    thresholds = [nic_thresholds(pfc, need.total) for need in needs]
    drain = None
    if pfc.nic.drain is not None:
        rate_bps = [round(value * pfc.nic.drain / 10**6) for value in bps]
        drain = BufferDrain(
            np.where(is_switch, 0, np.array(rate_bps)[rate]),
            (pfc.nic.buffer + np.array(slack))[rate],
            *np.array(thresholds).T[:, rate],
        )
    watchdog = None
    if pfc.watchdog is not None:
        watchdog = WatchdogTimes(
            pfc.watchdog.detection * 1000,
            pfc.watchdog.restoration * 1000,
            pfc.watchdog.action is WatchdogAction.DROP,
        )
    lines = [
        settings.pauses(place) if number != NONE else None
        for place, number in zip(entered, pools.tolist(), strict=True)
    ]
    needed = np.array([need.total for need in needs])[rate]

    def column(name: str) -> Longs:
        return np.array([getattr(line, name) or 0 if line else 0 for line in lines], np.int64)

    taken = np.where(pools == NONE, pfc.headroom or 0, column("headroom"))
    return Pausing(
        pfc.classes,
        pools,
        np.where(taken > 0, taken, needed) + np.array(slack, np.int64)[rate],
        np.rint(delay_ns * 1000).astype(np.int64),
        np.array(shared, np.int64),
        np.array(reserve, np.int64),
        column("reserved"),
        column("xoff"),
        column("dynamic_th"),
        column("xon_offset"),
        watchdog,
        drain,
        column("xon"),
    )


def places_of(network: Network) -> Iterator[PlaceOfPort]:
    """What decides on the settings of the port that sends, of each send, 2L."""
    roles, named = network.roles, network.link_queues
    columns = (network.sender, np.rint(network.capacity_bps).astype(int), network.delay_ns)
    for send, (sender, bps, delay_ns) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        cable_ns = None if delay_ns == NONE else delay_ns
        port = network.send_name(send).partition(":")[2]
        link = named[send // 2] if named else None
        yield PlaceOfPort(roles[sender].name, bps, cable_ns, port, link)


def _entered(settings: PortSettings, network: Network) -> list[PlaceOfPort]:
    """The port that each send enters: it sends the way back."""
    places = [settings.place(place) for place in places_of(network)]
    return [places[send ^ 1] for send in range(network.sends)]


def _ports_of(entered: Sequence[PlaceOfPort], network: Network) -> dict[int, Counter[LosslessPort]]:
    """The ports of each node, by what they share of its memory, and how many there are."""
    ports: dict[int, Counter[LosslessPort]] = {}
    columns = (network.receiver, network.mtu, network.cable_ns)
    lists = (column.tolist() for column in columns)
    for node, mtu, cable_ns, place in zip(*lists, entered, strict=True):
        port = LosslessPort(place, mtu, cable_ns)
        ports.setdefault(node, Counter())[port] += 1
    return ports


def pause_warnings(spec: LabSpec, network: Network) -> tuple[str, ...]:
    """What `rocelab plan` warns of a lab's lossless classes, also of a fabric that no lab can
    address."""
    pfc = spec.queues.pfc
    if pfc is None:
        return ()
    settings = PortSettings(spec.queues)
    ports_of = _ports_of(_entered(settings, network), network)
    kinds = Counter(
        (network.roles[node], frozenset(counts.items()))
        for node, counts in ports_of.items()
        if network.roles[node].is_switch
    )
    carvings = [
        carving(settings, role, count, list(counts))
        for (role, counts), count in sorted(kinds.items(), key=lambda kind: kind[0][0].tier)
    ]
    of_nics = (counts for node, counts in ports_of.items() if not network.roles[node].is_switch)
    nics = [port.headroom(pfc) for port in dict.fromkeys(chain.from_iterable(of_nics))]
    return warnings(spec.queues, pfc, carvings, nics)


def pause_tables(
    pausing: Pausing | None, order: Sequence[int], first_ring: int
) -> tuple[Records[Pause], Records[Pool], Records[Buffer]]:
    """The engine's rows of gates, switches' memories and receive buffers, all empty without
    lossless classes. order: the traffic class of each class of a port; first_ring: that of the
    shortest delay."""
    if pausing is None:
        return zeros(Pause, 0), zeros(Pool, 0), zeros(Buffer, 0)
    classes, ports = len(order), len(pausing.pool)
    pause = zeros(Pause, ports * classes)
    pause.first_waiting = pause.parked.first = -1
    pause.headroom = np.repeat(pausing.headroom, classes)
    pause.pool = np.repeat(pausing.pool, classes)
    for name in ("reserved", "xoff", "dynamic_th", "xon_offset", "xon"):
        setattr(pause, name, np.repeat(np.broadcast_to(getattr(pausing, name), ports), classes))
    ring = np.unique(pausing.delay_ps, return_inverse=True)[1]
    pause.ask_ring = np.repeat(first_ring + ring, classes)
    pool = zeros(Pool, len(pausing.shared))
    pool.shared_size, pool.reserve_size = pausing.shared, pausing.reserve
    return pause, pool, _buffers(pausing)


def pause_rules(pausing: Pausing, order: Sequence[int], rules: Rules) -> None:
    """Write the engine's numbers of lossless classes into `rules`."""
    is_lossless = [traffic_class in pausing.classes for traffic_class in order]
    rules.lossless = sum(1 << place for place, flag in enumerate(is_lossless) if flag)
    rules.nic_class = is_lossless.index(False) if False in is_lossless else 0
    rules.buffer_each = 1
    rules.drains = pausing.drain is not None
    if pausing.watchdog is not None:
        rules.detection_ps = pausing.watchdog.detection_ps
        rules.restoration_ps = pausing.watchdog.restoration_ps
        rules.discards_all = pausing.watchdog.discards


def _buffers(pausing: Pausing) -> Records[Buffer]:
    drain = pausing.drain
    if drain is None:
        return zeros(Buffer, 0)
    buffer = zeros(Buffer, len(pausing.pool))
    buffer.drain_bps = drain.rate_bps
    (slow,) = np.nonzero(drain.rate_bps)

    def drained_ps(held: Longs) -> list[int]:
        rates_bps, sizes = drain.rate_bps[slow].tolist(), held[slow].tolist()
        return [8 * size * PS // bps for size, bps in zip(sizes, rates_bps, strict=True)]

    buffer.full_ps[slow] = drained_ps(drain.size)
    buffer.xoff_ps[slow], buffer.xon_ps[slow] = drained_ps(drain.xoff), drained_ps(drain.xon)
    return buffer
