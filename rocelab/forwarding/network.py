"""The network that flows are placed on: the next hops that every kernel offers, with capacities.

It is made from a fabric and the present tables of its switches' kernels. For a switch and a
destination it gives the usable next hops with their index in the kernel's group. It offers only
next hops that the kernel itself would use, so that no placement can lose a packet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rocelab.forwarding.demand import Demand, FlowKey
from rocelab.forwarding.fib import Fib, Route
from rocelab.plan.fabric import Fabric, Link


class Edge(NamedTuple):
    """One direction of a link, sent by `node`."""

    node: str
    link: str


@dataclass(frozen=True, slots=True)
class Step:
    """A switch's choice: next hop `index` of a group with these `weights`, over `edge` to `to`."""

    edge: Edge
    to: str
    index: int
    weights: tuple[int, ...]

    @property
    def switch(self) -> str:
        return self.edge.node

    @property
    def is_choice(self) -> bool:
        """Whether the kernel has more than one next hop to choose from."""
        return len(self.weights) > 1


Path = tuple[Step, ...]
"""The steps of a flow from its first switch to its server."""

Dag = Mapping[str, tuple[Step, ...]]
"""The possible steps at each switch that a flow can reach, the first switch's first."""


class Network:
    """A fabric's switches and live links, according to the tables `fibs`."""

    def __init__(self, fabric: Fabric, fibs: Mapping[str, Fib]) -> None:
        self._fibs = fibs
        self._link_at = {
            (end.node, end.interface): link for link in fabric.links for end in (link.a, link.b)
        }
        self._steps: dict[tuple[str, str], tuple[Step, ...]] = {}
        self._dags: dict[tuple[str, str], Dag] = {}
        self.switches = frozenset(node.name for node in fabric.switches)
        self.tier_of = {node.name: node.role.tier for node in fabric.nodes}
        self.capacity_bps = {
            Edge(end.node, link.name): link.rate_bps
            for link in fabric.links
            for end in (link.a, link.b)
        }
        self.shared = frozenset(
            Edge(end.node, link.name) for link in fabric.sessions for end in (link.a, link.b)
        )
        """Edges between two switches, whose load a placement can change."""

    def steps(self, switch: str, destination: str) -> tuple[Step, ...]:
        """The possible steps of `switch` with a packet to the address `destination`; if empty, it
        drops the packet."""
        fib = self._fibs.get(switch)
        route = None if fib is None else fib.lookup(destination)
        if route is None:
            return ()
        found = self._steps.get((switch, route.prefix))
        if found is None:
            found = self._steps[switch, route.prefix] = tuple(self._of_route(switch, route))
        return found

    def _of_route(self, switch: str, route: Route) -> Iterable[Step]:
        weights = tuple(hop.weight for hop in route.next_hops)
        for index, hop in enumerate(route.next_hops):
            link = self._link_at.get((switch, hop.interface))
            # A hop without carrier keeps its index: the kernel still counts it.
            if link is not None and hop.carrier:
                yield self._step(switch, link, index, weights)

    def _step(self, switch: str, link: Link, index: int, weights: tuple[int, ...]) -> Step:
        return Step(Edge(switch, link.name), link.far(switch).node, index, weights)

    def ingress(self, demand: Demand) -> str:
        """The switch where a flow enters: the first with a direct step to its NIC, or else the
        first."""
        for switch in demand.ingresses:
            if any(
                step.to not in self.switches for step in self.steps(switch, demand.key.source_ip)
            ):
                return switch
        return demand.ingresses[0]

    def dag(self, ingress: str, destination: str) -> Dag:
        """Every switch on a path from `ingress` to the destination, with the steps on such paths.

        Empty if there is no path. A path never visits a switch twice.
        """
        key = (ingress, destination)
        found = self._dags.get(key)
        if found is None:
            arriving: dict[str, tuple[Step, ...]] = {}
            self._arrives(ingress, destination, set(), arriving)
            found = {name: arriving[name] for name in reversed(arriving) if arriving[name]}
            self._dags[key] = found
        return found

    def _arrives(
        self,
        switch: str,
        destination: str,
        passing: set[str],
        arriving: dict[str, tuple[Step, ...]],
    ) -> bool:
        if switch not in self.switches:
            return True
        if switch in passing:
            return False
        if switch not in arriving:
            passing.add(switch)
            arriving[switch] = tuple(
                step
                for step in self.steps(switch, destination)
                if self._arrives(step.to, destination, passing, arriving)
            )
            passing.remove(switch)
        return bool(arriving[switch])


class Load:
    """The load of every edge in bit/s, as flows are placed and removed."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._capacity = network.capacity_bps
        self.bps: dict[Edge, float] = {}

    def add(self, path: Path, rate_bps: float) -> None:
        """Add a flow to its path; a negative rate removes it."""
        for step in path:
            self.bps[step.edge] = self.bps.get(step.edge, 0.0) + rate_bps

    def utilisation(self, edge: Edge, more_bps: float = 0.0) -> float:
        """Load over capacity of an edge, with `more_bps` added."""
        return (self.bps.get(edge, 0.0) + more_bps) / self._capacity[edge]

    def shared(self) -> dict[Edge, float]:
        """The utilisation of every loaded edge between two switches."""
        return {edge: self.utilisation(edge) for edge in self.bps if edge in self._network.shared}


@dataclass(frozen=True)
class Placement:
    """A path per flow. `lost` are flows without a path to their destination.

    Utilisations are of edges between switches: a server's own link is not a choice.
    """

    paths: Mapping[FlowKey, Path]
    utilisation: Mapping[Edge, float]
    lost: tuple[FlowKey, ...]

    @property
    def max_utilisation(self) -> float:
        """The utilisation of the most used edge; if it is above 1 the flows do not fit."""
        return max(self.utilisation.values(), default=0.0)

    @property
    def overloaded(self) -> tuple[Edge, ...]:
        """Edges that carry more than their capacity, in order."""
        return tuple(sorted(edge for edge, used in self.utilisation.items() if used > 1 + 1e-9))


def placement(
    network: Network, demands: Sequence[Demand], paths: Mapping[FlowKey, Path]
) -> Placement:
    """The placement of `demands` on `paths`."""
    load = Load(network)
    for demand in demands:
        if demand.key in paths:
            load.add(paths[demand.key], demand.rate_bps)
    lost = tuple(demand.key for demand in demands if demand.key not in paths)
    return Placement(dict(paths), load.shared(), lost)
