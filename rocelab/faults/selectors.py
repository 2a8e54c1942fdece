"""Selectors of a fault's target in a file: a link, one of its ends, a server's NIC.

They are parsed from text first and find parts of a fabric later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Self

from pydantic import Field, model_validator

from rocelab.errors import InputError
from rocelab.plan.fabric import DirectedLink, Fabric, Link
from rocelab.spec.base import SpecModel
from rocelab.wording import RefusedError, listed, name_hint, shown

NodeName = Annotated[str, Field(min_length=1, max_length=32)]


class LinkSelector(SpecModel):
    """A link: `rtsw1:ctsw2` (node and its interface), or a node and the number of its uplink."""

    node: NodeName
    interface: Annotated[str | None, Field(min_length=1, max_length=15)] = None
    uplink: Annotated[int | None, Field(ge=1, description="from 1, in build order")] = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, str):
            node, _, interface = value.partition(":")
            if not node or not interface:
                raise RefusedError(
                    f"expected NODE:INTERFACE such as rtsw1:ctsw2, got {shown(value)}"
                )
            return {"node": node, "interface": interface}
        return value

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> Self:
        if (self.interface is None) == (self.uplink is None):
            raise RefusedError("expected interface or uplink, one of the two")
        return self

    def find(self, fabric: Fabric) -> Link:
        """The selected link of `fabric`. Raises InputError, naming the available ones, if there is
        none."""
        check_node(fabric, self.node)
        uplinks = fabric.uplinks(self.node)
        if self.uplink is not None:
            if self.uplink > len(uplinks):
                raise InputError(
                    f"{self.node} has no uplink {self.uplink}", hint=f"it has {len(uplinks)}"
                )
            return uplinks[self.uplink - 1]
        links = {link.port(self.node).interface: link for link in fabric.links_of[self.node]}
        if self.interface not in links:
            raise InputError(
                f"{self.node} has no interface {self.interface}",
                hint=name_hint(self.interface or "", sorted(links)),
            )
        return links[self.interface]


def check_node(fabric: Fabric, name: str) -> None:
    """Raises InputError if the fabric has no node of that name."""
    if name not in fabric.node_by_name:
        raise InputError(
            f"lab {fabric.name} has no node {name}",
            hint=name_hint(name, fabric.node_by_name),
        )


def check_switch(fabric: Fabric, name: str) -> None:
    """Raises InputError if the fabric has no switch of that name."""
    check_node(fabric, name)
    if not fabric.node(name).is_switch:
        raise InputError(f"{name} is a server", hint="name a switch")


def check_leaf(fabric: Fabric, name: str) -> None:
    """Raises InputError if the fabric has no switch of that name in its lowest tier."""
    check_switch(fabric, name)
    if not fabric.node(name).is_leaf:
        raise InputError(f"{name} has no rack", hint="name a switch of the lowest tier")


def check_server(fabric: Fabric, name: str) -> None:
    """Raises InputError if the fabric has no server of that name."""
    check_node(fabric, name)
    if fabric.node(name).is_switch:
        raise InputError(f"{name} is a switch", hint="name a server")


def check_end(link: Link, node: str) -> None:
    """Raises InputError if the link does not end at the node."""
    ends = (link.a.node, link.b.node)
    if node not in ends:
        raise InputError(f"{link.name} does not end at {node}", hint=f"name {listed(ends)}")


def find_nic_link(fabric: Fabric, server: str, nic: int, port: int) -> Link:
    """The link of a NIC's port, both from 1. Raises InputError, naming the available ones."""
    check_server(fabric, server)
    nics = fabric.nics(server)
    if nic > len(nics):
        raise InputError(f"{server} has no NIC {nic}", hint=f"it has {len(nics)}")
    links = nics[nic - 1].links
    if port > len(links):
        raise InputError(f"NIC {nic} of {server} has no port {port}", hint=f"it has {len(links)}")
    return links[port - 1]


def named(links: tuple[Link, ...]) -> str:
    """The common name of links: `rtsw1:ctsw2`, or `rtsw1:ctsw2,ctsw2-2` for several of a node."""
    by_node: dict[str, list[str]] = {}
    for link in links:
        by_node.setdefault(link.a.node, []).append(link.a.interface)
    return " ".join(f"{node}:{','.join(names)}" for node, names in by_node.items())


def directed(links: Iterable[Link], towards: str | None = None) -> Iterator[DirectedLink]:
    """Both directions of links, or only those towards one node."""
    for link in links:
        for way in (link.up, link.down):
            if towards in (None, way.receiver):
                yield way
