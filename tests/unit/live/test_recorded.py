"""The page of a lab's last minutes: its samples, its events, what it says without a script."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from rocelab.base.errors import InputError
from rocelab.lab.lab import Lab
from rocelab.live import recorded as module
from rocelab.live.events import CarrierEvent, Event, FaultEvent, RoutesEvent, SessionEvent, document
from rocelab.live.feed import Feed
from rocelab.live.history import Moment
from rocelab.live.recorded import busiest, events_of, in_order, recorded, recorded_page
from rocelab.live.traffic import NO_TRAFFIC
from rocelab.planning.fabric import Fabric
from tests.unit.live.test_state import reading

LINK = "rtsw1:ctsw1"
S = 10**9
AT = 1_795_681_459 * S


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return Lab.planned("tiny").fabric


def direction(fabric: Fabric, sender: str, receiver: str) -> int:
    pairs = [
        (directed_link.sender, directed_link.receiver) for directed_link in fabric.directed_links
    ]
    return pairs.index((sender, receiver))


def moment(fabric: Fabric, t_ns: int, loads: dict[int, float], *dark: str, **states: str) -> Moment:
    row = np.zeros(len(fabric.directed_links), np.float32)
    row[list(loads)] = list(loads.values())
    ports = frozenset((port, "ctsw1") for port in dark)
    return Moment(t_ns, {"load": row} if loads else {}, ports, states, {})


def events(*feed: Event) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(document(event))) for event in feed]


def test_times_count_from_the_first_sample_and_end_with_what_is_last(fabric: Fabric) -> None:
    moments = [moment(fabric, AT, {}), moment(fabric, AT + 2 * S, {})]
    messages = events(
        FaultEvent(AT + S, 7, "carrier-down", LINK, True, None),
        RoutesEvent(AT + 2 * S, AT + 3 * S, "rtsw1", 4, 1),
    )
    (run,) = recorded(fabric, moments, messages).runs
    assert (run.begin_ns, run.end_ns) == (0, 3 * S)
    assert [event["t_ns"] for event in run.events] == [S, 2 * S]
    assert run.events[0]["event"] == 7
    assert run.events[1]["until_ns"] == 3 * S
    assert run.samples is not None
    assert run.samples.t_ns == [0, 2 * S]


def test_a_sample_has_what_is_not_0_and_what_is_not_as_before(fabric: Fabric) -> None:
    up = direction(fabric, "rtsw1", "ctsw1")
    moments = [
        moment(fabric, AT, {up: 0.25}),
        moment(fabric, AT + S, {}, "rtsw1", rtsw1="degraded"),
        moment(fabric, AT + 2 * S, {}, "rtsw1", rtsw1="degraded"),
        moment(fabric, AT + 3 * S, {}),
    ]
    (run,) = recorded(fabric, moments, []).runs
    assert run.samples is not None
    assert run.samples.values == [{"load": {up: 0.25}}, {}, {}, {}]
    assert run.samples.carrier == [{}, {LINK: [False, True]}, None, {}]
    assert run.samples.states == [{}, {"rtsw1": "degraded"}, None, {}]


def test_the_rate_is_what_servers_sent_until_each_sample(fabric: Fabric) -> None:
    sends = {
        direction(fabric, "srv1-1", "rtsw1"): 0.5,
        direction(fabric, "rtsw1", "ctsw1"): 1.0,
    }
    moments = [
        moment(fabric, AT, {}),
        moment(fabric, AT + S, sends),
        moment(fabric, AT + 4 * S, {}),
    ]
    (run,) = recorded(fabric, moments, []).runs
    (job,) = run.jobs
    rate_bps = next(link.rate_bps for link in fabric.links if link.a.node == "srv1-1")
    total_bits = sum(job.rates) * job.interval_ns / S
    assert total_bits == pytest.approx(0.5 * rate_bps, rel=1e-6)
    assert job.rates[0] == pytest.approx(0.5 * rate_bps)
    assert job.rates[-1] == 0


def test_of_a_large_history_samples_are_left_out_but_the_last(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", 30)
    places = dict.fromkeys(range(10), 0.5)
    moments = [moment(fabric, AT + number * S, places) for number in range(10)]
    (run,) = recorded(fabric, moments, []).runs
    assert run.samples is not None
    assert run.samples.t_ns == [1 * S, 5 * S, 9 * S]
    assert sum(len(value["load"]) for value in run.samples.values) <= 30


def test_of_a_history_with_many_carriers_and_states_samples_are_left_out(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", 30)
    steady = [moment(fabric, AT + n * S, {}, "rtsw1", rtsw1="degraded") for n in range(10)]
    (run,) = recorded(fabric, steady, []).runs
    assert run.samples is not None
    assert len(run.samples.t_ns) == 10
    flaps = [moment(fabric, AT + n * S, {}, f"rtsw{n % 2 + 1}", rtsw1=str(n)) for n in range(10)]
    (run,) = recorded(fabric, flaps, []).runs
    assert run.samples is not None
    assert run.samples.t_ns == [0, 3 * S, 6 * S, 9 * S]


def test_after_the_clock_was_set_back_only_what_is_since_then_is_recorded(fabric: Fabric) -> None:
    times = [AT, AT + S, AT - 9 * S, AT - 8 * S]
    moments = in_order([moment(fabric, t_ns, {}) for t_ns in times])
    assert [moment.t_ns for moment in moments] == times[2:]
    assert in_order(moments) == moments
    assert [sample.t_ns for sample in in_order([moment(fabric, AT, {})] * 2)] == [AT]


def test_a_fault_that_was_there_before_is_in_force_and_no_log_has_a_later_time_than_now(
    fabric: Fabric,
) -> None:
    moments = [moment(fabric, AT, {}), moment(fabric, AT + 2 * S, {})]
    messages = events(
        FaultEvent(AT - 60 * S, 7, "carrier-down", LINK, True, None),
        FaultEvent(AT - 50 * S, 8, "carrier-down", LINK, True, None),
        FaultEvent(AT - 40 * S, 8, "carrier-down", LINK, False, None),
        SessionEvent(AT + 10**9 * S, LINK, "rtsw1", "ctsw1", "ctsw1", True, "session up", ""),
        FaultEvent(AT + S, 7, "carrier-down", LINK, False, None),
        CarrierEvent(AT - S, LINK, "rtsw1", "ctsw1", False),
    )
    (run,) = recorded(fabric, moments, events_of(moments, messages)).runs
    assert [(event["t_ns"], event["event"]) for event in run.events] == [(-60 * S, 7), (S, 7)]
    assert (run.begin_ns, run.end_ns) == (0, 2 * S)


def test_the_busiest_links_come_first_with_their_mean(fabric: Fabric) -> None:
    one, other = direction(fabric, "rtsw1", "ctsw1"), direction(fabric, "ctsw1", "rtsw1")
    moments = [
        moment(fabric, AT, {one: 9.0}),
        moment(fabric, AT + S, {one: 0.5, other: 0.25}),
        moment(fabric, AT + 2 * S, {other: 0.75}),
    ]
    assert busiest(fabric, moments) == ((LINK, "ctsw1", 0.5), (LINK, "rtsw1", 0.25))


def test_the_page_stands_alone_and_says_what_happened(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(Lab.planned("tiny").unstarted(), read_only=True)
    feed.publish(CarrierEvent(AT - S, LINK, "rtsw1", "ctsw1", True))
    with pytest.raises(InputError, match="nothing has been seen yet"):
        recorded_page(feed, NO_TRAFFIC)
    for number in range(2):
        load = {direction(fabric, "rtsw1", "ctsw1"): 0.125}
        feed.history.add({"load": load}, {}, None, reading(fabric, AT + number * S))
    feed.publish(CarrierEvent(AT + S, LINK, "rtsw1", "ctsw1", False))
    page = recorded_page(feed, NO_TRAFFIC)
    assert "<h1>Lab <code>tiny</code></h1>" in page
    assert "2026-11-26 08:24:19 UTC to 2026-11-26 08:24:20 UTC" in page
    assert '<td class="n">12.5%</td>' in page
    assert f"link {LINK}, node rtsw1, interface ctsw1, carrier False" in page
    match = re.search(r'<script type="application/json" id="recording">(.*?)</script>', page)
    assert match is not None
    (run,) = json.loads(match[1])["runs"]
    assert [event["carrier"] for event in run["events"]] == [False]
    assert not re.search(r"https?:|\ssrc=|<link", page.partition("<script>")[0])
    monkeypatch.setattr(module, "MOST_ROWS", 1)
    feed.publish(CarrierEvent(AT + S, LINK, "ctsw1", "rtsw1", False))
    shorter = recorded_page(feed, NO_TRAFFIC)
    assert "node ctsw1, interface rtsw1, carrier False" in shorter
    assert "node rtsw1, interface ctsw1, carrier False" not in shorter


@pytest.mark.parametrize("state", ["disturbed", "invalid"])
def test_the_page_has_the_figures_of_traffic_and_why_they_do_not_count(
    fabric: Fabric, state: str
) -> None:
    feed = Feed(Lab.planned("tiny").unstarted(), read_only=True)
    for number in range(2):
        feed.history.add({}, {}, None, reading(fabric, AT + number * S))
    headline = {"title": "busbw", "median": "41 Gb/s", "minimum": "40", "maximum": "42", "n": 5}
    outage = {
        "flow": "f15",
        "source": "srv1-1",
        "destination": "srv3-1",
        "out_ns": 127_000_000,
        "resolution_ns": 2_000_000,
        "restored": True,
    }
    traffic = {
        "state": state,
        "kind": "job",
        "job": {"pattern": "allreduce"},
        "ranks": 8,
        "headlines": (headline,),
        "problems": ("not valid because [late]",),
        "errors": (),
        "disturbed": ("carrier-down of rtsw1:ctsw1, from 1 s after the start for 2 s",),
        "outages": [
            {**outage, "lost": 386, "event": "carrier-down of rtsw1:ctsw1"},
            {**outage, "lost": None, "out_ns": 900_000, "retransmitted": 1200, "event": None},
        ],
    }
    page = recorded_page(feed, traffic)
    for text in (
        "41 Gb/s",
        "not valid because [late]",
        "Disturbed by carrier-down",
        ">127 ms<",
        ">386 lost<",
        ">&lt; 2 ms<",
        ">1,200 sent again<",
    ):
        assert text in page
    assert state in page
    assert 'id="traffic"' not in recorded_page(feed, {**traffic, "state": "running"})
