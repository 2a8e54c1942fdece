"""The stages of a reconvergence: from recorded lines of FRR 8.4.4 to the stages of a switch, and
their display."""

from __future__ import annotations

import calendar
import random
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError
from rocelab.linux.linkwatch import LinkEvent
from rocelab.observe.stages.delay import delay_of
from rocelab.observe.stages.frrlog import (
    BfdDown,
    LogEvent,
    RouteProgress,
    RouteReceived,
    RouteStep,
    SessionDown,
    parse_log,
)
from rocelab.observe.stages.measure import FlowRecovery, StageRecords, stages_of
from rocelab.report.document import text_of as cell_text
from rocelab.report.plots import svg
from rocelab.report.renderers.terminal import print_blocks
from rocelab.report.stages import CAUSES, stages_table, waterfall
from rocelab.results.convergence import Window
from rocelab.results.probes import FibChange
from rocelab.results.stages import (
    FORMAT,
    SCHEMA_VERSION,
    DetectionCause,
    ReadDelay,
    Resolution,
    Stages,
    SwitchStages,
)
from rocelab.routing.frr.installation import TESTED_RELEASES

LOGS = Path(__file__).parent / "frr_logs"
MS = 10**6
US = 1000

CARRIER_DOWN_NS = 1795257035_844944500
"""When the carrier was taken in the recording: the instant the test that recorded it had noted."""
WINDOW = Window(CARRIER_DOWN_NS, CARRIER_DOWN_NS + 1000 * MS)


def text_of(name: str) -> str:
    return (LOGS / f"{name}.txt").read_text()


def recorded(scenario: str, node: str) -> list[LogEvent]:
    """The log events of all daemons of `node`."""
    return [
        event
        for file in sorted(LOGS.glob(f"{scenario}-{node}-*.txt"))
        for event in parse_log(node, file.read_text())
    ]


def ends_of(name: str) -> list[tuple[str, DetectionCause, str]]:
    return [
        (event.neighbour, event.cause, event.detail)
        for event in parse_log("rtsw1", text_of(name))
        if isinstance(event, SessionDown)
    ]


@pytest.mark.parametrize(
    ("name", "neighbour", "cause", "detail"),
    [
        ("carrier-rtsw1-bgpd", "198.18.0.29", DetectionCause.CARRIER, "Interface down"),
        ("bfd-rtsw1-bgpd", "198.18.0.29", DetectionCause.BFD, "Cease/BFD Down"),
        ("hold-rtsw1-bgpd", "198.18.0.27", DetectionCause.HOLD_TIMER, "Hold Timer Expired"),
        (
            "killed-rtsw1-bgpd",
            "198.18.0.29",
            DetectionCause.SESSION_CLOSED,
            "Peer closed the session",
        ),
        ("reset-rtsw1-bgpd", "198.18.0.27", DetectionCause.ADMIN, "User reset"),
        (
            "reset-ctsw1-bgpd",
            "198.18.0.26",
            DetectionCause.SESSION_CLOSED,
            "Cease/Administrative Reset",
        ),
        ("shutdown-rtsw1-bgpd", "198.18.0.27", DetectionCause.ADMIN, "Admin. shutdown"),
        ("unnumbered-rtsw1-bgpd", "ctsw2", DetectionCause.BFD, "Cease/BFD Down"),
    ],
)
def test_why_a_session_ended_is_read_from_what_bgpd_logged(
    name: str, neighbour: str, cause: DetectionCause, detail: str
) -> None:
    assert ends_of(name) == [(neighbour, cause, detail)]


def test_a_bgpd_that_is_held_up_between_two_lines_has_the_same_reason() -> None:
    notification, ending = [
        line for line in text_of("hold-rtsw1-bgpd").splitlines(True) if "%" in line
    ][:2]
    (event,) = parse_log("rtsw1", notification + ending.replace("55.155381", "55.555381"))
    assert isinstance(event, SessionDown)
    assert event.cause is DetectionCause.HOLD_TIMER


def test_a_notification_of_an_earlier_end_does_not_explain_a_later_one() -> None:
    notification, ending = [
        line for line in text_of("bfd-rtsw1-bgpd").splitlines(True) if "%" in line
    ][:2]
    later = ending.replace("10:32:22", "10:32:23")
    (event,) = parse_log("rtsw1", notification + later)
    assert isinstance(event, SessionDown)
    assert event.cause is DetectionCause.OTHER


def test_a_reason_that_frr_10_has_lost_is_none() -> None:
    text = text_of("carrier-rtsw1-bgpd").replace("Interface down", "Waiting for peer OPEN")
    (event,) = (event for event in parse_log("rtsw1", text) if isinstance(event, SessionDown))
    assert (event.cause, event.detail) == (DetectionCause.OTHER, "")


