"""Builds a `Fabric` from a spec of any kind: addresses, MACs, hash seeds and prefixes for a
`Layout`.

Everything is assigned in build order, so the same spec gives the same fabric to the byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_network
from itertools import chain
from typing import NamedTuple

from rocelab.base.collection import uncollected
from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.fabrics.addressing import (
    AddressSpace,
    AddressSpaceFullError,
    default_space,
    dotted,
    number_of,
)
from rocelab.fabrics.door import roles
from rocelab.fabrics.layout import IFNAMSIZ, USUAL, CableSettings, Layout, Site, port_names
from rocelab.fabrics.numbers import Ends, Numbers, numbers_of
from rocelab.fabrics.ports import interfaces_of
from rocelab.fabrics.roles import Role
from rocelab.labfile.adopted import AdoptedLabSpec, AdoptedPort, AdoptedSpec
from rocelab.labfile.model import LabSpec, Numbering, SeedPlan
from rocelab.labfile.networks import NetworksLabSpec, NetworkSpec
from rocelab.labfile.observed import ObservedLabSpec
from rocelab.planning.configured import configured, observed
from rocelab.planning.fabric import Fabric, Link, Node, Observed, Port
from rocelab.planning.networks import merged
from rocelab.planning.tenancy import with_tenants

PORTS_OF_NETWORK = 1000
"""The ports of a server in a network are fewer."""

_MOST_OF_NEIGHBOUR = IFNAMSIZ - len("-999")
"""Characters of a neighbour's name after which an interface can be named, with the number of a
parallel link."""


def build_fabric(spec: LabSpec) -> Fabric:
    """The fabric that `spec` describes. Raises AddressSpaceFullError if it does not fit, InputError
    if addresses of switches' own files do not."""
    if isinstance(spec, AdoptedLabSpec):
        return adopted_fabric(spec, spec.fabric)
    if isinstance(spec, NetworksLabSpec):
        return merged(spec, [build_fabric(network) for network in spec.networks.values()])
    with uncollected():
        made = with_tenants(configured(_planned(spec)))
    return observed(made, spec.observed) if isinstance(spec, ObservedLabSpec) else made


def _planned(spec: LabSpec) -> Fabric:
    layout = spec.layout()
    numbering = spec.routing.numbering
    if numbering is not Numbering.AUTO:
        return _build(spec, layout, numbered=numbering is Numbering.NUMBERED)
    try:
        return _build(spec, layout, numbered=spec.is_numbered)
    except AddressSpaceFullError:
        if not spec.is_numbered:
            raise
        return _build(spec, layout, numbered=False)


def _build(spec: LabSpec, layout: Layout, *, numbered: bool) -> Fabric:
    # Before anything is made: a fabric that does not fit is known early.
    numbers, *other = (
        numbers_of(layout, spec.addresses.pools(family), numbered=numbered)
        for family in spec.addresses.families
    )
    prefixes = [prefix for one in (numbers, *other) for prefix in one.prefixes]
    router_ids = _router_ids(spec, layout, numbers)
    nodes = tuple(
        Node(
            site.name,
            site.role,
            site.zone,
            site.asn,
            numbers.loopbacks.get(site.name),
            hash_seed(spec.hashing.seed, site),
            other[0].loopbacks.get(site.name) if other else None,
            router_ids.get(site.name),
        )
        for site in layout.sites
    )
    return Fabric(spec, nodes, _links(spec, layout, [numbers, *other]), tuple(prefixes), numbered)


def _router_ids(spec: LabSpec, layout: Layout, numbers: Numbers) -> dict[str, str]:
    """The BGP identifier of each switch: its own, its IPv4 loopback, or one of the lab's pool."""
    pool = spec.addresses.router_ids
    network = ip_network(pool or default_space(Family.IPV4))
    taken = [number_of(site.router_id) for site in layout.sites if site.router_id is not None]
    space = AddressSpace.of(network, taken)
    identifiers = {}
    for site in layout.sites:
        if not site.role.is_switch:
            continue
        if site.router_id is not None:
            identifiers[site.name] = site.router_id
        elif pool is None and numbers.family is Family.IPV4:
            identifiers[site.name] = numbers.loopbacks[site.name]
        else:
            identifiers[site.name] = dotted(space.take(1))
    return identifiers


