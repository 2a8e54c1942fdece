"""The link loads of a traffic matrix: every flow is routed through the fabric, all flows one hop at
a time.

`land` takes a `Matrix`, the switches' groups and their method of choice, and returns a `LinkLoads`:
the load of every link in each direction, and the consecutive choices of flows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rocelab.forwarding.balance import PairedChoices
from rocelab.forwarding.path import NoPathError
from rocelab.plan.fabric import Direction
from rocelab.predict.choice import Chooser
from rocelab.predict.groups import Group, GroupOf
from rocelab.predict.matrix import Matrix
from rocelab.predict.wires import Ints, Wires
from rocelab.progress import Progress, ProgressSink, no_progress

MOST_HOPS = 16
"""More than any path has: a flow that has not arrived by then is in a loop."""


@dataclass(frozen=True, slots=True, eq=False)
class LinkLoads:
    """The load of each send (`Wires` numbers them): flows, payload and data packets, the last two
    None if unknown.

    crossing: flows of each group of parallel links, by (tier, direction, lower node). choices:
    pairs of consecutive choices of a flow.
    """

    flows: Ints
    bytes: Ints | None
    packets: Ints | None
    crossing: Mapping[tuple[str, Direction, str], int]
    choices: tuple[PairedChoices, ...]

    def packets_by_link(self, wires: Wires) -> dict[tuple[str, str], int]:
        """Data packets of every link by (link name, sending node), as `rocelab.traffic.taps` counts
        them.

        Raises ValueError if they are unknown.
        """
        if self.packets is None:
            raise ValueError("packets are not known")
        return {
            wires.fabric.directed_links[send].key: count
            for send, count in enumerate(self.packets.tolist())
        }


def land(
    wires: Wires,
    matrix: Matrix,
    group_of: GroupOf,
    choose: Chooser,
    progress: ProgressSink = no_progress,
) -> LinkLoads:
    """Route every flow to its NIC.

    Raises NoPathError if a flow does not arrive, and as `group_of` and `choose` do.
    """
    count = len(matrix)
    server = wires.nic_server[matrix.destination]
    walk = _Walk(wires, matrix, group_of, choose)
    carried = np.zeros(wires.sends, np.int64)
    size = None if matrix.bytes is None else np.zeros(wires.sends, np.int64)
    packets = None if matrix.packets is None else np.zeros(wires.sends, np.int64)
    paired = _Pairing(wires, count)
    sends, which = matrix.first, np.arange(count)
    for _ in range(MOST_HOPS):
        np.add.at(carried, sends, 1)
        for total, values in ((size, matrix.bytes), (packets, matrix.packets)):
            if total is not None and values is not None:
                np.add.at(total, sends, values[which])
        at = wires.receiver[sends]
        going = at != server[which]
        at, which = at[going], which[going]
        progress(Progress("flows", count - len(which), count))
        if not len(which):
            crossing = _crossing(wires, carried)
            return LinkLoads(carried, size, packets, crossing, paired.done())
        taken = walk.step(at, which)
        sends = taken.sends
        paired.add(which, at, taken)
    nic = wires.nics[matrix.destination[which[0]]]
    raise NoPathError(f"{wires.fabric.nodes[at[0]].name}: a packet to {nic.ip} goes in circles")


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """A hop of some flows: the send, its index among the next hops, their number and their
    group."""

    sends: Ints
    option: Ints
    options: Ints
    group: Ints


class _Walk:
    def __init__(self, wires: Wires, matrix: Matrix, group_of: GroupOf, choose: Chooser) -> None:
        self._wires = wires
        self._matrix = matrix
        self._group_of = group_of
        self._choose = choose
        self._numbers: dict[tuple[int, Group], int] = {}

    def step(self, at: Ints, which: Ints) -> _Taken:
        """Route flows by one hop. Flows of one node and group choose together; a group of one is no
        choice."""
        nics = len(self._wires.nics)
        place, inverse = np.unique(at * nics + self._matrix.destination[which], return_inverse=True)
        numbers = self._numbers
        group_at = np.empty(len(place), np.int64)
        for index, key in enumerate(place.tolist()):
            node, nic = divmod(key, nics)
            pair = (node, self._group_of(node, nic))
            group_at[index] = numbers.setdefault(pair, len(numbers))
        groups = list(numbers)
        width = np.array([len(group.sends) for _, group in groups], np.int64)
        first = np.array([group.sends[0] for _, group in groups], np.int64)
        of_flow = group_at[inverse]
        sends, option = first[of_flow], np.zeros(len(which), np.int64)
        order = np.argsort(of_flow, kind="stable")
        bounds = np.searchsorted(of_flow[order], np.arange(len(groups) + 1))
        for number in np.unique(of_flow[width[of_flow] > 1]).tolist():
            here = order[bounds[number] : bounds[number + 1]]
            node, group = groups[number]
            option[here] = self._choose(node, group, which[here])
            sends[here] = np.array(group.sends, np.int64)[option[here]]
        return _Taken(sends, option, width[of_flow], of_flow)


def _crossing(wires: Wires, carried: Ints) -> dict[tuple[str, Direction, str], int]:
    found: dict[tuple[str, Direction, str], int] = {}
    fabric = wires.fabric
    for send in np.flatnonzero(carried).tolist():
        directed = fabric.directed_links[send]
        if fabric.carries_session(directed):
            key = (directed.tier, directed.direction, directed.lower)
            found[key] = found.get(key, 0) + int(carried[send])
    return found


class _Pairing:
    """Pairs each flow's choice with its previous one."""

    def __init__(self, wires: Wires, flows: int) -> None:
        roles = list(dict.fromkeys(node.role.value for node in wires.fabric.nodes))
        self._stages = [f"{role} {way.value}" for role in roles for way in Direction]
        self._role = np.array([roles.index(node.role.value) for node in wires.fabric.nodes])
        self._stage_before = np.full(flows, -1, np.int64)
        self._option_before = np.zeros(flows, np.int64)
        self._found: dict[tuple[int, int], list[tuple[Ints, Ints, Ints, Ints]]] = {}

    def add(self, which: Ints, at: Ints, taken: _Taken) -> None:
        """Record a hop of the flows `which` at the nodes `at`."""
        free = taken.options > 1
        flows, stages = which[free], len(self._stages)
        stage = 2 * self._role[at[free]] + taken.sends[free] % 2
        option = taken.option[free]
        before = self._stage_before[flows]
        for pair in np.unique(before * stages + stage).tolist():
            own = before * stages + stage == pair
            if pair >= 0:
                columns = (
                    self._option_before[flows[own]],
                    option[own],
                    taken.group[free][own],
                    taken.options[free][own],
                )
                self._found.setdefault(divmod(pair, stages), []).append(columns)
        self._stage_before[flows], self._option_before[flows] = stage, option

    def done(self) -> tuple[PairedChoices, ...]:
        """All pairs of stages, in the order of the paths."""
        return tuple(
            PairedChoices(
                self._stages[first],
                self._stages[second],
                *(np.concatenate(column) for column in zip(*parts, strict=True)),
            )
            for (first, second), parts in self._found.items()
        )
