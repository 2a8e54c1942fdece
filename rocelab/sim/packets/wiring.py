"""Ports and ways of a run, at its beginning and whenever links or routes change.

What a link holds that carries nothing any more is lost: what is on it, and at its ports. Packets
that were sent before routes change keep their ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rocelab.base.arrays import Bools, Floats, Ints, Longs
from rocelab.results.engines import PortModel
from rocelab.routes.arrays.flows import Ways
from rocelab.sim.packets import state as at
from rocelab.sim.packets.draws import drawn_order
from rocelab.sim.packets.freelist import grown
from rocelab.sim.packets.loop import move
from rocelab.sim.packets.ports import cut
from rocelab.sim.packets.sending import Queues
from rocelab.sim.packets.state import PacketState

PS = 10**12

CUT_BYTES = 64
"""What a port that cuts through waits for: enough to choose the next port."""


@dataclass(frozen=True, eq=False)
class Wiring:
    """From `time_s` on: the capacity of each send, 2L, 0 if it carries nothing; the ways of the
    data of each flow, and behind them of its ACKs and CNPs, 2F."""

    time_s: float
    capacity_bps: Floats
    ways: Ways

    @property
    def time_ps(self) -> int:
        return round(self.time_s * PS)


@dataclass(frozen=True, eq=False)
class Ports:
    """What ports are through all of a run."""

    rates_bps: Floats
    """All that they ever have, ascending."""

    latency_ps: Longs
    """Of each send, 2L."""

    kinds: Longs
    """The places in `rates_bps` and the latencies that ports ever have together, K x 2,
    ascending."""

    is_nic: Bools
    """Of each send, 2L."""

    queues: Queues

    @cached_property
    def by_kind(self) -> Longs:
        """The kinds in the order of their rings for packets that left early."""
        return drawn_order(self.queues.seed, len(self.kinds))

    @cached_property
    def latencies_ps(self) -> Longs:
        """The distinct latencies, ascending."""
        return np.unique(self.latency_ps)

    @cached_property
    def by_latency(self) -> Longs:
        """The latencies in the order of their rings for packets that were sent whole."""
        return drawn_order(self.queues.seed, len(self.latencies_ps))

    def on_the_way_ps(self) -> list[int]:
        """The delays of the rings of packets on their way: of those that left early, and behind
        them of those that were sent whole."""
        return [*self._early_ps(), *self.latencies_ps[self.by_latency].tolist()]

    def _early_ps(self) -> list[int]:
        """For each kind, how long after its beginning a packet reaches the next port; none where it
        does after its end."""
        if self.queues.ports is PortModel.STORE_AND_FORWARD:
            return []
        header_bytes = CUT_BYTES if self.queues.ports is PortModel.CUT_THROUGH else 0
        rate, latency_ps = self.kinds[self.by_kind].T
        delay_ps: list[int] = (
            np.rint(latency_ps + header_bytes * 8 * PS / self.rates_bps[rate]).astype(int).tolist()
        )
        return delay_ps


def ports_of(wirings: Sequence[Wiring], queues: Queues, latency_s: Floats) -> Ports:
    """The ports of a run with these wirings. latency_s: of each send, 2L."""
    capacity_bps = np.concatenate([wiring.capacity_bps for wiring in wirings])
    latency_ps = np.rint(latency_s * PS).astype(np.int64)
    carries = capacity_bps > 0
    rates_bps, rate = np.unique(capacity_bps[carries], return_inverse=True)
    kinds = np.column_stack((rate, np.tile(latency_ps, len(wirings))[carries]))
    is_nic = np.zeros(len(wirings[0].capacity_bps), np.bool_)
    for wiring in wirings:
        paths = wiring.ways.paths
        is_nic[paths.sends[paths.start[:-1][np.diff(paths.start) > 0]]] = True
    if queues.unlimited is not None:
        is_nic |= queues.unlimited
    return Ports(rates_bps, latency_ps, np.unique(kinds, axis=0), is_nic, queues)


def connected(run: PacketState, wiring: Wiring, ports: Ports) -> PacketState:
    """The run with this wiring from now on."""
    run.counts.now_ps = max(run.counts.now_ps, wiring.time_ps)
    is_cut, was_cut = wiring.capacity_bps == 0, run.port.buffer == at.CUT
    _set_rates(run, wiring.capacity_bps, ports)
    for number in np.flatnonzero(is_cut & ~was_cut).tolist():
        cut(run, number)
    _drop_in_flight(run, is_cut & ~was_cut)
    buffer = np.where(ports.is_nic, at.NEVER, ports.queues.buffer_bytes)
    run.port.buffer[~is_cut] = buffer[~is_cut]
    nic, cells, place, list_at = _cells(run, wiring.ways, is_cut)
    run = _with_path(run, cells)
    flows = len(run.flow)
    for way, rows in ((run.flow.data_way, slice(flows)), (run.flow.ack_way, slice(flows, None))):
        way.path, way.ways = place[rows], list_at[rows]
    moved = run.flow.nic != nic[:flows]
    listed = run.flow.listed > 0
    moving = np.flatnonzero(moved & listed).tolist()
    # Each may send a packet at once.
    while run.counts.free_packets < len(moving):
        run = grown(run)
    for flow in moving:
        move(run, flow, int(nic[flow]))
    run.flow.nic = nic[:flows]
    return run


def _set_rates(run: PacketState, capacity_bps: Floats, ports: Ports) -> None:
    carries, queues = capacity_bps > 0, ports.queues
    rate = np.searchsorted(ports.rates_bps, capacity_bps[carries])
    run.port.rate[carries] = rate * len(run.sizes)
    latency = np.searchsorted(ports.latencies_ps, ports.latency_ps)
    whole_rings = len(run.ring) - len(ports.latencies_ps)
    run.port.whole = whole_rings + np.argsort(ports.by_latency)[latency]
    if queues.ports is not PortModel.STORE_AND_FORWARD:
        places = len(ports.latencies_ps)
        numbers = rate * places + latency[carries]
        known = ports.kinds[:, 0] * places
        known += np.searchsorted(ports.latencies_ps, ports.kinds[:, 1])
        kind = np.searchsorted(known, numbers)
        run.port.early[carries] = run.rules.way_rings + np.argsort(ports.by_kind)[kind]
    if queues.ports is PortModel.LAB:
        # A lab's NIC has a queue that saves up only for lossless classes, behind its host.
        saves_up = ~ports.is_nic | (len(run.host) > 0 and len(run.pause) > 0)
        burst_bytes = np.where(saves_up, queues.burst_bytes, 0)[carries]
        run.port.burst_ps[carries] = np.rint(burst_bytes * 8.0 * PS / capacity_bps[carries])


def _drop_in_flight(run: PacketState, is_cut: Bools) -> None:
    """What is on these sends, or leaves their ports, comes to the first cell of `path`."""
    busy = run.port.busy[is_cut]
    run.packet.place[busy[(busy >= 0) & (busy < at.GONE)]] = -1
    packets = _scheduled(run, slice(int(run.rules.way_rings), None))
    packets = packets[run.packet.place[packets] >= 0]
    is_lost = is_cut[run.path[run.packet.place[packets]]]
    run.packet.place[packets[is_lost]] = -1


def _scheduled(run: PacketState, rings: slice) -> Longs:
    """The packets of all events of some rings."""
    events = [np.empty(0, np.int64)]
    for ring in run.ring[rings]:
        numbers = np.arange(ring.front, ring.back)
        events.append(run.event.subject[ring.first + (numbers & ring.mask)])
    return np.concatenate(events)


def _cells(run: PacketState, ways: Ways, is_cut: Bools) -> tuple[Longs, Ints, Longs, Longs]:
    """The port at the NIC of each flow's data and answers, 2F; the cells of `path`; where in them
    the way of each begins, the first of several, and where the list of several does, else 0.

    A way behind a NIC's port that is cut ends there, like one that leads nowhere, which begins at
    the port that the flow has.
    """
    paths, count = ways.paths, np.diff(ways.first)
    hops = np.diff(paths.start)
    flow_of = np.zeros(len(paths), np.int64)
    flow_of[ways.way] = np.repeat(np.arange(len(count)), count)
    nic = _nics(run)[flow_of]
    nic[hops > 0] = paths.sends[paths.start[:-1][hops > 0]]
    goes = (hops > 0) & ~is_cut[nic]
    length = np.where(goes, hops, 1) + 1
    begin = 1 + np.cumsum(length) - length
    cells = np.full(1 + length.sum(), at.LOST, np.int32)
    cells[begin] = nic
    cells[begin[goes] + hops[goes]] = at.END
    number = np.arange(len(paths.sends)) - np.repeat(paths.start[:-1], hops)
    kept = np.repeat(goes, hops)
    cells[(np.repeat(begin, hops) + number)[kept]] = paths.sends[kept]
    several = count > 1
    listed = np.where(several, count + 1, 0)
    list_at = np.where(several, len(cells) + np.cumsum(listed) - listed, 0)
    lists = np.insert(begin[ways.way], ways.first[:-1], count)[np.repeat(several, count + 1)]
    cells = np.concatenate((cells, lists.astype(np.int32)))
    first = ways.way[ways.first[:-1]]
    return nic[first], cells, begin[first], list_at


def _nics(run: PacketState) -> Longs:
    """The port at the NIC of each flow's data and answers, 2F."""
    return np.concatenate((run.flow.nic, run.path[run.flow.ack_way.path]))


