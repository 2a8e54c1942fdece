"""TCP of agents over this machine's loopback: parts, acknowledgements, failures."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from rocelab.agent import tcp
from rocelab.agent.tcp import TcpPort

SOURCE, DESTINATION = "127.0.0.1", "127.0.0.2"
NOW_NS = 7
TURNS = 100_000


@pytest.fixture(autouse=True)
def _no_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests change nothing of this machine."""
    monkeypatch.setattr(tcp, "_RTO_MIN", tmp_path / "rto_min")


@pytest.fixture(name="port")
def _port() -> Iterator[int]:
    with closing(socket.socket()) as probe:
        probe.bind((DESTINATION, 0))
        number: int = probe.getsockname()[1]
    yield number


def _kind(**parts: object) -> dict[str, Any]:
    kind = {"congestion_control": "reno", "tos": 0, "rto_min_us": 1000}
    return {"kinds": [kind | {"listeners": [], "connections": []} | parts]}


class _Pair:
    """A port that sends over some connections, and one that receives."""

    def __init__(self, port: int, connections: int = 1) -> None:
        self.arrived: list[tuple[int, int, int, int]] = []
        self.acked: list[tuple[int, int]] = []
        self.told: list[dict[str, object]] = []
        self.receiving = TcpPort(
            _kind(listeners=[(DESTINATION, port)]),
            lambda *part: self.arrived.append(part),
            self.told.append,
        )
        lines = [(number, SOURCE, DESTINATION, port) for number in range(connections)]
        self.sending = TcpPort(_kind(connections=lines), lambda *part: None, self.told.append)
        self.way = self.sending.way(
            range(connections), lambda imm, now_ns: self.acked.append((imm, now_ns))
        )

    def run(self) -> None:
        """Turn both until all is acknowledged or a connection has failed."""
        for _ in range(TURNS):
            self.sending.turn(NOW_NS)
            self.receiving.turn(NOW_NS)
            if self.sending.idle:
                return
        pytest.fail("not idle")


def test_a_send_arrives_whole_and_is_acknowledged_once(port: int) -> None:
    pair = _Pair(port)
    pair.sending.start()
    pair.way.send(3_000_001, imm=5)
    pair.run()
    assert pair.arrived == [(0, 5, 3_000_001, NOW_NS)]
    assert pair.acked == [(5, NOW_NS)]
    assert pair.sending.report()["senders"] == [
        {"number": 0, "posted_bytes": 3_000_001, "acked_bytes": 3_000_001, "error": None}
    ]
    assert pair.receiving.report()["receivers"] == [{"number": 0, "bytes": 3_000_001}]
    assert pair.sending.delivered_bytes == 3_000_001 + 4 + 12


def test_a_send_over_several_connections_ends_with_its_last_part(port: int) -> None:
    pair = _Pair(port, connections=3)
    pair.sending.start()
    pair.way.send(10, imm=1)
    pair.way.send(2, imm=2)
    pair.run()
    assert sorted((imm, size) for _, imm, size, _ in pair.arrived) == [
        *((1, 3), (1, 3), (1, 4)),
        *((2, 1), (2, 1)),
    ]
    assert sorted(pair.acked) == [(1, NOW_NS), (2, NOW_NS)]


def test_sends_keep_their_order_on_a_connection(port: int) -> None:
    pair = _Pair(port)
    for imm in range(50):  # before there is a connection
        pair.way.send(imm + 1, imm)
    pair.sending.start()
    pair.run()
    assert [(imm, size) for _, imm, size, _ in pair.arrived] == [(n, n + 1) for n in range(50)]


def test_samples_grow_to_what_was_sent(port: int) -> None:
    pair = _Pair(port)
    pair.sending.sample()
    pair.sending.start()
    pair.way.send(100_000, imm=0)
    pair.run()
    pair.sending.sample()
    assert pair.sending.sampled_bytes[0].tolist() == [0, 100_016]


def test_a_connection_that_nobody_listens_to_fails_with_its_reason(port: int) -> None:
    messages: list[dict[str, object]] = []
    lonely = TcpPort(
        _kind(connections=[(4, SOURCE, DESTINATION, port)]), lambda *part: None, messages.append
    )
    way = lonely.way([4], lambda imm, now_ns: None)
    lonely.start()
    way.send(1, imm=0)
    for _ in range(TURNS):
        lonely.turn(NOW_NS)
        if messages:
            break
    assert messages == [{"connection": 4, "error": "Connection refused"}]
    assert lonely.idle, "nothing more is to come"


def test_sockets_have_the_control_and_the_class_of_their_job(port: int) -> None:
    with ExitStack() as stack:
        port_of = TcpPort(
            _kind(connections=[(0, SOURCE, DESTINATION, port)], tos=0x28),
            lambda *part: None,
            lambda message: None,
        )
        opened = stack.enter_context(closing(port_of.way([0], lambda *_: None).senders[0].socket))
        control = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert control.rstrip(b"\0") == b"reno"
        assert opened.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 0x28


def test_the_least_timeout_is_set_for_the_time_in_which_sockets_are_made(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    tcp._RTO_MIN.write_text("200000\n")
    made = tcp._tcp_socket

    def note(*arguments: Any) -> socket.socket:
        written.append(tcp._RTO_MIN.read_text())
        return made(*arguments)

    monkeypatch.setattr(tcp, "_tcp_socket", note)
    TcpPort(
        _kind(connections=[(0, SOURCE, DESTINATION, port)]), lambda *part: None, lambda text: None
    )
    assert written == ["1000"]
    assert tcp._RTO_MIN.read_text() == "200000\n"
