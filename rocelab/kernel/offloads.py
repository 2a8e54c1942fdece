"""Packets in order through a veth pair: what the receiving end of a queue needs.

A queue is emptied now by the CPU that fills it, now by the one whose timer let it send. A plain
veth hands each packet to the backlog of whichever CPU that is, and the next switch may take a
later packet first: reliable connections then send again what was never lost. With NAPI the far end
has one ring, which one CPU at a time empties in order. The kernel uses NAPI where the far end has
GRO and the near end no TSO (drivers/net/veth.c, veth_xmit). RoCE is not merged by that: the kernel
merges UDP only where rx-udp-gro-forwarding or fraglist GRO is on (net/ipv4/udp_offload.c).
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Container

from rocelab.plan.fabric import Fabric

SIOCETHTOOL = 0x8946
ETHTOOL_STSO = 0x1F
ETHTOOL_SGRO = 0x2C

_IFREQ = struct.Struct("16sP16x")


def keep_order(fabric: Fabric, node: str, queued: Container[tuple[str, str]]) -> None:
    """Have packets from every queued port arrive in order, as far as it takes this node's ends.

    The calling thread must be inside the node's namespace. Raises OSError.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        for link in fabric.links_of[node]:
            port, far = link.port(node), link.far(node)
            if (port.node, port.interface) in queued:
                set_offload(control, port.interface, ETHTOOL_STSO, 0)
            if (far.node, far.interface) in queued:
                set_offload(control, port.interface, ETHTOOL_SGRO, 1)


def set_offload(control: socket.socket, interface: str, command: int, value: int) -> None:
    """One of ethtool's on-off settings (struct ethtool_value, linux/ethtool.h). Raises OSError."""
    setting = array.array("I", (command, value))
    address, _ = setting.buffer_info()
    fcntl.ioctl(control, SIOCETHTOOL, _IFREQ.pack(interface.encode(), address))
