"""Reads which packet filters a namespace has: tables of nftables and of the older iptables.

Source: include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from rocelab.linux import netlink

NETLINK_NETFILTER = 12
NFT_MSG_GETTABLE = 10 << 8 | 1
"""Of the subsystem NFNL_SUBSYS_NFTABLES."""
NFGENMSG_BYTES = 4
NFTA_TABLE_NAME = 1
_FAMILIES = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
_NOT_IN_THIS_KERNEL = (errno.EINVAL, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT)
_IPTABLES = (("ip", "ip_tables_names"), ("ip6", "ip6_tables_names"))


def read_tables() -> tuple[str, ...]:
    """The tables of the calling thread's namespace by family and name, such as `inet filter`.
    Raises OSError without the right to see them."""
    return (*_nftables(), *_iptables())


def _nftables() -> Iterator[str]:
    # The request would load the module into a kernel that does without.
    if not _is_loaded("nf_tables"):
        return
    flags = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    try:
        with socket.socket(socket.AF_NETLINK, flags, NETLINK_NETFILTER) as channel:
            bodies = netlink.dump(channel, NFT_MSG_GETTABLE, bytes(NFGENMSG_BYTES))
    except OSError as error:
        if error.errno in _NOT_IN_THIS_KERNEL:
            return
        raise
    for body in bodies:
        name = netlink.text(netlink.find(body, NFGENMSG_BYTES, NFTA_TABLE_NAME))
        yield f"{_FAMILIES.get(body[0], body[0])} {name}"


def _iptables() -> Iterator[str]:
    for family, file in _IPTABLES:
        with suppress(FileNotFoundError):
            for name in Path("/proc/thread-self/net", file).read_text().split():
                yield f"{family} {name}"


@cache
def _is_loaded(module: str) -> bool:
    """Whether the kernel has a module that is loaded or built in."""
    try:
        loaded = Path("/proc/modules").read_text().splitlines()
    except FileNotFoundError:
        return True  # all that it has is built in
    if any(line.split(" ", 1)[0] == module for line in loaded):
        return True
    try:
        built_in = Path("/lib/modules", os.uname().release, "modules.builtin").read_text()
    except OSError:
        return False
    return f"/{module}.ko" in built_in
