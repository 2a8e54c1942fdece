"""The layout of a fabric, which its kind decides: the nodes and their cables.

A module of `rocelab.plan.kinds` turns a spec into a `Layout`; `rocelab.plan.build` adds addresses,
seeds and ports, in the same way for every kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.plan.fabric import Role


@dataclass(frozen=True, slots=True)
class Site:
    """A planned node: `zone` is its AI zone, unit, segment, plane or pod, or None."""

    name: str
    role: Role
    zone: int | None
    asn: int | None = None


@dataclass(frozen=True, slots=True)
class Attachment:
    """A server's next NIC: its ports, each on a switch of the lowest tier."""

    server: str
    switches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cable:
    """The `parallel`-th cable (from 1) between a switch and one of the tier above."""

    lower: str
    upper: str
    parallel: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Nodes, NICs and cables between switches, each in build order."""

    sites: tuple[Site, ...]
    attachments: tuple[Attachment, ...]
    cables: tuple[Cable, ...]


def cables(lower: str, uppers: list[str], count: int) -> list[Cable]:
    """`count` parallel cables from a switch to each of those above."""
    return [Cable(lower, upper, n) for upper in uppers for n in range(1, count + 1)]