def test_bfd_tells_the_interface_and_that_its_own_timer_ran_out() -> None:
    (event,) = recorded("bfd", "rtsw1")[:1]
    assert event == BfdDown(event.time_ns, "rtsw1", "ctsw2", "control-expired")


def test_stamps_are_utc_to_the_microsecond() -> None:
    (event,) = parse_log("rtsw1", text_of("bfd-rtsw1-bfdd"))
    expected_s = calendar.timegm((2026, 11, 21, 10, 32, 22, 0, 0, 0))
    assert event.time_ns == expected_s * 10**9 + 969_799 * US


@pytest.mark.parametrize("stamp", ["2026/99/99 99:99:99.123456", "0000/00/00 00:00:00.000000"])
def test_a_line_whose_stamp_is_no_date_is_like_any_other(stamp: str) -> None:
    change = "BGP: %ADJCHANGE: neighbor 198.18.0.1 in vrf default Down x"
    good = f"2026/11/21 10:30:35.000001 {change}"
    assert parse_log("rtsw1", f"{stamp} {change}\n{good}\n") == parse_log("rtsw1", good)


@pytest.mark.parametrize(
    ("start", "filler"),
    [
        ("%ADJCHANGE: neighbor 198.18.0.1 in vrf default Down x", " "),
        ("state-change: [mhop:no ", "ifname:"),
    ],
)
def test_a_long_line_of_a_log_gives_no_event_and_hides_none(start: str, filler: str) -> None:
    stamp = "2026/11/21 10:30:35.000001 BGP:"
    filled = f"{stamp} {start}{filler * (2**20 // len(filler))}."
    good = f"{stamp} %ADJCHANGE: neighbor 198.18.0.1 in vrf default Down x \t"
    (event,) = parse_log("rtsw1", f"{filled}\n{good}\n{filled}\n")
    assert isinstance(event, SessionDown)
    assert (event.neighbour, event.detail) == ("198.18.0.1", "x")


def test_withdrawals_and_announcements_are_told_apart_and_denied_routes_are_none() -> None:
    updates = [
        (event.neighbour, event.prefix, event.withdrawn)
        for event in recorded("unnumbered", "rtsw2")
        if isinstance(event, RouteReceived)
    ]
    assert updates == [("ctsw2", "198.18.0.0/29", False), ("ctsw2", "198.18.0.0/29", True)]
    assert not [e for e in recorded("unnumbered", "rtsw1") if isinstance(e, RouteReceived)]


def test_a_route_is_followed_through_bgpd_zebra_and_the_kernel_in_order() -> None:
    steps = [event for event in recorded("carrier", "rtsw2") if isinstance(event, RouteStep)]
    in_order = sorted(steps, key=lambda event: event.time_ns)
    assert [event.step for event in in_order] == list(RouteProgress)
    assert {event.prefix for event in steps} == {"198.18.0.0/29"}
    assert not any(event.deleted for event in steps)


def test_a_removed_route_is_told_from_a_changed_one() -> None:
    deleted = {
        e.prefix: e.deleted for e in recorded("carrier", "rtsw1") if isinstance(e, RouteStep)
    }
    assert deleted["198.18.0.25/32"]
    assert not deleted["198.18.0.8/29"]


@given(st.data())
def test_lines_that_another_version_words_differently_give_no_event_and_never_a_wrong_one(
    data: st.DataObject,
) -> None:
    name = data.draw(st.sampled_from(sorted(path.stem for path in LOGS.iterdir())))
    lines = text_of(name).splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    words = lines[at].split(" ")
    place = data.draw(st.integers(0, len(words)))
    words.insert(place, data.draw(st.sampled_from(["newly", "(x)", "0x1f", "--"])))
    changed = [*lines[:at], " ".join(words), *lines[at + 1 :]]
    known = {replace_cause(event) for event in parse_log("n", "\n".join(lines))}
    assert {replace_cause(event) for event in parse_log("n", "\n".join(changed))} <= known


def replace_cause(event: LogEvent) -> LogEvent:
    """Without the reason: a session's end whose reason is not understood is still one."""
    if isinstance(event, SessionDown):
        return replace(event, cause=DetectionCause.OTHER, detail="")
    if isinstance(event, BfdDown):
        return replace(event, detail="")
    return event


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert parse_log("n", text) == ()


def test_the_order_of_a_files_lines_does_not_matter() -> None:
    lines = text_of("carrier-rtsw1-zebra").splitlines()
    random.Random(1).shuffle(lines)
    assert set(parse_log("n", "\n".join(lines))) == set(
        parse_log("n", text_of("carrier-rtsw1-zebra"))
    )