def _with_path(run: PacketState, cells: Ints) -> PacketState:
    """The run with these cells of `path`, behind which are the rests of present packets' ways."""
    packets = _present(run)
    place = run.packet.place[packets].astype(np.int64)
    ends = np.flatnonzero(run.path < 0)
    # With the send by which it came.
    length = ends[np.searchsorted(ends, place)] - place + 2
    begin = np.cumsum(length) - length
    number = np.arange(length.sum()) - np.repeat(begin, length)
    rests = run.path[np.repeat(place - 1, length) + number]
    run.packet.place[packets] = len(cells) + begin + 1
    return run._replace(path=np.concatenate((cells, rests)))


def _present(run: PacketState) -> Longs:
    """The packets in queues and on the way that are not lost."""
    if run.counts.free_packets == len(run.packet):
        return np.empty(0, np.int64)
    is_present = np.ones(len(run.packet), np.bool_)
    following, free = run.packet.next.tolist(), int(run.counts.free)
    for _ in range(int(run.counts.free_packets)):
        is_present[free] = False
        free = following[free]
    asked = slice(int(run.rules.port_rings), int(run.rules.way_rings))
    is_present[_scheduled(run, asked)] = False
    is_present &= run.packet.place >= 0
    return np.flatnonzero(is_present)
