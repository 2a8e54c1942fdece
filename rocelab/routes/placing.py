"""A lab's flows placed by traffic engineering, over the tables that its kernels have now.

Gives the placement of demands on a network, or the optimum. Translates between the lab's names and
the arrays of `rocelab.routes.te`, which places the flows of labs and of simulations alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import NONE, Longs
from rocelab.planning.fabric import DirectedLink
from rocelab.routes.demand import Demand, FlowKey
from rocelab.routes.network import FibNetwork, FlowPlacement, Path, PathStep
from rocelab.routes.te.problem import FlowRequests, Offer, Placed, scratch
from rocelab.routes.te.search import place_in_order


def place_cspf(network: FibNetwork, demands: Sequence[Demand]) -> FlowPlacement:
    """Every demand where there is most room, largest first; the same input gives the same result.

    A flow that fits nowhere is placed all the same, where it overloads least: the placement's
    `overloaded` tells.
    """
    problem = _Problem.of(network, demands)
    room = scratch(len(problem.nodes), network.most_hops)
    return problem.placement(place_in_order(problem.offer, problem.wanted, problem.order, room))


def place_lp(network: FibNetwork, demands: Sequence[Demand]) -> tuple[FlowPlacement, float]:
    """Every demand whole, near the optimum of flows that may be split; and that optimum, as
    `lower_bound` gives it. Raises as that does."""
    from rocelab.routes.te.moves import place_optimum

    problem = _Problem.of(network, demands)
    asked = problem.offer, problem.wanted, problem.order
    placed, bound = place_optimum(*asked, network.most_hops)
    return problem.placement(placed), bound


def lower_bound(network: FibNetwork, demands: Sequence[Demand]) -> float:
    """The least maximum utilisation that any placement of `demands` can have.

    Raises InputError where the programme is too large, MachineError where the solver fails.
    """
    # The solver takes a second and 50 MB to load: only those who ask for it pay.
    from rocelab.routes.te.optimum import least_maximum

    problem = _Problem.of(network, demands)
    return least_maximum(problem.offer, problem.wanted, problem.order, network.most_hops)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Demands as the engines take them."""

    network: FibNetwork
    demands: Sequence[Demand]
    nodes: tuple[str, ...]
    links: tuple[DirectedLink, ...]
    """Of each send."""
    offer: Offer
    wanted: FlowRequests
    order: Longs
    """Largest first."""

    @classmethod
    def of(cls, network: FibNetwork, demands: Sequence[Demand]) -> _Problem:
        """The problem of placing `demands`, each destination address a class of its own."""
        nodes, links = tuple(sorted(network.switches)), network.links
        number_of = {name: number for number, name in enumerate(nodes)}
        send_of = {link: send for send, link in enumerate(links)}
        ingress = [network.ingress(demand) for demand in demands]
        entered: dict[str, list[str]] = {}
        for demand, switch in zip(demands, ingress, strict=True):
            entered.setdefault(demand.key.destination_ip, []).append(switch)
        group = np.full((len(nodes), len(entered)), NONE, np.int32)
        start, sends = [0], []
        leaves: dict[str, list[int]] = {}
        group_of: dict[tuple[PathStep, ...], int] = {}
        for home, (destination, waiting) in enumerate(entered.items()):
            leaves[destination] = []
            seen = set(waiting)
            while waiting:
                switch = waiting.pop()
                steps = network.steps(switch, destination)
                if not all(step.link.is_between_switches for step in steps):
                    leaves[destination].append(number_of[switch])
                    continue
                if steps not in group_of:
                    group_of[steps] = len(group_of)
                    sends += [send_of[step.link] for step in steps]
                    start.append(len(sends))
                group[number_of[switch], home] = group_of[steps]
                onward = {step.link.receiver for step in steps} - seen
                seen |= onward
                waiting += sorted(onward)
        ports = max(map(len, leaves.values()), default=0)
        homes = {destination: home for home, destination in enumerate(entered)}
        rows = [leaves[demand.key.destination_ip] for demand in demands]
        wanted = FlowRequests(
            np.array([number_of[switch] for switch in ingress], np.int32),
            np.array([homes[demand.key.destination_ip] for demand in demands], np.int32),
            np.array([row + [NONE] * (ports - len(row)) for row in rows], np.int32).reshape(
                len(demands), ports
            ),
            np.array([demand.rate_bps for demand in demands], np.float64),
        )
        receiver = [number_of[link.receiver] for link in links]
        capacity_bps = [link.link.rate_bps for link in links]
        offer = Offer(
            group,
            np.array(start, np.int64),
            np.array(sends, np.int32),
            np.array(receiver, np.int32),
            np.array(capacity_bps, np.float64),
        )
        order = sorted(
            range(len(demands)), key=lambda flow: (-demands[flow].rate_bps, demands[flow].key)
        )
        return cls(network, demands, nodes, links, offer, wanted, np.array(order, np.int64))

    def placement(self, placed: Placed) -> FlowPlacement:
        """What the engines made of it, in the lab's names."""
        paths: dict[FlowKey, Path] = {}
        load_bps: dict[DirectedLink, float] = {}
        for flow in self.order.tolist():
            demand, hops = self.demands[flow], int(placed.hops[flow])
            if hops == NONE:
                continue
            links = [self.links[send] for send in placed.sends[flow, :hops].tolist()]
            paths[demand.key] = self._path(flow, links)
            for link in links:
                load_bps[link] = load_bps.get(link, 0.0) + demand.rate_bps
        used = {link: bps / link.link.rate_bps for link, bps in load_bps.items()}
        lost = tuple(demand.key for demand in self.demands if demand.key not in paths)
        return FlowPlacement(paths, used, lost)

    def _path(self, flow: int, links: Sequence[DirectedLink]) -> Path:
        """The steps over `links`, and the last one to the server."""
        destination = self.demands[flow].key.destination_ip
        at = self.nodes[self.wanted.ingress[flow]]
        path = []
        for link in (*links, None):
            steps = self.network.steps(at, destination)
            step = next(
                step
                for step in steps
                if (not step.link.is_between_switches if link is None else step.link == link)
            )
            path.append(step)
            at = step.link.receiver
        return tuple(path)
