"""Builds a `Fabric` from a spec of any kind: addresses, MACs, hash seeds and prefixes for a
`Layout`.

Everything is assigned in build order, so the same spec gives the same fabric to the byte.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import NamedTuple

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.fabrics.addressing import (
    AddressSpace,
    AddressSpaceFullError,
    default_space,
    dotted,
    number_of,
)
from rocelab.fabrics.layout import IFNAMSIZ, USUAL, CableSettings, Layout, Site, port_names
from rocelab.fabrics.numbers import Ends, Numbers, numbers_of
from rocelab.fabrics.ports import interfaces_of
from rocelab.fabrics.roles import Role
from rocelab.labfile.adopted import AdoptedLabSpec
from rocelab.labfile.model import LabSpec, Numbering, SeedPlan
from rocelab.labfile.observed import ObservedLabSpec
from rocelab.planning import adopted
from rocelab.planning.configured import configured, observed
from rocelab.planning.fabric import Fabric, Link, Node, Port

_MOST_OF_NEIGHBOUR = IFNAMSIZ - len("-999")
"""Characters of a neighbour's name after which an interface can be named, with the number of a
parallel link."""


def build_fabric(spec: LabSpec) -> Fabric:
    """The fabric that `spec` describes. Raises AddressSpaceFullError if it does not fit, InputError
    if addresses of switches' own files do not."""
    if isinstance(spec, AdoptedLabSpec):
        return adopted.fabric(spec, spec.fabric)
    made = configured(_planned(spec))
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

    @property
    def labels(self) -> tuple[str, str]:
        """The names of its ports: its own, or those of the neighbours."""
        return port_names(self.lower, self.upper, self.parallel, self.wiring)


def _cablings(spec: LabSpec, layout: Layout, numbers: Sequence[Numbers]) -> Iterator[_Cabling]:
    """The links in build order: those of NICs, then those between switches."""
    cabled: Counter[tuple[str, str]] = Counter()
    for index, nic in enumerate(layout.attachments):
        for port, switch in enumerate(nic.switches):
            cabled[nic.server, switch] += 1
            yield _Cabling(
                nic.server,
                switch,
                cabled[nic.server, switch],
                nic.wiring_of(port),
                spec.links.server_rate,
                tuple(one.nics[index][port] for one in numbers),
            )
    for index, cable in enumerate(layout.cables):
        yield _Cabling(
            cable.lower,
            cable.upper,
            cable.parallel,
            cable.wiring,
            spec.links.rate,
            tuple(one.cables[index] for one in numbers),
        )


def _links(spec: LabSpec, layout: Layout, numbers: Sequence[Numbers]) -> tuple[Link, ...]:
    """The links.

    MAC addresses are locally administered and count links, so a capture identifies the cable.
    Interface indexes are even at lower ends and odd at upper ends, never the same at both: with
    equal ones the kernel takes a veth's loss of carrier for not urgent and may report it up to 1 s
    late (net/core/link_watch.c, linkwatch_urgent_event, which ignores namespaces).
    """
    cablings = list(_cablings(spec, layout, numbers))
    interfaces = _interfaces(layout, cablings)
    role_of = {site.name: site.role for site in layout.sites}
    ports = dict.fromkeys(role_of, 0)
    links = []
    for number, cabling in enumerate(cablings):
        mac_tail = ":00:" + number.to_bytes(4, "big").hex(":")
        to_upper, to_lower = cabling.labels
        made = [
            _port(cabling.lower, 0, to_upper, "02" + mac_tail, cabling, ports, interfaces, role_of),
            _port(cabling.upper, 1, to_lower, "06" + mac_tail, cabling, ports, interfaces, role_of),
        ]
        wiring = cabling.wiring
        links.append(
            Link(
                made[0],
                made[1],
                cabling.rate_bps if wiring.rate_bps is None else wiring.rate_bps,
                spec.links.mtu if wiring.mtu is None else wiring.mtu,
                spec.links.delay if wiring.delay_ns is None else wiring.delay_ns,
                wiring.queues,
            )
        )
    return tuple(links)


def _port(
    node: str,
    end: int,
    label: str,
    mac: str,
    cabling: _Cabling,
    ports: dict[str, int],
    interfaces: Mapping[str, Mapping[str, str]],
    role_of: Mapping[str, Role],
) -> Port:
    """The port at the lower (0) or upper (1) end. `ports` counts those of each node so far."""
    ports[node] += 1
    interface = interfaces[node].get(label, label) if node in interfaces else label
    pair, *others = cabling.ends
    return Port(
        node,
        role_of[node],
        interface,
        2 * ports[node] + end,
        None if pair is None else pair[end],
        mac,
        others[0][end] if others and others[0] is not None else None,
        None if label == interface else label,
    )


def _interfaces(layout: Layout, cablings: Sequence[_Cabling]) -> dict[str, dict[str, str]]:
    """Of each node with a port that has a name of its own, or one too long, Linux's names for its
    ports; of others none."""
    long = {site.name for site in layout.sites if len(site.name) > _MOST_OF_NEIGHBOUR}
    labels: dict[str, list[str]] = {}
    for cabling in cablings:
        ends = cabling.lower, cabling.upper
        if cabling.wiring.ports != USUAL.ports or not long.isdisjoint(ends):
            labels |= {node: [] for node in ends}
    for cabling in cablings if labels else ():
        for node, label in zip((cabling.lower, cabling.upper), cabling.labels, strict=True):
            if node in labels:
                labels[node].append(label)
    return {node: interfaces_of(of) for node, of in labels.items()}


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
