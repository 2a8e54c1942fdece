"""The link loads of a traffic matrix.

`land` takes a `Matrix` and the paths of its flows, and returns a `LinkLoads`: the load of every
link in each direction, and the consecutive choices of flows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Ints, Longs
from rocelab.planning.fabric import DirectedLink, Direction, Fabric
from rocelab.prediction.matrix import Matrix
from rocelab.routes.arrays.flows import Flows, Paths
from rocelab.routes.arrays.routes import Groups, NextHops
from rocelab.routes.balance import PairedChoices


@dataclass(frozen=True, slots=True, eq=False)
class LinkLoads:
    """The load of each of `Fabric.directed_links`: flows, payload and data packets, the last two
    None if unknown."""

    flows: Longs
    bytes: Longs | None
    packets: Longs | None
    crossing: Mapping[tuple[str, Direction, str], int]
    """Flows of each group of parallel links, by (tier, direction, lower node)."""
    choices: tuple[PairedChoices, ...]
    """Pairs of consecutive choices of a flow."""


def by_link(fabric: Fabric, values: Longs) -> dict[DirectedLink, int]:
    """Values in the order of `Fabric.directed_links`, by link."""
    return dict(zip(fabric.directed_links, values.tolist(), strict=True))


def misplaced_packets(
    counted: Mapping[DirectedLink, int], expected: Mapping[DirectedLink, int]
) -> int:
    """How many packets links carried beyond what was expected of each."""
    return sum(max(0, packets - expected[link]) for link, packets in counted.items())


def land(fabric: Fabric, routes: Groups, matrix: Matrix, paths: Paths) -> LinkLoads:
    """The loads of flows on their paths."""
    of_flow = np.repeat(np.arange(len(paths)), np.diff(paths.start))

    def total(values: Longs | None) -> Longs | None:
        if values is None:
            return None
        totals = np.zeros(routes.network.sends, np.int64)
        np.add.at(totals, paths.sends, values[of_flow])
        return totals

    flows = np.bincount(paths.sends, minlength=routes.network.sends).astype(np.int64)
    return LinkLoads(
        flows,
        total(matrix.bytes),
        total(matrix.packets),
        crossing_of(by_link(fabric, flows)),
        paired_choices(routes, matrix.flows, paths),
    )


def crossing_of(flows: Mapping[DirectedLink, int]) -> dict[tuple[str, Direction, str], int]:
    """The flows of each group of parallel links between switches."""
    counts: dict[tuple[str, Direction, str], int] = {}
    for direction, count in flows.items():
        if count and direction.link.is_between_switches:
            key = direction.tier, direction.direction, direction.link.a.node
            counts[key] = counts.get(key, 0) + count
    return counts


def paired_choices(routes: Groups, flows: Flows, paths: Paths) -> tuple[PairedChoices, ...]:
    """The two choices of each flow that made two in a row: for each pair of stages, in the order in
    which flows met them. A stage is a role and a direction; a group of one is no choice."""
    network = routes.network
    length = np.diff(paths.start)
    flow = np.repeat(np.arange(len(paths)), length)
    hop = np.arange(len(flow)) - np.repeat(paths.start[:-1], length)
    (row,) = np.nonzero(hop > 0)
    flow, hop, send = flow[row], hop[row], paths.sends[row]
    hops = routes.next_hops(network.sender[send], flows.destination[flow])
    (free,) = np.nonzero(hops.count > 1)
    flow, hop, send, hops = flow[free], hop[free], send[free], hops.take(free)
    option = _options(routes.slots, send, hops)
    group = _groups(hop, network.sender[send], flows.destination[flow], hops)
    roles = list(dict.fromkeys(network.roles))
    names = [f"{role} {way.value}" for role in roles for way in Direction]
    role_of = np.array([roles.index(role) for role in network.roles])
    stage = 2 * role_of[network.sender[send]] + send % 2

    (first,) = np.nonzero(flow[1:] == flow[:-1])
    first = first[np.argsort(hop[first + 1], kind="stable")]
    second = first + 1
    pair = stage[first] * len(names) + stage[second]
    pairs, met = np.unique(pair, return_index=True)
    rows = []
    for number in pairs[np.lexsort((pairs, hop[second[met]]))].tolist():
        mask = pair == number
        one, two = first[mask], second[mask]
        rows.append(
            PairedChoices(
                names[number // len(names)],
                names[number % len(names)],
                x=option[one],
                y=option[two],
                group=group[two],
                options=hops.count[two].astype(np.int64),
            )
        )
    return tuple(rows)


def _options(slots: Ints, send: Ints, hops: NextHops) -> Longs:
    """Which of its group each send is."""
    option = np.zeros(len(send), np.int64)
    for place in range(1, int(hops.count.max(initial=0))):
        (groups,) = np.nonzero(hops.count > place)
        option[groups[slots[hops.start[groups] + place] == send[groups]]] = place
    return option


def _groups(hop: Longs, at: Ints, nic: Ints, hops: NextHops) -> Longs:
    """A number of each group, in the order in which flows meet them: hop by hop, by switch and
    NIC."""
    order = np.lexsort((nic, at, hop))
    keys = hops.start.astype(np.int64) * (1 + int(hops.width.max(initial=0))) + hops.width
    _, first, inverse = np.unique(keys[order], return_index=True, return_inverse=True)
    number = np.empty(len(order), np.int64)
    number[order] = first[inverse]
    return number
