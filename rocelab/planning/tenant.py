"""A tenant of a planned fabric, and the two devices that each of its leaves has for it."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_INDEX = 1_000_000
"""Interfaces of leaves with higher indexes are bridges and tunnels; ports have lower ones."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """An Ethernet segment that its leaves bridge over VXLAN. `number` is its place in the lab's
    file, from 0."""

    name: str
    number: int
    vni: int
    subnets: tuple[str, ...]
    """One of each family of the lab."""
    links: tuple[str, ...]
    """The names of the links to its NICs, in build order."""
    arp_suppression: bool = False

    @property
    def bridge(self) -> str:
        """The interface of a leaf's bridge."""
        return f"br{self.vni}"

    @property
    def tunnel(self) -> str:
        """The interface of a leaf's end of the tunnels."""
        return f"vni{self.vni}"

    @property
    def bridge_index(self) -> int:
        return FIRST_INDEX + 2 * self.number

    @property
    def tunnel_index(self) -> int:
        return FIRST_INDEX + 2 * self.number + 1
