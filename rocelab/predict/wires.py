"""A fabric as numbers, so that many flows can be routed through it at once.

Nodes and NICs have numbers, and each link is two sends, one per direction; a vectorised walk
indexes arrays with them.
"""

from __future__ import annotations

from functools import cached_property
from ipaddress import IPv4Address

import numpy as np
import numpy.typing as npt

from rocelab.jobs.placement import NicRef
from rocelab.plan.fabric import Fabric, Link, Nic

Ints = npt.NDArray[np.int64]


class Wires:
    """Numbers for the nodes, NICs and links of a fabric.

    Sends are numbered as `Fabric.directed_links`: 2i is link i upward, 2i + 1 downward.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.number_of = {node.name: number for number, node in enumerate(fabric.nodes)}
        self.nics: tuple[Nic, ...] = tuple(
            nic for server in fabric.servers for nic in fabric.nics(server.name)
        )
        self._nic_number = {(nic.server, nic.number): i for i, nic in enumerate(self.nics)}
        self._link_number = {link.name: i for i, link in enumerate(fabric.links)}
        ends = [(self.number_of[link.a.node], self.number_of[link.b.node]) for link in fabric.links]
        pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
        self.sender: Ints = pairs.reshape(-1)
        self.receiver: Ints = pairs[:, ::-1].reshape(-1)

    @property
    def sends(self) -> int:
        """The number of sends: two per link."""
        return len(self.sender)

    def send(self, link: Link, sender: str) -> int:
        """The number of the send of `sender` on `link`."""
        return 2 * self._link_number[link.name] + (link.a.node != sender)

    def nic(self, ref: NicRef) -> int:
        """The number of a NIC. Raises KeyError for a missing one."""
        return self._nic_number[ref.server, ref.nic]

    @cached_property
    def nic_server(self) -> Ints:
        """The node number of each NIC's server."""
        return np.array([self.number_of[nic.server] for nic in self.nics], dtype=np.int64)

    @cached_property
    def nic_address(self) -> npt.NDArray[np.uint32]:
        """The address of each NIC, as a number in network byte order."""
        return np.array([int(IPv4Address(nic.ip)) for nic in self.nics], dtype=np.uint32)
