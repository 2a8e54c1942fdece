"""A fabric as arrays, for simulations of tens of thousands of GPUs: no object per NIC or link.

Nodes, NICs and links of a frozen `Network` are numbered, addressed and seeded exactly as in the
`Fabric` that `rocelab.planning.build` makes of the same spec.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import NONE, Floats, Ints, Words
from rocelab.base.family import Family
from rocelab.fabrics.layout import interface_name
from rocelab.fabrics.roles import Role
from rocelab.jobs.placement import Nics
from rocelab.labfile.model import USUAL_CABLE_NS, LabSpec
from rocelab.routes.flows import Bytes


@dataclass(frozen=True, eq=False)
class NetworkDetails:
    """What does not follow from a kind of fabric, where nodes are wired as a lab's file says."""

    ports: tuple[str, ...]
    """The name of the port that each send leaves, as on the switch, 2L."""
    interfaces: tuple[str, ...]
    """Linux's name of it, 2L."""
    order: Ints
    """The place of each send among those of its node, as zebra sorts next hops, 2L."""
    rank: Ints
    """The place of each node by BGP identifier, N."""
    valley_free: bool
    """Whether switches of the lowest tier announce only what is theirs."""
    mtu: Ints
    """Of each link, L."""
    delay_ns: Ints
    """Of each link, NONE if the lab has none, L."""
    shortest: bool = False
    """Whether routes are all shortest paths, whatever their AS numbers."""


@dataclass(frozen=True, eq=False)
class NetworkTenants:
    """Whose NICs leaves bridge, and how switches forward their packets."""

    names: tuple[str, ...]
    of_nic: Ints
    """The tenant of each NIC, by its place in `names`, NONE if it is in none, n."""
    leaf_address: Bytes
    """The loopback of each NIC's leaf, where its tunnel ends, n x 4."""

    def tunnelled(self, source: Ints, destination: Ints, leaf: Ints) -> npt.NDArray[np.bool_]:
        """Whether flows between NICs, both m, cross the fabric over VXLAN; leaf: the node of each
        NIC's leaf, n."""
        crosses: npt.NDArray[np.bool_] = leaf[source] != leaf[destination]
        crosses &= self.of_nic[source] != NONE
        return crosses


