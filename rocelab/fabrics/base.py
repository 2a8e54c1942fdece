"""What every kind of fabric is made of: its keys, and what follows from them.

A kind is a subclass of `FabricKind` in a file of its own: `rocelab.fabrics.kinds` has those that
ship. Everything else, from addresses to simulations, follows from its layout.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from rocelab.base.models import SpecModel
from rocelab.base.wording import RefusedError
from rocelab.fabrics.homes import HomeCounts, counted
from rocelab.fabrics.layout import Layout
from rocelab.fabrics.roles import TOP_TIER, Role

MAX_LINKS = 2**20
"""The most links of a fabric, NICs included: several times a cluster of 131,072 GPUs."""
PLANE = "plane"
"""The word for zones that events of a simulation can name: `plane 2`."""


def check_links(links: int, formula: str) -> None:
    """Raises RefusedError if a fabric has too many links. `formula` says what they follow from."""
    if links > MAX_LINKS:
        raise RefusedError(
            f"expected a fabric of at most {MAX_LINKS:,} links, got {links:,}",
            f"links are {formula}",
        )


class Convergence(StrEnum):
    """The fabrics in which convergence was measured, in the words of docs/convergence-table.md."""

    TWO_TIERS = "2-tier Clos"
    THREE_TIERS = "3-tier Clos"
    DUAL_TOR = "HPN, dual ToR and plane"


class FabricKind(SpecModel):
    """The keys of a kind of fabric in a lab's file, and what follows from them.

    Limits of keys keep a fabric within what can be planned (`check_links`) and names within what
    Linux takes for interfaces (`rocelab.fabrics.layout`). Switches of a role and a zone are alike.
    """

    roles: ClassVar[tuple[Role, ...]]
    """The roles of its switches, one a tier."""
    zone_words: ClassVar[Mapping[Role, str]] = MappingProxyType({})
    """The word for the zones whose lowest switches have a role: `AI zone`, `pod`, `plane`."""
    is_regular: ClassVar[bool] = True
    """Whether switches of a role and a zone are wired alike, and links join tiers that follow."""

    kind: str

    @abstractmethod
    def layout(self) -> Layout:
        """The nodes, NICs and cables, in build order."""

    def counts(self) -> HomeCounts:
        """The size of the fabric, the same as that of its layout; a kind whose fabrics are large
        computes it from its keys."""
        return counted(self.layout())

    @property
    def leaf_ports(self) -> tuple[int, int]:
        """The most ports of a switch of the lowest tier: to NICs, and up."""
        layout = self.layout()
        down = Counter(name for nic in layout.attachments for name in nic.switches)
        up = Counter(cable.lower for cable in layout.cables)
        leaves = [site.name for site in layout.sites if site.role.tier == 1]
        return max((down[name] for name in leaves), default=0), max(
            (up[name] for name in leaves), default=0
        )

    @property
    def convergence(self) -> Convergence:
        """The measured fabric whose convergence simulations take for this one's."""
        tiers = max(role.tier for role in self.roles)
        return Convergence.TWO_TIERS if tiers < TOP_TIER else Convergence.THREE_TIERS
