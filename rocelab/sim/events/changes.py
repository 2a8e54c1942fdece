"""Turns outages into the engine's `Change`s: capacities of sends and paths of flows over time.

Changes come lazily and in order of time. Three things happen to a flow over a link that fails:
nothing arrives; routing moves after its reaction time; its queue pair retransmits when its timer
expires.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rocelab.base.arrays import Bools, Floats, Ints
from rocelab.routes.arrays.flows import Flows, Paths
from rocelab.routes.arrays.network import Network
from rocelab.sim.engine.program import Change
from rocelab.sim.events.retransmission import Retransmission
from rocelab.sim.events.timeline import EventOutage, LinkStates, moments_of

PathsFor = Callable[[Flows, Bools], Paths]
"""The paths of flows while routing sees these links, L, as up. A flow whose port has no link leaves
by its NIC's other port, as in `rocelab.routes.arrays.paths.paths_of`."""


def changes_of(
    network: Network,
    outages: Sequence[EventOutage],
    flows: Flows,
    paths: Paths,
    paths_for: PathsFor,
    retransmissions: Sequence[Retransmission],
    of_flow: Ints,
    begins_s: Floats,
) -> Iterator[Change]:
    """The changes in order of time; `paths` are those without any outage. Flow f retransmits as
    retransmissions[of_flow[f]] says, and sends nothing before begins_s[f].

    At a fault the links carry nothing and paths stay; once routing has moved, paths avoid the
    failed links. A drain moves first. A link that returns carries traffic and is routed over at
    once: repairs in the lab lost no packets, and how soon BGP uses a link again was not measured. A
    flow that had no whole path since it began waits for its queue pair's next retry, whether it was
    sending or not; one whose retries all failed never sends again. Each change is computed when the
    engine asks for it.
    """
    state = _State(network, flows, paths, paths_for, retransmissions, of_flow, begins_s)
    moments = moments_of(outages)
    while moments:
        now = heapq.heappop(moments)
        while moments and moments[0] <= now:
            heapq.heappop(moments)
        change, again_s = state.at(now, outages)
        for moment in again_s.tolist():
            heapq.heappush(moments, moment)
        if change is not None:
            yield change


class _State:
    """Where routes and queue pairs are at the moment."""

    def __init__(
        self,
        network: Network,
        flows: Flows,
        paths: Paths,
        paths_for: PathsFor,
        retransmissions: Sequence[Retransmission],
        of_flow: Ints,
        begins_s: Floats,
    ) -> None:
        self._links = LinkStates(network)
        self._flows = flows
        self._whole = paths
        self._paths_for = paths_for
        self._retransmissions = retransmissions
        self._of_flow = of_flow
        self._begins_s = begins_s
        self._routed = paths
        # For flows without a whole path: since when, and when they get through; else inf.
        self._lost_s = np.full(len(flows), np.inf)
        self._through_s = np.full(len(flows), np.inf)
        self._broken = np.zeros(len(flows), bool)
        self._held = np.zeros(len(flows), bool)

    def at(self, now: float, outages: Sequence[EventOutage]) -> tuple[Change | None, Floats]:
        """The change at a moment, or None, and further moments at which something will change."""
        links = self._links
        same_capacity, same_routes = links.at(now, outages)
        if not same_routes:
            self._routed = self._paths(links.up)
        again_s = self._queue_pairs(now)
        held = self._broken | np.isfinite(self._lost_s)
        # A path without capacity blocks its flow anyway.
        held &= self._carries()
        same_paths = same_routes and np.array_equal(held, self._held)
        self._held = held
        if same_paths and same_capacity:
            return None, again_s
        paths = None if same_paths else without(self._routed, held)
        return Change(now, None if same_capacity else links.capacity_bps, paths), again_s

    def _paths(self, up: Bools) -> Paths:
        if up.all():
            return self._whole
        return self._paths_for(self._flows, up)

    def _queue_pairs(self, now: float) -> Floats:
        """Update the flows that wait for a retry. Returns the moments at which flows get
        through."""
        carries = self._carries()
        waiting = np.isfinite(self._lost_s)
        self._through_s[~carries] = np.inf
        ready = waiting & carries & ~np.isfinite(self._through_s)
        through_s = self._lost_s[ready]
        for number, retransmission in enumerate(self._retransmissions):
            mask = self._of_flow[ready] == number
            through_s[mask] = retransmission.through_s(through_s[mask], now)
        # A flow that has not begun has lost nothing.
        through_s[self._lost_s[ready] >= now] = now
        self._through_s[ready] = through_s
        self._broken[ready] = ~np.isfinite(through_s)
        over = carries & (self._through_s <= now)
        self._through_s[over] = np.inf
        self._lost_s[over | self._broken] = np.inf
        lost = ~carries & ~waiting & ~self._broken
        self._lost_s[lost] = np.maximum(now, self._begins_s[lost])
        return np.unique(through_s[np.isfinite(through_s) & (through_s > now)])

    def _carries(self) -> Bools:
        """Whether each flow has a path whose sends all have capacity."""
        return ~_crosses_any(self._routed, self._links.capacity_bps[self._routed.sends] == 0) & (
            np.diff(self._routed.start) > 0
        )


def without(paths: Paths, held: Bools) -> Paths:
    """The paths; those of the flows `held` are empty."""
    if not held.any():
        return paths
    lengths = np.diff(paths.start)
    kept = np.repeat(~held, lengths)
    start = np.concatenate(([0], np.cumsum(np.where(held, 0, lengths))))
    share = None if paths.share is None else paths.share[kept]
    return Paths(start, paths.sends[kept], share)


def _crosses_any(paths: Paths, of_sends: Bools) -> Bools:
    """Whether each flow's path includes any of these sends."""
    before = np.concatenate(([0], np.cumsum(of_sends)))
    return np.asarray(before[paths.start[1:]] > before[paths.start[:-1]])
