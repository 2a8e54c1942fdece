"""Constrained shortest path first: flows one by one, largest first, each where there is most room.

In: a network and demands. Out: a placement. Of the paths that the kernels offer (all of them
shortest: BGP keeps no others) a flow takes the one whose most used link stays least used; equal
ones are told apart by their second most used link, and so on, then by the kernel's order.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.forwarding.demand import Demand, FlowKey
from rocelab.forwarding.network import Load, Network, Path, Placement, Step, placement

_Found = tuple[tuple[float, ...], Path]


def place_cspf(network: Network, demands: Sequence[Demand]) -> Placement:
    """Place every demand, largest first; the same input gives the same placement.

    A flow that fits nowhere is placed all the same, where it overloads least: the placement's
    `overloaded` tells. Meta's TE places flows so (Gangidi et al., SIGCOMM 2024, section 5.3).
    """
    load = Load()
    paths: dict[FlowKey, Path] = {}
    for demand in sorted(demands, key=lambda each: (-each.rate_bps, each.key)):
        path = best_path(network, load, demand)
        if path is not None:
            paths[demand.key] = path
            load.add(path, demand.rate_bps)
    return placement(demands, paths)


def best_path(
    network: Network, load: Load, demand: Demand, avoid: Path | None = None
) -> Path | None:
    """The path whose utilisations with the flow, sorted from the largest down, come first.

    None where no path arrives, or none but `avoid`.
    """
    ingress = network.ingress(demand)
    dag = network.dag(ingress, demand.key.destination_ip)
    if not dag:
        return None
    known: dict[str, _Found] = {}
    avoided = dict.fromkeys(avoid or ())

    def onward(step: Step) -> _Found:
        used, path = best(step.link.receiver)
        if step.link.is_between_switches:
            own = load.utilisation(step.link, demand.rate_bps)
            used = tuple(sorted((*used, own), reverse=True))
        return used, (step, *path)

    def best(switch: str) -> _Found:
        if switch not in dag:
            return (), ()
        if switch not in known:
            known[switch] = min(map(onward, dag[switch]), key=lambda found: found[0])
        return known[switch]

    def other(switch: str) -> _Found | None:
        """The best from `switch`, on the path to be avoided, that leaves it there or later."""
        found: list[_Found] = []
        for step in dag.get(switch, ()):
            if step not in avoided:
                found.append(onward(step))
            elif (later := other(step.link.receiver)) is not None:
                used = later[0]
                if step.link.is_between_switches:
                    own = load.utilisation(step.link, demand.rate_bps)
                    used = tuple(sorted((*used, own), reverse=True))
                found.append((used, (step, *later[1])))
        return min(found, key=lambda each: each[0], default=None)

    chosen = best(ingress) if avoid is None else other(ingress)
    return None if chosen is None else chosen[1]
