"""A fabric with tenants: who reaches whom, and by which address switches forward.

A NIC of a tenant has an address of the tenant's subnet, and its leaf's port has none: the leaf
bridges it. Leaves send its packets to each other over VXLAN (RFC 7348), from loopback to loopback.
Pure.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from ipaddress import ip_interface, ip_network

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.base.wording import RefusedError
from rocelab.fabrics.layout import Layout
from rocelab.labfile.model import LabSpec
from rocelab.labfile.tenants import check_beside_tenants, inner_mtu, tenant_of_nics
from rocelab.planning.configured import files_of
from rocelab.planning.fabric import Fabric, Link, Nic, Port, Prefix
from rocelab.planning.tenant import Tenant


def with_tenants(fabric: Fabric) -> Fabric:
    """The fabric with the tenants of its spec. Raises InputError if a file of a switch gives a
    member's port an address, or a port has a bridge's name; and for a scheme or a hash policy, as a
    command may ask for another than the file's, that does not go with tenants."""
    spec = fabric.spec
    if not spec.tenants:
        return fabric
    check_scheme(spec, spec.scheme.kind)
    layout = spec.layout()
    tenants = tuple(_tenants(fabric, spec, layout))
    _check_ports(fabric, tenants)
    addresses = {
        link: addresses_of
        for tenant in tenants
        for link, addresses_of in zip(tenant.links, _addresses(tenant), strict=True)
    }
    most = inner_mtu(layout, spec.links.mtu)
    links = tuple(
        _bridged(link, addresses[link.name], most) if link.name in addresses else link
        for link in fabric.links
    )
    prefixes = tuple(_prefixes(fabric, addresses))
    return replace(fabric, links=links, prefixes=prefixes, tenants=tenants)


def check_scheme(spec: LabSpec, scheme: str) -> None:
    """Raises InputError if the lab has tenants and no such lab has a scheme of that kind."""
    if not spec.tenants:
        return
    try:
        check_beside_tenants(stack=spec.routing.stack, scheme=scheme, policy=spec.hashing.policy)
    except RefusedError as error:
        raise InputError(error.message, error.hint) from None


def _tenants(fabric: Fabric, spec: LabSpec, layout: Layout) -> Iterator[Tenant]:
    tenant_of = tenant_of_nics(layout, spec.tenants)
    # The first links are those of the NICs, port by port.
    first = 0
    links: dict[str, list[str]] = {name: [] for name in spec.tenants}
    for nic, attachment in enumerate(layout.attachments):
        if nic in tenant_of:
            links[tenant_of[nic]].append(fabric.links[first].name)
        first += len(attachment.switches)
    for number, (name, tenant) in enumerate(spec.tenants.items()):
        yield Tenant(
            name,
            number,
            tenant.vni,
            tuple(sorted(tenant.subnet, key=lambda text: list(Family).index(Family.of(text)))),
            tuple(links[name]),
            tenant.arp_suppression,
        )


def _addresses(tenant: Tenant) -> Iterator[tuple[str, ...]]:
    """The addresses of each NIC with their lengths, one of each subnet."""
    networks = [ip_network(text) for text in tenant.subnets]
    for place in range(1, len(tenant.links) + 1):
        yield tuple(f"{network[place]}/{network.prefixlen}" for network in networks)


def _bridged(link: Link, addresses: tuple[str, ...], most_mtu: int) -> Link:
    first, *other = addresses
    return replace(
        link,
        a=replace(link.a, address=first, other_address=other[0] if other else None),
        b=replace(link.b, address=None, other_address=None),
        mtu=min(link.mtu, most_mtu),
    )


def _prefixes(fabric: Fabric, bridged: Container[str]) -> Iterator[Prefix]:
    """What switches announce: of a block in which no NIC is routed any more, the loopback in it."""
    routed: list[Port] = []
    homes = set()
    for link in fabric.links:
        if link.is_between_switches:
            continue
        if link.name in bridged:
            homes.add(link.b.node)
        else:
            routed.append(link.a)
    addresses = {
        ip_interface(text).ip
        for port in routed
        for text in (port.address, port.other_address)
        if text
    }
    for prefix in fabric.prefixes:
        network = ip_network(prefix.prefix)
        if homes.isdisjoint(prefix.origins) or any(ip in network for ip in addresses):
            yield prefix
            continue
        for origin in map(fabric.node, prefix.origins):
            for loopback in (origin.loopback, origin.other_loopback):
                if loopback and ip_interface(loopback).ip in network:
                    yield Prefix(f"{loopback}/{Family.of(loopback).bits}", (origin.name,))


