"""The resolved form of a spec: every node, port, link, address, ASN and hash seed of a fabric.

A `Fabric` is frozen and does no I/O. It is the only input of runtimes, renderers, traffic and
simulators: nothing downstream derives a name or an address again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.base.wording import name_hint, shown
from rocelab.fabrics.hops import most_switches
from rocelab.fabrics.numbers import Prefix as Prefix
from rocelab.fabrics.roles import Role, tier_name
from rocelab.labfile.adopted import AdoptedLabSpec
from rocelab.labfile.model import USUAL_CABLE_NS, HashPolicy, LabSpec
from rocelab.labfile.networks import NetworkPlace, NetworkSpec
from rocelab.labfile.observed import ObservedLabSpec
from rocelab.planning.tenant import Tenant

MAIN_TABLE = 254
"""RT_TABLE_MAIN of include/uapi/linux/rtnetlink.h."""
NIC_TABLES = 100
"""The tables and rules of a server's second NIC and of those after it have numbers above this."""
MOST_NICS = 18
"""Of a server in one of several networks: each has a table below 253."""


class Direction(StrEnum):
    """Which way packets cross a link: towards the top of the fabric, or towards the servers."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Node:
    """A switch or a server. Servers have no ASN and no loopback: their NICs are addressed.

    `zone` is the number of its AI zone, unit, segment, plane or pod, None for nodes that join
    these.
    """

    name: str
    role: Role
    zone: int | None
    asn: int | None
    loopback: str | None
    hash_seed: int
    other_loopback: str | None = None
    """In a lab of both families, its loopback's address of the one that RoCE does not use."""
    router_id: str | None = None
    """Its BGP identifier, in the form of an IPv4 address (RFC 4271, section 4.2)."""

    @property
    def is_switch(self) -> bool:
        return self.role.is_switch

    @property
    def is_leaf(self) -> bool:
        """Whether servers are wired to it."""
        return self.role.tier == 1


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link."""

    node: str
    role: Role
    """Of the node."""

    interface: str
    index: int
    """The interface's number in its namespace."""

    address: str | None
    """`a.b.c.d/31`, or `a.b.c.d/32` if a NIC's ports share one, or None if the link is
    unnumbered."""

    mac: str
    other_address: str | None = None
    """In a lab of both families, its address of the one that RoCE does not use."""
    label: str | None = None
    """Its name on the switch, if Linux does not take it for an interface."""

    def __str__(self) -> str:
        return f"{self.node}:{self.name}"

    @property
    def name(self) -> str:
        """Its name as people write it: that on the switch."""
        return self.interface if self.label is None else self.label

    @property
    def is_shared(self) -> bool:
        """Whether another port has the same address, so that the port reaches only the far
        end's."""
        return self.address is not None and self.address.endswith(("/32", "/128"))

    @property
    def ip(self) -> str:
        """The address without its length. Raises ValueError on an unnumbered port."""
        if self.address is None:
            raise ValueError(f"{self} is unnumbered")
        return self.address.partition("/")[0]

    @property
    def link_local(self) -> str:
        """The IPv6 link-local address that the kernel gives a switch's port (RFC 4291 appendix
        A)."""
        octets = bytes.fromhex(self.mac.replace(":", ""))
        identifier = bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]
        return str(IPv6Address(b"\xfe\x80" + bytes(6) + identifier))


