"""Events in words, as `rocelab events` prints them."""

from __future__ import annotations

import pytest

from rocelab.live.events import (
    CarrierEvent,
    Event,
    FaultEvent,
    NodeEvent,
    NoteEvent,
    RoutesEvent,
    SessionEvent,
    UseEvent,
    document,
)
from rocelab.live.following import sentence

T_NS = 1_795_952_209_168_000_000


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            CarrierEvent(T_NS, "rtsw1:ctsw2", "ctsw2", "rtsw1", carrier=False),
            "rtsw1:ctsw2 lost its carrier at ctsw2",
        ),
        (
            SessionEvent(
                T_NS, "rtsw1:ctsw2", "rtsw1", "198.18.0.1", "ctsw2", False, "carrier", "Down"
            ),
            "rtsw1: BGP session with ctsw2 is down: carrier, Down",
        ),
        (
            SessionEvent(T_NS, None, "rtsw1", "198.18.0.1", None, True, "session up", ""),
            "rtsw1: BGP session with 198.18.0.1 is up",
        ),
        (
            RoutesEvent(T_NS, T_NS + 3_000_000, "rtsw1", 12, 4),
            "rtsw1: 12 changes of routes within 3 ms, 4 of them removals",
        ),
        (
            NodeEvent(T_NS, "rtsw1", "degraded", 1, 1, 0),
            "rtsw1 is degraded: 1 port without carrier, 1 session down",
        ),
        (
            FaultEvent(T_NS, 3, "carrier-down", "rtsw1:ctsw2", True, None),
            "fault 3, carrier-down of rtsw1:ctsw2, began",
        ),
        (UseEvent(T_NS, "a drill", 7), "a drill uses the lab"),
        (NoteEvent(T_NS, "everything can be read"), "everything can be read"),
    ],
)
def test_an_event_is_a_sentence_after_its_time(event: Event, words: str) -> None:
    time, text = sentence(document(event)).split("  ", 1)
    assert time.endswith(".168")
    assert text == words


def test_lost_events_are_counted() -> None:
    assert sentence({"kind": "gap", "missed": 12}).startswith("12 events were lost")
