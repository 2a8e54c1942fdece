"""The links that the data and the answers of a job's queue pairs crossed.

Predicts a `FlowPaths` per flow of a job's report, like `rocelab predict`, and checks it against the
links' own counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rocelab.errors import InputError
from rocelab.forwarding.path import NoPathError
from rocelab.jobs.placement import NicRef
from rocelab.plan.fabric import Fabric
from rocelab.predict.choice import Chooser, chooser
from rocelab.predict.groups import GroupOf, order_is_planned, planned_groups
from rocelab.predict.loads import MOST_HOPS
from rocelab.predict.matrix import FlowRow, Matrix, matrix_of
from rocelab.predict.wires import Wires
from rocelab.results.diagnosis import Way
from rocelab.results.job import JobReport
from rocelab.spec.model import HashWeights

LEAST_SEEN = 0.7
"""The least share of a link's predicted data packets that must have arrived at its far end."""


@dataclass(frozen=True, slots=True)
class FlowPaths:
    """The ways of a flow's data, in order, and of its ACKs, NAKs and CNPs."""

    data: tuple[Way, ...]
    answers: tuple[Way, ...]


def predicted_paths(fabric: Fabric, report: JobReport) -> tuple[FlowPaths, ...]:
    """The paths of each of `report.flows`, from planned tables under the lab's scheme.

    Raises InputError if a path cannot be predicted (spray, flowlet, resilient, te, hash seed 0,
    unnumbered links) or the links' counters contradict it.
    """
    if not order_is_planned(fabric):
        raise InputError(
            "links are unnumbered: the order of next hops is not planned",
            hint="take a lab with `routing.numbering: numbered`",
        )
    nics = [_nic(rank.nic) for rank in report.ranks]
    rows = []
    for flow in report.flows:
        here, there = nics[flow.rank], nics[flow.peer]
        rows.append(FlowRow(here, there, flow.sport, flow.dest_qp, leaves_by=flow.port))
        rows.append(FlowRow(there, here, flow.acks_sport, flow.acks_qp, leaves_by=flow.acks_port))
    ways = ways_of(fabric, rows)
    found = tuple(
        FlowPaths(data, answers) for data, answers in zip(ways[::2], ways[1::2], strict=True)
    )
    _check_counters(report, found)
    return found


def ways_of(fabric: Fabric, rows: Sequence[FlowRow]) -> list[tuple[Way, ...]]:
    """The ways of each flow under the fabric's scheme, from planned tables.

    Raises InputError if they cannot be predicted, NoPathError if a flow does not arrive.
    """
    if fabric.spec.hashing.weights is not HashWeights.EQUAL:
        raise InputError(
            "weights by paths are BGP's work and not planned",
            hint="take a lab with `hashing.weights: equal`",
        )
    wires = Wires(fabric)
    matrix = matrix_of(wires, rows)
    walk = _Walk(wires, matrix, planned_groups(wires), chooser(wires, matrix))
    return [walk.ways(flow) for flow in range(len(rows))]


def named(ways: Iterable[Way]) -> str:
    """Ways as text."""
    return " or ".join(str(way) for way in ways)


def _check_counters(report: JobReport, paths: Sequence[FlowPaths]) -> None:
    own: Counter[tuple[str, str]] = Counter()
    for flow, path in zip(report.flows, paths, strict=True):
        own.update({(way.link, way.sender): flow.packets for way in path.data})
    seen = {(link.link, link.sender): link.packets for link in report.links}
    for (link, sender), packets in own.items():
        if seen.get((link, sender), 0) < LEAST_SEEN * packets:
            raise InputError(
                f"{link} carried {seen.get((link, sender), 0):,} packets from {sender}, and by the "
                f"predicted paths {packets:,} at least",
                hint="a link was down, or another scheme than the lab's own ran",
            )


def _nic(text: str) -> NicRef:
    server, _, number = text.partition(":")
    return NicRef(server, int(number))


class _Walk:
    def __init__(self, wires: Wires, matrix: Matrix, group_of: GroupOf, choose: Chooser) -> None:
        self._wires, self._matrix = wires, matrix
        self._group_of, self._choose = group_of, choose

    def ways(self, flow: int) -> tuple[Way, ...]:
        wires, which = self._wires, np.array([flow], np.int64)
        nic = int(self._matrix.destination[flow])
        send = int(self._matrix.first[flow])
        found = [self._way(send)]
        while (at := int(wires.receiver[send])) != wires.nic_server[nic]:
            if len(found) > MOST_HOPS:
                raise NoPathError(f"{wires.fabric.nodes[at].name}: packets go in circles")
            group = self._group_of(at, nic)
            taken = 0 if len(group.sends) == 1 else int(self._choose(at, group, which)[0])
            send = group.sends[taken]
            found.append(self._way(send))
        return tuple(found)

    def _way(self, send: int) -> Way:
        directed = self._wires.fabric.directed_links[send]
        return Way(directed.link.name, directed.sender, directed.receiver)
