"""Where pauses began, and when a run of lossless classes is no measurement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocelab.results.lossless import (
    Lossless,
    PauseFigures,
    PauseSpan,
    find_deadlock,
    propagation,
    root_share,
)


def span(
    node: str, peer: str, begin_ns: int, end_ns: int | None, traffic_class: int = 3
) -> PauseSpan:
    return PauseSpan(node, peer, traffic_class, peer, begin_ns, end_ns)


PORT = PauseFigures(
    node="rtsw1",
    interface="srv1-1",
    traffic_class=3,
    peer="srv1-1",
    packets=1000,
    pauses_sent=1,
    pauses_received=1,
    transitions=1,
    paused_ns=10,
    longest_ns=10,
    held_bytes=0,
    held_max_bytes=5000,
    headroom_max_bytes=1000,
    dropped_packets=0,
    late_packets=0,
    purged_packets=0,
    discarded_packets=0,
    watchdog=0,
)
RUN = Lossless(
    classes=(3,),
    ports=(PORT,),
    spans=(),
    spans_left_out=0,
    delay_ns=1_000_000,
    late_p50_ns=10_000,
    late_p99_ns=99_000,
    late_max_ns=500_000,
    unbalanced=(),
    is_alive=True,
)
SERVERS = {"srv1-1", "srv1-2", "srv2-1"}


def test_pauses_that_spread_go_back_to_the_receiver_where_they_began() -> None:
    spans = (
        span("rtsw2", "srv2-1", 0, 100),
        span("ctsw1", "rtsw2", 10, 90),
        span("rtsw1", "ctsw1", 20, 80),
        span("srv1-1", "rtsw1", 30, 70),
    )
    (origin,) = propagation(spans, SERVERS, 1000)
    assert origin.root == "srv2-1"
    assert origin.depth == {"rtsw2": 1, "ctsw1": 2, "rtsw1": 3, "srv1-1": 4}
    assert origin.waited_ns == {"rtsw2": 100, "ctsw1": 80, "rtsw1": 60, "srv1-1": 40}
    assert origin.total_ns == 280


def test_a_server_that_is_stopped_itself_is_where_its_pauses_began() -> None:
    spans = (
        span("srv2-1", "rtsw2", 0, 100),
        span("rtsw2", "srv2-1", 10, 90),
        span("ctsw1", "rtsw2", 20, 80),
    )
    origins = propagation(spans, SERVERS, 1000)
    assert {origin.root: origin.waited_ns for origin in origins} == {
        "srv2-1": {"rtsw2": 80, "ctsw1": 60},
        "rtsw2": {"srv2-1": 100},
    }
    nodes = (PORT, replace(PORT, node="srv2-1", packets=0), replace(PORT, packets=0))
    assert replace(RUN, ports=nodes).servers == {"srv2-1"}


def test_a_switch_that_nobody_paused_is_a_root_of_its_own() -> None:
    spans = (
        span("rtsw2", "srv2-1", 0, 10),  # over before the other began
        span("srv1-1", "rtsw1", 20, 60),
        span("srv1-2", "rtsw1", 20, 60),
    )
    origins = propagation(spans, SERVERS, 1000)
    assert [origin.root for origin in origins] == ["rtsw1", "srv2-1"]
    assert origins[0].total_ns == 80


def test_what_share_of_the_time_paused_began_at_some_nodes() -> None:
    spans = (
        span("rtsw2", "srv2-1", 0, 60),
        span("ctsw1", "rtsw2", 100, None),
        span("rtsw1", "ctsw1", 110, 160),
        span("srv1-1", "rtsw1", 170, 180, 4),
    )
    assert root_share(spans, SERVERS, 190, {"rtsw2"}) == (90 + 50) / (60 + 90 + 50 + 10)
    assert root_share(spans, SERVERS, 190, {"rtsw2", "rtsw1", "srv2-1"}) == 1
    assert root_share(spans, SERVERS, 190, {"ctsw1"}) == 0
    assert root_share((), SERVERS, 190, {"rtsw2"}) is None


def test_a_ring_of_pauses_ends() -> None:
    spans = (span("a", "b", 0, None), span("b", "c", 0, None), span("c", "a", 0, None))
    origins = propagation(spans, SERVERS, 50)
    assert sum(origin.total_ns for origin in origins) == 150


def test_classes_do_not_mix() -> None:
    spans = (span("rtsw2", "srv2-1", 0, 100, 3), span("ctsw1", "rtsw2", 10, 90, 4))
    assert {(origin.root, origin.traffic_class) for origin in propagation(spans, SERVERS, 100)} == {
        ("srv2-1", 3),
        ("rtsw2", 4),
    }


def test_a_run_within_its_limits_is_valid() -> None:
    assert RUN.problems() == ()
    assert replace(RUN, ports=(replace(PORT, dropped_packets=2, late_packets=1),)).problems() == ()
    assert replace(RUN, late_p99_ns=100_000).problems() == ()
    assert replace(RUN, late_max_ns=20_000_000).problems() == ()
    (problem,) = replace(RUN, late_max_ns=20_000_001).problems()
    assert "a pause was 20 ms late" in problem


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (replace(RUN, late_p99_ns=100_001), "1 of 100 pauses was 100 us late"),
        (replace(RUN, ports=(replace(PORT, late_packets=6),)), "6 of 1,000 packets came later"),
        (replace(RUN, is_alive=False), "the PFC process had ended or was stopped"),
        (replace(RUN, restarts=1), "the PFC process ended and was restarted"),
        (replace(RUN, is_recorded=False), "no room to record all pauses"),
        (replace(RUN, unreported=1200), "missed 1,200 thresholds and pauses"),
        (replace(RUN, unbalanced=("rtsw1:srv1-1 class 3",)), "accounting of rtsw1:srv1-1 class 3"),
    ],
)
def test_a_run_beyond_a_limit_says_which(run: Lossless, why: str) -> None:
    (problem,) = run.problems()
    assert why in problem


RING = (
    span("rtsw3", "ctsw1", 10, None),
    span("ctsw1", "rtsw4", 20, None),
    span("rtsw4", "ctsw2", 30, None),
    span("ctsw2", "rtsw3", 40, None),
)


def test_pauses_that_last_in_a_ring_are_a_deadlock_with_its_nodes_in_the_order_they_wait() -> None:
    outside = span("srv1-1", "rtsw3", 50, None), span("rtsw3", "srv3-1", 0, None)
    ring = find_deadlock((*outside, *RING), ())
    at = ring.index("rtsw3")
    assert (*ring[at:], *ring[:at]) == ("rtsw3", "ctsw1", "rtsw4", "ctsw2")


@pytest.mark.parametrize("place", range(len(RING)))
def test_a_ring_one_of_whose_pauses_ended_is_no_deadlock(place: int) -> None:
    ended = replace(RING[place], end_ns=100)
    assert find_deadlock((*RING[:place], ended, *RING[place + 1 :]), ()) == ()


def test_pauses_that_all_wait_for_one_receiver_are_no_deadlock() -> None:
    tree = [span("rtsw2", "srv2-1", 0, None), span("ctsw1", "rtsw2", 0, None)]
    assert find_deadlock([*tree, span("rtsw1", "ctsw1", 0, None)], ()) == ()


def test_pauses_of_different_classes_are_no_ring() -> None:
    assert find_deadlock((*RING[:3], replace(RING[3], traffic_class=4)), ()) == ()


def test_a_server_that_pauses_and_is_paused_is_in_no_ring() -> None:
    """It forwards nothing: what it receives does not wait for what it sends."""
    both = (span("rtsw1", "srv1-1", 0, None), span("srv1-1", "rtsw1", 0, None))
    assert find_deadlock(both, {"srv1-1"}) == ()
