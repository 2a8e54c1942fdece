"""The flows of a cell: in every fabric the same number over the part that will fail, and some
others.

From a fabric, its running tables and the failing link it chooses `Probes`. Convergence is that of
the last flow, so fabrics are comparable only if the same number of flows crosses the failure: of
many random flows it takes those with a predicted path there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from bench.convergence.plan import Cell
from rocelab import Fabric, InputError
from rocelab.jobs.flow import ProbeStream, permutation
from rocelab.jobs.placement import find_nic
from rocelab.linux.fibtable import Fib
from rocelab.planning.fabric import Link
from rocelab.routes.path import Path, walk
from rocelab.sim.events.reaction import ReactionPlace

RATE_PPS = 1000
PAYLOAD_BYTES = 256
EACH_WAY = 3
"""Flows that cross the failing link in each direction; for a switch, twice as many cross it."""

OTHERS = 2
DRAWN = 4000
SEED = 1


@dataclass(frozen=True, slots=True)
class Probes:
    """The flows, and the nodes on each path; the first `crossing` of them cross the failure."""

    flows: tuple[ProbeStream, ...]
    paths: tuple[tuple[str, ...], ...]
    crossing: int


def choose_probes(cell: Cell, fabric: Fabric, fibs: Mapping[str, Fib], link: Link) -> Probes:
    """Flows for the cell's failure at `link`, or at its upper end if a whole switch fails.

    Raises InputError if too few flows would cross it, or if paths cannot be predicted.
    """
    over: list[tuple[ProbeStream, Path]] = []
    others: list[tuple[ProbeStream, Path]] = []
    ways = (
        {"through": 2 * EACH_WAY}
        if cell.site.place is ReactionPlace.SPINE
        else {"up": EACH_WAY, "down": EACH_WAY}
    )
    room = {"": OTHERS, **ways}
    pairs: set[tuple[str, tuple[str, ...]]] = set()
    drawn = permutation(fabric, DRAWN, RATE_PPS, PAYLOAD_BYTES, SEED)
    path_of = cache(partial(_path, fabric, fibs))
    for spread in (True, False):
        for flow in drawn:
            if not any(room.values()):
                break
            path = path_of(flow)
            way = crossing(cell, path, link)
            pair = way, (path.nodes[1], path.nodes[-2])
            # First one flow of each pair of racks, so that no rack's routes go unwatched.
            if not room[way] or (spread and pair in pairs) or flow in [one for one, _ in over]:
                continue
            pairs.add(pair)
            room[way] -= 1
            (over if way else others).append((flow, path))
        if not spread and len(over) < 2 * EACH_WAY:
            raise InputError(f"of {DRAWN} flows too few cross {link.name}: {len(over)}")
    chosen = [*over, *others]
    return Probes(
        flows=tuple(replace(flow, id=index) for index, (flow, _) in enumerate(chosen)),
        paths=tuple(path.nodes for _, path in chosen),
        crossing=len(over),
    )


def crossing(cell: Cell, path: Path, link: Link) -> str:
    """Which way a path crosses the failure: `up` or `down` a link, `through` a switch, or not."""
    if cell.site.place is ReactionPlace.SPINE:
        return "through" if link.b.node in path.nodes else ""
    hop = next((hop for hop in path.hops if hop.link.link == link), None)
    if hop is None:
        return ""
    return hop.link.direction.value


def _path(fabric: Fabric, fibs: Mapping[str, Fib], flow: ProbeStream) -> Path:
    return walk(
        fabric,
        fibs.__getitem__,
        find_nic(fabric, flow.source, flow.source_nic),
        find_nic(fabric, flow.destination, flow.destination_nic),
        flow.sport,
        leaves_by=flow.leaves_by,
    )


def names_of(flows: Sequence[ProbeStream]) -> tuple[str, ...]:
    """The flows' names in results (`rocelab.runs.probes`)."""
    return tuple(f"f{flow.id + 1}" for flow in flows)
