"""Builds a `Fabric` from a spec of any kind: addresses, MACs, hash seeds and prefixes for a
`Layout`.

Everything is assigned in build order, so the same spec gives the same fabric to the byte.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping

from rocelab.base.errors import InputError
from rocelab.fabrics.addressing import (
    ASN_BASE,
    AddressSpace,
    AddressSpaceFullError,
    dotted,
    prefix_text,
)
from rocelab.fabrics.door import layout_of
from rocelab.fabrics.homes import homes_of
from rocelab.fabrics.layout import Attachment, Cable, Layout, Site, interface_name
from rocelab.fabrics.roles import Role
from rocelab.labfile.adopted import AdoptedLabSpec
from rocelab.labfile.model import LabSpec, Numbering, SeedPlan
from rocelab.planning import adopted
from rocelab.planning.fabric import Fabric, Link, Node, Port, Prefix


def build_fabric(spec: LabSpec) -> Fabric:
    """The fabric that `spec` describes. Raises AddressSpaceFullError if it does not fit."""
    if isinstance(spec, AdoptedLabSpec):
        return adopted.fabric(spec, spec.fabric)
    layout = layout_of(spec.fabric)
    numbering = spec.routing.numbering
    if numbering is Numbering.AUTO:
        try:
            return _build(spec, layout, numbered=True)
        except AddressSpaceFullError:
            return _build(spec, layout, numbered=False)
    try:
        return _build(spec, layout, numbered=numbering is Numbering.NUMBERED)
    except AddressSpaceFullError as error:
        if numbering is Numbering.NUMBERED:
            raise AddressSpaceFullError(
                f"{error}; routing.numbering: unnumbered needs none for switch-to-switch links"
            ) from error
        raise


def _build(spec: LabSpec, layout: Layout, *, numbered: bool) -> Fabric:
    space = AddressSpace()
    start_of: dict[int, int] = {}
    loopback_of: dict[str, int] = {}
    prefixes_of: dict[str, list[Prefix]] = {}
    for home in homes_of(layout, space):
        switches = home.switches
        origins = prefixes_of.setdefault(switches[0], [])
        origins.append(Prefix(prefix_text(home.start, home.size), switches))
        starts = [home.start + index * home.step for index in range(len(home.nics))]
        start_of.update(zip(home.nics, starts, strict=True))
        if home.is_dual:
            origins += [Prefix(f"{dotted(start)}/32", switches, per_port=True) for start in starts]
        else:
            loopback_of[switches[0]] = home.start + home.step * len(home.nics)

    nodes: list[Node] = []
    prefixes: list[Prefix] = []
    for site in layout.sites:
        loopback = None
        if site.role is not Role.SERVER:
            if site.name not in loopback_of:
                loopback_of[site.name] = space.take(1)
                prefixes.append(Prefix(f"{dotted(loopback_of[site.name])}/32", (site.name,)))
            prefixes += prefixes_of.get(site.name, ())
            loopback = dotted(loopback_of[site.name])
        seed = hash_seed(spec.hashing.seed, site)
        asn = site.asn
        if asn is not None and not spec.routing.valley_free:
            asn = ASN_BASE + len(nodes)  # a path with a valley crosses a tier twice
        nodes.append(Node(site.name, site.role, site.zone, asn, loopback, seed))

    # Before any link is made: a fabric that does not fit is known early.
    pairs = [_point_to_point(space.take(2)) if numbered else (None, None) for _ in layout.cables]
    role_of = {site.name: site.role for site in layout.sites}
    links: list[Link] = []
    cabled: Counter[tuple[str, str]] = Counter()
    ports = dict.fromkeys(role_of, 0)
    mtu = spec.links.mtu
    for number, attachment in enumerate(layout.attachments):
        addresses = _nic_addresses(attachment, start_of[number], loopback_of)
        for switch, ends in zip(attachment.switches, addresses, strict=True):
            cabled[attachment.server, switch] += 1
            cable = Cable(attachment.server, switch, cabled[attachment.server, switch])
            links.append(
                _link(cable, role_of, ends, len(links), ports, spec.links.server_rate, mtu)
            )
    for cable, pair in zip(layout.cables, pairs, strict=True):
        links.append(_link(cable, role_of, pair, len(links), ports, spec.links.rate, mtu))
    return Fabric(spec, tuple(nodes), tuple(links), tuple(prefixes), numbered)


def _nic_addresses(
    attachment: Attachment, start: int, loopback_of: Mapping[str, int]
) -> list[tuple[str, str]]:
    """The addresses of a NIC's links. A single port has a /31; two ports share an address, and
    their switches use their loopback's."""
    if len(attachment.switches) == 1:
        return [_point_to_point(start)]
    return [
        (f"{dotted(start)}/32", f"{dotted(loopback_of[switch])}/32")
        for switch in attachment.switches
    ]


def _point_to_point(start: int) -> tuple[str, str]:
    """The two addresses of a /31, the lower end's first (RFC 3021)."""
    return f"{dotted(start)}/31", f"{dotted(start + 1)}/31"


def _link(
    cable: Cable,
    role_of: Mapping[str, Role],
    ends: tuple[str | None, str | None],
    number: int,
    ports: dict[str, int],
    rate_bps: int,
    mtu: int,
) -> Link:
    """A link over `cable` with the addresses of its lower and upper end. `ports` counts the ports
    of each node so far, and then has two more.

    MAC addresses are locally administered and count links, so a capture identifies the cable.
    Interface indexes are even at lower ends and odd at upper ends, never the same at both: with
    equal ones the kernel takes a veth's loss of carrier for not urgent and may report it up to 1 s
    late (net/core/link_watch.c, linkwatch_urgent_event, which ignores namespaces).
    """
    lower, upper, parallel = cable.lower, cable.upper, cable.parallel
    mac_tail = ":00:" + number.to_bytes(4, "big").hex(":")
    ports[lower] += 1
    ports[upper] += 1
    to_upper, to_lower = interface_name(upper, parallel), interface_name(lower, parallel)
    return Link(
        Port(lower, role_of[lower], to_upper, 2 * ports[lower], ends[0], "02" + mac_tail),
        Port(upper, role_of[upper], to_lower, 2 * ports[upper] + 1, ends[1], "06" + mac_tail),
        rate_bps,
        mtu,
    )


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
        raise InputError(
            f"lab {spec.name} does not fit: {error}",
            hint="fewer switches or NICs, or routing.numbering: unnumbered",
        ) from None
