"""What a run says of its lossless classes: this run's pauses, whatever the lab did before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.dataplane.pfc.journal import JournalAction
from rocelab.observe import pauses
from rocelab.observe.pauses import PauseWatch
from rocelab.results.lossless import Lossless
from tests.helpers.lossless_fakes import FABRIC, NIC, PLAN, SWITCH, FakeLab, faked

BEGUN_NS, ENDED_NS = 1000, 2000
"""When a run is watched from and until. Its jobs start at 1,100."""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    times: Iterator[int] = iter((BEGUN_NS, ENDED_NS))
    monkeypatch.setattr(pauses, "monotonic_ns", lambda: next(times))
    monkeypatch.setattr(pauses, "clock_offset_ns", lambda: 0)
    return faked(tmp_path, monkeypatch)


def figures(lab: FakeLab, *entries: tuple[int, JournalAction]) -> Lossless:
    """Of a run in which the switch's port did this."""
    with PauseWatch(FABRIC) as watch:
        lab.did(*entries)
        lab.maps.egresses.rows[SWITCH.slot * 8 + 3] = {"pauses": 2}
        lossless = watch.figures(BEGUN_NS + 100)
    assert lossless is not None
    return lossless


def test_the_longest_pause_is_this_run_s(lab: FakeLab) -> None:
    lab.did((0, JournalAction.STOPPED), (900, JournalAction.STARTED))
    lossless = figures(
        lab,
        (1200, JournalAction.STOPPED),
        (1230, JournalAction.STARTED),
        (1990, JournalAction.STOPPED),
    )
    (port,) = lossless.ports
    assert port.node == SWITCH.node
    assert (port.transitions, port.paused_ns, port.longest_ns) == (2, 40, 30)
    assert [(span.begin_ns, span.end_ns) for span in lossless.spans] == [(100, 130), (890, None)]


def test_a_pause_from_before_the_run_counts_from_its_beginning_on(lab: FakeLab) -> None:
    lab.did((0, JournalAction.STOPPED))
    lossless = figures(lab, (1250, JournalAction.STARTED))
    (port,) = lossless.ports
    assert port.paused_ns == port.longest_ns == 250
    assert [(span.begin_ns, span.end_ns) for span in lossless.spans] == [(-100, 150)]


def test_of_too_many_pauses_the_short_ones_that_are_over_are_left_out(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "MOST_SPANS", 2)
    ended = [
        (1100, JournalAction.STOPPED),
        (1101, JournalAction.STARTED),
        (1200, JournalAction.STOPPED),
        (1250, JournalAction.STARTED),
    ]
    lossless = figures(
        lab,
        *ended,
        (1300, JournalAction.STOPPED),
        (1320, JournalAction.STARTED),
        (1990, JournalAction.STOPPED),
    )
    assert [(span.begin_ns, span.end_ns) for span in lossless.spans] == [(100, 150), (890, None)]
    assert lossless.spans_left_out == 2
    assert lossless.part == "the 2 longest of 4 pauses"


def test_lateness_is_of_all_ports_and_of_nics_alone(lab: FakeLab) -> None:
    with PauseWatch(FABRIC) as watch:
        lab.did((1200, JournalAction.STOPPED), (1300, JournalAction.STARTED), value=2000)
        lab.did(
            (1200, JournalAction.STOPPED), (1300, JournalAction.STARTED), slot=NIC.slot, value=10
        )
        lossless = watch.figures(BEGUN_NS)
    assert lossless is not None
    assert (lossless.late_max_ns, lossless.nics_late_p99_ns) == (2000, 10)


@pytest.mark.parametrize(("begun_ns", "restarts"), [(900, 0), (1300, 1)])
def test_a_pausing_process_that_was_started_again_counts_if_it_was_in_this_run(
    lab: FakeLab, begun_ns: int, restarts: int
) -> None:
    lab.did((0, JournalAction.TAKEN_OVER))
    assert figures(lab, (begun_ns, JournalAction.TAKEN_OVER)).restarts == restarts


@pytest.mark.parametrize("lost_ns", [500, 1500])
def test_a_full_journal_lacks_pauses_of_this_run_and_of_all_after_it(
    lab: FakeLab, lost_ns: int
) -> None:
    assert not figures(lab, (lost_ns, JournalAction.LOST)).is_recorded


def test_a_journal_with_room_has_all_pauses(lab: FakeLab) -> None:
    assert figures(lab, (1200, JournalAction.STOPPED), (1300, JournalAction.STARTED)).is_recorded


def test_records_that_wait_for_room_are_missing_in_this_run(lab: FakeLab) -> None:
    lab.maps.ports.rows[0] = {"unreported": 1}
    assert not figures(lab, (1200, JournalAction.STOPPED)).is_recorded


