"""What is read of lossless classes: pauses from the journal, and counters of ports and classes."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.cli import lifecycle
from rocelab.dataplane.pfc import control, journal, overview
from rocelab.dataplane.pfc.journal import JournalAction, JournalEntry, PauseJournal
from rocelab.dataplane.pfc.overview import LosslessOverview, read_overview
from rocelab.dataplane.pfc.reading import PauseHistory, PauseReader, pauses
from rocelab.lab.status import LabStatus
from rocelab.labfile.queues import QueuesSpec
from rocelab.planning.build import plan
from rocelab.record import LabFiles
from tests.helpers.lossless_fakes import FABRIC, NIC, PLAN, SWITCH, FakeLab, faked


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    return faked(tmp_path, monkeypatch)


@pytest.fixture
def reader(lab: FakeLab) -> Iterator[PauseReader]:
    with PauseReader(FABRIC) as opened:
        yield opened
    assert lab.maps.closed


def entry(t_ns: int, what: JournalAction, slot: int = 1, traffic_class: int = 3) -> JournalEntry:
    return JournalEntry(t_ns, 0, slot, traffic_class, what)


# The journal


def test_a_journal_is_read_from_where_one_was(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    assert list(journal.read(file)) == []
    noted = PauseJournal(file)
    noted.note(10, JournalAction.STOPPED, 7, 3, value=-2)
    noted.note(20, JournalAction.STARTED, 7, 3, value=5)
    noted.flush()
    assert list(journal.read(file)) == [
        JournalEntry(10, -2, 7, 3, JournalAction.STOPPED),
        JournalEntry(20, 5, 7, 3, JournalAction.STARTED),
    ]
    with file.open("ab") as opened:
        opened.write(b"half")
    assert [entry.t_ns for entry in journal.read(file, 1)] == [20]
    assert list(journal.read(file, 2)) == list(journal.read(file, 9)) == []


def test_a_full_journal_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST_BYTES", 60)
    noted = PauseJournal(tmp_path / "journal")
    for t_ns in range(6):
        noted.note(t_ns, JournalAction.STOPPED, 1, 3)
    noted.flush()
    kinds = [entry.what for entry in journal.read(tmp_path / "journal")]
    assert kinds == [*3 * [JournalAction.STOPPED], JournalAction.LOST]


def test_what_does_not_fit_the_disk_waits_and_no_record_is_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = PauseJournal(tmp_path / "journal")
    room = [13, 0, 30]

    def write(descriptor: int, data: bytes) -> int:
        if not room:
            return real(descriptor, data)
        if not (fits := room.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[:fits])

    real = os.write
    monkeypatch.setattr(os, "write", write)
    waiting = []
    for t_ns in range(4):
        noted.note(t_ns, JournalAction.STOPPED, 1, 3)
        noted.flush()
        waiting.append(noted.waiting)
        assert all(
            entry.what is JournalAction.STOPPED for entry in journal.read(tmp_path / "journal")
        )
    assert waiting == [1, 2, 1, 0]
    assert [entry.t_ns for entry in journal.read(tmp_path / "journal")] == [0, 1, 2, 3]


def test_a_process_begins_after_the_last_whole_record(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    first = PauseJournal(file)
    first.note(10, JournalAction.STOPPED, 7, 3)
    first.flush()
    with file.open("ab") as opened:
        opened.write(b"half")
    second = PauseJournal(file)
    second.note(20, JournalAction.STARTED, 7, 3)
    second.flush()
    entries = [(entry.t_ns, entry.what) for entry in journal.read(file)]
    assert entries == [(10, JournalAction.STOPPED), (20, JournalAction.STARTED)]


def test_a_record_that_is_damaged_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    file.write_bytes(bytes(20))
    (entry,) = journal.read(file)
    assert entry.what is JournalAction.LOST


# Pauses


@pytest.mark.parametrize(
    "end", [JournalAction.STARTED, JournalAction.EXPIRED, JournalAction.CUT, JournalAction.FIRED]
)
def test_a_pause_ends_with_what_ended_it(end: JournalAction) -> None:
    (pause,) = pauses(
        PLAN, [entry(10, JournalAction.STOPPED), entry(20, JournalAction.REFRESHED), entry(35, end)]
    )
    assert (pause.begin_ns, pause.end_ns, pause.ended_by) == (10, 35, end)
    assert pause.sender is PLAN.by_slot[1]
    assert pause.peer == PLAN.by_slot[pause.sender.peer].node


def test_ports_and_classes_pause_apart_and_in_order() -> None:
    spans = pauses(
        PLAN,
        [
            entry(10, JournalAction.STOPPED, slot=1),
            entry(12, JournalAction.STOPPED, slot=2),
            entry(13, JournalAction.STOPPED, slot=1, traffic_class=4),
            entry(15, JournalAction.STARTED, slot=2),
            entry(20, JournalAction.STARTED, slot=1),
        ],
    )
    assert [
        (pause.sender.slot, pause.traffic_class, pause.begin_ns, pause.end_ns) for pause in spans
    ] == [
        (1, 3, 10, 20),
        (2, 3, 12, 15),
        (1, 4, 13, None),
    ]


def test_what_ended_before_it_began_is_no_pause() -> None:
    assert pauses(PLAN, [entry(5, JournalAction.STARTED), entry(6, JournalAction.EXPIRED)]) == []


@pytest.mark.parametrize("end", [JournalAction.TAKEN_OVER, JournalAction.LOST])
def test_no_pause_outlasts_the_process_or_the_journal(end: JournalAction) -> None:
    spans = pauses(
        PLAN,
        [
            entry(10, JournalAction.STOPPED, slot=1),
            entry(11, JournalAction.STOPPED, slot=2),
            entry(30, end, slot=0),
            entry(40, JournalAction.STOPPED, slot=1),
        ],
    )
    assert [(pause.sender.slot, pause.end_ns, pause.ended_by) for pause in spans] == [
        (1, 30, end),
        (2, 30, end),
        (1, None, None),
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(list(JournalAction)), st.integers(1, 3)),
        max_size=40,
    ),
    st.lists(st.integers(0, 40), max_size=5),
)
def test_a_history_is_the_same_in_however_many_parts_it_is_read(
    steps: list[tuple[int, JournalAction, int]], cuts: list[int]
) -> None:
    t_ns, entries = 0, []
    for wait_ns, what, slot in steps:
        t_ns += wait_ns
        entries.append(entry(t_ns, what, slot))
    parts = [0, *sorted(cuts), len(entries)]
    history = PauseHistory()
    for begin, end in pairwise(parts):
        history.add(entries[begin:end])
    spans = pauses(PLAN, entries)
    for slot in (1, 2, 3):
        mine = [pause for pause in spans if pause.sender.slot == slot]
        ended = [pause.end_ns - pause.begin_ns for pause in mine if pause.end_ns is not None]
        did = history.of(slot, 3)
        assert did.paused_ns == sum(ended)
        assert did.longest_ns == max(ended, default=0)
        lasting = [pause.begin_ns for pause in mine if pause.end_ns is None]
        assert lasting == ([] if did.begun_ns is None else [did.begun_ns])
    assert history.entries == len(entries)
    assert history.is_complete == all(what is not JournalAction.LOST for _, what, _ in steps)


# Counters


def test_a_class_is_counted_by_map_and_journal(lab: FakeLab, reader: PauseReader) -> None:
    index = SWITCH.slot * 8 + 3
    lab.maps.egresses.rows[index] = {"pauses": 4, "resumes": 1, "gated": 1, "packets": 9}
    lab.maps.egresses.rows[index] |= {"out_packets": 5, "purged_packets": 1}
    lab.maps.ingresses.rows[index] = {"held": 70, "held_max": 90, "headroom_max": 30}
    lab.maps.ingresses.rows[index] |= {"dropped_packets": 2, "late_packets": 3}
    lab.did(
        (10, JournalAction.PAUSE_SENT),
        (20, JournalAction.REFRESHED),
        (30, JournalAction.RESUME_SENT),
    )
    lab.did(
        (40, JournalAction.STOPPED),
        (47, JournalAction.STARTED),
        (50, JournalAction.STOPPED),
        (53, JournalAction.FIRED),
    )
    lab.did((60, JournalAction.STOPPED))
    counters = reader.counters(100)[SWITCH, 3]
    assert (counters.pauses_sent, counters.resumes_sent) == (2, 1)
    assert (counters.pauses_received, counters.resumes_received) == (4, 1)
    assert (counters.transitions, counters.watchdog_fired, counters.is_paused) == (3, 1, True)
    assert (counters.paused_ns, counters.longest_ns) == (7 + 3 + 40, 40)
    assert (counters.held, counters.held_max, counters.headroom_max) == (70, 90, 30)
    assert (counters.dropped_packets, counters.late_packets) == (2, 3)
    other = reader.counters(100)[SWITCH, 4]
    assert (other.transitions, other.paused_ns, other.is_paused) == (0, 0, False)


def test_only_what_is_new_in_the_journal_is_read(
    lab: FakeLab, reader: PauseReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    read = journal.read

    def noted(file: Path, since: int = 0) -> Iterator[JournalEntry]:
        asked.append(since)
        return read(file, since)

    monkeypatch.setattr(journal, "read", noted)
    lab.did((10, JournalAction.STOPPED), (15, JournalAction.STARTED))
    assert reader.counters(20)[SWITCH, 3].paused_ns == 5
    lab.did((30, JournalAction.STOPPED))
    assert reader.counters(40)[SWITCH, 3].paused_ns == 15
    assert reader.counters(45)[SWITCH, 3].paused_ns == 20
    lab.did((50, JournalAction.STARTED))
    last = reader.counters(60)[SWITCH, 3]
    assert (last.paused_ns, last.longest_ns, last.transitions) == (25, 20, 2)
    assert asked == [0, 2, 3, 3]


def test_a_pause_does_not_outlast_a_process_that_is_gone(lab: FakeLab, reader: PauseReader) -> None:
    lab.did((10, JournalAction.STOPPED), (25, JournalAction.REFRESHED))
    assert reader.counters(1000)[SWITCH, 3].paused_ns == 990
    lab.is_alive = False
    assert reader.counters(2000)[SWITCH, 3].paused_ns == 15


def test_a_nic_s_buffer_drains_without_an_event_and_its_drops_count_once(
    lab: FakeLab, reader: PauseReader
) -> None:
    lab.maps.ports.rows[NIC.slot] = {
        **{"held": 5000, "held_ns": 1_000_000, "drain": 1_000_000},
        **{"held_max": 9000, "overflow_packets": 7},
    }
    counters = reader.counters(3_000_000)
    assert counters[NIC, 3].held == counters[NIC, 4].held == 3000
    assert counters[NIC, 3].held_max == 9000
    assert [counters[NIC, traffic_class].dropped_packets for traffic_class in (3, 4)] == [7, 0]
    assert reader.counters(900_000_000)[NIC, 3].held == 0
    lab.maps.ports.rows[NIC.slot] |= {"drain": 0}
    assert reader.counters(3_000_000)[NIC, 3].held == 0


QUEUED = {"packets": 5, "out_packets": 2, "purged_packets": 1}
"""Two packets wait."""
QUEUED_BYTES = {"bytes": 500, "out_bytes": 200, "purged_bytes": 100}


@pytest.mark.parametrize(
    ("out", "held", "places"),
    [
        ({}, 0, []),
        ({"packets": 5, "out_packets": 4, "purged_packets": 1}, 0, []),
        (QUEUED, 0, ["2 packets in its queue"]),
        (QUEUED | {"gated": 1}, 0, []),
        ({"packets": 5, "out_packets": 6, "gated": 1}, 0, ["-1 packets in its queue"]),
        (QUEUED | QUEUED_BYTES | {"gated": 1}, 200, []),
        (QUEUED | QUEUED_BYTES | {"gated": 1}, 0, ["0 bytes held, 200 queued"]),
        ({}, 200, ["200 bytes held, 0 queued"]),
    ],
)
def test_a_lab_at_rest_holds_what_waits_for_pauses_and_nothing_else(
    lab: FakeLab, reader: PauseReader, out: dict[str, int], held: int, places: list[str]
) -> None:
    """Held for one port, in the queue of another of the same switch."""
    other = next(port for port in PLAN.ports_of[SWITCH.node] if port is not SWITCH)
    lab.maps.egresses.rows[SWITCH.slot * 8 + 3] = out
    lab.maps.ingresses.rows[other.slot * 8 + 3] = {"held": held}
    lines = reader.imbalance()
    assert len(lines) == len(places)
    assert all(part in text for part, text in zip(places, lines, strict=True))


def test_what_a_nic_has_not_sent_waits_for_pauses_too(lab: FakeLab, reader: PauseReader) -> None:
    lab.maps.egresses.rows[NIC.slot * 8 + 3] = QUEUED | QUEUED_BYTES
    (text,) = reader.imbalance()
    assert str(NIC) in text
    lab.maps.egresses.rows[NIC.slot * 8 + 3]["gated"] = 1
    assert reader.imbalance() == ()


def test_a_switch_that_holds_another_s_packets_is_found(lab: FakeLab, reader: PauseReader) -> None:
    """In sum over the fabric as much is held as is queued."""
    far = next(port for port in PLAN.ports if port.pool not in (0, SWITCH.pool))
    lab.maps.egresses.rows[SWITCH.slot * 8 + 3] = QUEUED | QUEUED_BYTES | {"gated": 1}
    lab.maps.ingresses.rows[far.slot * 8 + 3] = {"held": 200}
    assert len(reader.imbalance()) == 2


def test_a_lab_without_lossless_classes_has_no_reader() -> None:
    without = FABRIC.spec.model_copy(update={"queues": QueuesSpec()})
    with pytest.raises(InputError, match="has no lossless classes"):
        PauseReader(plan(without))
    assert read_overview(plan(without)) is None


# Status


def test_status_has_both_clocks_and_every_port(lab: FakeLab) -> None:
    lab.did(
        (0, JournalAction.TAKEN_OVER),
        (10_000, JournalAction.STOPPED),
        (60_000, JournalAction.STARTED),
    )
    overview = read_overview(FABRIC)
    assert overview is not None
    assert overview.works
    status = LabStatus("t-reading", (), lossless=overview)
    assert status.converged
    document: dict[str, Any] = json.loads(json.dumps(status.document()))["pfc"]
    assert (document["alive"], document["problem"], document["dilation"]) == (True, None, 1000)
    assert len(document["ports"]) == 2 * len(PLAN.ports)
    (paused,) = (port for port in document["ports"] if port["rx_pause_transition"])
    assert (paused["node"], paused["interface"], paused["class"]) == (
        SWITCH.node,
        SWITCH.port.interface,
        3,
    )
    assert paused["peer"] == SWITCH.port.interface
    assert paused["rx_pause_duration_ns"] == paused["rx_pause_longest_ns"] == 50_000
    assert paused["rx_pause_duration_modelled_ns"] == paused["rx_pause_longest_modelled_ns"] == 50


def test_a_lab_whose_pausing_process_is_gone_is_not_as_planned(
    lab: FakeLab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.is_alive = False
    status = LabStatus("t-reading", (), lossless=read_overview(FABRIC))
    assert not status.converged
    lifecycle._print_status(status)
    text = " ".join(capsys.readouterr().out.split())
    assert "the PFC process does not run, so nothing is paused" in text
    assert "lab t-reading: lossless classes: the PFC process does not run" in text


def test_status_says_when_the_journal_is_full(
    lab: FakeLab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.did((10, JournalAction.STOPPED), (20, JournalAction.LOST))
    status = LabStatus("t-reading", (), lossless=read_overview(FABRIC))
    assert status.converged
    lifecycle._print_status(status)
    assert "the journal of pauses is full" in capsys.readouterr().out


def test_status_says_how_many_records_wait(
    lab: FakeLab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.maps.ports.rows[0] = {"unreported": 1200}
    lifecycle._print_status(LabStatus("t-reading", (), lossless=read_overview(FABRIC)))
    assert "1,200 records of pauses wait for room" in capsys.readouterr().out


def test_status_shows_who_took_part(
    lab: FakeLab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    lifecycle._print_status(LabStatus("t-reading", (), lossless=read_overview(FABRIC)))
    assert "no pauses so far" in capsys.readouterr().out
    lab.did((0, JournalAction.STOPPED), (3_000_000, JournalAction.STARTED))
    lab.maps.egresses.rows[SWITCH.slot * 8 + 3] = {"pauses": 1234}
    lifecycle._print_status(LabStatus("t-reading", (), lossless=read_overview(FABRIC)))
    text = capsys.readouterr().out
    (row,) = (line.split() for line in text.splitlines() if str(SWITCH) in line)
    assert row[:5] == [str(SWITCH), "3", "1,234", "0", "1"]
    assert row[5:9] == ["3", "ms", "3", "us"]
    assert str(NIC) not in text


def test_status_of_maps_that_are_gone_is_a_problem_and_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(_: object) -> PauseReader:
        raise InputError("the lab's lossless classes cannot be read: no pins")

    monkeypatch.setattr(overview, "PauseReader", gone)
    lossless = read_overview(FABRIC)
    assert lossless == LosslessOverview(
        False, 1000, problem="the lab's lossless classes cannot be read: no pins"
    )
    assert not lossless.works


def test_the_journal_is_in_the_lab_s_folder() -> None:
    files = LabFiles("t-reading")
    assert control.journal_file(files).parent == files.root
