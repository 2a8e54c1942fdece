"""The ranks of a trace's collectives: process groups, dimensions, or all ranks.

Finds the members of every group that a node stands for, in ring order, from its attributes and the
tables of groups that traces carry or a user gives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from rocelab.base.errors import InputError
from rocelab.sim.traces.chakra import ChakraNode, NodeKind, Trace

Members = tuple[int, ...]


class CommunicatorGroups:
    """The groups of a job of `ranks` ranks.

    named: members by name, as in ASTRA-sim's communicator group file; groups in PyTorch's traces
    (metadata nodes `process_group:init`) are added. dimensions: ranks along each dimension of the
    job, the first one between neighbours; `involved_dim` refers to them.
    """

    def __init__(
        self,
        ranks: int,
        traces: Sequence[Trace],
        named: Mapping[str, Sequence[int]],
        dimensions: Sequence[int],
    ) -> None:
        if dimensions and prod(dimensions) != ranks:
            raise InputError(
                f"dimensions of {' x '.join(map(str, dimensions))} make {prod(dimensions)} ranks, "
                f"but there are {ranks}",
                hint="give dimensions whose product is the number of ranks",
            )
        self.ranks = ranks
        self._equal_times = len(traces) < ranks
        self._dimensions = tuple(dimensions)
        self._named: dict[str, Members] = {}
        for name, members in named.items():
            self._add(name, members, "the groups given")
        for trace in traces:
            for node in trace.nodes:
                if node.kind is NodeKind.METADATA and "pg_name" in node.inputs:
                    self._read(node, trace.source)

    def of(self, node: ChakraNode, rank: int, place: str) -> tuple[Members, ...]:
        """The groups of `node`: the group of `rank` or, if one trace stands for all ranks, as many
        groups as contain every rank once. `place` is for error messages.

        Raises InputError if the trace does not say.
        """
        name = node.attrs.get("pg_name", "")
        involved = node.attrs.get("involved_dim", ())
        everyone = tuple(range(self.ranks))
        if isinstance(name, str) and name in self._named:
            members = self._named[name] or everyone
            if self._equal_times:
                return self._tiled(members, f"{place}: process group {name!r}")
            if rank not in members:
                raise InputError(
                    f"{place}: rank {rank} is not in its own process group {name!r}: {members}",
                    hint="give the groups of this trace, or convert it again",
                )
            return (members,)
        if name not in ("", "0", "default_pg", "0:default_pg"):
            raise InputError(
                f"{place}: process group {name!r} is not known",
                hint="its ranks stand in the trace's process_group:init node, or can be given by "
                "name as groups",
            )
        if not isinstance(involved, tuple) or all(involved):
            return (everyone,)
        groups = self._along(involved, place)
        return groups if self._equal_times else tuple(group for group in groups if rank in group)

    def _along(self, involved: tuple[object, ...], place: str) -> tuple[Members, ...]:
        """The groups of ranks that differ only in the dimensions `involved`."""
        if len(self._dimensions) > len(involved) or not self._dimensions:
            raise InputError(
                f"{place} is along some of {len(involved)} dimensions, whose sizes no trace has",
                hint="give the ranks along each dimension, the first one between neighbours",
            )
        grid = np.arange(self.ranks).reshape(self._dimensions[::-1])
        inside = [axis for axis, flag in enumerate(involved[: len(self._dimensions)]) if flag]
        axes = [len(self._dimensions) - 1 - axis for axis in reversed(inside)]
        moved = np.moveaxis(grid, axes, range(-len(axes), 0)) if axes else grid[..., None]
        size = prod(self._dimensions[axis] for axis in inside)
        return tuple(tuple(map(int, group)) for group in moved.reshape(-1, size))

    def _tiled(self, members: Members, place: str) -> tuple[Members, ...]:
        """Shifted copies of `members` that cover every rank once."""
        shape = [member - min(members) for member in members]
        covered: set[int] = set()
        groups: list[Members] = []
        for first in range(self.ranks):
            if first in covered:
                continue
            group = tuple(first + step for step in shape)
            if covered.intersection(group) or max(group) >= self.ranks:
                raise InputError(
                    f"{place} has ranks {_excerpt(members)}, which do not repeat to {self.ranks}",
                    hint="simulate a multiple of the ranks that were recorded, or give one trace "
                    "for each rank",
                )
            covered.update(group)
            groups.append(group)
        return tuple(groups)

    def _read(self, node: ChakraNode, source: str) -> None:
        begin, end = node.inputs.find("[{"), node.inputs.rfind("}]")
        try:
            table = json.loads(node.inputs[begin : end + 2])
            for entry in table:
                self._add(str(entry["pg_name"]), entry["ranks"], source)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(
                f"{source}: node {node.id} ({node.name}) should list process groups and does not",
                hint="give the groups by name instead, and take this node out, or convert again",
            ) from None

    def _add(self, name: str, members: Sequence[int], source: str) -> None:
        wrong = [
            member
            for member in members
            if not isinstance(member, int) or not 0 <= member < self.ranks
        ]
        if wrong or len(set(members)) < len(members):
            raise InputError(
                f"{source}: process group {name!r} has ranks {_excerpt(members)}; they must be "
                f"different ones of 0 to {self.ranks - 1}",
                hint="simulate at least as many ranks as were recorded",
            )
        self._named[name] = tuple(members)


def _excerpt(members: Sequence[int]) -> str:
    text = ", ".join(map(str, members[:8]))
    return f"{text}, ..." if len(members) > 8 else text
