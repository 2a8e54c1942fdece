"""A network that others described: its nodes, its links, and what a lab file cannot say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rocelab.planning.shape import Pair

DrawnEnd = tuple[str, str | None]
"""A node, and the name of its port if the source has one."""


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node as its file has it."""

    is_switch: bool | None
    """None if the file does not say."""
    doubt: str = ""
    """Why it is not known whether it is a switch."""
    tier: int | None = None
    """What the file says of it: 0 for servers, up to 3."""
    group: str = ""
    """What the file calls its kind: a group, or a type of device."""
    asn: int | None = None
    loopbacks: tuple[str, ...] = ()
    router_id: str | None = None


@dataclass(frozen=True, slots=True)
class DrawnLink:
    """A link between two ports, with what the source says of it."""

    a: DrawnEnd
    b: DrawnEnd
    rate: str | None = None
    mtu: int | None = None
    delay: str | None = None
    addresses: tuple[tuple[str, str], ...] = ()
    """Of a and of b with their lengths, a pair a family."""
    line: int | None = None
    """Its line in the source, if that has one."""

    @property
    def pair(self) -> Pair:
        """The two nodes."""
        return self.a[0], self.b[0]


@dataclass(frozen=True, slots=True)
class ImportedTopology:
    """A topology of others."""

    name: str
    nodes: Mapping[str, DrawnNode]
    links: Sequence[DrawnLink]
    left_out: Sequence[str] = ()
    """What was not taken, with the reason."""
    configured: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What the nodes are configured with, by node, as far as their files say."""
    is_graph: bool = False
    """Whether ports and numbers are the point: a list of cables, or what switches say."""

    @property
    def cables(self) -> list[Pair]:
        """The two nodes of every link."""
        return [link.pair for link in self.links]