@dataclass(frozen=True, slots=True)
class Link:
    """A cable: `a` is the end nearer the servers, `b` the end nearer the top; between switches of
    one tier, `a` is the end that the lab's file names first."""

    a: Port
    b: Port
    rate_bps: int
    mtu: int
    delay_ns: int | None = None
    """What the modelled link adds to a packet's time, one way. None: nothing in labs, and in
    simulations what is usual."""
    queues: str | None = None
    """The name of its ports' queue settings, if they differ from the lab's."""
    among_rates: bool = False
    """Whether links between switches of its two roles have several rates: then links of a rate are
    a tier, so that only what is alike is compared."""

    def __hash__(self) -> int:
        """The hash of its name, which is unique in a fabric; hashing all fields takes long."""
        return hash((self.a.node, self.a.interface))

    @property
    def name(self) -> str:
        """`rtsw1:ctsw2`: the lower node and its interface, unique in a fabric."""
        return str(self.a)

    @property
    def cable_ns(self) -> int:
        """The modelled time for which what it carries is on its cable, as pauses count it."""
        return USUAL_CABLE_NS if self.delay_ns is None else self.delay_ns

    @property
    def tier(self) -> str:
        """The roles that it joins: `rtsw-ctsw`; with its rate where their links have several."""
        rate_bps = self.rate_bps if self.among_rates else None
        return tier_name(self.a.role, self.b.role, rate_bps)

    @property
    def is_between_switches(self) -> bool:
        return self.a.role.is_switch

    @property
    def up(self) -> DirectedLink:
        """What the lower end sends."""
        return DirectedLink(self, self.a.node)

    @property
    def down(self) -> DirectedLink:
        """What the upper end sends."""
        return DirectedLink(self, self.b.node)

    def port(self, node: str) -> Port:
        """This link's port at `node`. Raises ValueError if it has none there."""
        for end in (self.a, self.b):
            if end.node == node:
                return end
        raise ValueError(f"{self.name} does not end at {node}")

    def far(self, node: str) -> Port:
        """The port at the other end from `node`. Raises ValueError if `node` is not an end."""
        return self.b if self.port(node) is self.a else self.a


@dataclass(frozen=True, slots=True)
class DirectedLink:
    """One direction of a link: what `sender`, one of its ends, puts on it."""

    link: Link
    sender: str

    def __str__(self) -> str:
        return f"{self.link.name} towards {self.receiver}"

    @property
    def name(self) -> str:
        """The name of the link, the same in both directions."""
        return self.link.name

    @property
    def is_between_switches(self) -> bool:
        return self.link.is_between_switches

    @property
    def port(self) -> Port:
        """The port that sends."""
        return self.link.port(self.sender)

    @property
    def far(self) -> Port:
        """The port that receives."""
        return self.link.far(self.sender)

    @property
    def receiver(self) -> str:
        """The node that receives."""
        return self.link.a.node if self.sender == self.link.b.node else self.link.b.node

    @property
    def tier(self) -> str:
        """The roles that the link joins: `rtsw-ctsw`, in both directions."""
        return self.link.tier

    @property
    def direction(self) -> Direction:
        return Direction.UP if self.sender == self.link.a.node else Direction.DOWN


@dataclass(frozen=True, slots=True)
class Nic:
    """A server's NIC, `number` from 1: one address, and a link for each of its ports."""

    server: str
    number: int
    ip: str
    links: tuple[Link, ...]
    table: int
    """The routing table of packets from its address, whose default route leaves by its ports: for
    a server's first NIC the main table, for another one of its own."""
    destinations: tuple[str, ...] = ()
    """The prefixes of its network to which packets that are bound to no address leave by it, if
    the server's first NIC is in another network."""


class RouteBasis(StrEnum):
    """How it is known which routes a lab has when it is whole."""

    PLANNED = "planned"
    """By the policy that the kit renders."""
    ASSUMED = "assumed"
    """The user's configuration decides, and the lab was not up yet: shortest paths stand in."""
    OBSERVED = "observed"
    """As its kernels had them when they were first still, or when the lab was adopted."""
    DECLARED = "declared"
    """The same, and they met what the lab's file expects."""

    @property
    def text(self) -> str:
        """The basis in words, for the first line of what is made of it."""
        return {
            RouteBasis.PLANNED: "routes are those of the policy that rocelab renders",
            RouteBasis.ASSUMED: "routes are assumed: shortest paths stand in for those of the "
            "lab's own configuration, which are known once it is up",
            RouteBasis.OBSERVED: "routes are as observed when they were first still",
            RouteBasis.DECLARED: "routes are as observed when they were first still, and meet "
            "routing.expect",
        }[self]


