"""Names of nodes and interfaces, within Linux's 15 characters.

Nodes are `ctsw3`, `rtsw17`, `srv17-2` (rack, server), with the prefix `z2-` if a fabric has several
zones, and similarly for units, segments, planes and pods. An interface is named after its
neighbour, and `-2`, `-3` count parallel links, so that `ip link` on a switch reads as a
wiring list.
"""

from __future__ import annotations

IFNAMSIZ = 15


def node_name(kind: str, index: int, prefix: str | None = None) -> str:
    """`rtsw17`, or `z2-rtsw17` with the prefix `z2`."""
    return f"{kind}{index}" if prefix is None else f"{prefix}-{kind}{index}"


def server_name(group: int, server: int, prefix: str | None = None) -> str:
    """`srv17-2`: the second server of rack, unit, segment or edge switch 17."""
    return f"{node_name('srv', group, prefix)}-{server}"


def interface_name(neighbour: str, parallel: int) -> str:
    """The interface leading to `neighbour` over the `parallel`-th link (from 1).

    Raises ValueError beyond 15 characters, which the spec's limits exclude.
    """
    name = neighbour if parallel == 1 else f"{neighbour}-{parallel}"
    if len(name) > IFNAMSIZ:
        raise ValueError(f"interface name {name} is longer than {IFNAMSIZ} characters")
    return name
