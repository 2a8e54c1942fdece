"""Which kinds of links this kernel has, such as a VRF or a VXLAN."""

from __future__ import annotations

import errno
from functools import cache

from rocelab.linux import namespaces, netlink, rtnetlink


@cache
def is_known(kind: str) -> bool:
    """Whether the kernel has links of that kind, found in a namespace of its own. Raises OSError
    without the right to make one."""

    def ask() -> bool:
        namespaces.unshare()
        name = ("IFLA_IFNAME", "rocelab-try")
        with netlink.open_socket() as channel:
            try:
                netlink.send_batch(channel, [rtnetlink.new_link([name, rtnetlink.of_kind(kind)])])
            except OSError as error:
                # Of a kind that it has, it says what is missing (net/core/rtnetlink.c).
                return error.errno != errno.EOPNOTSUPP
        return True

    return namespaces.on_own_thread(ask)
