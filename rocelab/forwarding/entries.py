"""Steering entries: what a placement asks of each switch, in terms of the hash that it is to use.

In: a placement. Out: per switch and flow the 32-bit packet hash that makes the kernel take the
next hop wanted. A hash is no next hop: where the group has shrunk since, it falls on another live
member, so that an entry can be out of date but never a black hole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rocelab.forwarding.network import Placement
from rocelab.forwarding.steering import EntryKey, steering_hash

Entries = Mapping[EntryKey, int]


class EntryTable(Protocol):
    """Where entries are programmed: `rocelab.runtime.steering.Steering` is one."""

    def read_entries(self) -> dict[EntryKey, int]:
        """Every entry there is."""
        ...

    def write_entries(self, entries: Entries) -> None:
        """Set entries, leaving others."""
        ...

    def remove_entries(self, keys: Iterable[EntryKey]) -> None:
        """Remove entries; what is not there is passed over."""
        ...


@dataclass(frozen=True, slots=True)
class Diff:
    """What changes a table into the wanted one."""

    changed: Entries
    removed: tuple[EntryKey, ...]

    @property
    def size(self) -> int:
        return len(self.changed) + len(self.removed)


def wanted_entries(placed: Placement) -> dict[EntryKey, int]:
    """The entries of a placement: one wherever the kernel has more than one next hop."""
    return {
        EntryKey(step.switch, *key): steering_hash(step.index, step.weights)
        for key, path in placed.paths.items()
        for step in path
        if step.is_choice
    }


def difference(present: Entries, wanted: Entries) -> Diff:
    """What is to be set and what removed."""
    changed = {key: value for key, value in wanted.items() if present.get(key) != value}
    return Diff(changed, tuple(key for key in present if key not in wanted))


def program(table: EntryTable, wanted: Entries) -> Diff:
    """Make `table` hold `wanted` and nothing else; what was changed.

    New paths are written before old ones go, so that no flow falls back to hashing in between.
    """
    diff = difference(table.read_entries(), wanted)
    if diff.changed:
        table.write_entries(diff.changed)
    if diff.removed:
        table.remove_entries(diff.removed)
    return diff
