"""Selectors of a fault's target in a file: a node, a link, one of its ends, a server's NIC.

They are parsed from text first and find parts of a fabric later. A node is called by its name or by
its place: `leaf#1` is the first switch of the lowest tier in any lab, whatever it is called there;
in a lab without one, the first switch that has a server. In a lab without spines, `spine#2` is
the second switch that `leaf#1` has a link to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Self, TypeVar

from pydantic import ConfigDict, Field, model_validator

from rocelab.base.errors import InputError
from rocelab.base.wording import RefusedError, listed, name_hint, shown
from rocelab.fabrics.door import roles
from rocelab.fabrics.roles import Role
from rocelab.labfile.base import SHORT_FORM, SpecModel
from rocelab.planning.fabric import DirectedLink, Fabric, Link

Spec = TypeVar("Spec", bound=SpecModel)

NodeName = Annotated[str, Field(min_length=1, max_length=64)]
NODE_KEYS = ("node", "switch", "server", "side", "towards", "peer", "of")
"""The keys of faults and selectors that name a node."""
_PLACE = re.compile(r"([a-z]+)#([1-9][0-9]*)")


def node_name(fabric: Fabric, text: str) -> str:
    """The name of the node that a file calls `text`: by its name, or by its tier and its number in
    it, such as `spine#2`. Any name that is not of that form is returned as it is.

    Raises InputError if the fabric has no such tier or fewer nodes in it.
    """
    place = _PLACE.fullmatch(text)
    if place is None or text in fabric.node_by_name:
        return text
    role = roles().get(place[1])
    if role is None:
        raise InputError(f"{place[1]} is not a role of nodes", name_hint(place[1], roles()))
    names = [node.name for node in fabric.nodes if _usual_tier(node.role) == role.tier]
    if not names and role.tier == 1:
        homes = {link.b.node for link in fabric.links if not link.is_between_switches}
        names = [node.name for node in fabric.switches if node.name in homes]
    elif not names and role.tier == 2:
        leaf = node_name(fabric, "leaf#1")
        names = list(dict.fromkeys(link.far(leaf).node for link in trunks_at(fabric, leaf)))
    if int(place[2]) > len(names):
        members = Counter(node.role for node in fabric.nodes)
        counts = [f"{count} {role}" for role, count in members.items()]
        raise InputError(
            f"lab {fabric.name} has no {text}: {len(names)} nodes of its tier",
            hint=f"it has {listed(counts, 'and')}",
        )
    return names[int(place[2]) - 1]


def _usual_tier(role: Role) -> int:
    """The tier that roles of its name have where a fabric has tiers."""
    return roles().get(role.name, role).tier


def with_names(spec: Spec, fabric: Fabric) -> Spec:
    """A fault or a selector with the names of the nodes that it calls by their place. Raises
    InputError as `node_name` does."""
    changed: dict[str, object] = {}
    for key in type(spec).model_fields:
        value = getattr(spec, key)
        if key in NODE_KEYS and isinstance(value, str):
            changed[key] = node_name(fabric, value)
        elif isinstance(value, SpecModel):
            changed[key] = with_names(value, fabric)
        elif key == "between" and value is not None:
            changed[key] = tuple(node_name(fabric, name) for name in value)
        elif isinstance(value, tuple):
            changed[key] = tuple(
                with_names(item, fabric) if isinstance(item, SpecModel) else item for item in value
            )
    return spec.model_copy(update=changed)


class LinkSelector(SpecModel):
    """A link: `rtsw1:ctsw2` (a node, and its interface or its neighbour on it), or a node and the
    number of its uplink."""

    model_config = ConfigDict(
        json_schema_extra={SHORT_FORM: {"type": "string", "examples": ["rtsw1:ctsw2"]}}
    )

    node: NodeName
    interface: Annotated[str | None, Field(min_length=1, max_length=64)] = None
    uplink: Annotated[
        int | None,
        Field(
            ge=1,
            description="from 1, in build order; without tiers, of all its links to switches",
        ),
    ] = None

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
            raise RefusedError("expected either interface or uplink")
        return self

    def find(self, fabric: Fabric) -> Link:
        """The selected link of `fabric`. Raises InputError, naming the available ones, if there is
        none."""
        check_node(fabric, self.node)
        is_tiered = fabric.network_of(self.node).is_tiered
        uplinks = fabric.uplinks(self.node) if is_tiered else trunks_at(fabric, self.node)
        if self.uplink is not None:
            if self.uplink > len(uplinks):
                raise InputError(
                    f"{self.node} has no uplink {self.uplink}", hint=f"it has {len(uplinks)}"
                )
            return uplinks[self.uplink - 1]
        ports = [(link.port(self.node), link) for link in fabric.links_of[self.node]]
        links = {port.interface: link for port, link in ports}
        links |= {port.name: link for port, link in ports}
        assert self.interface is not None
        if self.interface in links:
            return links[self.interface]
        neighbour = node_name(fabric, self.interface)
        cables = links_between(fabric, self.node, neighbour)
        if not cables:
            raise InputError(
                f"{self.node} has no interface {self.interface} and no neighbour of that name",
                hint=name_hint(self.interface, [port.name for port, _ in ports]),
            )
        return cables[0]


def trunks_at(fabric: Fabric, node: str) -> tuple[Link, ...]:
    """The links between a node and switches, in build order."""
    links = fabric.links_of[node]
    return tuple(link for link in links if link.is_between_switches or link.a.node == node)


def links_between(fabric: Fabric, one: str, other: str) -> tuple[Link, ...]:
    """The links between two nodes, in build order."""
    return tuple(
        link for link in fabric.links_of[one] if {link.a.node, link.b.node} == {one, other}
    )


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
        by_node.setdefault(link.a.node, []).append(link.a.name)
    return " ".join(f"{node}:{','.join(names)}" for node, names in by_node.items())


def directed(links: Iterable[Link], towards: str | None = None) -> Iterator[DirectedLink]:
    """Both directions of links, or only those towards one node."""
    for link in links:
        for way in (link.up, link.down):
            if towards in (None, way.receiver):
                yield way
