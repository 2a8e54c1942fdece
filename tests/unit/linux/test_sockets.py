"""The kernel's figures of real connections, over IPv4 and IPv6."""

from __future__ import annotations

import socket

import pytest

from rocelab.linux import sockets
from tests.helpers.waiting import wait_until

SENT = 70_000


@pytest.mark.parametrize(
    ("family", "listening", "host"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
)
def test_each_end_of_a_connection_has_its_own_figures(
    family: socket.AddressFamily, listening: str, host: str
) -> None:
    with (
        sockets.open_socket() as channel,
        socket.create_server(
            (listening, 0), family=family, dualstack_ipv6=listening == "::"
        ) as listener,
        socket.create_connection((host, listener.getsockname()[1])) as near,
        listener.accept()[0] as far,
    ):
        near.sendall(bytes(SENT))
        received = 0
        while received < SENT:
            received += len(far.recv(SENT))
        port = near.getsockname()[1]

        def ends() -> dict[int, sockets.ConnectionEnd]:
            return {end.port: end for end in sockets.connections(channel)}

        wait_until(lambda: not ends()[port].waits, "the last acknowledgement")
        sender, receiver = ends()[port], ends()[far.getsockname()[1]]
    assert (sender.address, sender.peer, sender.peer_port) == (host, host, receiver.port)
    assert (sender.delivered_bytes, receiver.delivered_bytes) == (SENT, 0)
    assert sender.rtt_us > 0 and sender.min_rtt_us > 0


def test_what_is_not_read_waits() -> None:
    with (
        sockets.open_socket() as channel,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as near,
        listener.accept()[0],
    ):
        near.setblocking(False)
        sent = 0
        try:
            while True:
                sent += near.send(bytes(1 << 20))
        except BlockingIOError:
            pass
        port = near.getsockname()[1]
        end = next(end for end in sockets.connections(channel) if end.port == port)
    assert end.waits
    assert end.delivered_bytes < sent
