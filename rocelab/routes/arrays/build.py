"""Builds a `Network` from a spec, without building its `Fabric` first.

The arrays hold the nodes, NICs and links of `rocelab.planning.build.build_fabric` in its order.
Layout, address blocks and hash seeds come from the same functions; what only a lab needs (MACs,
/31s between switches, prefixes as text) is left out.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

from rocelab.base.arrays import NONE, Ints
from rocelab.base.family import Family
from rocelab.fabrics.addressing import SPACE_START, AddressSpace, number_of
from rocelab.fabrics.door import layout_of
from rocelab.fabrics.homes import Home, homes_of
from rocelab.fabrics.layout import Attachment
from rocelab.labfile.adopted import AdoptedLabSpec
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric, hash_seed
from rocelab.planning.fabric import Fabric, Nic
from rocelab.planning.tenancy import leaf_of
from rocelab.routes.arrays.network import Network, NetworkDetails, NetworkTenants
from rocelab.routes.flows import Bytes
from rocelab.routes.planned import gateway_of

IPV4_END = 2**32


def network_of(spec: LabSpec) -> Network:
    """The network that `spec` describes.

    A fabric too large for 198.18.0.0/15, which a lab refuses, continues into the addresses that
    follow: here they are only hashed.
    """
    if isinstance(spec, AdoptedLabSpec) or not spec.is_usual:
        return _adopted_network(build_fabric(spec))
    layout = layout_of(spec.fabric)
    sites = layout.sites
    number = {site.name: index for index, site in enumerate(sites)}
    homes = homes_of(layout, AddressSpace(IPV4_END - SPACE_START))
    nics = layout.attachments
    server = np.array([number[nic.server] for nic in nics], np.int32)
    ports = np.array([len(nic.switches) for nic in nics], np.int32)
    nic_links, nic_parallel = _nic_links(nics, ports)
    of_cables = (
        np.array([number[cable.lower] for cable in layout.cables], np.int32),
        np.array([number[cable.upper] for cable in layout.cables], np.int32),
        np.array([cable.parallel for cable in layout.cables], np.int32),
    )
    switches = chain.from_iterable(nic.switches for nic in nics)
    of_nics = (
        np.repeat(server, ports),
        np.array([number[name] for name in switches], np.int32),
        nic_parallel,
    )
    lower, upper, parallel = map(np.concatenate, zip(of_nics, of_cables, strict=True))
    rates = (spec.links.server_rate, spec.links.rate)
    home, address = _nic_homes(homes, len(nics))
    return Network(
        spec=spec,
        node_names=tuple(site.name for site in sites),
        roles=tuple(site.role for site in sites),
        asn=np.array([site.asn or 0 for site in sites], np.int64),
        zone=np.array([NONE if site.zone is None else site.zone for site in sites], np.int32),
        hash_seed=np.array([hash_seed(spec.hashing.seed, site) for site in sites], np.uint32),
        lower=lower,
        upper=upper,
        parallel=parallel,
        rate_bps=np.repeat(np.array(rates, np.float64), (len(nic_parallel), len(layout.cables))),
        nic_server=server,
        nic_number=_counted_from_one(server),
        nic_address=address,
        nic_links=nic_links,
        nic_home=home,
        home_leaves=_leaves(homes, number),
    )


def _adopted_network(fabric: Fabric) -> Network:
    """The network of a fabric whose addresses, wiring or routes do not follow from its kind."""
    spec = fabric.spec
    is_detailed = (
        spec.routing.is_own
        or not fabric.is_regular
        or bool(spec.overrides.links)
        or bool(fabric.tenants)
    )
    number = {node.name: index for index, node in enumerate(fabric.nodes)}
    link_number = {link: index for index, link in enumerate(fabric.links)}
    nics = [nic for server in fabric.servers for nic in fabric.nics(server.name)]
    homes = list(dict.fromkeys(tuple(link.b.node for link in nic.links) for nic in nics))
    cabled: Counter[tuple[str, str]] = Counter()
    parallel = []
    for link in fabric.links:
        cabled[link.a.node, link.b.node] += 1
        parallel.append(cabled[link.a.node, link.b.node])
    home_of = {switches: index for index, switches in enumerate(homes)}
    return Network(
        spec=spec,
        node_names=tuple(number),
        roles=tuple(node.role for node in fabric.nodes),
        asn=np.array([node.asn or 0 for node in fabric.nodes], np.int64),
        zone=np.array(
            [NONE if node.zone is None else node.zone for node in fabric.nodes], np.int32
        ),
        hash_seed=np.array([node.hash_seed for node in fabric.nodes], np.uint32),
        lower=np.array([number[link.a.node] for link in fabric.links], np.int32),
        upper=np.array([number[link.b.node] for link in fabric.links], np.int32),
        parallel=np.array(parallel, np.int32),
        rate_bps=np.array([link.rate_bps for link in fabric.links], np.float64),
        nic_server=np.array([number[nic.server] for nic in nics], np.int32),
        nic_number=np.array([nic.number for nic in nics], np.int32),
        nic_address=_bytes_of(fabric.family, [nic.ip for nic in nics]),
        nic_links=_padded([[link_number[link] for link in nic.links] for nic in nics]),
        nic_home=np.array(
            [home_of[tuple(link.b.node for link in nic.links)] for nic in nics], np.int32
        ),
        home_leaves=_padded([[number[name] for name in switches] for switches in homes]),
        link_queues=tuple(link.queues for link in fabric.links),
        details=_details(fabric) if is_detailed else None,
        tenants=_tenants(fabric, nics) if fabric.tenants else None,
    )


def _tenants(fabric: Fabric, nics: Sequence[Nic]) -> NetworkTenants:
    tenants = [fabric.tenant_of(nic) for nic in nics]
    loopbacks = [fabric.node(leaf_of(nic)).loopback or "" for nic in nics]
    return NetworkTenants(
        tuple(tenant.name for tenant in fabric.tenants),
        np.array([NONE if tenant is None else tenant.number for tenant in tenants], np.int32),
        _bytes_of(fabric.family, loopbacks),
    )


def _details(fabric: Fabric) -> NetworkDetails:
    sends = [
        (link.port(at.node), link.far(at.node)) for link in fabric.links for at in (link.a, link.b)
    ]
    gateways = [
        0 if far.address is None else number_of(gateway_of(fabric, far, fabric.family) or far.ip)
        for _, far in sends
    ]
    rank = [number_of(node.router_id) if node.router_id else 0 for node in fabric.nodes]
    return NetworkDetails(
        ports=tuple(port.name for port, _ in sends),
        interfaces=tuple(port.interface for port, _ in sends),
        order=_ranks(gateways),
        rank=_ranks(rank),
        valley_free=fabric.valley_free and not fabric.spec.routing.is_own,
        shortest=fabric.spec.routing.is_own,
        mtu=np.array([link.mtu for link in fabric.links], np.int32),
        delay_ns=np.array(
            [NONE if link.delay_ns is None else link.delay_ns for link in fabric.links], np.int32
        ),
    )


def _ranks(values: list[int]) -> Ints:
    """The place of each value among all, those that are equal in their order."""
    ranks = np.empty(len(values), np.int32)
    ranks[sorted(range(len(values)), key=values.__getitem__)] = np.arange(len(values))
    return ranks


def _padded(rows: list[list[int]]) -> Ints:
    """Rows of any length as an array, padded with NONE."""
    made = np.full((len(rows), max(map(len, rows), default=1)), NONE, np.int32)
    for index, row in enumerate(rows):
        made[index, : len(row)] = row
    return made


def _nic_links(nics: tuple[Attachment, ...], ports: Ints) -> tuple[Ints, Ints]:
    """The links of each NIC, and the number of each among parallel links between its two ends."""
    first = np.cumsum(ports) - ports
    port = np.arange(ports.max(initial=1))
    links = np.where(port < ports[:, None], first[:, None] + port, NONE).astype(np.int32)
    cabled: dict[tuple[str, str], int] = {}
    parallel = []
    for nic in nics:
        for switch in nic.switches:
            pair = (nic.server, switch)
            cabled[pair] = cabled.get(pair, 0) + 1
            parallel.append(cabled[pair])
    return links, np.array(parallel, np.int32)


def _counted_from_one(server: Ints) -> Ints:
    """The number of each NIC in its server (from 1); NICs of a server are consecutive."""
    begins = np.flatnonzero(np.diff(server, prepend=NONE))
    counts = np.diff(begins, append=len(server))
    return (np.arange(len(server)) - np.repeat(begins, counts) + 1).astype(np.int32)


def _nic_homes(homes: list[Home], nics: int) -> tuple[Ints, Bytes]:
    """The home and the address of each NIC."""
    home, address = np.empty(nics, np.int32), np.empty(nics, np.uint32)
    for index, place in enumerate(homes):
        below = np.array(place.nics, np.intp)
        home[below] = index
        address[below] = place.start + place.step * np.arange(len(below))
    return home, address.astype(">u4").view(np.uint8).reshape(-1, 4)


def _bytes_of(family: Family, addresses: Sequence[str]) -> Bytes:
    packed = b"".join(socket.inet_pton(family.number, address) for address in addresses)
    return np.frombuffer(packed, np.uint8).reshape(-1, family.bits // 8)


def _leaves(homes: list[Home], number: dict[str, int]) -> Ints:
    return _padded([[number[name] for name in home.switches] for home in homes])
