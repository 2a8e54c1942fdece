"""Waits until the kernel has removed released namespaces.

Releasing a namespace only queues it: a kernel worker (net/core/net_namespace.c cleanup_net) removes
its interfaces later, in queue order, without a notification. So another namespace is queued behind
them, with one end of a veth pair whose other end is watched: when that end is gone, so is
everything queued before.
"""

from __future__ import annotations

import os
import select
import socket
import time

from rocelab.base.errors import MachineError
from rocelab.linux import links, namespaces, netlink

_WATCHED_INDEX = 1000


def await_cleanup(timeout_s: float) -> None:
    """Return when the kernel has removed every namespace released before the call.

    Raises MachineError if that takes longer than `timeout_s`.
    """
    namespaces.on_own_thread(lambda: _await_cleanup(timeout_s))


def _await_cleanup(timeout_s: float) -> None:
    namespaces.unshare()
    doomed = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    namespaces.unshare()
    with netlink.open_socket((links.RTNLGRP_LINK,)) as events:
        with netlink.open_socket() as channel:
            netlink.send_batch(channel, [_veth_into(doomed)])
        os.close(doomed)
        _await_deletion(events, time.monotonic() + timeout_s)


def _veth_into(namespace: int) -> bytes:
    """A message that makes a veth pair, one end here and one in `namespace`."""
    far = netlink.attribute(links.IFLA_NET_NS_FD, netlink.u32(namespace))
    return links.veth("watched", "watched", index=_WATCHED_INDEX, of_peer=far)


def _await_deletion(events: socket.socket, deadline: float) -> None:
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([events], [], [], left)[0]:
            raise MachineError(
                "the kernel has not removed the lab's namespaces yet",
                "it continues in the background; `rocelab list` no longer shows the lab",
            )
        for kind, body in netlink.messages(events.recv(netlink.DATAGRAM_BYTES)):
            index = links.IFINFOMSG.unpack_from(body)[2]
            if kind == links.RTM_DELLINK and index == _WATCHED_INDEX:
                return
