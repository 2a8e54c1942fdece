"""The history that plots are drawn from: what a sample adds, what is asked for, and its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from rocelab.base.errors import InputError
from rocelab.lab.lab import Lab
from rocelab.linux.counters import DepthCounters, QueueCounters
from rocelab.live import history as module
from rocelab.live.history import MOST_LINKS, MOST_SAMPLES, LoadHistory
from rocelab.observe.health.reading import Reading
from rocelab.planning.fabric import Fabric
from tests.unit.live.test_state import reading

LINK = "rtsw1:ctsw1"
PORT = ("rtsw1", "ctsw1")
S = 10**9


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return Lab.planned("tiny").fabric


def queued(fabric: Fabric, t_ns: int, **counts: Any) -> Reading:
    """A reading in which class 3 of the link's lower port has counted so much."""
    idle = QueueCounters(0, 0, 0, 0, 0, None, None, None)
    return replace(
        reading(fabric, t_ns),
        queues={PORT: {3: replace(idle, **counts), 5: idle}},
    )


def up(fabric: Fabric) -> int:
    return 2 * [link.name for link in fabric.links].index(LINK)


def values(document: Mapping[str, Any]) -> dict[tuple[str, int | None, str], list[float]]:
    return {(e["from"], e["class"], e["what"]): e["values"] for e in document["series"]}


def test_a_queue_has_its_depth_and_what_it_marked_and_dropped_a_second(fabric: Fabric) -> None:
    """It is as deep in the third reading, and was deeper in between when the fourth was made."""
    history = LoadHistory(fabric)
    history.add({"load": {up(fabric): 0.5}}, {}, None, queued(fabric, S))
    counts = {"marked": 7, "dropped_packets": 3, "depth_bytes": 900}
    deeper: dict[str, Any] = {**counts, "on_arrival": DepthCounters(4500, 4500, (1,), (0,))}
    readings = [
        queued(fabric, S),
        queued(fabric, S + S // 2, **counts),
        queued(fabric, 2 * S, **counts),
        queued(fabric, 3 * S, **deeper),
    ]
    for before, now in pairwise(readings):
        history.add({}, {}, before, now)
    document = history.document([LINK], 0)
    assert document["t_ns"] == [S, S + S // 2, 2 * S, 3 * S]
    assert values(document) == {
        ("rtsw1", None, "load"): [0.5, 0, 0, 0],
        ("ctsw1", None, "load"): [0, 0, 0, 0],
        ("rtsw1", 3, "depth_bytes"): [0, 900, 900, 4500],
        ("rtsw1", 3, "marks_per_s"): [0, 14, 0, 0],
        ("rtsw1", 3, "drops_per_s"): [0, 6, 0, 0],
    }
    assert values(history.document(["rtsw2:ctsw1"], 2 * S)) == {
        ("rtsw2", None, "load"): [0],
        ("ctsw1", None, "load"): [0],
    }


def test_only_what_is_newer_is_given(fabric: Fabric) -> None:
    history = LoadHistory(fabric)
    for t_ns in (1, 2, 3):
        history.add({}, {}, None, reading(fabric, t_ns))
    assert history.document([LINK], 2)["t_ns"] == [3]
    assert history.document([LINK], 3)["t_ns"] == []


def test_it_has_an_end(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    history = LoadHistory(fabric)
    for t_ns in range(1, MOST_SAMPLES + 11):
        history.add({}, {}, None, reading(fabric, t_ns))
    assert history.document([LINK], 0)["t_ns"] == list(range(11, MOST_SAMPLES + 11))
    monkeypatch.setattr(module, "MOST_QUEUES", 2)
    for t_s in range(1, 6):
        deep = queued(fabric, (t_s + 1) * S, depth_bytes=9)
        history.add({}, {}, queued(fabric, t_s * S), deep)
    assert history.document([LINK], 0)["t_ns"] == [5 * S, 6 * S]


def test_links_that_there_are_not_and_too_many_are_refused(fabric: Fabric) -> None:
    with pytest.raises(InputError, match="no link nothing"):
        LoadHistory(fabric).document(["nothing"], 0)
    with pytest.raises(InputError, match="too many"):
        LoadHistory(fabric).document([LINK] * (MOST_LINKS + 1), 0)


def test_what_held_at_a_time_is_that_of_the_sample_before_it(fabric: Fabric) -> None:
    history = LoadHistory(fabric)
    with pytest.raises(InputError, match="nothing has been read yet"):
        history.at(S, "load")
    whole = reading(fabric, S)
    broken = reading(fabric, 2 * S, dark=(LINK,))
    history.add({"load": {3: 0.25}, "drops": {}}, {}, None, whole)
    history.add(
        {"load": {3: 0.12345, 5: 1.0}, "drops": {3: 7.0}}, {"rtsw1": "degraded"}, None, broken
    )
    now = {"carrier": {LINK: [False, True]}, "states": {"rtsw1": "degraded"}, "t_ns": 2 * S}
    before = {"carrier": {}, "states": {}, "t_ns": S}
    for t_ns in (2 * S, 9 * S):
        assert history.at(t_ns, "load") == {**now, "metric": "load", "values": {3: 0.1235, 5: 1.0}}
        assert history.at(t_ns, "drops") == {**now, "metric": "drops", "values": {3: 7.0}}
        assert history.at(t_ns, "marks") == {**now, "metric": "marks", "values": {}}
    for t_ns in (1, S, 2 * S - 1):
        assert history.at(t_ns, "load") == {**before, "metric": "load", "values": {3: 0.25}}
        assert history.at(t_ns, "drops") == {**before, "metric": "drops", "values": {}}
