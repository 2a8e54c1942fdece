"""Tables of nftables by netlink: Debian's minimal systems lack its program."""

from __future__ import annotations

import socket
import struct
from typing import Literal

from rocelab.linux import netlink
from rocelab.linux.packetfilter import NETLINK_NETFILTER, NFTA_TABLE_NAME

SUBSYSTEM = 10
BATCH_BEGIN, BATCH_END = 0x10, 0x11
MESSAGES = {"new": 0, "del": 2}
INET = 1


def change_table(change: Literal["new", "del"], name: str) -> None:
    """Make or remove a table of the family inet in the calling thread's namespace. Raises
    OSError."""
    batch = struct.pack("=BB", 0, 0) + struct.pack("!H", SUBSYSTEM)
    table = bytes([INET, 0, 0, 0]) + netlink.attribute(NFTA_TABLE_NAME, name.encode() + b"\0")
    kind = SUBSYSTEM << 8 | MESSAGES[change]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as channel:
        channel.send(
            netlink.request(BATCH_BEGIN, batch, flags=1)
            + netlink.request(kind, table, netlink.REQUEST_ACK_CREATE)
            + netlink.request(BATCH_END, batch, flags=1)
        )
        refused = -struct.unpack_from("=i", channel.recv(1 << 12), netlink.HEADER.size)[0]
        if refused:
            raise OSError(refused, f"nftables: {name}")
