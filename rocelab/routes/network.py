"""The network that flows are placed on: the next hops that every kernel offers, with capacities.

It is made from a fabric and the present tables of its switches' kernels. For a switch and a
destination it gives the usable next hops with their index in the kernel's group. It offers only
next hops that the kernel itself would use, so that no placement can lose a packet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rocelab.linux.fibtable import Fib, Route
from rocelab.planning.fabric import DirectedLink, Fabric
from rocelab.routes.demand import Demand, FlowKey


@dataclass(frozen=True, slots=True)
class PathStep:
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


Path = tuple[PathStep, ...]
"""The steps of a flow from its first switch to its server."""


class FibNetwork:
    """A fabric's switches and live links, according to the tables `fibs`."""

    def __init__(self, fabric: Fabric, fibs: Mapping[str, Fib]) -> None:
        self._fibs = fibs
        self._link_at = {(link.sender, link.port.interface): link for link in fabric.directed_links}
        self._steps: dict[tuple[str, str], tuple[PathStep, ...]] = {}
        self.switches = frozenset(node.name for node in fabric.switches)
        self.links = tuple(
            sorted(
                (link for link in fabric.directed_links if link.is_between_switches),
                key=lambda link: (link.sender, link.name),
            )
        )
        """The links between two switches, whose load placing can change."""
        self.most_hops = fabric.most_hops
        """Sends between switches on a path at most."""

    def steps(self, switch: str, destination: str) -> tuple[PathStep, ...]:
        """The possible steps of `switch` with a packet to the address `destination`; if empty, it
        drops the packet."""
        fib = self._fibs.get(switch)
        route = None if fib is None else fib.lookup(destination)
        if route is None:
            return ()
        steps = self._steps.get((switch, route.prefix))
        if steps is None:
            steps = self._steps[switch, route.prefix] = tuple(self._steps_of(switch, route))
        return steps

    def _steps_of(self, switch: str, route: Route) -> Iterable[PathStep]:
        weights = tuple(hop.weight for hop in route.next_hops)
        for index, hop in enumerate(route.next_hops):
            link = self._link_at.get((switch, hop.interface))
            # A hop without carrier keeps its index: the kernel still counts it.
            if link is not None and hop.carrier:
                yield PathStep(link, index, weights)

    def ingress(self, demand: Demand) -> str:
        """The switch where a flow enters: the first with a direct step to its NIC, or else the
        first."""
        for switch in demand.ingresses:
            steps = self.steps(switch, demand.key.source_ip)
            if not all(step.link.is_between_switches for step in steps):
                return switch
        return demand.ingresses[0]


@dataclass(frozen=True)
class FlowPlacement:
    """A path per flow. `lost` are flows without a path to their destination.

    Utilisations are of links between switches: a server's own link is not a choice.
    """

    paths: Mapping[FlowKey, Path]
    utilisation: Mapping[DirectedLink, float]
    lost: tuple[FlowKey, ...]

    @property
    def max_utilisation(self) -> float:
        """The utilisation of the most used link; if it is above 1 the flows do not fit."""
        return max(self.utilisation.values(), default=0.0)

    @property
    def overloaded(self) -> tuple[DirectedLink, ...]:
        """Links that carry more than their capacity."""
        return tuple(link for link, used in self.utilisation.items() if used > 1 + 1e-9)
