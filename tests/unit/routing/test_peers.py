"""Answers of bgpd and bfdd, right ones and malformed ones."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread, Timer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.lab.convergence import down_sessions
from rocelab.routing.answers import UnreadableAnswerError
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr.peers import (
    BfdPeer,
    SessionCounts,
    bfd_peers,
    bgp_peers,
    local_asn,
    session_counts,
    shutting_down,
    unheard,
)
from rocelab.routing.frr.stack import FRR
from rocelab.routing.frr.vty import MOST_ANSWER_BYTES, vty_command
from rocelab.routing.stack import BgpPeer
from tests.helpers.limits import LIMIT_S
from tests.helpers.vty import answer_all, drip

ODD = [
    b"[]",
    b"7",
    b"% Unknown command",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"peers": []}',
    b'{"peers": {"ctsw1": null}}',
    b'{"peers": {"ctsw1": {"pfxRcd": 1}}}',
    b'{"peers": {"ctsw1": {"state": {}, "pfxRcd": 1}}}',
    b'{"peers": {"ctsw1": {"state": "Idle", "pfxRcd": "1"}}}',
    b'{"peers": {"ctsw1": {"state": "Idle", "pfxRcd": ' + b"9" * 5000 + b"}}}",
]


def told(answer: bytes, daemon: str, ask: Callable[[DaemonFiles], Any]) -> Any:
    """The result of an answer of a switch's daemon."""
    return served(lambda listening: answer_all(listening, answer), daemon, ask)


def served(
    serve: Callable[[socket.socket], None], daemon: str, ask: Callable[[DaemonFiles], Any]
) -> Any:
    """The result of a query if `serve` answers at the socket of a switch's daemon."""
    with TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listening:
        files = DaemonFiles(Path(folder) / "rtsw1")
        files.control(daemon).parent.mkdir(parents=True)
        listening.bind(str(files.control(daemon)))
        listening.listen()
        thread = Thread(target=serve, args=(listening,))
        thread.start()
        try:
            return ask(files)
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_sessions_are_read_with_their_states_and_prefixes() -> None:
    peers = {
        "ctsw1": {"state": "Established", "pfxRcd": 5, "pfxSnt": 9},
        "ctsw2": {"state": "Active"},
    }
    answer = json.dumps({"peers": peers}).encode()
    sessions = told(answer, "bgpd", bgp_peers)
    assert sessions == {"ctsw1": BgpPeer("Established", 5, 9), "ctsw2": BgpPeer("Active", 0, 0)}
    assert told(answer, "bgpd", partial(down_sessions, FRR)) == ["ctsw2 (Active)"]
    assert told(b"", "bgpd", bgp_peers) == {}


def test_an_unnumbered_session_that_is_down_says_whether_its_peer_was_heard() -> None:
    """As FRR 8.4 writes it: the address is "none" until a router advertisement comes."""
    answer = {
        "peers": {"ctsw1": {"state": "Idle"}, "ctsw2": {"state": "Active"}},
        "ctsw1": {"bgpNeighborAddr": "none"},
        "ctsw2": {"bgpNeighborAddr": "fe80::ff:fe00:11"},
    }
    assert told(json.dumps(answer).encode(), "bgpd", partial(down_sessions, FRR)) == [
        "ctsw1 (Idle, no router advertisement of it)",
        "ctsw2 (Active)",
    ]


def test_bfd_sessions_are_read_with_the_far_ends_interval() -> None:
    answer = b'[{"status": "up", "remote-transmit-interval": 100}, {"status": "down"}]'
    assert told(answer, "bfdd", bfd_peers) == [BfdPeer(True, 100), BfdPeer(False, 0)]


@pytest.mark.parametrize("answer", ODD, ids=lambda answer: str(answer[:40]))
def test_an_answer_of_another_shape_names_the_switch_and_the_daemon(answer: bytes) -> None:
    with pytest.raises(UnreadableAnswerError, match="answer of bgpd of rtsw1 cannot be read"):
        told(answer, "bgpd", bgp_peers)
    (line,) = told(answer, "bgpd", partial(down_sessions, FRR))
    assert line.startswith("the answer of bgpd of rtsw1 cannot be read")


@pytest.mark.parametrize("answer", [b"{}", b"[7]", b'[{"remote-transmit-interval": "1"}]'])
def test_an_answer_of_bfdd_of_another_shape_names_it_too(answer: bytes) -> None:
    with pytest.raises(UnreadableAnswerError, match="answer of bfdd of rtsw1"):
        told(answer, "bfdd", bfd_peers)


def test_an_answer_has_one_deadline_and_a_greatest_length() -> None:
    def ask(files: DaemonFiles, timeout_s: float) -> None:
        vty_command(files, "bgpd", "show version", timeout_s=timeout_s)

    with pytest.raises(ConnectionError, match="does not end"):
        told(b"x" * (MOST_ANSWER_BYTES + 1), "bgpd", partial(ask, timeout_s=LIMIT_S))
    over = Event()
    # Whoever reads as long as there is something gets another error.
    timer = Timer(LIMIT_S, over.set)
    timer.start()
    try:
        with pytest.raises(TimeoutError, match="in time"):
            served(
                lambda listening: drip(listening, Event(), over),
                "bgpd",
                partial(ask, timeout_s=0.5),
            )
    finally:
        over.set()
        timer.cancel()


def test_what_bgpd_counted_and_what_it_will_lose_are_read_by_neighbour() -> None:
    neighbours = {
        "ctsw1": {
            "bgpState": "Established",
            "connectionsDropped": 2,
            "messageStats": {"routeRefreshSent": 1},
        },
        "ctsw2": {},
        "totalPeers": 2,
    }
    answer = told(json.dumps(neighbours).encode(), "bgpd", session_counts)
    assert answer == {"ctsw1": SessionCounts(2, 1, True), "ctsw2": SessionCounts(0, 0, False)}
    routes = {"198.18.0.0/28": [{"peerId": "ctsw1"}, {"valid": True}], "198.18.0.16/28": []}
    answer = told(json.dumps({"routes": routes}).encode(), "bgpd", shutting_down)
    assert answer == frozenset({"ctsw1"})


ASKED = (
    ("bgpd", bgp_peers),
    ("bgpd", session_counts),
    ("bgpd", shutting_down),
    ("bgpd", unheard),
    ("bfdd", bfd_peers),
)
KEYS = ("peers", "state", "pfxRcd", "messageStats", "routes", "peerId", "status", "x")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
)


@given(values, st.sampled_from(ASKED))
def test_no_answer_is_more_than_unreadable(
    value: object, asked: tuple[str, Callable[[DaemonFiles], Any]]
) -> None:
    try:
        answer = told(json.dumps(value).encode(), *asked)
    except UnreadableAnswerError:
        return
    assert isinstance(answer, dict | list | frozenset)


def test_names_and_states_write_nothing_to_the_terminal_of_their_reader() -> None:
    peers = {"\x1b[31m": {"state": "\x07" * 1000, "pfxRcd": 0}}
    (line,) = told(json.dumps({"peers": peers}).encode(), "bgpd", partial(down_sessions, FRR))
    assert line.isprintable()
    assert len(line) < 200


@pytest.mark.parametrize("asn", ["-1", "true", "4294967296", "1.5", '"1"', "[]"])
def test_what_is_no_as_number_is_refused(asn: str) -> None:
    with pytest.raises(UnreadableAnswerError, match=r"bgpd of rtsw1 .* an AS number"):
        told(f'{{"as": {asn}}}'.encode(), "bgpd", local_asn)
    assert told(b'{"as": 4294967295}', "bgpd", local_asn) == 2**32 - 1
