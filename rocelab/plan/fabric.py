"""The resolved form of a spec: every node, port, link, address, ASN and hash seed of a fabric.

A `Fabric` is frozen and does no I/O. It is the only input of runtimes, renderers, traffic and
simulators: nothing downstream derives a name or an address again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network

from rocelab.spec.model import HashPolicy, LabSpec


class Role(StrEnum):
    """The role of a node in the fabric."""

    SERVER = "server"
    RTSW = "rtsw"
    LEAF = "leaf"
    TOR = "tor"
    EDGE = "edge"
    CTSW = "ctsw"
    SPINE = "spine"
    AGG = "agg"
    ATSW = "atsw"
    CORE = "core"

    @property
    def tier(self) -> int:
        """0 for servers, 1 for the switches that they are wired to, up to 3 at the top."""
        return _TIERS[self]


_TIERS = {
    Role.SERVER: 0,
    **dict.fromkeys((Role.RTSW, Role.LEAF, Role.TOR, Role.EDGE), 1),
    **dict.fromkeys((Role.CTSW, Role.SPINE, Role.AGG), 2),
    **dict.fromkeys((Role.ATSW, Role.CORE), 3),
}


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

    @property
    def is_switch(self) -> bool:
        return self.role is not Role.SERVER

    @property
    def is_leaf(self) -> bool:
        """Whether servers are wired to it."""
        return self.role.tier == 1


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link.

    `address` is `a.b.c.d/31`, or `a.b.c.d/32` if a NIC's ports share one, or None if the link is
    unnumbered.
    """

    node: str
    interface: str
    address: str | None
    mac: str

    @property
    def is_shared(self) -> bool:
        """Whether another port has the same address, so that the port reaches only the far
        end's."""
        return self.address is not None and self.address.endswith("/32")

    @property
    def ip(self) -> str:
        """The address without its length. Raises ValueError on an unnumbered port."""
        if self.address is None:
            raise ValueError(f"{self.node}:{self.interface} is unnumbered")
        return self.address.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Link:
    """A cable: `a` is the end nearer the servers, `b` the end nearer the top."""

    a: Port
    b: Port
    rate_bps: int
    mtu: int

    @property
    def name(self) -> str:
        """`rtsw1:ctsw2`: the lower node and its interface, unique in a fabric."""
        return f"{self.a.node}:{self.a.interface}"

    def port(self, node: str) -> Port:
        """This link's port at `node`. Raises ValueError if it has none there."""
        for end in (self.a, self.b):
            if end.node == node:
                return end
        raise ValueError(f"{self.name} does not end at {node}")

    def far(self, node: str) -> Port:
        """The port at the other end from `node`. Raises ValueError if `node` is not an end."""
        return self.b if self.port(node) is self.a else self.a


class Direction(StrEnum):
    """Which way a link's packets go: towards the top of the fabric, or towards the servers."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class DirectedLink:
    """A link in one direction: what `sender` puts on it. `tier` is `rtsw-ctsw` and the like, the
    roles of the link's lower and upper end."""

    link: Link
    sender: str
    tier: str

    @property
    def receiver(self) -> str:
        return self.link.far(self.sender).node

    @property
    def direction(self) -> Direction:
        return Direction.UP if self.sender == self.lower else Direction.DOWN

    @property
    def lower(self) -> str:
        """The node nearer the servers: its links of a tier are the parallel choices, both ways."""
        return self.link.a.node

    @property
    def key(self) -> tuple[str, str]:
        """The names of link and sender, by which counters are kept."""
        return self.link.name, self.sender

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        """`rtsw1:ctsw2 to ctsw2`"""
        return f"{self.link.name} to {self.receiver}"


@dataclass(frozen=True, slots=True)
class Nic:
    """A server's NIC, `number` from 1: one address, and one link or, with two ports, two."""

    server: str
    number: int
    ip: str
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """An IPv4 prefix and the switches that announce it.

    `per_port` marks the prefix of a two-port NIC: each switch announces it while it has carrier to
    the NIC.
    """

    prefix: str
    origins: tuple[str, ...]
    per_port: bool = False


@dataclass(frozen=True)
class Fabric:
    """A resolved fabric. Node, link and prefix order is the build order, stable between runs."""

    spec: LabSpec
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    prefixes: tuple[Prefix, ...]
    numbered: bool

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def hash_policy(self) -> HashPolicy:
        return self.spec.hashing.policy

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
    def link_by_name(self) -> dict[str, Link]:
        return {link.name: link for link in self.links}

    @cached_property
    def switches(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.is_switch)

    @cached_property
    def servers(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if not node.is_switch)

    @cached_property
    def directed_links(self) -> tuple[DirectedLink, ...]:
        """Every link in both directions, in build order: link i up at 2i, and down at 2i + 1."""
        return tuple(
            DirectedLink(link, end.node, f"{lower.role.value}-{upper.role.value}")
            for link in self.links
            for lower, upper in [(self.node(link.a.node), self.node(link.b.node))]
            for end in (link.a, link.b)
        )

    @cached_property
    def _directed_by_key(self) -> dict[tuple[str, str], DirectedLink]:
        return {directed.key: directed for directed in self.directed_links}

    def directed(self, link: str, sender: str) -> DirectedLink:
        """A link of that name as `sender` uses it. Raises KeyError if there is none."""
        return self._directed_by_key[link, sender]

    def towards(self, link: Link, receiver: str) -> DirectedLink:
        """A link of this fabric in the direction of one of its ends."""
        return self.directed(link.name, link.far(receiver).node)

    def carries_session(self, directed: DirectedLink) -> bool:
        """Whether both of its ends are switches."""
        return self.node(directed.lower).is_switch

    @cached_property
    def sessions(self) -> tuple[Link, ...]:
        """The links that carry an eBGP session: every switch-to-switch link, single hop."""
        return tuple(link for link in self.links if self.node(link.a.node).is_switch)

    @cached_property
    def prefixes_of(self) -> dict[str, tuple[Prefix, ...]]:
        """The prefixes each switch originates, in build order."""
        found: dict[str, list[Prefix]] = {node.name: [] for node in self.switches}
        for prefix in self.prefixes:
            for origin in prefix.origins:
                found[origin].append(prefix)
        return {name: tuple(prefixes) for name, prefixes in found.items()}

    def prefixes_holding(self, ip: str) -> tuple[Prefix, ...]:
        """Every prefix that contains an address."""
        address = IPv4Address(ip)
        return tuple(each for each in self.prefixes if address in IPv4Network(each.prefix))

    def uplinks(self, node: str) -> tuple[Link, ...]:
        """The links from `node` towards the top, in build order."""
        return tuple(link for link in self.links_of[node] if link.a.node == node)

    def downlinks(self, node: str) -> tuple[Link, ...]:
        """The links from `node` towards the servers, in build order."""
        return tuple(link for link in self.links_of[node] if link.b.node == node)

    @cached_property
    def _nics_of(self) -> dict[str, tuple[Nic, ...]]:
        found: dict[str, tuple[Nic, ...]] = {}
        for server in self.servers:
            by_ip: dict[str, list[Link]] = {}
            for link in self.uplinks(server.name):
                by_ip.setdefault(link.a.ip, []).append(link)
            found[server.name] = tuple(
                Nic(server.name, number, ip, tuple(links))
                for number, (ip, links) in enumerate(by_ip.items(), start=1)
            )
        return found

    def nics(self, server: str) -> tuple[Nic, ...]:
        """A server's NICs, first NIC first. Raises KeyError for any other node."""
        return self._nics_of[server]
