"""The roles of nodes, by the names that the field gives them.

A kind of fabric has a role per tier. It takes them from here, or makes its own:
`Role("superspine", 3, "Super", "super-spines")`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rocelab.base.units import RATE

TOP_TIER = 3


@dataclass(frozen=True, slots=True, eq=False)
class Role:
    """The role of a node in a fabric; the same object for all nodes of a fabric that have it."""

    name: str
    """Lower-case letters, the same in files, documents and names of tiers (`rtsw-ctsw`)."""
    tier: int
    """0 for servers, 1 for the switches that they are wired to, up to 3 at the top."""
    title: str
    """What a picture calls one and all of them."""
    members: str
    """What a picture calls one and all of them."""

    SERVER: ClassVar[Role]
    RTSW: ClassVar[Role]
    LEAF: ClassVar[Role]
    TOR: ClassVar[Role]
    EDGE: ClassVar[Role]
    CTSW: ClassVar[Role]
    SPINE: ClassVar[Role]
    AGG: ClassVar[Role]
    ATSW: ClassVar[Role]
    CORE: ClassVar[Role]

    def __str__(self) -> str:
        return self.name

    @property
    def is_switch(self) -> bool:
        return self.tier > 0


SHIPPED = (
    Role("server", 0, "Server", "GPU servers"),
    Role("rtsw", 1, "RTSW", "rack switches"),
    Role("leaf", 1, "Leaf", "rail switches"),
    Role("tor", 1, "ToR", "rail switches"),
    Role("edge", 1, "Edge", "edge switches"),
    Role("ctsw", 2, "CTSW", "spines"),
    Role("spine", 2, "Spine", "spines"),
    Role("agg", 2, "Agg", "aggregation"),
    Role("atsw", 3, "ATSW", "aggregators"),
    Role("core", 3, "Core", "core switches"),
)
for _role in SHIPPED:
    setattr(Role, _role.name.upper(), _role)


def tier_name(lower: Role, upper: Role, rate_bps: int | None = None) -> str:
    """The tier of the links between two roles: `rtsw-ctsw`; `rtsw-ctsw 400G` for those of a rate,
    where links between the two have several."""
    name = f"{lower}-{upper}"
    return name if rate_bps is None else f"{name} {RATE.written(rate_bps)}"