@pytest.mark.parametrize(
    ("received", "is_paused", "lost"), [(2, False, 0), (3, False, 0), (1, False, 1), (1, True, 0)]
)
def test_pause_frames_that_did_not_reach_the_peer_are_told(
    lab: FakeLab, received: int, is_paused: bool, lost: int
) -> None:
    """The last one to a peer that is still paused may be on its way."""
    lab.did((0, JournalAction.PAUSE_SENT))
    with PauseWatch(FABRIC) as watch:
        lab.did((1200, JournalAction.PAUSE_SENT), (1300, JournalAction.REFRESHED))
        row = {"pauses": received, "gated": int(is_paused)}
        lab.maps.egresses.rows[SWITCH.peer * 8 + 3] = row
        lossless = watch.figures(BEGUN_NS)
    assert lossless is not None
    assert list(lossless.unreceived.values()) == [lost] * bool(lost)
    assert len(lossless.losses()) == bool(lost)
    assert not any("did not reach" in problem for problem in lossless.problems())


@pytest.mark.parametrize(
    ("pauses", "resumes", "lost"), [(1, 1, 0), (2, 2, 0), (1, 0, 1), (2, 0, 1), (0, 0, 2)]
)
def test_frames_that_end_a_pause_are_not_made_up_for_by_others(
    lab: FakeLab, pauses: int, resumes: int, lost: int
) -> None:
    with PauseWatch(FABRIC) as watch:
        lab.did((1200, JournalAction.PAUSE_SENT), (1300, JournalAction.RESUME_SENT))
        row = {"pauses": pauses, "resumes": resumes}
        lab.maps.egresses.rows[SWITCH.peer * 8 + 3] = row
        lossless = watch.figures(BEGUN_NS)
    assert lossless is not None
    assert sum(lossless.unreceived.values()) == lost


ROWS = SWITCH.slot * 8 + 3, SWITCH.peer * 8 + 3
"""Of the switch's port and its peer's, class 3."""


@pytest.mark.parametrize(
    ("counts", "sent", "into", "missing"),
    [
        ({}, {"out_packets": 9}, {"packets": 9}, 0),
        ({}, {"out_packets": 9}, {"packets": 7, "dropped_packets": 2}, 0),
        ({}, {"out_packets": 9}, {"packets": 8}, 1),
        ({}, {"out_packets": 9}, {"packets": 10}, -1),
        ({}, {"out_packets": 9, "discarded_packets": 4, "flushed_packets": 3}, {"packets": 6}, 0),
        ({}, {"out_packets": 9, "discarded_packets": 3, "flushed_packets": 3}, {"packets": 9}, -3),
        ({"discarded_packets": 5, "flushed_packets": 1}, {"out_packets": 9}, {"packets": 5}, 0),
        ({"discarded_packets": 5}, {"out_packets": 9}, {"packets": 5}, -1),
    ],
)
def test_what_came_into_a_switch_is_admitted_dropped_or_discarded(
    lab: FakeLab, counts: dict[str, int], sent: dict[str, int], into: dict[str, int], missing: int
) -> None:
    """`own`: of the switch's egress. What its watchdog takes from a queue has been admitted, what
    it takes before one has not."""
    with PauseWatch(FABRIC) as watch:
        egresses, ingresses = lab.maps.egresses.rows, lab.maps.ingresses.rows
        egresses[ROWS[0]], egresses[ROWS[1]], ingresses[ROWS[0]] = counts, sent, into
        lossless = watch.figures(BEGUN_NS)
    assert lossless is not None
    place = SWITCH.node if counts.get("discarded_packets") else SWITCH
    assert dict(lossless.unaccounted) == ({f"{place} class 3": missing} if missing else {})
    assert len(lossless.losses()) == bool(missing)


def test_packets_that_are_counted_for_another_port_of_a_switch_are_found(lab: FakeLab) -> None:
    other = next(port for port in PLAN.ports_of[SWITCH.node] if port is not SWITCH)
    with PauseWatch(FABRIC) as watch:
        lab.maps.egresses.rows[ROWS[1]] = {"out_packets": 9}
        lab.maps.ingresses.rows[ROWS[0]] = {"packets": 7}
        lab.maps.ingresses.rows[other.slot * 8 + 3] = {"packets": 2}
        lossless = watch.figures(BEGUN_NS)
    assert lossless is not None
    assert dict(lossless.unaccounted) == {f"{SWITCH} class 3": 2, f"{other} class 3": -2}


def test_what_came_before_a_run_is_not_accounted_for_in_it(lab: FakeLab) -> None:
    lab.maps.egresses.rows[ROWS[1]] = {"out_packets": 9}
    lab.maps.ports.rows[SWITCH.slot] = {"unreported": 4}
    with PauseWatch(FABRIC) as watch:
        lab.maps.ports.rows[SWITCH.slot] = {"unreported": 6}
        lossless = watch.figures(BEGUN_NS)
    assert lossless is not None
    assert not lossless.unaccounted
    assert lossless.unreported == 2
