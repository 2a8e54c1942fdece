"""A timeline as the engine takes it: what sends carry, and which paths flows take, from when on.

In: outages on a network, flows and their paths, and how paths are found with some links gone. Out:
`Change`s, lazily and in order. Three things happen to a flow over a link that fails: nothing
arrives; routing moves after its reaction time; its queue pair sends again when its timer runs out.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rocelab.arrays import Floats, Ints
from rocelab.sim.engine.program import Change
from rocelab.sim.events.retransmission import Retransmission
from rocelab.sim.events.spec import Kind
from rocelab.sim.events.timeline import Bools, Outage, link_state
from rocelab.sim.fabric.flows import Flows, Paths
from rocelab.sim.fabric.network import Network

PathsFor = Callable[[Flows, Bools], Paths]
"""The paths of flows while routing takes these links, L, for up. A flow whose port has none leaves
by its NIC's other one, as `rocelab.sim.fabric.paths.paths_of` has it."""


def changes_of(
    network: Network,
    outages: Sequence[Outage],
    flows: Flows,
    paths: Paths,
    paths_for: PathsFor,
    retransmissions: Sequence[Retransmission],
    of_flow: Ints,
) -> Iterator[Change]:
    """What changes when, in the order of time; `paths` are those without any outage. Flow f waits
    as retransmissions[of_flow[f]] says.

    At a fault the links carry nothing and paths are as before; once routing has moved, paths are
    those of what is left. A drain moves first. When a link returns it carries again and routes use
    it at once: the lab's repairs lost nothing, how soon BGP uses a link again was not measured. A
    flow that had no whole path waits for its queue pair's next retry, whether it was sending or
    not; one whose retries were all in vain never sends again. Nothing is worked out for a moment
    before the engine asks for it.
    """
    state = _State(network, flows, paths, paths_for, retransmissions, of_flow)
    moments = [
        moment
        for outage in outages
        for moment in (outage.begins_s, outage.routed_s, outage.ends_s)
        if math.isfinite(moment)
    ]
    heapq.heapify(moments)
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
    """Where links, routes and queue pairs are at the moment."""

    def __init__(
        self,
        network: Network,
        flows: Flows,
        paths: Paths,
        paths_for: PathsFor,
        retransmissions: Sequence[Retransmission],
        of_flow: Ints,
    ) -> None:
        self._network = network
        self._flows = flows
        self._whole = paths
        self._paths_for = paths_for
        self._retransmissions = retransmissions
        self._of_flow = of_flow
        self._routed = paths
        self._up = np.ones(network.links, bool)
        self._capacity_bps = network.capacity_bps
        # Of flows without a whole path: since when, and when they get through; inf for neither.
        self._lost_s = np.full(len(flows), np.inf)
        self._through_s = np.full(len(flows), np.inf)
        self._broken = np.zeros(len(flows), bool)
        self._held = np.zeros(len(flows), bool)

    def at(self, now: float, outages: Sequence[Outage]) -> tuple[Change | None, Floats]:
        """What changes at a moment, if anything, and further moments at which something will."""
        up, capacity_bps = self._links(now, outages)
        same_capacity = np.array_equal(capacity_bps, self._capacity_bps)
        same_routes = np.array_equal(up, self._up)
        self._up, self._capacity_bps = up, capacity_bps
        if not same_routes:
            self._routed = self._paths(up)
        again_s = self._queue_pairs(now)
        held = self._broken | np.isfinite(self._lost_s)
        # A path that carries nothing holds its flow by itself.
        held &= self._carries()
        same_paths = same_routes and np.array_equal(held, self._held)
        self._held = held
        if same_paths and same_capacity:
            return None, again_s
        paths = None if same_paths else without(self._routed, held)
        return Change(now, None if same_capacity else capacity_bps, paths), again_s

    def _links(self, now: float, outages: Sequence[Outage]) -> tuple[Bools, Floats]:
        on = [
            (outage, outage.routed_s <= now)
            for outage in outages
            if outage.begins_s <= now < outage.ends_s
        ]
        up, capacity_bps = link_state(self._network, on)
        # What routing left stays left until it carries again, whatever else began to fail there.
        silent = np.zeros(len(up), bool)
        for outage, _ in on:
            silent[outage.links] |= outage.kind is not Kind.DEGRADE
        return up & (self._up | ~silent), capacity_bps

    def _paths(self, up: Bools) -> Paths:
        if up.all():
            return self._whole
        return self._paths_for(self._flows, up)

    def _queue_pairs(self, now: float) -> Floats:
        """Go on with what each flow waits for; the moments at which flows get through."""
        carries = self._carries()
        waiting = np.isfinite(self._lost_s)
        self._through_s[~carries] = np.inf
        ready = waiting & carries & ~np.isfinite(self._through_s)
        through_s = self._lost_s[ready]
        for number, retransmission in enumerate(self._retransmissions):
            own = self._of_flow[ready] == number
            through_s[own] = retransmission.through_s(through_s[own], now)
        self._through_s[ready] = through_s
        self._broken[ready] = ~np.isfinite(through_s)
        over = carries & (self._through_s <= now)
        self._through_s[over] = np.inf
        self._lost_s[over | self._broken] = np.inf
        self._lost_s[~carries & ~waiting & ~self._broken] = now
        return np.unique(through_s[np.isfinite(through_s) & (through_s > now)])

    def _carries(self) -> Bools:
        """Whether each flow has a path of which every send carries something."""
        return ~_any(self._routed, self._capacity_bps[self._routed.sends] == 0) & (
            np.diff(self._routed.start) > 0
        )


def without(paths: Paths, held: Bools) -> Paths:
    """The paths, those of the flows `held` empty."""
    if not held.any():
        return paths
    lengths = np.diff(paths.start)
    kept = np.repeat(~held, lengths)
    start = np.concatenate(([0], np.cumsum(np.where(held, 0, lengths))))
    share = None if paths.share is None else paths.share[kept]
    return Paths(start, paths.sends[kept], share)


def _any(paths: Paths, of_sends: Bools) -> Bools:
    """Whether any of each flow's sends is one of these."""
    before = np.concatenate(([0], np.cumsum(of_sends)))
    return np.asarray(before[paths.start[1:]] > before[paths.start[:-1]])
