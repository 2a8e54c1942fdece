"""From a spec of kind `clos` to a `Fabric`: RTSWs under CTSWs in each zone, zones under ATSWs.

Nodes come in build order (ATSWs, then zone by zone CTSWs, RTSWs, servers) and links likewise, so
the same spec gives the same fabric to the byte.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from labs.plan.addressing import (
    ASN_BASE,
    AddressSpace,
    AddressSpaceFullError,
    block_size,
    dotted,
    prefix_text,
)
from labs.plan.fabric import Fabric, Link, Node, Port, Prefix, Role
from labs.plan.naming import interface_name, node_name, server_name
from labs.spec.model import LabSpec, Numbering, SeedPlan


@dataclass(frozen=True, slots=True)
class _Cable:
    """Two nodes joined by a link that has no addresses yet."""

    lower: str
    upper: str
    parallel: int


def build_clos(spec: LabSpec) -> Fabric:
    """The fabric that `spec` describes. Raises AddressSpaceFullError when it does not fit."""
    numbering = spec.routing.numbering
    if numbering is Numbering.AUTO:
        try:
            return _build(spec, numbered=True)
        except AddressSpaceFullError:
            return _build(spec, numbered=False)
    try:
        return _build(spec, numbered=numbering is Numbering.NUMBERED)
    except AddressSpaceFullError as error:
        if numbering is Numbering.NUMBERED:
            raise AddressSpaceFullError(
                f"{error}; routing.numbering: unnumbered needs none for switch-to-switch links"
            ) from error
        raise


def _build(spec: LabSpec, *, numbered: bool) -> Fabric:
    clos = spec.fabric
    space = AddressSpace()
    zones: list[int | None] = [None] if clos.zones == 1 else list(range(1, clos.zones + 1))

    rack_size = block_size(2 * clos.servers_per_rack * clos.nics_per_server + 1)
    rack_starts = {
        (zone, rack): space.take(rack_size) for zone in zones for rack in range(1, clos.racks + 1)
    }

    nodes: list[Node] = []
    prefixes: list[Prefix] = []
    nic_cables: list[tuple[_Cable, int]] = []
    switch_cables: list[_Cable] = []

    def add_switch(name: str, role: Role, zone: int | None, asn: int, loopback: int) -> None:
        seed = _hash_seed(spec.hashing.seed, name, role)
        nodes.append(Node(name, role, zone or 1, asn, dotted(loopback), seed))

    atsws = [node_name("atsw", index) for index in range(1, clos.atsws + 1)]
    for name in atsws:
        loopback = space.take(1)
        add_switch(name, Role.ATSW, None, ASN_BASE, loopback)
        prefixes.append(Prefix(f"{dotted(loopback)}/32", name))

    rack_asn = ASN_BASE + len(zones)
    for zone_number, zone in enumerate(zones, start=1):
        ctsws = [node_name("ctsw", index, zone) for index in range(1, clos.spines + 1)]
        for name in ctsws:
            loopback = space.take(1)
            add_switch(name, Role.CTSW, zone, ASN_BASE + zone_number, loopback)
            prefixes.append(Prefix(f"{dotted(loopback)}/32", name))
            switch_cables += [
                _Cable(name, atsw, parallel)
                for atsw in atsws
                for parallel in range(1, clos.links_per_atsw + 1)
            ]
        for rack in range(1, clos.racks + 1):
            start = rack_starts[zone, rack]
            rtsw = node_name("rtsw", rack, zone)
            rack_asn += 1
            loopback = start + 2 * clos.servers_per_rack * clos.nics_per_server
            add_switch(rtsw, Role.RTSW, zone, rack_asn, loopback)
            prefixes.append(Prefix(prefix_text(start, rack_size), rtsw))
            switch_cables += [
                _Cable(rtsw, ctsw, parallel)
                for ctsw in ctsws
                for parallel in range(1, clos.links_per_pair + 1)
            ]
            for server in range(1, clos.servers_per_rack + 1):
                name = server_name(rack, server, zone)
                nodes.append(Node(name, Role.SERVER, zone or 1, None, None, 0))
                nics = [_Cable(name, rtsw, nic) for nic in range(1, clos.nics_per_server + 1)]
                nic_cables += [(cable, start + 2 * i) for i, cable in enumerate(nics)]
                start += 2 * len(nics)

    links: list[Link] = []
    rates = spec.links
    for cable, address in nic_cables:
        links.append(_link(cable, address, len(links), rates.server_rate, rates.mtu))
    for cable in switch_cables:
        pair = space.take(2) if numbered else None
        links.append(_link(cable, pair, len(links), rates.rate, rates.mtu))
    return Fabric(spec, tuple(nodes), tuple(links), tuple(prefixes), numbered)


def _link(cable: _Cable, pair: int | None, index: int, rate_bps: int, mtu: int) -> Link:
    """A link over `cable`, its two ends addressed `pair` (lower) and `pair` + 1 (upper).

    MAC addresses are locally administered and count links, so a capture names the cable.
    """
    lower = None if pair is None else f"{dotted(pair)}/31"
    upper = None if pair is None else f"{dotted(pair + 1)}/31"
    mac_tail = ":00:" + index.to_bytes(4, "big").hex(":")
    return Link(
        a=Port(cable.lower, interface_name(cable.upper, cable.parallel), lower, "02" + mac_tail),
        b=Port(cable.upper, interface_name(cable.lower, cable.parallel), upper, "06" + mac_tail),
        rate_bps=rate_bps,
        mtu=mtu,
    )


def _hash_seed(plan: SeedPlan | int, name: str, role: Role) -> int:
    """The switch's fib_multipath_hash_seed: a digest of what must differ, never 0 by plan."""
    if isinstance(plan, int):
        return plan
    subject = {SeedPlan.PER_NODE: name, SeedPlan.PER_TIER: role.value, SeedPlan.SHARED: ""}[plan]
    digest = hashlib.blake2s(b"rocelab hash seed " + subject.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") or 1
