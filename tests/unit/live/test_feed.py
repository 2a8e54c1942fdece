"""What the feed makes of logs, tables and readings, before it is published."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocelab.lab.lab import Lab, RunningLab
from rocelab.linux.fibwatch import FibAction, FibEvent
from rocelab.linux.linkwatch import LinkEvent
from rocelab.live import feed as module
from rocelab.live.events import (
    CarrierEvent,
    Event,
    NodeEvent,
    NoteEvent,
    RoutesEvent,
    SchemeEvent,
    SessionEvent,
)
from rocelab.live.feed import Feed, SessionLogs
from rocelab.live.state import METRICS
from rocelab.observe.stages import tracing
from rocelab.observe.stages.tracing import Daemon
from rocelab.routing.files import DaemonFiles
from tests.unit.live.test_state import reading

_LINE = "BGP: [M59KS-A3ZXZ] %ADJCHANGE: neighbor 198.18.0.19 in vrf default"
UP = f"2026/11/26 08:24:22.857492 {_LINE} Up\n"
DOWN = f"2026/11/26 08:24:19.833941 {_LINE} Down Interface down\n"


class Told(Feed):
    """A feed of a lab that does not run; it keeps what it would publish."""

    def __init__(self, lab: RunningLab) -> None:
        self.told: list[Event] = []
        super().__init__(lab, read_only=False)

    def publish(self, event: Event) -> None:
        self.told.append(event)
        self.state.apply(event)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of rtsw1's bgpd, which is the only one that runs."""
    files = DaemonFiles(tmp_path)
    files.daemon_folder.mkdir()
    daemon = Daemon("rtsw1", "bgpd", files, os.getpid())
    monkeypatch.setattr(tracing, "running_daemons", lambda lab: (daemon,))
    files.log("bgpd").write_text(UP)
    return files.log("bgpd")


@pytest.fixture
def lab() -> RunningLab:
    return Lab.planned("tiny").unstarted()


def test_a_session_s_end_has_the_time_and_the_cause_of_the_log(log: Path, lab: RunningLab) -> None:
    logs = SessionLogs(lab)
    assert list(logs.changes()) == []  # what was before is the state, and no event
    with log.open("a") as opened:
        opened.write(DOWN)
        opened.flush()
        assert list(logs.changes()) == [
            SessionEvent(
                1795681459833941000,
                "rtsw1:ctsw1",
                "rtsw1",
                "198.18.0.19",
                "ctsw1",
                False,
                "carrier",
                "Interface down",
            )
        ]
        opened.write(UP)
    (back,) = logs.changes()
    assert isinstance(back, SessionEvent)
    assert (back.up, back.cause, back.t_ns) == (True, "session-up", 1795681462857492000)
    assert list(logs.changes()) == []