@dataclass(frozen=True, eq=False)
class Network:
    """N nodes, L links, n NICs of up to p ports each.

    Send 2i is what the lower end of link i puts on it, towards the top; 2i + 1 is the way back. The
    switches that a NIC is wired to are its home; NICs with the same switches share one.
    """

    spec: LabSpec
    node_names: tuple[str, ...]
    """Of each node, in build order."""
    roles: tuple[Role, ...]
    """Of each node, in build order."""
    asn: npt.NDArray[np.int64]
    """0 for servers."""
    zone: Ints
    """NONE outside a zone."""
    hash_seed: Words
    """N, 0 for servers."""
    lower: Ints
    """Node of each end, L."""
    upper: Ints
    """Node of each end, L."""
    parallel: Ints
    """Which of several links between the two (from 1), L."""
    rate_bps: Floats
    """L."""
    nic_server: Ints
    """Node, n."""
    nic_number: Ints
    """From 1, n."""
    nic_address: Bytes
    """In the order of the wire, n x 4 of IPv4 or 16 of IPv6. IPv4's continue beyond 198.18.0.0/15
    if the fabric is larger than a lab can address."""
    nic_links: Ints
    """n x p links, padded with NONE."""
    nic_home: Ints
    """n."""
    home_leaves: Ints
    """Homes x p nodes, padded with NONE."""
    link_queues: tuple[str | None, ...] = ()
    """The queue settings that each link names, L; empty if none does."""
    details: NetworkDetails | None = None
    """None for a fabric that is as its kind has it."""
    tenants: NetworkTenants | None = None
    """None for a fabric without tenants."""

    @property
    def nodes(self) -> int:
        return len(self.node_names)

    @property
    def links(self) -> int:
        return len(self.lower)

    @property
    def sends(self) -> int:
        """Directed links: two per link."""
        return 2 * len(self.lower)

    @property
    def nics(self) -> int:
        return len(self.nic_server)

    @property
    def family(self) -> Family:
        """What NICs send."""
        return Family.IPV4 if self.nic_address.shape[1] * 8 == Family.IPV4.bits else Family.IPV6

    def ip(self, nic: int) -> str:
        """The address of a NIC as text."""
        return socket.inet_ntop(self.family.number, self.nic_address[nic].tobytes())

    @cached_property
    def tier(self) -> npt.NDArray[np.int8]:
        """0 for servers to 3 at the top, N."""
        return np.array([role.tier for role in self.roles], np.int8)

    @cached_property
    def most_sends(self) -> int:
        """Sends of a path at most: one that has more loops, since none visits a switch twice."""
        return int(np.count_nonzero(self.tier)) + 1

    @cached_property
    def sender(self) -> Ints:
        """The node that each send leaves, 2L."""
        return np.column_stack((self.lower, self.upper)).reshape(-1)

    @cached_property
    def receiver(self) -> Ints:
        """The node that each send enters, 2L."""
        return np.column_stack((self.upper, self.lower)).reshape(-1)

    @cached_property
    def capacity_bps(self) -> Floats:
        """The rate of each send, 2L."""
        return np.repeat(self.rate_bps, 2)

    @cached_property
    def mtu(self) -> Ints:
        """The IP MTU of each send, 2L."""
        if self.details is None:
            return np.full(self.sends, self.spec.links.mtu, np.int32)
        return np.repeat(self.details.mtu, 2)

    @cached_property
    def delay_ns(self) -> Ints:
        """The modelled delay of each send, NONE if the lab has none, 2L."""
        if self.details is None:
            delay_ns = self.spec.links.delay
            return np.full(self.sends, NONE if delay_ns is None else delay_ns, np.int32)
        return np.repeat(self.details.delay_ns, 2)

    @cached_property
    def cable_ns(self) -> Ints:
        """What each send's cable takes one way, for the headroom of its port, 2L."""
        return np.where(self.delay_ns == NONE, USUAL_CABLE_NS, self.delay_ns).astype(np.int32)

    @cached_property
    def nic_columns(self) -> Nics:
        """The NICs, to place ranks on."""
        leaves = list(map(tuple, self.home_leaves.tolist()))
        return Nics(
            self.spec.name,
            self.node_names,
            server=[self.node_names[node] for node in self.nic_server.tolist()],
            number=self.nic_number.tolist(),
            leaf=[leaves[home] for home in self.nic_home.tolist()],
            zone=self.zone[self.nic_leaf].tolist(),
            tenant=()
            if self.tenants is None
            else [None if of == NONE else self.tenants.names[of] for of in self.tenants.of_nic],
        )

    @cached_property
    def nic_leaf(self) -> Ints:
        """The node of each NIC's first leaf, n."""
        leaves: Ints = self.home_leaves[self.nic_home, 0]
        return leaves

    @cached_property
    def _number_of(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.node_names)}

    def node_number(self, name: str) -> int:
        """The number of a node. Raises KeyError if there is none of that name."""
        return self._number_of[name]

    def nic_name(self, nic: int) -> str:
        """`srv3-2:1`: the server and the NIC's number on it."""
        return f"{self.node_names[self.nic_server[nic]]}:{self.nic_number[nic]}"

    def link_name(self, link: int) -> str:
        """`rtsw1:ctsw2`: the lower node and its interface, as a `Fabric` names the link."""
        return self.send_name(2 * link)

    def send_name(self, send: int) -> str:
        """`ctsw2:rtsw1`: the node that sends and its interface."""
        node = self.node_names[int(self.sender[send])]
        if self.details is not None:
            return f"{node}:{self.details.ports[send]}"
        return f"{node}:{self.interface(send)}"

    def interface(self, send: int) -> str:
        """The interface that a send leaves."""
        if self.details is not None:
            return self.details.interfaces[send]
        receiver = self.node_names[int(self.receiver[send])]
        return interface_name(receiver, int(self.parallel[send // 2]))
