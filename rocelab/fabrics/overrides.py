"""Exceptions from a regular fabric: nodes and links that are missing, changed or added.

A node goes with its links. Names may be patterns: `rtsw3:ctsw*` is every link from rtsw3 to a
ctsw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import filter as matching
from typing import Annotated

from pydantic import Field

from rocelab.base.models import SpecModel
from rocelab.base.wording import KeyPath, RefusedError, name_hint
from rocelab.fabrics.asns import with_missing_asns
from rocelab.fabrics.graph import (
    LinkSpec,
    NodeSpec,
    WiringSpec,
    check_ports,
    role_named,
    site_of,
    wired,
)
from rocelab.fabrics.layout import Attachment, Cable, CableSettings, Layout, Site, port_names


class OverridesSpec(SpecModel):
    """What differs from the kind of fabric."""

    remove: Annotated[
        tuple[str, ...],
        Field(strict=False, description="nodes and links that are not there: ctsw3, rtsw1:ctsw2"),
    ] = ()
    nodes: Annotated[
        Mapping[str, NodeSpec], Field(description="numbers of nodes, or nodes to add, by name")
    ] = Field(default_factory=dict)
    links: Annotated[
        Mapping[str, WiringSpec], Field(description="rate, MTU or delay of links, by name")
    ] = Field(default_factory=dict)
    add: Annotated[
        tuple[LinkSpec, ...], Field(strict=False, description="further links, as in a graph")
    ] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the fabric is as its kind has it."""
        return not (self.remove or self.nodes or self.links or self.add)

    @property
    def is_rewired(self) -> bool:
        """Whether nodes or links differ, and not only their numbers."""
        return bool(self.remove or self.add)


@dataclass(slots=True)
class _Wire:
    """A link while exceptions are applied: its ends, lower first, and its names."""

    lower: str
    upper: str
    parallel: int
    wiring: CableSettings
    nic: int | None
    """The index of its NIC in the layout."""

    @property
    def ports(self) -> tuple[str, str]:
        return port_names(self.lower, self.upper, self.parallel, self.wiring)

    @property
    def names(self) -> tuple[str, str]:
        lower, upper = self.ports
        return f"{self.lower}:{lower}", f"{self.upper}:{upper}"


def overridden(layout: Layout, overrides: OverridesSpec) -> Layout:
    """The layout with its exceptions. Raises RefusedError for the first that does not fit."""
    if overrides.is_empty:
        return layout
    wires = list(_wires(layout))
    sites = {site.name: site for site in layout.sites}
    gone_nodes, gone_links = _removed(sites, wires, overrides.remove)
    wires = [
        wire
        for wire in wires
        if gone_nodes.isdisjoint((wire.lower, wire.upper)) and wire.names[0] not in gone_links
    ]
    sites = {name: site for name, site in sites.items() if name not in gone_nodes}
    for pattern, change in overrides.links.items():
        names = {name: wire for wire in wires for name in wire.names}
        for name in _named(pattern, names, "link", ("links", pattern)):
            names[name].wiring = _changed(names[name].wiring, change)
    _change_nodes(sites, overrides.nodes)
    for index, link in enumerate(overrides.add):
        for end in (link.a, link.b):
            if end.node not in sites:
                hint = name_hint(end.node, sites)
                raise RefusedError(f"there is no node {end.node}", hint, keys=(("add", index),))
    nics, cables = wired(sites, overrides.add, ("add",))
    sites = with_missing_asns(sites)
    used = {name for wire in wires for name in (wire.lower, wire.upper)}
    used |= {end.node for link in overrides.add for end in (link.a, link.b)}
    if not used:
        raise RefusedError(
            "nothing is left of the fabric", "remove less of it", keys=(("remove",),)
        )
    attachments = _by_server((*_attachments(wires, layout), *nics))
    changed = Layout(
        tuple(site for name, site in sites.items() if name in used),
        tuple(attachments),
        (*(_cable(wire) for wire in wires if wire.nic is None), *_after(wires, cables)),
    )
    check_ports(changed, ("add",))
    return changed


