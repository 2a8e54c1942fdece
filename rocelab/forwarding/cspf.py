"""Constrained shortest path first: places flows one by one, largest first, where most room is left.

Of the paths that the kernels offer (all shortest: BGP keeps no others) a flow takes the one with
the least utilisation of its most used link. Ties are broken by the second most used link, and so
on, then by the kernel's order.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.forwarding.demand import Demand, FlowKey
from rocelab.forwarding.network import Load, Network, Path, Placement, Step, placement

_Found = tuple[tuple[float, ...], Path]


def place_cspf(network: Network, demands: Sequence[Demand]) -> Placement:
    """Place every demand, largest first; the same input gives the same placement.

    A flow that fits nowhere is placed where it overloads least, and shows in the placement's
    `overloaded`. Meta's TE places flows in this way (Gangidi et al., SIGCOMM 2024, section 5.3).
    """
    load = Load(network)
    paths: dict[FlowKey, Path] = {}
    for demand in sorted(demands, key=lambda each: (-each.rate_bps, each.key)):
        path = best_path(network, load, demand)
        if path is not None:
            paths[demand.key] = path
            load.add(path, demand.rate_bps)
    return placement(network, demands, paths)


def best_path(
    network: Network, load: Load, demand: Demand, avoid: Path | None = None
) -> Path | None:
    """The path with the lexicographically least utilisations, including the flow, in descending
    order.

    None if no path arrives, or none but `avoid`.
    """
    ingress = network.ingress(demand)
    dag = network.dag(ingress, demand.key.destination_ip)
    if not dag:
        return None
    known: dict[str, _Found] = {}
    avoided = dict.fromkeys(avoid or ())

    def onward(step: Step) -> _Found:
        used, path = best(step.to)
        if step.edge in network.shared:
            own = load.utilisation(step.edge, demand.rate_bps)
            used = tuple(sorted((*used, own), reverse=True))
        return used, (step, *path)

    def best(switch: str) -> _Found:
        if switch not in dag:
            return (), ()
        if switch not in known:
            known[switch] = min(map(onward, dag[switch]), key=lambda found: found[0])
        return known[switch]

    def other(switch: str) -> _Found | None:
        """The best path from `switch`, which is on the avoided path, that leaves that path there or
        later."""
        found: list[_Found] = []
        for step in dag.get(switch, ()):
            if step not in avoided:
                found.append(onward(step))
            elif (later := other(step.to)) is not None:
                used = later[0]
                if step.edge in network.shared:
                    own = load.utilisation(step.edge, demand.rate_bps)
                    used = tuple(sorted((*used, own), reverse=True))
                found.append((used, (step, *later[1])))
        return min(found, key=lambda each: each[0], default=None)

    chosen = best(ingress) if avoid is None else other(ingress)
    return None if chosen is None else chosen[1]
