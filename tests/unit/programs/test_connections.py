"""Stalls of connections, as samples of the kernel's figures show them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from rocelab.linux.sockets import ConnectionEnd
from rocelab.programs.connections import ConnectionWatch
from rocelab.results.programs import TcpConnection

MS = 10**6
RTT_MS = 60
NAMES = {"198.18.0.0": "srv1-1:1", "198.18.0.4": "srv2-1:1"}
Sample = tuple[int, int, int]
"""When, in ms; bytes acknowledged by then; for how many ms none were, or -1 if nothing waits."""

Watched = Callable[..., TcpConnection]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """What the watch makes of samples of one connection."""
    ends: list[ConnectionEnd] = []
    now_ms = [0]
    place = "rocelab.programs.connections"
    monkeypatch.setattr(f"{place}.sockets.connections", lambda _: list(ends))
    monkeypatch.setattr(f"{place}.clock_gettime_ns", lambda _: now_ms[0] * MS)

    def of(*samples: Sample, least_trips: int = 0) -> TcpConnection:
        watch = ConnectionWatch([], NAMES, least_trips)
        silent = cast("socket.socket", _Silent())
        watch._channels = [(silent, silent)]
        for at_ms, acked, silent_ms in samples:
            now_ms[0] = at_ms
            ends[:] = [end(acked, max(silent_ms, 0), waits=silent_ms >= 0)]
            watch.sample()
        (connection,) = watch.connections(0)
        return connection

    return of


class _Silent:
    """A watch of ends that hears of none."""

    def recv(self, _: int) -> bytes:
        raise BlockingIOError


def end(acked: int, silent_ms: int, *, waits: bool) -> ConnectionEnd:
    return ConnectionEnd(
        cookie=b"1",
        address="198.18.0.0",
        port=40_000,
        peer="198.18.0.4",
        peer_port=5300,
        unacked_segments=int(waits),
        silent_ms=silent_ms,
        unsent_bytes=0,
        acked_bytes=acked,
        sent_bytes=10**9,
        resent_bytes=0,
        rtt_us=RTT_MS * 1000,
        min_rtt_us=50,
    )


@pytest.mark.parametrize(
    ("unacked", "unsent", "waits"), [(0, 0, False), (1, 0, True), (0, 1, True)]
)
def test_an_end_waits_for_what_it_sent_and_for_what_it_has_yet_to_send(
    unacked: int, unsent: int, waits: bool
) -> None:
    one = replace(end(0, 0, waits=False), unacked_segments=unacked, unsent_bytes=unsent)
    assert one.waits == waits


@pytest.mark.parametrize(
    ("acked", "sent", "resent", "delivered"),
    [
        (1002, 1000, 0, 1000),  # with SYN and FIN
        (1001, 1300, 300, 1000),
        (501, 1300, 300, 501),  # no FIN is acknowledged, and the SYN may be counted
    ],
)
def test_what_was_delivered_is_payload_that_was_sent_once(
    acked: int, sent: int, resent: int, delivered: int
) -> None:
    one = replace(end(acked, 0, waits=False), sent_bytes=sent, resent_bytes=resent)
    assert one.delivered_bytes == delivered


@pytest.mark.parametrize(
    ("samples", "stalls"),
    [
        # From the last acknowledgement to the first one after: 60 to 480.
        ([(50, 1, 0), (100, 2, 40), (300, 2, 240), (500, 3, 20)], [(60, 480)]),
        # It lasts on.
        ([(50, 1, 0), (100, 2, 40), (300, 2, 240)], [(60, 300)]),
        # Nothing waits.
        ([(50, 1, -1), (300, 1, -1), (500, 1, -1)], []),
        # Something waits only since the last sample.
        ([(50, 1, -1), (300, 1, 250), (310, 2, 0)], []),
        # A sender without a pause, whose samples are far apart: none of them shows a stall.
        ([(50, 1, 0), (250, 9, 3), (450, 20, 1), (2000, 30, 2)], []),
        ([(50, 1, 0), (130, 1, 80), (2000, 30, 2)], []),
        # The next begins with the last acknowledgement that a sample shows.
        ([(50, 1, 0), (200, 1, 150), (400, 3, 10), (600, 3, 210)], [(50, 390), (390, 600)]),
    ],
)
def test_a_stall_is_what_a_sample_shows(
    seen: Watched, samples: list[Sample], stalls: list[tuple[int, int]]
) -> None:
    connection = seen(*samples)
    assert [(stall.began_ns // MS, stall.ended_ns // MS) for stall in connection.stalls] == stalls


def test_a_stall_may_have_to_be_longer_than_round_trips(seen: Watched) -> None:
    samples = [(50, 1, 0), (300, 1, 250), (400, 2, 10), (900, 2, 510), (950, 3, 0)]
    assert [stall.lasted_ns // MS for stall in seen(*samples).stalls] == [340, 560]
    assert [stall.lasted_ns // MS for stall in seen(*samples, least_trips=5).stalls] == [560]