def _wires(layout: Layout) -> Iterator[_Wire]:
    count: dict[tuple[str, str], int] = {}
    for index, nic in enumerate(layout.attachments):
        for port, switch in enumerate(nic.switches):
            count[nic.server, switch] = count.get((nic.server, switch), 0) + 1
            parallel = count[nic.server, switch]
            yield _Wire(nic.server, switch, parallel, nic.wiring_of(port), index)
    for cable in layout.cables:
        yield _Wire(cable.lower, cable.upper, cable.parallel, cable.wiring, None)


def _removed(
    sites: Mapping[str, Site], wires: Iterable[_Wire], patterns: Iterable[str]
) -> tuple[set[str], set[str]]:
    """The nodes and the links, by their first names, that are not there."""
    first = {name: wire.names[0] for wire in wires for name in wire.names}
    nodes: set[str] = set()
    links: set[str] = set()
    for index, pattern in enumerate(patterns):
        path: KeyPath = ("remove", index)
        if ":" in pattern:
            links |= {first[name] for name in _named(pattern, first, "link", path)}
        else:
            nodes |= set(_named(pattern, sites, "node", path))
    return nodes, links


def _named(pattern: str, names: Iterable[str], what: str, path: KeyPath) -> list[str]:
    matches = matching(names, pattern)
    if not matches:
        raise RefusedError(
            f"there is no {what} {pattern}", name_hint(pattern, list(names)), keys=(path,)
        )
    return matches


def _changed(wiring: CableSettings, change: WiringSpec) -> CableSettings:
    return replace(
        wiring,
        rate_bps=wiring.rate_bps if change.rate is None else change.rate,
        mtu=wiring.mtu if change.mtu is None else change.mtu,
        delay_ns=wiring.delay_ns if change.delay is None else change.delay,
        queues=wiring.queues if change.queues is None else change.queues,
    )


def _change_nodes(sites: dict[str, Site], nodes: Mapping[str, NodeSpec]) -> None:
    for name, node in nodes.items():
        site = sites.get(name)
        if site is None:
            if node.role is None:
                hint = f"{name_hint(name, sites) or ''} give it a role to add it".strip()
                raise RefusedError(f"there is no node {name}", hint, keys=(("nodes", name),))
            sites[name] = site_of(name, node, role_named(node.role))
            continue
        sites[name] = replace(
            site,
            role=site.role if node.role is None else role_named(node.role),
            zone=site.zone if node.zone is None else node.zone,
            asn=site.asn if node.asn is None else node.asn,
            asn_is_given=site.asn_is_given or node.asn is not None,
            loopbacks=node.loopback or site.loopbacks,
            router_id=site.router_id if node.router_id is None else node.router_id,
        )


def _attachments(wires: Iterable[_Wire], layout: Layout) -> list[Attachment]:
    """The NICs that have a port left."""
    ports: dict[int, list[_Wire]] = {}
    for wire in wires:
        if wire.nic is not None:
            ports.setdefault(wire.nic, []).append(wire)
    return [
        Attachment(
            layout.attachments[index].server,
            tuple(wire.upper for wire in of_nic),
            tuple(_port_names(wire) for wire in of_nic),
        )
        for index, of_nic in sorted(ports.items())
    ]


def _port_names(wire: _Wire) -> CableSettings:
    """Its wiring, with names of ports that others' absence does not change."""
    if wire.parallel == 1:
        return wire.wiring
    return replace(wire.wiring, ports=wire.ports)


def _by_server(attachments: Iterable[Attachment]) -> list[Attachment]:
    """The NICs with those of a server one after the other."""
    nics: dict[str, list[Attachment]] = {}
    for nic in attachments:
        nics.setdefault(nic.server, []).append(nic)
    return [nic for of_server in nics.values() for nic in of_server]


def _cable(wire: _Wire) -> Cable:
    return Cable(wire.lower, wire.upper, wire.parallel, _port_names(wire))


def _after(wires: Iterable[_Wire], cables: Iterable[Cable]) -> Iterator[Cable]:
    """Further cables, numbered after those that are there."""
    highest: dict[tuple[str, str], int] = {}
    for wire in wires:
        pair = (wire.lower, wire.upper)
        highest[pair] = max(highest.get(pair, 0), wire.parallel)
    for cable in cables:
        pair = (cable.lower, cable.upper)
        yield replace(cable, parallel=cable.parallel + highest.get(pair, 0))
