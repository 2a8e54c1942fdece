"""What the other machine prints does not decide how much of this one its pages take."""

from __future__ import annotations

import re
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from rocelab.remote.tunnel import (
    MOST_CONNECTIONS,
    MOST_LINE_BYTES,
    MOST_PAGES,
    Tunnels,
)
from tests.helpers.limits import LIMIT_S


class Connection:
    """To a machine on which something listens on every port."""

    def __init__(self) -> None:
        self.channels: list[socket.socket] = []
        self.is_open = threading.Event()
        self.is_full = threading.Event()

    def forwarded(self, *_: object) -> socket.socket:
        here, there = socket.socketpair()
        self.channels.append(there)
        if len(self.channels) > 1:  # the first only tries whether the machine forwards
            self.is_open.set()
        if len(self.channels) > MOST_CONNECTIONS:
            self.is_full.set()
        return here


@pytest.fixture
def connection() -> Iterator[Connection]:
    made = Connection()
    yield made
    for channel in made.channels:
        channel.close()


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def tunnels(connection: Any, notes: list[str]) -> Iterator[Tunnels]:
    made = Tunnels(connection, notes.append)
    yield made
    made.close()


def url(port: int) -> bytes:
    return b"http://127.0.0.1:%d/?token=a\n" % port


def ports(output: bytes) -> list[int]:
    return [int(match) for match in re.findall(rb":(\d+)/", output)]


def test_a_line_without_an_end_is_not_kept(tunnels: Tunnels) -> None:
    assert tunnels.led(b"a" * MOST_LINE_BYTES) == b""
    assert tunnels.led(b"b") == b"a" * MOST_LINE_BYTES + b"b"
    assert tunnels.led(b"c\n") == b"c\n"


def test_a_url_in_two_pieces_is_one(tunnels: Tunnels) -> None:
    assert tunnels.led(url(1)[:18]) == b""
    assert len(ports(tunnels.led(url(1)[18:]))) == 1


def test_a_page_has_one_port_here_and_only_so_many_have_one(
    tunnels: Tunnels, notes: list[str]
) -> None:
    asked = range(65_600, 65_600 + MOST_PAGES + 2)  # no ports of this machine
    first = ports(tunnels.led(b"".join(map(url, asked))))
    assert first[MOST_PAGES:] == list(asked[MOST_PAGES:])
    assert len(set(first[:MOST_PAGES])) == MOST_PAGES
    assert notes == [
        f"no tunnel leads to port {port}: there are {MOST_PAGES} already"
        for port in asked[MOST_PAGES:]
    ]
    assert ports(tunnels.led(url(asked[0]))) == first[:1]


def test_more_connections_wait_until_others_end(tunnels: Tunnels, connection: Connection) -> None:
    (port,) = ports(tunnels.led(url(65_600)))
    with ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), LIMIT_S))
            for _ in range(MOST_CONNECTIONS + 1)
        ]
        assert connection.is_full.wait(LIMIT_S)
        assert len(connection.channels) == 1 + MOST_CONNECTIONS
        connection.is_full.clear()
        assert not connection.is_full.wait(0.2)
        clients[0].close()
        (ended,), _, _ = select.select(connection.channels[1:], [], [], LIMIT_S)
        assert ended.recv(1) == b""
        ended.shutdown(socket.SHUT_WR)
        assert connection.is_full.wait(LIMIT_S)
        connection.channels[-1].sendall(b"answer")
        assert clients[-1].recv(6) == b"answer"


def test_who_sends_nothing_more_gets_the_answer(tunnels: Tunnels, connection: Connection) -> None:
    (port,) = ports(tunnels.led(url(65_600)))
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as client:
        client.sendall(b"GET /")
        client.shutdown(socket.SHUT_WR)
        assert connection.is_open.wait(LIMIT_S)
        server = connection.channels[-1]
        server.settimeout(LIMIT_S)
        with server.makefile("rb") as asked:
            assert asked.read() == b"GET /"
        server.sendall(b"answer")
        server.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as answer:
            assert answer.read() == b"answer"