def _check_ports(fabric: Fabric, tenants: tuple[Tenant, ...]) -> None:
    files = files_of(fabric.spec)
    devices = {name for tenant in tenants for name in (tenant.bridge, tenant.tunnel)}
    for link in fabric.links:
        for port in (link.a, link.b):
            if port.role.is_switch and port.interface in devices:
                raise InputError(
                    f"{port} has the name of a tenant's bridge or tunnel",
                    "give the port another name, or the tenant another VNI",
                )
    for tenant in tenants:
        for name in tenant.links:
            port = fabric.link_by_name[name].b
            file = files.get(port.node)
            if file is not None and port.interface in {*file.addresses, *file.addresses6}:
                raise InputError(
                    f"{port} is bridged for tenant {tenant.name}, and the file of {port.node} "
                    "gives it an address",
                    "take the address out of the file, or the NIC out of the tenant",
                )


def leaf_of(nic: Nic) -> str:
    """The leaf of a NIC with one port."""
    return nic.links[0].b.node


def forwarded_to(fabric: Fabric, nic: Nic) -> str:
    """The address by which switches forward packets to a NIC: its own, or the loopback of the leaf
    that bridges it."""
    if fabric.tenant_of(nic) is None:
        return nic.ip
    loopback = fabric.node(leaf_of(nic)).loopback
    assert loopback is not None  # of every switch of a lab of tenants
    return loopback


def tenant_name(fabric: Fabric, nic: Nic) -> str | None:
    """The name of a NIC's tenant; None if it is in none."""
    tenant = fabric.tenant_of(nic)
    return None if tenant is None else tenant.name


def is_reached(fabric: Fabric, source: Nic, destination: Nic) -> bool:
    """Whether a whole lab carries packets from a NIC to another: both are in one tenant, or in
    none."""
    return fabric.tenant_of(source) == fabric.tenant_of(destination)


def check_reached(fabric: Fabric, source: Nic, destination: Nic) -> None:
    """Raises InputError if two NICs are not of one tenant."""
    if is_reached(fabric, source, destination):
        return

    def placed(nic: Nic) -> str:
        tenant = fabric.tenant_of(nic)
        name = f"{nic.server}:{nic.number}" if len(fabric.nics(nic.server)) > 1 else nic.server
        return f"{name} is in {'no tenant' if tenant is None else f'tenant {tenant.name}'}"

    raise InputError(
        f"{placed(source)} and {placed(destination)}: nothing leads from one to the other",
        "name NICs of one tenant (`rocelab plan` lists them): routing between tenants needs a VRF, "
        "which rocelab does not make",
    )


def next_hop_mac(fabric: Fabric, link: Link, destination: Nic) -> str:
    """The MAC address to which a NIC sends packets to another by a link: that of its leaf's port,
    or within a tenant that of the other NIC."""
    if link.name in fabric.tenant_by_link:
        return destination.links[0].a.mac
    return link.b.mac


def tenant_links(fabric: Fabric, leaf: str) -> dict[Tenant, tuple[Link, ...]]:
    """The tenants that a switch bridges, each with the links to its NICs there."""
    below: dict[Tenant, list[Link]] = {}
    for link in fabric.downlinks(leaf):
        tenant = fabric.tenant_by_link.get(link.name)
        if tenant is not None:
            below.setdefault(tenant, []).append(link)
    return {tenant: tuple(links) for tenant, links in below.items()}


def leaves_of(fabric: Fabric, tenant: Tenant) -> tuple[str, ...]:
    """The leaves that bridge a tenant, in build order."""
    leaves = {fabric.link_by_name[name].b.node for name in tenant.links}
    return tuple(node.name for node in fabric.switches if node.name in leaves)
