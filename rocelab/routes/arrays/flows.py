"""Flows as columns, the paths they take, and the ways that their packets choose from.

A flow is everything that one end of a queue pair sends; switches can tell flows apart. The columns
are frozen; `rocelab.routes.arrays` routes them through a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import Bools, Floats, Ints, Longs


@dataclass(frozen=True, eq=False)
class Flows:
    """F flows."""

    source: Ints
    """NICs."""
    destination: Ints
    """NICs."""
    port: Ints
    """Of its NIC (from 0) that a flow leaves by."""
    sport: Ints
    """UDP source port."""
    dest_qp: Ints
    """BTH destination queue pair."""

    def __len__(self) -> int:
        return len(self.source)


def joined_flows(flows: Sequence[Flows]) -> Flows:
    """The flows of all, one after the other."""
    if len(flows) == 1:
        return flows[0]
    nothing = np.empty(0, np.int32)
    columns = ([nothing, *(getattr(flow, it.name) for flow in flows)] for it in fields(Flows))
    return Flows(*(np.concatenate(column) for column in columns))


def selected_flows(flows: Flows, chosen: Bools) -> Flows:
    """Some of the flows."""
    if chosen.all():
        return flows
    return Flows(*(getattr(flows, field.name)[chosen] for field in fields(Flows)))


@dataclass(frozen=True, eq=False)
class Paths:
    """The sends of each flow, flow by flow: those of flow f are sends[start[f]:start[f + 1]]."""

    start: npt.NDArray[np.int64]
    sends: Ints
    share: Floats | None = None
    """The part of the flow that each send carries, where switches divide a flow over several; None
    where each carries all of it. A flow without any send has no path: nothing arrives."""

    def __len__(self) -> int:
        return len(self.start) - 1


@dataclass(frozen=True, eq=False)
class Ways:
    """The ways of F flows' packets: those of flow f are way[first[f]:first[f + 1]], numbers of
    `paths`. Each packet draws one, or each that comes more than `gap_s` after the one before; one
    that is drawn more often is there several times. An empty path: packets are lost."""

    first: Longs
    way: Longs
    paths: Paths
    gap_s: float = 0.0

    def __len__(self) -> int:
        return len(self.first) - 1


def ways_along(paths: Paths) -> Ways:
    """One way for each flow."""
    number = np.arange(len(paths) + 1, dtype=np.int64)
    return Ways(number, number[:-1], paths)


def joined_ways(one: Ways, other: Ways) -> Ways:
    """The ways of some flows, then those of others."""
    return Ways(
        np.concatenate((one.first, one.first[-1] + other.first[1:])),
        np.concatenate((one.way, len(one.paths) + other.way)),
        joined_paths(one.paths, other.paths),
        max(one.gap_s, other.gap_s),
    )


def joined_paths(one: Paths, other: Paths) -> Paths:
    """The paths of some flows, then those of others."""
    share = None
    if one.share is not None or other.share is not None:
        parts = (
            np.ones(len(paths.sends)) if paths.share is None else paths.share
            for paths in (one, other)
        )
        share = np.concatenate([*parts])
    return Paths(
        np.concatenate((one.start, one.start[-1] + other.start[1:])),
        np.concatenate((one.sends, other.sends)),
        share,
    )


def paths_taken(paths: Paths, rows: npt.NDArray[np.integer]) -> Paths:
    """The paths of these flows."""
    length = np.diff(paths.start)[rows]
    start = np.concatenate(([0], np.cumsum(length, dtype=np.int64)))
    place = np.arange(start[-1]) + np.repeat(paths.start[rows] - start[:-1], length)
    return Paths(start, paths.sends[place], None if paths.share is None else paths.share[place])