def change(node: str, after_ns: int, prefix: str, before: int | None, now: int | None) -> FibChange:
    action: Literal["new", "replace", "delete"]
    action = "delete" if now is None else "new" if before is None else "replace"
    return FibChange(CARRIER_DOWN_NS + after_ns, node, prefix, action, before, now)


RECORDS = StageRecords(
    links=(LinkEvent(CARRIER_DOWN_NS + 640 * US, "rtsw1", "ctsw2", False, False, 2),),
    log=tuple(
        sorted(
            [*recorded("carrier", "rtsw1"), *recorded("carrier", "rtsw2")],
            key=lambda event: event.time_ns,
        )
    ),
)
CHANGES = (
    change("rtsw1", 73_480_000, "198.18.0.8/29", 2, 1),
    change("rtsw1", 73_500_000, "198.18.0.16/29", 2, 1),
    change("rtsw2", 124_000_000, "198.18.0.0/29", 2, 1),
)


def measured(
    records: StageRecords = RECORDS,
    changes: tuple[FibChange, ...] = CHANGES,
    recoveries: tuple[FlowRecovery, ...] = (),
) -> dict[str, SwitchStages]:
    stages = stages_of(CARRIER_DOWN_NS, WINDOW, records, changes, recoveries)
    return {one.node: one for one in stages}


def test_the_end_of_a_dead_link_knows_by_carrier_and_a_remote_rack_by_its_neighbour() -> None:
    stages = measured()
    assert list(stages) == ["rtsw1", "rtsw2"]
    assert (stages["rtsw1"].detected_by, stages["rtsw1"].detected_ns) == (
        DetectionCause.CARRIER,
        640 * US,
    )
    assert stages["rtsw2"].detected_by is DetectionCause.PEER
    assert stages["rtsw2"].session_ns is None


def test_a_session_that_ends_for_no_reason_beside_a_lost_carrier_ended_by_it() -> None:
    """FRR 10.3 loses reasons, and a late reader has the carrier after the log."""
    end = SessionDown(CARRIER_DOWN_NS + 300 * US, "rtsw1", "ctsw2", DetectionCause.OTHER, "")
    log = tuple(sorted((*RECORDS.log, end), key=lambda event: event.time_ns))
    one = measured(replace(RECORDS, log=log))["rtsw1"]
    assert (one.detected_by, one.detected_ns) == (DetectionCause.CARRIER, 300 * US)
    alone = measured(replace(RECORDS, links=(), log=log))["rtsw1"]
    assert (alone.detected_by, alone.detected_ns) == (DetectionCause.OTHER, 300 * US)


def test_the_stages_are_those_of_the_route_whose_fib_entry_changed_last() -> None:
    one = measured()["rtsw1"]
    assert (one.prefix, one.changes) == ("198.18.0.16/29", 2)
    assert one.kernel_ns == 73_500_000
    assert one.session_ns == 2_223_500
    assert one.best_path_ns == 62_836_500
    assert one.zebra_ns == 73_375_500


def test_where_the_kernel_dropped_its_dead_next_hops_silently_no_kernel_time_is_made_up() -> None:
    one = measured(changes=())["rtsw1"]
    assert one.kernel_ns is None
    assert one.prefix == "198.18.0.25/32"
    assert one.best_path_ns is not None and one.zebra_ns is not None
    assert one.best_path_ns < one.zebra_ns


def test_without_tracing_only_the_stages_of_the_log_are_missing() -> None:
    one = measured(records=StageRecords(RECORDS.links, ()))["rtsw1"]
    assert one.detected_by is DetectionCause.CARRIER
    assert (one.session_ns, one.best_path_ns, one.zebra_ns) == (None, None, None)
    assert one.kernel_ns == 73_500_000


def test_a_wider_route_is_no_convergence_while_another_lost_a_next_hop() -> None:
    wider = change("rtsw1", 90 * MS, "198.18.0.8/29", 1, 2)
    assert measured(changes=(*CHANGES, wider))["rtsw1"].kernel_ns == 73_500_000
    assert measured(changes=(wider,))["rtsw1"].kernel_ns == 90 * MS


def test_a_fib_change_before_the_switch_could_know_belongs_to_something_earlier() -> None:
    earlier = change("rtsw2", 1 * MS, "198.18.0.8/29", 2, 1)
    assert measured(changes=(earlier,))["rtsw2"].kernel_ns is None


def test_what_happened_outside_the_window_is_not_the_events() -> None:
    late = replace(CHANGES[0], t_ns=WINDOW.end_ns)
    early = replace(RECORDS.links[0], time_ns=CARRIER_DOWN_NS - 1)
    assert measured(StageRecords((early,), ()), (late,)) == {}


