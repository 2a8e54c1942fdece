"""Steering entries: the hashes that make the switches follow a placement.

An entry is the 32-bit packet hash, per switch and flow, that makes the kernel take the wanted next
hop. A hash is no next hop: if the group has shrunk since, it selects another live member, so that
an outdated entry is never a black hole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rocelab.routes.network import FlowPlacement
from rocelab.routes.steering import EntryKey, steering_hash

Entries = Mapping[EntryKey, int]


class EntryTable(Protocol):
    """A table for entries, such as `rocelab.dataplane.steering.Steering`."""

    def read_entries(self) -> dict[EntryKey, int]:
        """All entries."""
        ...

    def write_entries(self, entries: Entries) -> None:
        """Set entries and keep all others."""
        ...

    def remove_entries(self, keys: Iterable[EntryKey]) -> None:
        """Remove entries, ignoring those that do not exist."""
        ...


@dataclass(frozen=True, slots=True)
class Diff:
    """The changes that turn a table into the wanted one."""

    changed: Entries
    removed: tuple[EntryKey, ...]

    @property
    def size(self) -> int:
        return len(self.changed) + len(self.removed)


def wanted_entries(placed: FlowPlacement) -> dict[EntryKey, int]:
    """The entries of a placement: one for each switch where the kernel has more than one next
    hop."""
    return {
        EntryKey(step.switch, *key): steering_hash(step.index, step.weights)
        for key, path in placed.paths.items()
        for step in path
        if step.is_choice
    }


def difference(present: Entries, wanted: Entries) -> Diff:
    """The entries to set and to remove."""
    changed = {key: value for key, value in wanted.items() if present.get(key) != value}
    return Diff(changed, tuple(key for key in present if key not in wanted))


def program(table: EntryTable, wanted: Entries) -> Diff:
    """Make `table` hold exactly `wanted`; return the changes.

    New entries are written before old ones are removed, so that no flow falls back to hashing in
    between.
    """
    diff = difference(table.read_entries(), wanted)
    if diff.changed:
        table.write_entries(diff.changed)
    if diff.removed:
        table.remove_entries(diff.removed)
    return diff
