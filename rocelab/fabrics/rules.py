"""The rules that every layout keeps, which plug-ins may break.

Addresses, routes and simulations rely on them. The kinds that ship keep them by their tests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rocelab.fabrics.layout import MOST_PORTS, Layout, Site, interface_name
from rocelab.fabrics.roles import Role

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def broken_rule(layout: Layout, roles: Sequence[Role]) -> str | None:
    """The first rule that a layout of a kind with these roles of switches breaks, if any."""
    return next(_broken(layout, roles), None)


def _broken(layout: Layout, roles: Sequence[Role]) -> Iterator[str]:
    sites = {site.name: site for site in layout.sites}
    yield from _site_problems(layout, roles)
    cabled: Counter[tuple[str, str]] = Counter()
    for cable in layout.cables:
        pair = (cable.lower, cable.upper)
        cabled[pair] += 1
        if cable.parallel != cabled[pair]:
            yield f"the cables from {cable.lower} to {cable.upper} are not numbered 1, 2 and so on"
        lower, upper = sites.get(cable.lower), sites.get(cable.upper)
        if lower is None or upper is None or not 0 < lower.role.tier < upper.role.tier:
            yield f"a cable leads from {cable.lower} to {cable.upper}, not to a switch above it"
        elif lower.asn == upper.asn:
            yield f"{lower.name} and its neighbour {upper.name} have one ASN"
        yield from _name_too_long(cable.lower, cable.parallel)
        yield from _name_too_long(cable.upper, cable.parallel)
    yield from _nic_problems(layout, sites)
    yield from _zone_problems(layout, sites)
    yield from _role_problems(layout)


def _site_problems(layout: Layout, roles: Sequence[Role]) -> Iterator[str]:
    for name, count in Counter(site.name for site in layout.sites).items():
        if count > 1:
            yield f"{count} nodes have the name {name}"
        if _NAME.fullmatch(name) is None:
            yield f"a node has the name {name!r}"
    for site in layout.sites:
        if site.role is not Role.SERVER and site.role not in roles:
            yield f"{site.name} has the role {site.role}, which the kind has not"
        if (site.asn is None) is site.role.is_switch:
            yield f"{site.name} has {'no' if site.asn is None else 'an'} ASN"
    leaves = Counter(site.asn for site in layout.sites if site.role.tier == 1)
    if max(leaves.values(), default=1) > 1:
        yield f"{max(leaves.values())} switches of the lowest tier have one ASN"


def _nic_problems(layout: Layout, sites: dict[str, Site]) -> Iterator[str]:
    home_of: dict[str, tuple[str, ...]] = {}
    for nic in layout.attachments:
        server = sites.get(nic.server)
        if server is None or server.role is not Role.SERVER:
            yield f"a NIC is in {nic.server}, which is no server"
        if not 1 <= len(nic.switches) == len(set(nic.switches)) <= MOST_PORTS:
            places = ", ".join(nic.switches) or "no switch"
            yield f"a NIC of {nic.server} is on {places}, not on 1 to {MOST_PORTS} switches"
        for name in nic.switches:
            switch = sites.get(name)
            if switch is None or switch.role.tier != 1:
                yield f"a NIC of {nic.server} is on {name}, which is no switch of the lowest tier"
            if home_of.setdefault(name, nic.switches) != nic.switches:
                yield f"{name} has NICs that are on other switches too, and not all on the same"
            yield from _name_too_long(name, 1)
    owners = [nic.server for nic in layout.attachments]
    runs = [name for name, before in zip(owners, [None, *owners], strict=False) if name != before]
    if len(runs) > len(set(runs)):
        yield "the NICs of a server do not follow each other"
    for site in layout.sites:
        if site.role is Role.SERVER and site.name not in set(runs):
            yield f"{site.name} has no NIC"


def _zone_problems(layout: Layout, sites: dict[str, Site]) -> Iterator[str]:
    """Pictures show the nodes of a tier by zone."""
    zones_of: dict[Role, set[int | None]] = {}
    for site in layout.sites:
        zones_of.setdefault(site.role, set()).add(site.zone)
    for role, zones in zones_of.items():
        if None in zones and len(zones) > 1:
            yield f"some nodes of the role {role} have a zone, and others have none"
    for nic in layout.attachments:
        if sites[nic.server].zone not in {sites[name].zone for name in nic.switches}:
            yield f"{nic.server} is not in the zone of {nic.switches[0]}, which its NIC is on"


def _name_too_long(neighbour: str, parallel: int) -> Iterator[str]:
    try:
        interface_name(neighbour, parallel)
    except ValueError as error:
        yield str(error)


def _role_problems(layout: Layout) -> Iterator[str]:
    """Tables of ECMP widths show one switch of a role and zone for all."""
    role_of = {site.name: site.role for site in layout.sites}
    degrees: dict[str, Counter[Role]] = {
        site.name: Counter() for site in layout.sites if site.role.is_switch
    }
    for cable in layout.cables:
        if cable.lower in degrees and cable.upper in degrees:
            degrees[cable.lower][role_of[cable.upper]] += 1
            degrees[cable.upper][role_of[cable.lower]] += 1
    first: dict[tuple[Role, int | None], Site] = {}
    for site in layout.sites:
        like = first.setdefault((site.role, site.zone), site)
        if site.role.is_switch and degrees[site.name] != degrees[like.name]:
            yield f"{like.name} and {site.name} are of one role and zone, and wired unlike"
