"""What a spec means: every node, port, link, address, ASN and hash seed of a fabric, resolved.

A `Fabric` is frozen, holds no I/O and is the only thing that runtimes, renderers, traffic and
simulators read: nothing downstream derives a name or an address again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from labs.spec.model import HashPolicy, LabSpec


class Role(StrEnum):
    """What a node is in the fabric."""

    SERVER = "server"
    RTSW = "rtsw"
    CTSW = "ctsw"
    ATSW = "atsw"

    @property
    def tier(self) -> int:
        """0 for servers, 1 for RTSWs, 2 for CTSWs, 3 for ATSWs: higher is nearer the top."""
        return list(Role).index(self)


@dataclass(frozen=True, slots=True)
class Node:
    """A switch or a server. Servers have no ASN and no loopback: their NICs are addressed."""

    name: str
    role: Role
    zone: int
    asn: int | None
    loopback: str | None
    hash_seed: int

    @property
    def is_switch(self) -> bool:
        return self.role is not Role.SERVER


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link. `address` is `a.b.c.d/31`, or None where the link is unnumbered."""

    node: str
    interface: str
    address: str | None
    mac: str

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


@dataclass(frozen=True, slots=True)
class Prefix:
    """An IPv4 prefix that `origin` announces."""

    prefix: str
    origin: str


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
    def sessions(self) -> tuple[Link, ...]:
        """The links that carry an eBGP session: every switch-to-switch link, single hop."""
        return tuple(link for link in self.links if self.node(link.a.node).is_switch)

    @cached_property
    def prefix_of(self) -> dict[str, Prefix]:
        """The prefix each switch originates."""
        return {prefix.origin: prefix for prefix in self.prefixes}

    def uplinks(self, node: str) -> tuple[Link, ...]:
        """The links from `node` towards the top, in build order."""
        return tuple(link for link in self.links_of[node] if link.a.node == node)

    def downlinks(self, node: str) -> tuple[Link, ...]:
        """The links from `node` towards the servers, in build order."""
        return tuple(link for link in self.links_of[node] if link.b.node == node)

    def nics(self, server: str) -> tuple[Port, ...]:
        """A server's NIC ports, first NIC first."""
        return tuple(link.a for link in self.uplinks(server))