class _Cabling(NamedTuple):
    """A link before its ports have names: the lower node, the upper node and its wiring."""

    lower: str
    upper: str
    parallel: int
    wiring: CableSettings
    rate_bps: int
    ends: tuple[Ends | None, ...]
    """The addresses of its ends, one pair a family."""


def _cablings(spec: LabSpec, layout: Layout, numbers: Sequence[Numbers]) -> Iterator[_Cabling]:
    """The links in build order: those of NICs, then those between switches."""
    cabled: dict[tuple[str, str], int] = {}
    rate_bps = spec.links.server_rate
    of_nics = zip(*(one.nics for one in numbers), strict=True)
    for nic, of_families in zip(layout.attachments, of_nics, strict=True):
        of_ports = zip(*of_families, strict=True)
        for port, (switch, ends) in enumerate(zip(nic.switches, of_ports, strict=True)):
            pair = nic.server, switch
            cabled[pair] = parallel = cabled.get(pair, 0) + 1
            yield _Cabling(*pair, parallel, nic.wiring_of(port), rate_bps, ends)
    rate_bps = spec.links.rate
    of_cables = zip(*(one.cables for one in numbers), strict=True)
    for cable, ends in zip(layout.cables, of_cables, strict=True):
        yield _Cabling(cable.lower, cable.upper, cable.parallel, cable.wiring, rate_bps, ends)


_UNNUMBERED = None, None


def _links(spec: LabSpec, layout: Layout, numbers: Sequence[Numbers]) -> tuple[Link, ...]:
    """The links.

    MAC addresses are locally administered and count links, so a capture identifies the cable.
    Of a network after the first of a lab the number of the network is in them, and servers' indexes
    begin above those of the networks before.
    Interface indexes are even at lower ends and odd at upper ends, never the same at both: with
    equal ones the kernel takes a veth's loss of carrier for not urgent and may report it up to 1 s
    late (net/core/link_watch.c, linkwatch_urgent_event, which ignores namespaces).
    """
    interfaces = _interfaces(layout, _cablings(spec, layout, numbers))
    role_of = {site.name: site.role for site in layout.sites}
    network = spec.place.number if isinstance(spec, NetworkSpec) else 0
    ports = {
        name: 0 if role.is_switch else network * PORTS_OF_NETWORK for name, role in role_of.items()
    }
    usual = spec.links
    of_network = f":{network:02x}:"
    links = []
    # Tuples are unpacked and names looked up once: fabrics have up to a hundred thousand links.
    for number, cabling in enumerate(_cablings(spec, layout, numbers)):
        lower, upper, parallel, wiring, rate_bps, ends = cabling
        mac_tail = of_network + number.to_bytes(4, "big").hex(":")
        to_upper, to_lower = port_names(lower, upper, parallel, wiring)
        of_lower, of_upper = ends[0] or _UNNUMBERED
        other_of_lower, other_of_upper = ends[1] or _UNNUMBERED if len(ends) > 1 else _UNNUMBERED
        ports[lower] += 1
        ports[upper] += 1
        at_lower, at_upper = to_upper, to_lower
        if interfaces:
            at_lower = interfaces.get(lower, {}).get(to_upper, to_upper)
            at_upper = interfaces.get(upper, {}).get(to_lower, to_lower)
        links.append(
            Link(
                Port(
                    lower,
                    role_of[lower],
                    at_lower,
                    2 * ports[lower],
                    of_lower,
                    "02" + mac_tail,
                    other_of_lower,
                    None if at_lower == to_upper else to_upper,
                ),
                Port(
                    upper,
                    role_of[upper],
                    at_upper,
                    2 * ports[upper] + 1,
                    of_upper,
                    "06" + mac_tail,
                    other_of_upper,
                    None if at_upper == to_lower else to_lower,
                ),
                rate_bps if wiring.rate_bps is None else wiring.rate_bps,
                usual.mtu if wiring.mtu is None else wiring.mtu,
                usual.delay if wiring.delay_ns is None else wiring.delay_ns,
                wiring.queues,
            )
        )
    return _marked(links)