def test_lines_that_come_while_a_log_is_read_are_told_once(
    log: Path, lab: RunningLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = SessionLogs(lab)
    sizes = tracing.log_sizes

    def growing(daemons: tuple[Daemon, ...]) -> dict[Path, int]:
        lengths = sizes(daemons)
        with log.open("a") as opened:
            opened.write(UP)
        return lengths

    with log.open("a") as opened:
        opened.write(DOWN)
    monkeypatch.setattr(tracing, "log_sizes", growing)
    events = [event for event in logs.changes() if isinstance(event, SessionEvent)]
    assert [event.up for event in events] == [False, True]
    monkeypatch.setattr(tracing, "log_sizes", sizes)
    assert list(logs.changes()) == []


def test_of_a_log_that_grew_much_only_the_end_is_read(
    log: Path, lab: RunningLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LOG_BYTES", 200)
    logs = SessionLogs(lab)
    with log.open("a") as opened:
        opened.write(DOWN + "x" * 200 + "\n" + UP)
    note, back = logs.changes()
    assert isinstance(note, NoteEvent)
    assert note.text.startswith("rtsw1: ")
    assert isinstance(back, SessionEvent)
    assert back.up


class Tables:
    """Stands for the watch of tables: events that are read together."""

    def __init__(self, *events: FibEvent) -> None:
        self._events = events

    def events(self, timeout_s: float) -> tuple[FibEvent, ...]:
        return self._events


def changed(t_ms: int, node: str, action: FibAction = FibAction.SET) -> FibEvent:
    return FibEvent(t_ms * 10**6, node, action, "198.18.0.0/30", 1)


def test_changes_of_a_table_that_come_together_are_one_event_for_each_switch(
    lab: RunningLab,
) -> None:
    feed = Told(lab)
    tables = Tables(
        changed(1, "rtsw1"),
        changed(2, "rtsw2"),
        changed(3, "rtsw1", FibAction.DELETE),
        changed(500, "rtsw1"),
    )
    feed._take_tables(tables)  # type: ignore[arg-type]
    assert sorted(feed.told, key=lambda event: event.t_ns) == [
        RoutesEvent(10**6, 3 * 10**6, "rtsw1", 2, 1),
        RoutesEvent(2 * 10**6, 2 * 10**6, "rtsw2", 1, 0),
        RoutesEvent(500 * 10**6, 500 * 10**6, "rtsw1", 1, 0),
    ]


def test_a_reading_corrects_a_carrier_only_if_it_is_newer_than_the_event(lab: RunningLab) -> None:
    feed = Told(lab)
    port = ("rtsw1:ctsw1", "rtsw1", "ctsw1")
    dark = reading(lab.fabric, 1000, dark=("rtsw1:ctsw1",))
    assert list(feed._corrected(dark)) == [CarrierEvent(1000, *port, False)]
    feed.publish(CarrierEvent(900, *port, carrier=False))
    assert list(feed._corrected(dark)) == []
    # The port came back while the reading that still has it dark was under way.
    feed.publish(CarrierEvent(1100, *port, carrier=True))
    assert list(feed._corrected(dark)) == []
    assert list(feed._corrected(reading(lab.fabric, 1200))) == []


def test_of_a_session_that_ends_without_a_reason_on_a_dark_link_the_cause_is_the_carrier(
    log: Path, lab: RunningLab
) -> None:
    feed = Told(lab)
    with log.open("a") as opened:
        opened.write(DOWN.replace("Interface down", "Waiting for peer OPEN"))
    (ended,) = feed._logs.changes()
    assert isinstance(ended, SessionEvent)
    assert feed._with_cause(ended) == ended
    assert (ended.cause, ended.detail) == ("other", "")
    feed.publish(CarrierEvent(900, "rtsw1:ctsw1", "ctsw1", "rtsw1", carrier=False))
    assert feed._with_cause(ended) == replace(ended, cause="carrier")
    for other in (
        replace(ended, cause="admin", detail="Admin. shutdown"),
        replace(ended, up=True, cause="session-up"),
    ):
        assert feed._with_cause(other) == other


def test_a_scheme_that_is_switched_is_told_once(
    lab: RunningLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Told(lab)
    assert list(feed._changed_scheme(reading(lab.fabric))) == []
    monkeypatch.setattr(module, "_scheme_of", lambda _: {"kind": "spray"})
    (event,) = feed._changed_scheme(reading(lab.fabric, 7))
    assert event == SchemeEvent(7, {"kind": "spray"})
    feed.publish(event)
    assert list(feed._changed_scheme(reading(lab.fabric))) == []


class Carriers:
    """Stands for the watch of links."""

    def __init__(self, *events: LinkEvent) -> None:
        self._events = events

    def events(self, timeout_s: float) -> tuple[LinkEvent, ...]:
        return self._events


def test_of_a_port_only_changes_of_its_carrier_are_told(lab: RunningLab) -> None:
    """The kernel tells each change of a port, and of ports that are none of the lab's."""
    feed = Told(lab)
    changes = [(1, "ctsw1", True), (2, "lo", False), *((t, "ctsw1", t > 4) for t in (3, 4, 5, 6))]
    carriers = Carriers(*(LinkEvent(t, "rtsw1", port, True, up, 6) for t, port, up in changes))
    feed._take_carriers(carriers)  # type: ignore[arg-type]
    link = "rtsw1:ctsw1"
    assert feed.told == [
        CarrierEvent(3, link, "rtsw1", "ctsw1", False),
        CarrierEvent(5, link, "rtsw1", "ctsw1", True),
    ]


def test_a_sample_tells_once_what_cannot_be_read_and_keeps_the_nodes_that_are_not_as_planned(
    lab: RunningLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Told(lab)
    monkeypatch.setattr(module, "_scheme_of", lambda _: feed.state.scheme)
    monkeypatch.setattr(module, "values_of", lambda *_: {metric: {} for metric in METRICS})
    whole = reading(lab.fabric, 4)
    dark = reading(lab.fabric, 1, dark=("rtsw1:ctsw1",))
    gap = ("rtsw2: no",)
    result = []
    lost, still = replace(dark, time_ns=2, gaps=gap), replace(whole, time_ns=3, gaps=gap)
    for now in (dark, lost, still, whole):
        feed._take_sample(SimpleNamespace(reading=now))  # type: ignore[arg-type]
        result.append(feed.history.moments()[-1].states)
    assert result == [{"rtsw1": "degraded"}] * 2 + [{}] * 2
    notes = [event.text for event in feed.told if isinstance(event, NoteEvent)]
    assert notes == ["rtsw2: no", "everything can be read and works again"]
    assert [event.carrier for event in feed.told if isinstance(event, CarrierEvent)] == [
        False,
        True,
    ]


def test_only_nodes_in_another_state_are_told(lab: RunningLab) -> None:
    feed = Told(lab)
    assert list(feed._changed_nodes(reading(lab.fabric))) == []
    narrow = reading(lab.fabric, 7, narrow={"rtsw2": 3})
    assert list(feed._changed_nodes(narrow)) == [NodeEvent(7, "rtsw2", "rerouted", 0, 0, 3)]
    feed.publish(NodeEvent(7, "rtsw2", "rerouted", 0, 0, 3))
    assert list(feed._changed_nodes(narrow)) == []
