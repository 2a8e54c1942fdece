"""Faults of the page: how they end, and what the stream is told of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from rocelab.base.errors import InputError, RocelabError
from rocelab.faults.running import ListedFault
from rocelab.lab.lab import Lab
from rocelab.live import faults as module
from rocelab.live.events import Event, FaultEvent, NoteEvent
from rocelab.live.faults import MOST_FAULTS, FaultRequest, Faults
from rocelab.live.state import LabState
from tests.helpers.limits import LIMIT_S

REQUEST = FaultRequest(kind="carrier-down", keys={"link": "rtsw1:ctsw1", "lasts": "10m"})
SHORT = FaultRequest(kind="carrier-down", keys={"link": "rtsw1:ctsw1", "lasts": "1ms"})


class Feed:
    """Collects what is published, and keeps the state."""

    def __init__(self) -> None:
        self.lab = Lab.planned("tiny").unstarted()
        self.state = LabState(self.lab.fabric, read_only=False)
        self.published: list[Event] = []

    def publish(self, event: Event) -> None:
        self.published.append(event)
        self.state.apply(event)

    def note(self, text: str) -> None:
        self.publish(NoteEvent(0, text))


class Breaking:
    """Stands for the injector: counts what is broken; `refusal` and `stuck` are what it raises."""

    def __init__(self) -> None:
        self.number = 0
        self.broken: set[int] = set()
        self.others: set[int] = set()
        self.refusal: Exception | None = None
        self.stuck: Exception | None = None
        self.changed = threading.Condition()

    @contextmanager
    def injected(self, lab: Lab, spec: object) -> Iterator[tuple[object, object]]:
        if self.refusal is not None:
            raise self.refusal
        with self.changed:
            self.number += 1
            number = self.number
            self.broken.add(number)
        changes = [SimpleNamespace(t_ns=100)]
        fault = SimpleNamespace(kind="carrier-down", subject="rtsw1:ctsw1")
        held = SimpleNamespace(recorded=SimpleNamespace(number=number), fault=fault)
        yield SimpleNamespace(changes=changes), held
        if self.stuck is not None:
            raise self.stuck
        changes.append(SimpleNamespace(t_ns=200))
        with self.changed:
            self.broken.discard(number)
            self.changed.notify_all()

    def recorded(self, lab: Lab) -> tuple[ListedFault, ...]:
        """The lab's record: this process answers for all but those of others."""
        return tuple(
            ListedFault(
                number,
                "carrier-down",
                "rtsw1:ctsw1",
                0.0,
                "alive",
                1 if number in self.others else os.getpid(),
            )
            for number in sorted(self.broken | self.others)
        )

    def wait_until_whole(self) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: not self.broken, LIMIT_S)


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Breaking:
    breaking = Breaking()
    monkeypatch.setattr(module, "injected", breaking.injected)
    monkeypatch.setattr(module, "faults_of", breaking.recorded)
    return breaking


@pytest.fixture
def feed() -> Feed:
    return Feed()


def phases(feed: Feed) -> list[tuple[int, bool, int]]:
    """Number, whether it begins, and when, of every fault that was published."""
    events = [event for event in feed.published if isinstance(event, FaultEvent)]
    return [(event.number, event.begins, event.t_ns) for event in events]


def test_a_fault_ends_by_itself_and_both_its_times_are_the_injectors(
    feed: Feed, breaking: Breaking
) -> None:
    with Faults(feed) as faults:  # type: ignore[arg-type]
        assert faults.inject(SHORT) == 1
        breaking.wait_until_whole()
    assert phases(feed) == [(1, True, 100), (1, False, 200)]


def test_the_end_of_the_server_undoes_what_it_broke(feed: Feed, breaking: Breaking) -> None:
    with Faults(feed) as faults:  # type: ignore[arg-type]
        faults.inject(REQUEST)
        faults.inject(REQUEST)
        assert breaking.broken == {1, 2}
        assert set(feed.state.faults) == {1, 2}
    assert breaking.broken == set()
    assert feed.state.faults == {}


def test_one_of_two_is_undone_by_its_number(feed: Feed, breaking: Breaking) -> None:
    with Faults(feed) as faults:  # type: ignore[arg-type]
        faults.inject(REQUEST)
        faults.inject(REQUEST)
        faults.undo(1)
        assert breaking.broken == {2}
        assert set(feed.state.faults) == {2}


def test_faults_of_others_are_told_when_they_enter_the_record_and_when_they_leave_it(
    feed: Feed, breaking: Breaking
) -> None:
    breaking.others = {7}
    with Faults(feed) as faults:  # type: ignore[arg-type]
        faults.inject(REQUEST)
        breaking.others = {8}
        faults.refresh()
        faults.refresh()
        assert set(feed.state.faults) == {1, 8}
        announced = [(number, begins) for number, begins, _ in phases(feed)]
        assert announced == [(7, True), (1, True), (7, False), (8, True)]


def test_what_the_product_refuses_is_the_answer(feed: Feed, breaking: Breaking) -> None:
    breaking.refusal = InputError("lab tiny is in use by drill link-flap, process 7")
    with (
        Faults(feed) as faults,  # type: ignore[arg-type]
        pytest.raises(InputError, match="in use by drill link-flap"),
    ):
        faults.inject(REQUEST)
    assert phases(feed) == []


def test_a_fault_that_is_not_undone_stays_on_the_page(feed: Feed, breaking: Breaking) -> None:
    breaking.stuck = RocelabError("the link is still down")
    with Faults(feed) as faults:  # type: ignore[arg-type]
        faults.inject(REQUEST)
        with pytest.raises(RocelabError, match="fault 1 is not undone"):
            faults.undo(1)
    assert set(feed.state.faults) == {1}
    (note,) = (event for event in feed.published if isinstance(event, NoteEvent))
    assert note.text == "fault 1 is not undone: the link is still down"


def test_the_page_has_no_more_than_so_many_faults(feed: Feed, breaking: Breaking) -> None:
    with Faults(feed) as faults:  # type: ignore[arg-type]
        for _ in range(MOST_FAULTS):
            faults.inject(REQUEST)
        with pytest.raises(InputError, match=f"{MOST_FAULTS} faults are under way"):
            faults.inject(REQUEST)
        faults.undo(1)
        faults.inject(REQUEST)