def _marked(links: list[Link]) -> tuple[Link, ...]:
    """The links, of which those between switches of two roles know whether these have several
    rates."""
    rates: dict[tuple[Role, Role], set[int]] = {}
    for link in links:
        if link.a.role.is_switch:
            rates.setdefault((link.a.role, link.b.role), set()).add(link.rate_bps)
    several = {pair for pair, values in rates.items() if len(values) > 1}
    if not several:
        return tuple(links)
    return tuple(
        replace(link, among_rates=True) if (link.a.role, link.b.role) in several else link
        for link in links
    )


def _interfaces(layout: Layout, cablings: Iterable[_Cabling]) -> dict[str, dict[str, str]]:
    """Of each node with a port that has a name of its own, or one too long, Linux's names for its
    ports; of others none."""
    long = {site.name for site in layout.sites if len(site.name) > _MOST_OF_NEIGHBOUR}
    wirings = chain(*(nic.wiring for nic in layout.attachments))
    wirings = chain(wirings, (cable.wiring for cable in layout.cables))
    if not long and all(wiring is USUAL or wiring.ports == USUAL.ports for wiring in wirings):
        return {}
    labels: dict[str, list[str]] = {}
    renamed: set[str] = set()
    for cabling in cablings:
        ends = cabling.lower, cabling.upper
        if cabling.wiring.ports != USUAL.ports or not long.isdisjoint(ends):
            renamed.update(ends)
        names = port_names(*ends, cabling.parallel, cabling.wiring)
        for node, label in zip(ends, names, strict=True):
            labels.setdefault(node, []).append(label)
    return {node: interfaces_of(of) for node, of in labels.items() if node in renamed}


def hash_seed(plan: SeedPlan | int, site: Site) -> int:
    """The switch's fib_multipath_hash_seed: a digest of the fields that must differ, and never
    0."""
    if site.role is Role.SERVER:
        return 0
    if isinstance(plan, int):
        return plan
    subject = {
        SeedPlan.PER_NODE: site.name,
        SeedPlan.PER_TIER: site.role.name,
        SeedPlan.SHARED: "",
    }[plan]
    digest = hashlib.blake2s(b"rocelab hash seed " + subject.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") or 1


def plan(spec: LabSpec) -> Fabric:
    """The fabric of a spec. Raises InputError if it does not fit its address space."""
    try:
        return build_fabric(spec)
    except AddressSpaceFullError as error:
        unnumbered = "; routing.numbering: unnumbered needs none for switch-to-switch links"
        message = str(error) + unnumbered * (spec.routing.numbering is Numbering.NUMBERED)
        raise InputError(
            f"lab {spec.name} does not fit: {message}",
            hint="fewer switches or NICs, or routing.numbering: unnumbered",
        ) from None


def adopted_fabric(spec: LabSpec, adopted: AdoptedSpec) -> Fabric:
    """The fabric of a lab that was adopted. Its links have the rates of the spec, since a veth pair
    has none. Raises ValueError if a link ends at a node that is missing."""
    role_of = {node.name: roles()[node.role] for node in adopted.nodes}
    nodes = tuple(
        Node(node.name, role_of[node.name], None, node.asn, node.loopback, node.hash_seed)
        for node in adopted.nodes
    )

    def port(end: AdoptedPort) -> Port:
        if end.node not in role_of:
            raise ValueError(f"a link ends at {end.node}, which is no node")
        role = role_of[end.node]
        return Port(end.node, role, end.interface, end.index, end.address, end.mac)

    links = tuple(
        Link(
            port(link.a),
            port(link.b),
            spec.links.rate if role_of[link.a.node].is_switch else spec.links.server_rate,
            link.mtu,
        )
        for link in adopted.links
    )
    link_at = {(end.node, end.interface): link for link in links for end in (link.a, link.b)}
    routes = {
        node: {
            prefix: tuple(link_at[node, name] for name in interfaces)
            for prefix, interfaces in of_node.items()
        }
        for node, of_node in adopted.routes.items()
    }
    sessions = frozenset(
        made.name for made, link in zip(links, adopted.links, strict=True) if link.session
    )
    daemons = {node.name: node.daemons for node in adopted.nodes}
    trunks = [link for link in links if link.is_between_switches]
    numbered = all(link.a.address and link.b.address for link in trunks)
    peers = {node.name: node.peers for node in adopted.nodes}
    return Fabric(spec, nodes, links, (), numbered, Observed(routes, sessions, daemons, peers))
