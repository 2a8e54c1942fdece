"""Directed links by name."""

from __future__ import annotations

from rocelab.planning.fabric import DirectedLink, Fabric


def towards(fabric: Fabric, link: str, node: str) -> DirectedLink:
    """What comes to `node` over the link of that name."""
    planned = fabric.link_by_name[link]
    return DirectedLink(planned, planned.far(node).node)


def sent_by(fabric: Fabric, link: str, node: str) -> DirectedLink:
    """What `node` puts on the link of that name."""
    return DirectedLink(fabric.link_by_name[link], node)
