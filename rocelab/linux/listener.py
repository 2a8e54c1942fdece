"""Listens to rtnetlink events of many namespaces with one epoll, for the watches that decode them.

Datagrams are stamped with CLOCK_REALTIME when they are read: the kernel does not stamp them.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence

from rocelab.linux import namespaces, netlink
from rocelab.linux.closing import Closing

RECEIVE_BUFFER_BYTES = 16 << 20


class Listener(Closing):
    """Listens to the events of `namespace_of`'s nodes until closed.

    `request` is sent once in each namespace; its answers come between the events, so that a watch
    knows the initial state.
    """

    def __init__(
        self, namespace_of: Mapping[str, int], groups: Sequence[int], request: bytes = b""
    ) -> None:
        self._groups = groups
        self._request = request
        self._sockets: dict[int, tuple[str, socket.socket]] = {}
        self._epoll = select.epoll()
        self.overflowed: set[str] = set()
        """The nodes whose socket overflowed: their events are incomplete."""
        try:
            namespaces.inside_each(namespace_of, self._listen)
        except BaseException:
            self.close()
            raise

    def _listen(self, node: str) -> None:
        listener = netlink.open_socket(self._groups, RECEIVE_BUFFER_BYTES)
        listener.setblocking(False)
        self._sockets[listener.fileno()] = (node, listener)
        self._epoll.register(listener, select.EPOLLIN)
        if self._request:
            listener.send(self._request)

    def close(self) -> None:
        """Stop listening."""
        for _, listener in self._sockets.values():
            listener.close()
        self._sockets.clear()
        self._epoll.close()

    def datagrams(self, timeout_s: float) -> Iterator[tuple[str, bytes, int]]:
        """Node, datagram and CLOCK_REALTIME ns of each, waiting `timeout_s` for the first.

        A node whose socket overflowed is added to `overflowed`: its events are incomplete.
        """
        for descriptor, _ in self._epoll.poll(timeout_s):
            node, listener = self._sockets[descriptor]
            while True:
                try:
                    data = listener.recv(netlink.DATAGRAM_BYTES)
                except BlockingIOError:
                    break
                except OSError:
                    self.overflowed.add(node)
                    continue
                yield node, data, time.clock_gettime_ns(time.CLOCK_REALTIME)