def basis_of(spec: LabSpec) -> RouteBasis:
    """How it is known which routes a lab has when it is whole."""
    if isinstance(spec, AdoptedLabSpec):
        return RouteBasis.OBSERVED
    if isinstance(spec, ObservedLabSpec):
        return RouteBasis(spec.observed.basis)
    return RouteBasis.ASSUMED if spec.routing.is_own else RouteBasis.PLANNED


@dataclass(frozen=True, slots=True)
class Observed:
    """What a lab whose routing the kit does not decide had when it was whole, where a planned one
    has what its policy says."""

    routes: Mapping[str, Mapping[str, tuple[Link, ...]]]
    """Of each switch, the links of the next hops of each prefix."""
    sessions: frozenset[str]
    """The names of the links that carry a BGP session."""
    daemons: Mapping[str, tuple[str, ...]]
    """The routing daemons of each node."""
    peers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The neighbours of each switch whose BGP session was up, over a link or not."""
    basis: RouteBasis = RouteBasis.OBSERVED


@dataclass(frozen=True)
class Fabric:
    """A resolved fabric. Node, link and prefix order is the build order, stable between runs.

    `observed` is None for a lab whose routing rocelab plans, and for one of the user's own routing
    that was not whole yet; a lab that was adopted has no prefixes. What a fabric of several
    networks has of a spec is the first network's: ask `network_of` for that of a node.
    """

    spec: LabSpec
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    prefixes: tuple[Prefix, ...]
    numbered: bool
    observed: Observed | None = None
    tenants: tuple[Tenant, ...] = ()
    parts: tuple[Fabric, ...] = ()
    """The networks of a lab with several, each a fabric."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def networks(self) -> tuple[Fabric, ...]:
        """Each network as a fabric; the fabric itself if the lab has one."""
        return self.parts or (self,)

    @property
    def place(self) -> NetworkPlace | None:
        """Which network of a lab with several it is."""
        return self.spec.place if isinstance(self.spec, NetworkSpec) else None

    @property
    def network_name(self) -> str | None:
        """The name of the network of a lab with several that it is."""
        return None if self.place is None else self.place.network

    def network(self, name: str | None = None) -> Fabric:
        """The network of that name; the first without one. Raises InputError."""
        if name is None:
            return self.networks[0]
        names = [part.network_name or "" for part in self.networks]
        if name not in names:
            hint = name_hint(name, names) if self.parts or self.place else "it has one, unnamed"
            raise InputError(f"lab {self.name} has no network {shown(name)}", hint)
        return self.networks[names.index(name)]

    @cached_property
    def _network_of(self) -> dict[str, Fabric]:
        return {node.name: part for part in reversed(self.networks) for node in part.nodes}

    def network_of(self, node: str) -> Fabric:
        """The network of a switch, and the first one of a server. Raises KeyError."""
        return self._network_of[node]

    @cached_property
    def networks_of(self) -> dict[str, tuple[str, ...]]:
        """The names of each node's networks, in a lab with several."""
        names: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for part in self.parts:
            for node in part.nodes:
                names[node.name].append(part.network_name or "")
        return {name: tuple(of_node) for name, of_node in names.items()}

    @property
    def family(self) -> Family:
        """The family of the addresses that RoCE, probes and predictions use."""
        return self.spec.addresses.families[0]

    @property
    def is_dual(self) -> bool:
        """Whether it has addresses of both families."""
        return len(self.spec.addresses.families) > 1

    @cached_property
    def space(self) -> tuple[str, ...]:
        """Prefixes that hold every prefix that is announced, of all families."""
        if self.parts:
            return tuple(prefix for part in self.parts for prefix in part.space)
        addresses = self.spec.addresses
        pools = [
            ip_network(text)
            for family in addresses.families
            for text in addresses.pools(family).prefixes
        ]
        networks = [ip_network(prefix.prefix) for prefix in self.prefixes]
        outside = [
            network for network in networks if not any(holds(pool, network) for pool in pools)
        ]
        return tuple(dict.fromkeys(map(str, (*pools, *outside))))

    @property
    def is_regular(self) -> bool:
        """Whether it is as its kind has it: switches of a role and a zone are wired and numbered
        alike."""
        spec = self.spec
        return (
            not self.parts
            and spec.fabric.is_regular
            and not spec.overrides.is_rewired
            and not spec.addresses.asns
        )

    @cached_property
    def is_tiered(self) -> bool:
        """Whether each link between switches leads from a tier to one above it."""
        return all(link.a.role.tier < link.b.role.tier for link in self.trunks)

    @property
    def valley_free(self) -> bool:
        """Whether the policy of its switches lets paths go up, then down, only."""
        return self.spec.routing.valley_free and self.is_tiered

    @cached_property
    def most_hops(self) -> int:
        """The switches on the longest path: up to the top tier and down again (no path has an ASN
        twice, and each of the tiers above the lowest has one in each zone), and two more through a
        rack whose leaked routes neighbours accept (`rocelab.faults.leaks`)."""
        if self.parts:
            return max(part.most_hops for part in self.parts)
        if self.valley_free:
            return 2 * max(node.role.tier for node in self.nodes)
        trunks = [(link.a.node, link.b.node) for link in self.trunks]
        return most_switches([node.name for node in self.switches], trunks)

    @property
    def hash_policy(self) -> HashPolicy:
        return self.spec.hashing.policy

    @property
    def is_adopted(self) -> bool:
        """Whether others made its nodes."""
        return isinstance(self.spec, AdoptedLabSpec)

    @property
    def basis(self) -> RouteBasis:
        """How it is known which routes the lab has when it is whole."""
        return basis_of(self.spec) if self.observed is None else self.observed.basis

    @cached_property
    def node_by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    def node(self, name: str) -> Node:
        """The node of that name. Raises KeyError if there is none."""
        return self.node_by_name[name]

    @cached_property
    def links_of(self) -> dict[str, tuple[Link, ...]]:
        """The links of each node, in build order."""
        by_node: dict[str, list[Link]] = {node.name: [] for node in self.nodes}
        for link in self.links:
            by_node[link.a.node].append(link)
            by_node[link.b.node].append(link)
        return {name: tuple(links) for name, links in by_node.items()}

    @cached_property
    def _port_names(self) -> dict[tuple[str, str], str]:
        ports = (port for link in self.links for port in (link.a, link.b))
        return {(port.node, port.interface): str(port) for port in ports}

    def port_name(self, node: str, interface: str) -> str:
        """`leaf1:et-0/0/0`, as on the switch, of an interface as Linux has it."""
        return self._port_names.get((node, interface), f"{node}:{interface}")

    @cached_property
    def link_by_name(self) -> dict[str, Link]:
        return {link.name: link for link in self.links}

    @cached_property
    def tenant_by_link(self) -> dict[str, Tenant]:
        """The tenants of NICs, by the names of the NICs' links."""
        return {link: tenant for tenant in self.tenants for link in tenant.links}

    def tenant_of(self, nic: Nic) -> Tenant | None:
        """The tenant of a NIC; None if it is in none, and routed."""
        return self.tenant_by_link.get(nic.links[0].name)

    @cached_property
    def directed_links(self) -> tuple[DirectedLink, ...]:
        """Both directions of every link, in build order: up at 2i, down at 2i + 1. The sends of
        `rocelab.routes.arrays.network.Network` have the same numbers."""
        return tuple(direction for link in self.links for direction in (link.up, link.down))

    @cached_property
    def switches(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.is_switch)

    @cached_property
    def servers(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if not node.is_switch)

    @cached_property
    def trunks(self) -> tuple[Link, ...]:
        """The links between switches."""
        return tuple(link for link in self.links if link.is_between_switches)

    @cached_property
    def sessions(self) -> tuple[Link, ...]:
        """The links that carry a BGP session: in a planned lab every trunk, single hop; none is
        known of a lab with files of the user's own that is not up."""
        if self.observed is not None:
            return tuple(link for link in self.links if link.name in self.observed.sessions)
        return self.trunks if self.spec.routing.config is None else ()

    @cached_property
    def session_ends(self) -> Counter[str]:
        """The number of BGP sessions of each switch; where the user's configuration decides, of
        those that were up when the lab was whole, over a link or not."""
        if self.observed is not None and self.observed.peers:
            return Counter({name: len(peers) for name, peers in self.observed.peers.items()})
        return Counter(end.node for link in self.sessions for end in (link.a, link.b))

    @cached_property
    def prefixes_of(self) -> dict[str, tuple[Prefix, ...]]:
        """The prefixes each switch originates, in build order."""
        by_node: dict[str, list[Prefix]] = {node.name: [] for node in self.switches}
        for prefix in self.prefixes:
            for origin in prefix.origins:
                by_node[origin].append(prefix)
        return {name: tuple(prefixes) for name, prefixes in by_node.items()}

    def prefixes_holding(self, ip: str) -> tuple[Prefix, ...]:
        """Every prefix that contains an address."""
        address = ip_address(ip)
        return tuple(prefix for prefix in self.prefixes if address in ip_network(prefix.prefix))

    def uplinks(self, node: str) -> tuple[Link, ...]:
        """The links from `node` towards the top, in build order."""
        return tuple(link for link in self.links_of[node] if link.a.node == node)

    def downlinks(self, node: str) -> tuple[Link, ...]:
        """The links from `node` towards the servers, in build order."""
        return tuple(link for link in self.links_of[node] if link.b.node == node)

    @cached_property
    def _nics_of(self) -> dict[str, tuple[Nic, ...]]:
        nics: dict[str, tuple[Nic, ...]] = {}
        if self.parts:
            for server in self.servers:
                of_server = [
                    nic for part in self.parts for nic in part._nics_of.get(server.name, ())
                ]
                nics[server.name] = tuple(
                    replace(nic, number=number) for number, nic in enumerate(of_server, start=1)
                )
            return nics
        place = self.place
        earlier = frozenset(() if place is None else place.servers)
        tables = NIC_TABLES + (0 if place is None else place.number * MOST_NICS)
        for server in self.servers:
            is_first = server.name not in earlier
            by_ip: dict[str, list[Link]] = {}
            for link in self.uplinks(server.name):
                if link.a.address is not None:  # an adopted lab may have ports without
                    by_ip.setdefault(link.a.ip, []).append(link)
            nics[server.name] = tuple(
                Nic(
                    server.name,
                    number,
                    ip,
                    tuple(links),
                    MAIN_TABLE if is_first and number == 1 else tables + number,
                    () if is_first or number > 1 else self.space,
                )
                for number, (ip, links) in enumerate(by_ip.items(), start=1)
            )
        return nics

    def nics(self, server: str) -> tuple[Nic, ...]:
        """A server's NICs, first NIC first, those of the first network before others. Raises
        KeyError for any other node."""
        return self._nics_of[server]


def holds(pool: IPv4Network | IPv6Network, network: IPv4Network | IPv6Network) -> bool:
    """Whether a prefix lies in another."""
    if isinstance(pool, IPv4Network) and isinstance(network, IPv4Network):
        return network.subnet_of(pool)
    return (
        isinstance(pool, IPv6Network)
        and isinstance(network, IPv6Network)
        and network.subnet_of(pool)
    )
