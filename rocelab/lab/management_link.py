"""The links of a lab's management network: a bridge out of band, a port `mgmt0` in every node.

The interfaces are removed with the nodes' namespaces.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path

from rocelab.linux import namespaces, netlink, rtnetlink
from rocelab.linux.links import IFF_UP
from rocelab.linux.settings import write_port_settings
from rocelab.planning.settings import SERVER_PORTS
from rocelab.record import LabFiles

BRIDGE = "bridge"
PORT = "mgmt0"
FIRST_ADDRESS = IPv4Address("100.64.0.1")
"""The bridge's address in 100.64.0.0/16 (RFC 6598), which no fabric uses."""
PREFIX_LENGTH = 16


def make_links(files: LabFiles, netns: Path, address_of: Mapping[str, str]) -> None:
    """Make the namespace `netns` with its bridge, and a veth pair from it to each node.

    Raises OSError with the request that the kernel refused.
    """

    def make_bridge() -> None:
        descriptor = namespaces.create(netns)
        os.close(descriptor)
        write_port_settings(SERVER_PORTS)
        nodes = {node: os.open(files.netns_of(node), os.O_RDONLY) for node in address_of}
        try:
            with netlink.open_socket(receive_buffer_bytes=8 << 20) as channel:
                netlink.send_batch(channel, [_link(BRIDGE, [rtnetlink.of_kind("bridge")])])
                bridge = socket.if_nametoindex(BRIDGE)
                pairs = [_pair(node, bridge, to) for node, to in nodes.items()]
                netlink.send_batch(channel, [*pairs, *_address(BRIDGE, str(FIRST_ADDRESS))])
        finally:
            for node_descriptor in nodes.values():
                os.close(node_descriptor)

    namespaces.on_own_thread(make_bridge)
    for node, address in address_of.items():

        def give_address(address: str = address) -> None:
            with netlink.open_socket() as channel:
                netlink.send_batch(channel, _address(PORT, address))

        namespaces.inside(files.netns_of(node), give_address)


def _pair(node: str, bridge: int, netns: int) -> bytes:
    """A veth pair: the bridge's port, up and named after the node, and the node's port."""
    peer = rtnetlink.veth_to([("IFLA_IFNAME", PORT), ("IFLA_NET_NS_FD", netns)])
    return _link(node, [("IFLA_MASTER", bridge), peer])


def _link(name: str, attributes: Sequence[tuple[str, object]]) -> bytes:
    return rtnetlink.new_link([("IFLA_IFNAME", name), *attributes], flags=IFF_UP, change=IFF_UP)


def _address(interface: str, address: str) -> list[bytes]:
    """Messages that set an interface of the calling thread's namespace up and give it an
    address."""
    index = socket.if_nametoindex(interface)
    return [
        rtnetlink.change_link(index=index, flags=IFF_UP, change=IFF_UP),
        rtnetlink.new_address(
            [("IFA_LOCAL", address), ("IFA_ADDRESS", address)],
            family=socket.AF_INET,
            prefixlen=PREFIX_LENGTH,
            index=index,
        ),
    ]
