"""Which links carry a BGP session, from what the switches call their neighbours."""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol


class LinkEnd(Protocol):
    """An end of a link: its address has a length, or there is none."""

    @property
    def node(self) -> str: ...

    @property
    def interface(self) -> str: ...

    @property
    def address(self) -> str | None: ...


def carries_session(a: LinkEnd, b: LinkEnd, neighbours: Set[tuple[str, str]]) -> bool:
    """Whether one end names the other as its BGP neighbour: by address or, unnumbered, by its own
    interface. `neighbours`: pairs of a switch and its name for a neighbour."""
    for near, far in ((a, b), (b, a)):
        names = {near.interface, *((far.address.partition("/")[0],) if far.address else ())}
        if any((near.node, name) in neighbours for name in names):
            return True
    return False