def test_packets_are_good_again_when_the_last_flow_across_the_switch_is() -> None:
    def recovery(after_ms: int | None, *path: str) -> FlowRecovery:
        return FlowRecovery(path, None if after_ms is None else CARRIER_DOWN_NS + after_ms * MS)

    recoveries = (
        recovery(30, "srv1-1", "rtsw1", "ctsw2", "rtsw2", "srv2-1"),
        recovery(110, "srv3-1", "rtsw3", "ctsw2", "rtsw1", "srv1-1"),
    )
    stages = measured(recoveries=recoveries)
    assert stages["rtsw1"].first_good_packet_ns == 110 * MS
    assert stages["rtsw2"].first_good_packet_ns == 30 * MS
    stages = measured(recoveries=(*recoveries, recovery(None, "rtsw1")))
    assert stages["rtsw1"].first_good_packet_ns is None


@given(st.lists(st.integers(0, 10**9), min_size=1), st.integers(0, 10**6))
def test_a_constant_delay_is_reported_as_it_is(sent_ns: list[int], delay_ns: int) -> None:
    sent_ns.sort()
    delay = delay_of(sent_ns, [one + delay_ns for one in sent_ns])
    assert delay == ReadDelay(len(sent_ns), delay_ns, delay_ns, delay_ns)


def test_one_late_read_in_a_hundred_is_the_largest_and_not_the_99th_percentile() -> None:
    assert delay_of([0] * 100, [1] * 99 + [50]) == ReadDelay(100, 1, 1, 50)
    assert delay_of([0], []) is None


def document() -> Stages:
    switches = stages_of(CARRIER_DOWN_NS, WINDOW, RECORDS, CHANGES, ())
    resolution = Resolution(1000, ReadDelay(200, 106_000, 238_000, 290_000), 500_000)
    return Stages(SCHEMA_VERSION, "carrier down of rtsw1:ctsw2", resolution, switches)


def test_a_document_of_stages_reads_back_and_another_is_refused() -> None:
    stages = document()
    assert FORMAT.read(to_json(stages)) == stages
    with pytest.raises(InputError, match="schema version 2"):
        FORMAT.read(to_json(replace(stages, schema_version=2)))


def test_the_resolution_is_that_of_the_coarsest_source() -> None:
    resolution = document().resolution
    assert resolution.worst_ns == 500_000
    assert replace(resolution, packet_interval_ns=None).worst_ns == 238_000


def test_the_table_has_a_row_per_switch_and_says_how_well_it_knows() -> None:
    console = Console(width=160)
    with console.capture() as printed:
        print_blocks([stages_table(document(), 1)], console)
    text = printed.get()
    assert "neighbour's update" in text and "73.50" in text
    assert "238 us at the 99th percentile" in text


def test_a_stage_that_is_not_known_is_a_dash() -> None:
    table = stages_table(document(), 1)
    session = [column.title for column in table.columns].index("session")
    assert cell_text(table.rows[1][session], table.columns[session]) == "-"


def test_every_cause_has_words() -> None:
    assert set(CAUSES) == set(DetectionCause)


def test_the_waterfall_names_every_switch_and_is_none_without_any() -> None:
    stages = document()
    figure = waterfall(stages)
    assert figure is not None
    text = svg(figure, "stages")
    assert "rtsw1  carrier" in text and "rtsw2  neighbour's update" in text
    assert waterfall(replace(stages, switches=())) is None


def test_a_waterfall_of_very_many_switches_keeps_those_that_ended_last() -> None:
    stages = document()
    quick = [replace(stages.switches[0], node=f"quick{i}", kernel_ns=None) for i in range(60)]
    figure = waterfall(replace(stages, switches=(*quick, *stages.switches)))
    assert figure is not None
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert len(labels) == 40
    assert any(label.startswith("rtsw2") for label in labels)


@pytest.mark.parametrize(
    ("release", "vrf"), [("8.4", "VRF 0"), ("10.3", "VRF default (table id 0)")]
)
def test_what_bgpd_tells_zebra_is_read_of_each_tested_release(release: str, vrf: str) -> None:
    assert release in TESTED_RELEASES
    stamp = "2026/11/22 17:34:27.244068 BGP: [YA0WD-VE94T]"
    lines = (
        f"{stamp} Tx route add {vrf} 198.18.0.4/30 metric 0 tag 0 count 2 nhg 0",
        f"{stamp} Tx route delete {vrf} 198.18.0.8/30",
    )
    events = [
        event for event in parse_log("rtsw1", "\n".join(lines)) if isinstance(event, RouteStep)
    ]
    assert [(event.step, event.prefix, event.deleted) for event in events] == [
        (RouteProgress.SENT, "198.18.0.4/30", False),
        (RouteProgress.SENT, "198.18.0.8/30", True),
    ]
