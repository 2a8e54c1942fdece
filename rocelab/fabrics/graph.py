"""A fabric as a graph: nodes by name, and links between any two of their ports.

`NodeSpec` and `LinkSpec` are what a lab's file says of each, in a fabric of kind `graph` and in
`overrides`; `wired` turns links into the NICs and cables of a layout.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from ipaddress import (
    IPv4Network,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from rocelab.base.family import Family
from rocelab.base.models import SHORT_FORM, SpecModel
from rocelab.base.units import DurationNs, RateBps
from rocelab.base.wording import KeyPath, RefusedError, shown
from rocelab.fabrics.asns import RESERVED
from rocelab.fabrics.layout import (
    MOST_PORTS,
    Attachment,
    Cable,
    CableSettings,
    Layout,
    Site,
    ports_of,
)
from rocelab.fabrics.roles import SHIPPED, TOP_TIER, Role

MIN_RATE = 10**6
MAX_RATE = 10 * 10**12
SECOND_NS = 10**9
MAX_ASN = 2**32 - 2
_UNUSABLE = {
    ip_network("0.0.0.0/8"): "reserved",
    ip_network("127.0.0.0/8"): "loopback",
    ip_network("169.254.0.0/16"): "link-local",
    ip_network("224.0.0.0/3"): "multicast or reserved",
    ip_network("::/127"): "reserved",
    ip_network("fe80::/10"): "link-local",
    ip_network("ff00::/8"): "multicast",
}
_NODE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([._-][A-Za-z0-9]+)*")
_PORT_NAME = re.compile(r"(?=.*[A-Za-z0-9])[!-~]+")
MAX_NODE_NAME = 40
MAX_PORT_NAME = 40
_ROLE_NAME = re.compile(r"[a-z]{2,10}")


def _node_name(name: object) -> object:
    """Raises RefusedError."""
    if not isinstance(name, str) or _NODE_NAME.fullmatch(name) is None:
        raise RefusedError(
            f"expected a node's name such as leaf1 or LEAF-01.pod2, got {shown(name)}",
            "letters, digits and single . _ - between them, starting with a letter",
        )
    if len(name) > MAX_NODE_NAME:
        raise RefusedError(
            f"expected a node's name of at most {MAX_NODE_NAME} characters, got {len(name)}",
            "it becomes part of the names of namespaces and files",
        )
    return name


def check_name(name: str, path: KeyPath) -> None:
    """Raises RefusedError, which points at `path`, for a name that no node can have."""
    try:
        _node_name(name)
    except RefusedError as error:
        raise RefusedError(error.message, error.hint, keys=(path,)) from None


def _role_name(name: str) -> str:
    if _ROLE_NAME.fullmatch(name) is None:
        raise RefusedError(
            f"expected a role such as leaf, spine or server, got {shown(name)}",
            "a role is 2 to 10 lower-case letters",
        )
    return name


def check_asn(number: int) -> int:
    """An ASN that a router may have. Raises RefusedError."""
    if number in RESERVED:
        raise RefusedError(f"AS number {number} is reserved ({RESERVED[number]})", "take another")
    return number


def check_unicast(text: str) -> str:
    """An address or a prefix of which interfaces can have addresses. Raises RefusedError."""
    network = ip_interface(text).network
    unusable = next((use for other, use in _UNUSABLE.items() if overlap(network, other)), None)
    if unusable is not None:
        raise RefusedError(f"{text} has {unusable} addresses", "take others, such as 10.0.0.0/8")
    return text


def overlap(one: IPv4Network | IPv6Network, other: IPv4Network | IPv6Network) -> bool:
    """Whether two prefixes have an address in common."""
    first = max(one.network_address.packed, other.network_address.packed)
    last = min(one.broadcast_address.packed, other.broadcast_address.packed)
    return one.version == other.version and first <= last


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise RefusedError(
            f"expected an address such as 10.0.0.1 or 2001:db8::1, got {shown(text)}"
        ) from None


def _with_length(text: str) -> str:
    try:
        address = ip_interface(text)
    except ValueError:
        address = None
    if address is None or "/" not in text:
        raise RefusedError(
            f"expected an address with its length such as 10.1.0.0/31, got {shown(text)}"
        )
    return str(address)


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def one_a_family(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """At most one address or prefix of each family. Raises RefusedError."""
    counts = Counter(map(Family.of, addresses))
    for family, count in counts.items():
        if count > 1:
            raise RefusedError(
                f"expected at most one of {family}, got {count}", "one of each family may be given"
            )
    return addresses


NodeName = Annotated[str, BeforeValidator(_node_name)]
RoleName = Annotated[str, AfterValidator(_role_name)]
Asn = Annotated[int, Field(ge=1, le=MAX_ASN), AfterValidator(check_asn)]
Rate = Annotated[RateBps, Field(ge=MIN_RATE, le=MAX_RATE)]
Address = Annotated[str, AfterValidator(_address)]
Interface = Annotated[str, AfterValidator(_with_length), AfterValidator(check_unicast)]


class NodeSpec(SpecModel):
    """A node: what it is, and the numbers that it has of its own."""

    role: Annotated[
        RoleName | None, Field(description="leaf, spine, server or a role of your own")
    ] = None
    zone: Annotated[int | None, Field(ge=1, le=999, description="its zone, pod or plane")] = None
    asn: Annotated[
        Asn | None,
        Field(description="its AS number, of two or four bytes, undotted: 65546, not 1.10"),
    ] = None
    loopback: Annotated[
        tuple[Annotated[Address, AfterValidator(check_unicast)], ...],
        BeforeValidator(_several, json_schema_input_type=str | tuple[str, ...]),
        AfterValidator(one_a_family),
        Field(strict=False, description="its loopback's address, or one of each family"),
    ] = ()
    router_id: Annotated[
        Address | None, Field(description="its BGP identifier; its IPv4 loopback if left out")
    ] = None

    @model_validator(mode="after")
    def _router_id_is_ipv4(self) -> Self:
        if self.router_id is not None and Family.of(self.router_id) is Family.IPV6:
            raise RefusedError(
                f"expected a router ID such as 10.0.0.1, got {self.router_id}",
                "a BGP identifier has four bytes, in an IPv6 fabric too (RFC 4271)",
                keys=("router_id",),
            )
        return self


class End(SpecModel):
    """An end of a link, `leaf1:Ethernet0` in files: a node, and the name of its port."""

    model_config = ConfigDict(json_schema_extra={SHORT_FORM: {"type": "string"}})

    node: NodeName
    port: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        node, _, port = value.partition(":")
        if port and (len(port) > MAX_PORT_NAME or _PORT_NAME.fullmatch(port) is None):
            raise RefusedError(
                f"expected a port such as Ethernet0, swp1 or eth1/1, got {shown(port)}",
                f"up to {MAX_PORT_NAME} printable characters without blanks, one a letter or digit",
            )
        return {"node": node, "port": port or None}

    def __str__(self) -> str:
        return self.node if self.port is None else f"{self.node}:{self.port}"


class WiringSpec(SpecModel):
    """What a link has of its own."""

    rate: Annotated[Rate | None, Field(description="its rate")] = None
    mtu: Annotated[int | None, Field(ge=1280, le=65535, description="its IP MTU in bytes")] = None
    delay: Annotated[
        Annotated[DurationNs, Field(ge=0, le=SECOND_NS)] | None,
        Field(description="its delay, one way"),
    ] = None
    queues: Annotated[
        str | None, Field(max_length=40, description="the queue settings of its two ports")
    ] = None


class LinkSpec(WiringSpec):
    """A link between two ports. Ends without a port are named after the neighbour."""

    model_config = ConfigDict(
        json_schema_extra={
            SHORT_FORM: {"type": "string", "examples": ["leaf1:swp1 -- spine1:swp1"]}
        }
    )

    a: Annotated[End, Field(description="one end, such as leaf1:Ethernet0")]
    b: Annotated[End, Field(description="the other end")]
    nic: Annotated[
        int | None,
        Field(
            ge=1,
            le=64,
            description="the server's NIC of which this is a port, if it has several, which "
            "share one address",
        ),
    ] = None
    addresses: Annotated[
        tuple[Annotated[tuple[Interface, Interface], Field(strict=False)], ...],
        Field(
            strict=False,
            max_length=2,
            description="the addresses of a and of b with their lengths, a pair of each family",
        ),
    ] = ()

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        """`leaf1:swp1 -- spine1:swp1`, and one pair of addresses without a list around it."""
        if isinstance(value, str):
            a, dashes, b = value.partition("--")
            if not dashes:
                raise RefusedError(
                    f"expected a link such as leaf1:swp1 -- spine1:swp1, got {shown(value)}"
                )
            return {"a": a.strip(), "b": b.strip()}
        if isinstance(value, Mapping):
            pairs = value.get("addresses")
            if isinstance(pairs, list) and pairs and all(isinstance(one, str) for one in pairs):
                return {**value, "addresses": [pairs]}
        return value

    @model_validator(mode="after")
    def _addresses_reach_each_other(self) -> Self:
        one_a_family(tuple(first for first, _ in self.addresses))
        for first, second in self.addresses:
            a, b = ip_interface(first), ip_interface(second)
            if a.network != b.network or a.ip == b.ip:
                raise RefusedError(
                    f"expected two addresses of one network, got {first} and {second}",
                    "for example 10.1.0.0/31 and 10.1.0.1/31",
                    keys=("addresses",),
                )
        return self

    def __str__(self) -> str:
        return f"{self.a} -- {self.b}"

    def wiring(self, *, turned: bool) -> CableSettings:
        """Its wiring. turned: whether `b` is the lower end."""
        ports = (self.a.port, self.b.port)
        return CableSettings(
            ports[::-1] if turned else ports,
            self.rate,
            self.mtu,
            self.delay,
            self.queues,
            tuple((b, a) if turned else (a, b) for a, b in self.addresses),
        )


@cache
def role_named(name: str, tier: int | None = None) -> Role:
    """The role of a name: one that ships, with its tier unless another is given, or one of a lab's
    own, of tier 1 unless given."""
    known = next((role for role in SHIPPED if role.name == name), None)
    if known is not None and tier in (None, known.tier):
        return known
    title = known.title if known is not None else name.capitalize()
    members = known.members if known is not None else f"{name} switches"
    return Role(name, min(tier or 1, TOP_TIER), title, members)


def wired(
    sites: Mapping[str, Site], links: Sequence[LinkSpec], path: KeyPath
) -> tuple[list[Attachment], list[Cable]]:
    """The NICs, server by server, and the cables between switches of links, in their order.

    path: the key of the links, for messages. Raises RefusedError for the first link that is wrong.
    """
    ports: set[tuple[str, str]] = set()
    parallel: Counter[tuple[str, str]] = Counter()
    nics: dict[str, dict[object, list[tuple[str, CableSettings]]]] = {}
    cables: list[Cable] = []
    for index, link in enumerate(links):
        a, b = sites[link.a.node], sites[link.b.node]
        _check(link, a, b, ports, (*path, index))
        turned = _is_upper(a, b)
        lower, upper = (b, a) if turned else (a, b)
        wiring = link.wiring(turned=turned)
        if not lower.role.is_switch:
            number: object = link.nic or (index,)
            nics.setdefault(lower.name, {}).setdefault(number, []).append((upper.name, wiring))
            continue
        parallel[lower.name, upper.name] += 1
        cables.append(Cable(lower.name, upper.name, parallel[lower.name, upper.name], wiring))
    attachments = []
    for server, by_number in nics.items():
        for number, ends in by_number.items():
            switches = tuple(name for name, _ in ends)
            if len(switches) > MOST_PORTS or len(set(switches)) < len(switches):
                raise RefusedError(
                    f"NIC {number} of {server} has {len(switches)} ports on "
                    f"{', '.join(switches)}; the ports of a NIC are on as many switches, "
                    f"{MOST_PORTS} at most",
                    "leave nic out, or number the NICs",
                    keys=(path,),
                )
            if len(switches) > 1 and any(wiring.addresses for _, wiring in ends):
                raise RefusedError(
                    f"NIC {number} of {server} has {len(switches)} ports and addresses of its "
                    "links",
                    "its ports share one address, which comes from addresses.servers",
                    keys=(path,),
                )
            attachments.append(Attachment(server, switches, tuple(wiring for _, wiring in ends)))
    return attachments, cables


def _is_upper(a: Site, b: Site) -> bool:
    """Whether `a` is the upper end: servers are lower, then the lower tier, then as written."""
    return a.role.tier > b.role.tier


def _check(link: LinkSpec, a: Site, b: Site, ports: set[tuple[str, str]], path: KeyPath) -> None:
    if a.name == b.name:
        raise RefusedError(
            f"{link} joins {a.name} to itself", "a link joins two nodes: remove it", keys=(path,)
        )
    if not a.role.is_switch and not b.role.is_switch:
        raise RefusedError(
            f"{link} joins two servers", "a server's NIC leads to a switch", keys=(path,)
        )
    if link.nic is not None and a.role.is_switch and b.role.is_switch:
        raise RefusedError(f"{link} has a nic and joins two switches", keys=((*path, "nic"),))
    for end in (link.a, link.b):
        if end.port is None:
            continue
        if (end.node, end.port) in ports:
            raise RefusedError(
                f"port {end} is on two links",
                "list a cable once, and give each a port of its own",
                keys=(path,),
            )
        ports.add((end.node, end.port))


def check_ports(layout: Layout, path: KeyPath) -> None:
    """Raises RefusedError, which points at `path`, if two ports of a node have one name: a port
    without one has its neighbour's."""
    for (node, port), count in Counter(ports_of(layout)).items():
        if count > 1:
            raise RefusedError(
                f"{node} has {count} ports {port}: one without a name is named after its neighbour",
                "give the ports of its links names that differ",
                keys=(path,),
            )


def tiered(sites: Mapping[str, Site], links: Iterable[LinkSpec]) -> dict[str, Site]:
    """The sites with tiers: as their roles have them if each link joins two different ones, and
    servers are on the lowest only; else all switches are of one tier."""
    pairs = [(sites[link.a.node].role.tier, sites[link.b.node].role.tier) for link in links]
    if all(low != high and (min(low, high) > 0 or max(low, high) == 1) for low, high in pairs):
        return dict(sites)
    return {
        name: replace(site, role=role_named(site.role.name, 1)) if site.role.is_switch else site
        for name, site in sites.items()
    }


def site_of(name: str, node: NodeSpec, role: Role) -> Site:
    """The site of a node with its own numbers."""
    is_given = node.asn is not None
    return Site(name, role, node.zone, node.asn, is_given, node.loopback, node.router_id)
