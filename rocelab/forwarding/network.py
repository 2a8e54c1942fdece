"""The network that flows are placed on: what every switch's kernel offers, with capacities.

In: a fabric and the tables of its switches as their kernels hold them now. Out: for a switch and a
destination the next hops that can be chosen, each with its place in the kernel's group. Only what
a kernel would use itself is offered, so that no placement can send a packet where it is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rocelab.forwarding.demand import Demand, FlowKey
from rocelab.forwarding.fib import Fib, Route
from rocelab.plan.fabric import DirectedLink, Fabric


@dataclass(frozen=True, slots=True)
class Step:
    """A switch's choice: next hop `index` of a group with these `weights`, over `link`."""

    link: DirectedLink
    index: int
    weights: tuple[int, ...]

    @property
    def switch(self) -> str:
        return self.link.sender

    @property
    def is_choice(self) -> bool:
        """Whether the kernel has more than one next hop to choose from."""
        return len(self.weights) > 1


Path = tuple[Step, ...]
"""The steps of a flow from its first switch to its server."""

Dag = Mapping[str, tuple[Step, ...]]
"""The steps possible at each switch that a flow can come to, the first switch's first."""


class Network:
    """A fabric's switches and live links, as the tables `fibs` have them."""

    def __init__(self, fabric: Fabric, fibs: Mapping[str, Fib]) -> None:
        self._fibs = fibs
        self._link_at = {
            (end.node, end.interface): link for link in fabric.links for end in (link.a, link.b)
        }
        self._steps: dict[tuple[str, str], tuple[Step, ...]] = {}
        self._dags: dict[tuple[str, str], Dag] = {}
        self.switches = frozenset(node.name for node in fabric.switches)
        self.tier_of = {node.name: node.role.tier for node in fabric.nodes}

    def steps(self, switch: str, destination: str) -> tuple[Step, ...]:
        """What `switch` can do with a packet to the address `destination`; none: it drops it."""
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
            # A hop without carrier keeps its place: the kernel still counts it.
            if link is not None and hop.carrier:
                yield Step(DirectedLink(link, switch), index, weights)

    def ingress(self, demand: Demand) -> str:
        """The switch where a flow enters: the first that reaches its NIC, or else the first."""
        for switch in demand.ingresses:
            if any(
                step.link.receiver not in self.switches
                for step in self.steps(switch, demand.key.source_ip)
            ):
                return switch
        return demand.ingresses[0]

    def dag(self, ingress: str, destination: str) -> Dag:
        """Every switch on a path from `ingress` that arrives, with the steps that do arrive.

        Empty where none does. A path never comes to a switch twice.
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
                if self._arrives(step.link.receiver, destination, passing, arriving)
            )
            passing.remove(switch)
        return bool(arriving[switch])


class Load:
    """The load of every link in bit/s, as flows are placed and taken off again."""

    def __init__(self) -> None:
        self.bps: dict[DirectedLink, float] = {}

    def add(self, path: Path, rate_bps: float) -> None:
        """Put a flow on its path; a negative rate takes it off."""
        for step in path:
            self.bps[step.link] = self.bps.get(step.link, 0.0) + rate_bps

    def utilisation(self, link: DirectedLink, more_bps: float = 0.0) -> float:
        """Load over capacity of a link, with `more_bps` added."""
        return (self.bps.get(link, 0.0) + more_bps) / link.link.rate_bps

    def shared(self) -> dict[DirectedLink, float]:
        """The utilisation of every loaded link between two switches."""
        return {link: self.utilisation(link) for link in self.bps if link.is_between_switches}


@dataclass(frozen=True)
class Placement:
    """A path per flow. `lost` are flows that no path leads to their destination.

    Utilisations are of links between switches: a server's own link is nobody's to choose.
    """

    paths: Mapping[FlowKey, Path]
    utilisation: Mapping[DirectedLink, float]
    lost: tuple[FlowKey, ...]

    @property
    def max_utilisation(self) -> float:
        """The utilisation of the most used link; above 1 the flows do not fit."""
        return max(self.utilisation.values(), default=0.0)

    @property
    def overloaded(self) -> tuple[DirectedLink, ...]:
        """Links that carry more than their capacity."""
        return tuple(link for link, used in self.utilisation.items() if used > 1 + 1e-9)


def placement(demands: Sequence[Demand], paths: Mapping[FlowKey, Path]) -> Placement:
    """The placement that `paths` make of `demands`."""
    load = Load()
    for demand in demands:
        if demand.key in paths:
            load.add(paths[demand.key], demand.rate_bps)
    lost = tuple(demand.key for demand in demands if demand.key not in paths)
    return Placement(dict(paths), load.shared(), lost)
