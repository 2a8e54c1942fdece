"""Health without a lab: differences of counters, distinctions, errors."""

from __future__ import annotations

import os
import struct
from array import array
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rocelab.agent.live import LiveCounters, LiveFile, packed, unpacked
from rocelab.base.errors import InputError
from rocelab.base.files import read_untrusted
from rocelab.base.outputs import open_folder
from rocelab.cli import health as command
from rocelab.dataplane.impairments.maps import ImpairmentCounters
from rocelab.dataplane.pfc.reading import ClassCounters
from rocelab.lab.lab import Lab
from rocelab.lab.node import NamespaceNode
from rocelab.labfile.pfc import PfcSpec
from rocelab.labfile.queues import QueuesSpec
from rocelab.linux.counters import DepthCounters, PortCounters, QueueCounters
from rocelab.linux.fib import live_widths, parse_route
from rocelab.observe.evidence import bundle
from rocelab.observe.evidence.shelf import EvidenceFolder
from rocelab.observe.health import monitor as monitoring
from rocelab.observe.health import sessions
from rocelab.observe.health.endpoints import EndpointTracker
from rocelab.observe.health.health_spec import DEFINITIONS, LOSSLESS_SLIS, HealthSpec
from rocelab.observe.health.losses import LossTracker
from rocelab.observe.health.monitor import HealthMonitor
from rocelab.observe.health.ports import PortReading
from rocelab.observe.health.prometheus import HealthCollector, loopback_address
from rocelab.observe.health.reading import PauseReading, Reading
from rocelab.observe.health.report import Account
from rocelab.observe.health.sample import Places, Sample, compare, deepest
from rocelab.observe.health.sessions import SessionLog, both_up
from rocelab.planning.build import build_fabric
from rocelab.planning.pauses import PausePort, plan_pauses
from rocelab.planning.queues import plan_queues
from rocelab.record import LabFiles
from rocelab.results.health import HealthReport, Sli
from rocelab.routing.frr.stack import FRR
from rocelab.routing.stack import BgpPeer
from tests.helpers.adopted_sample import leaf_spine
from tests.helpers.queue_lines import bin_of

FABRIC = Lab.planned("zone-small").fabric
PLAN = plan_queues(FABRIC)
PLACES = Places(FABRIC)
LINK = FABRIC.links_of["rtsw1"][-1]
SERVER_LINK = FABRIC.links_of["srv1-1"][0]
counts = st.integers(0, 2**40)


def port(**fields: Any) -> PortReading:
    nothing = dict.fromkeys(("rx_packets", "tx_packets", "rx_bytes", "tx_bytes"), 0)
    settled = {"carrier": True, "carrier_losses": 1, "lost": 0, "tc_drops": 0}
    return PortReading(**(settled | nothing | fields))


def queue(dropped: int = 0, **fields: Any) -> QueueCounters:
    counts = {"packets": 0, "bytes": 0, "marked": 0, "depth_bytes": 0, "ce_out": 0}
    return QueueCounters(
        dropped_packets=dropped, dropped_bytes=0, on_arrival=None, **(counts | fields)
    )


def ports(**of_rtsw1: PortReading) -> dict[tuple[str, str], PortReading]:
    every = {(end.node, end.interface): port() for link in FABRIC.links for end in (link.a, link.b)}
    return every | {("rtsw1", interface): reading for interface, reading in of_rtsw1.items()}


def reading(time_s: int = 0, **fields: Any) -> Reading:
    return Reading(
        **(
            {
                "time_ns": time_s * 10**9,
                "ports": ports(),
                "queues": {},
                "lost": {},
                "endpoints": {},
                "routes_incomplete": {},
                "sessions": {},
            }
            | fields
        )
    )


def values(before: Reading, now: Reading) -> dict[str, dict[str, float]]:
    breaches = compare(PLACES, [PLAN], before, now).values
    return {sli.value: dict(places) for sli, places in breaches.items() if places}


# What agents write


@given(st.lists(counts, min_size=19, max_size=19))
def test_a_record_reads_back(numbers: list[int]) -> None:
    assert unpacked(packed(LiveCounters(*numbers))) == LiveCounters(*numbers)


@given(st.lists(counts, min_size=19, max_size=19), st.integers(0, 155), st.integers(1, 255))
def test_half_a_record_is_never_read(numbers: list[int], place: int, change: int) -> None:
    record = bytearray(packed(LiveCounters(*numbers)))
    assert len(record) == 156
    record[place] ^= change
    assert unpacked(bytes(record)) is None
    assert unpacked(bytes(record[:place])) is None


def live_file(path: Path, log: SimpleNamespace) -> LiveFile:
    demux: Any = SimpleNamespace(probes=log, icrc_errors=3, unexpected=0)
    return LiveFile(str(path), [], [], demux)


def test_probes_behind_a_later_one_of_their_flow_are_out_of_sequence(tmp_path: Path) -> None:
    log = SimpleNamespace(flow=array("I", [1, 1, 2, 1]), sequence=array("q", [0, 2, 0, 1]))
    file = live_file(tmp_path / "endpoints" / "srv1-1", log)
    file.write(0)
    log.flow.extend([2, 1, 1])
    log.sequence.extend([1, 3, 0])
    file.write(0)
    counters = unpacked((tmp_path / "endpoints" / "srv1-1").read_bytes())
    assert counters is not None
    assert (counters.probes_received, counters.out_of_sequence, counters.icrc_errors) == (7, 2, 3)
    assert counters.pid == os.getpid()


def test_an_agent_without_a_lab_writes_nothing() -> None:
    demux: Any = None
    file = LiveFile(None, [], [], demux)
    file.write(0)
    assert file.due_ns > 10**18


def test_endpoints_are_summed_over_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocelab.record.RUN_ROOT", tmp_path)
    folder = tmp_path / "t-sum" / "endpoints"
    tracker = EndpointTracker(LabFiles("t-sum"))
    tracker.update()
    assert tracker.totals() == {}
    folder.mkdir(parents=True)
    for pid, sent in ((7, 10), (7, 25), (8, 4), (8, 6), (9, 1)):
        (folder / "srv1-1").write_bytes(packed(LiveCounters(pid=pid, sent=sent)))
        tracker.update()
    (folder / "srv1-1").write_bytes(b"torn")
    tracker.update()
    assert tracker.totals()["srv1-1"].sent == 25 + 6 + 1
    # What an agent wrote between the last look and its end, and the next agent of the same server.
    (folder / "srv1-1").write_bytes(packed(LiveCounters(pid=9, sent=3)))
    (folder / "srv1-1").unlink()
    (folder / "srv1-1").write_bytes(packed(LiveCounters(pid=10, sent=100)))
    tracker.update()
    assert tracker.totals()["srv1-1"].sent == 25 + 6 + 3 + 100
    tracker.close()


# Losses


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))))
def test_what_a_full_queue_drops_is_never_a_loss(steps: list[tuple[int, int, int]]) -> None:
    """Each step: queue drops before the ports are read, between that and the queues' reading, and
    packets that a program dropped on the way in. All of these are found in the end, not one more at
    any time."""
    tracker = LossTracker(FABRIC, queues_in_clsact=True)
    interface = LINK.port("rtsw1").interface
    clsact = queued = really_lost = lost_before = 0
    for dropped, late, lost in (*steps, (0, 0, 0)):
        clsact += dropped + lost
        queued += dropped + late
        really_lost += lost
        queues: PortCounters = {("rtsw1", interface): {3: queue(queued)}}
        states = tracker.update(ports(**{interface: port(tc_drops=clsact)}), queues, {})
        clsact += late
        assert lost_before <= states[LINK.down] <= really_lost
        assert states[LINK.up] == 0
        lost_before = states[LINK.down]
    states = tracker.update(ports(**{interface: port(tc_drops=clsact)}), queues, {})
    assert states[LINK.down] == really_lost


def test_what_a_peer_does_not_take_is_lost_towards_it() -> None:
    tracker = LossTracker(FABRIC, queues_in_clsact=True)
    interface = LINK.port("rtsw1").interface
    states = tracker.update(ports(**{interface: port(lost=5)}), {}, {})
    assert {link for link, lost in states.items() if lost} == {LINK.up}
    assert sum(states.values()) == 5


def wire_lost(towards_server: int | None, towards_switch: int | None) -> dict[Any, Any]:
    losses = {SERVER_LINK.down: towards_server, SERVER_LINK.up: towards_switch}
    return {
        link: ImpairmentCounters(0, lost, 0, 0, 0)
        for link, lost in losses.items()
        if lost is not None
    }


def test_both_directions_of_a_servers_link_are_told_apart() -> None:
    tracker = LossTracker(FABRIC, queues_in_clsact=True)
    interface = SERVER_LINK.port("rtsw1").interface

    def update(tc_drops: int, wire: dict[Any, Any]) -> tuple[int, int]:
        states = tracker.update(ports(**{interface: port(tc_drops=tc_drops)}), {}, wire)
        return states[SERVER_LINK.down], states[SERVER_LINK.up]

    assert update(4, {}) == (0, 4)
    assert update(10, wire_lost(6, None)) == (6, 4)
    assert update(15, wire_lost(8, 3)) == (8, 7)
    assert update(16, {}) == (8, 8)
    assert update(16, wire_lost(0, None)) == (8, 8)
    assert update(18, {}) == (10, 8)


def test_a_new_clsact_starts_counting_anew() -> None:
    tracker = LossTracker(FABRIC, queues_in_clsact=False)
    interface = LINK.port("rtsw1").interface
    for drops, total in ((7, 7), (0, 7), (3, 10)):
        states = tracker.update(ports(**{interface: port(tc_drops=drops)}), {}, {})
        assert sum(states.values()) == total


# Samples


@given(
    st.lists(st.lists(st.integers(0, PLAN.buffer_bytes), min_size=1), min_size=2, max_size=4),
)
def test_a_depth_is_never_reported_deeper_than_it_was(rounds: list[list[int]]) -> None:
    packets = [0] * len(PLAN.bin_edges_bytes)
    ever, before = 0, None
    for depths in rounds:
        for depth in depths:
            packets[bin_of(PLAN, depth)] += 1
        ever, deepest_before = max(ever, *depths), ever
        now = DepthCounters(ever, 0, tuple(packets), ())
        estimate = deepest(before, now, PLAN.bin_edges_bytes)
        assert estimate <= max(depths)
        assert bin_of(PLAN, estimate) == bin_of(PLAN, max(depths))
        if max(depths) > deepest_before:
            assert estimate == max(depths)
        before = now


def test_a_quiet_lab_has_no_value_at_all() -> None:
    quiet = {"sessions": {link.name: True for link in FABRIC.sessions}}
    assert values(reading(0, **quiet), reading(1, **quiet)) == {}


def test_a_flap_counts_once_though_both_ends_see_it() -> None:
    interface = LINK.port("rtsw1").interface
    far = LINK.far("rtsw1")
    after = ports(**{interface: port(carrier_losses=3, carrier=False)})
    after[far.node, far.interface] = port(carrier_losses=3, carrier=False)
    assert values(reading(), reading(1, ports=after)) == {
        "flaps": {LINK.name: 2},
        "links_down": {LINK.name: 1},
    }


def test_what_happened_before_the_watching_is_not_held_against_the_lab() -> None:
    old = {"srv1-1": LiveCounters(pid=1, timeouts=9, out_of_sequence=4)}
    new = {"srv1-1": LiveCounters(pid=1, timeouts=10, out_of_sequence=4)}
    assert values(reading(endpoints=old), reading(1, endpoints=new)) == {
        "ack_timeouts": {"srv1-1": 1}
    }
    assert values(reading(), reading(1, endpoints=new))["out_of_sequence"] == {"srv1-1": 4}


@pytest.mark.parametrize(("packets", "is_reported"), [(99, False), (100, True)])
def test_a_share_of_few_packets_is_not_told(packets: int, is_reported: bool) -> None:
    place = LINK.a.node, LINK.a.interface
    marked_class = PLAN.marked_classes[0]
    now = {place: {marked_class: queue(packets=packets, ce_out=60)}}
    assert ("ce_ratio" in values(reading(), reading(1, queues=now))) is is_reported


def test_the_buffer_limits_no_lossless_class() -> None:
    place = LINK.down.sender, LINK.down.port.interface
    now = {place: {2: queue(depth_bytes=PLAN.buffer_bytes // 4), 3: queue(depth_bytes=10**9)}}
    lossless = replace(PLAN, lossless_classes=(3,))
    sample = compare(PLACES, [lossless], reading(), reading(1, queues=now))
    assert sample.values[Sli.QUEUE_DEPTH] == {f"{LINK.name} to {LINK.down.receiver}": 0.25}
    only: PortCounters = {place: {3: queue(depth_bytes=10**9)}}
    assert not compare(PLACES, [lossless], reading(), reading(1, queues=only)).values[
        Sli.QUEUE_DEPTH
    ]


# Lossless classes


def pause_ports() -> dict[str, PausePort]:
    queues = QueuesSpec(pfc=PfcSpec(classes=(3, 4)))
    plan = plan_pauses(build_fabric(FABRIC.spec.model_copy(update={"queues": queues})))
    assert plan is not None
    return {str(port): port for port in plan.ports}


PAUSE_PORTS = pause_ports()


def pausing(t_s: float, a: dict[int, dict[str, int]] | None = None, **alive: bool) -> PauseReading:
    """Counters of every port: of the end `a` of LINK by class, of all others zero."""
    zero = ClassCounters(**dict.fromkeys((field.name for field in fields(ClassCounters)), 0))
    classes = {
        (pause_port, number): zero for pause_port in PAUSE_PORTS.values() for number in (3, 4)
    }
    for number, counted in (a or {}).items():
        changes: dict[str, Any] = dict(counted)
        classes[PAUSE_PORTS[str(LINK.a)], number] = replace(zero, **changes)
    return PauseReading(round(t_s * 1e9), alive.get("is_alive", True), classes)


def lossless_values(before: PauseReading, now: PauseReading) -> dict[str, dict[str, float]]:
    return values(reading(pauses=before), reading(1, pauses=now))


FROM_A, TO_A = (f"{LINK.name} to {end.node}" for end in (LINK.b, LINK.a))


def test_the_share_of_time_paused_is_of_the_class_that_waited_most() -> None:
    before = pausing(10, {3: {"paused_ns": 10**9}})
    now = pausing(12, {3: {"paused_ns": 2 * 10**9}, 4: {"paused_ns": 5 * 10**8}})
    assert lossless_values(before, now) == {"pause_share": {FROM_A: 0.5}}


def test_pauses_never_share_more_than_all_time_nor_less_than_none() -> None:
    """A pause that a dead process left open was counted until its last record only."""
    more = pausing(11, {3: {"paused_ns": 3 * 10**9}})
    assert lossless_values(pausing(10), more) == {"pause_share": {FROM_A: 1.0}}
    assert lossless_values(pausing(10, {3: {"paused_ns": 9}}), pausing(11)) == {}


def test_drops_are_of_the_direction_that_came_in_and_watchdogs_of_the_one_that_waits() -> None:
    now = pausing(11, {3: {"dropped_packets": 5, "watchdog_fired": 1}, 4: {"dropped_packets": 2}})
    assert lossless_values(pausing(10), now) == {
        "lossless_drops": {TO_A: 7},
        "watchdog_events": {FROM_A: 1},
    }


def test_a_lab_without_lossless_classes_reports_nothing_of_them() -> None:
    account = Account(HealthSpec())
    account.leave_out(LOSSLESS_SLIS)
    assert {sli.sli for sli in account.slis()}.isdisjoint(LOSSLESS_SLIS)
    assert account.problems == ()
    account.leave_out(LOSSLESS_SLIS | {Sli.CE_RATIO})
    assert account.problems == ("no ce_ratio: ports have no queues here that count them",)


def exported(pauses: PauseReading | None) -> dict[str, float]:
    """The value of each metric of lossless classes, by name and the values of its labels."""
    now = reading(1, pauses=pauses)
    sample = compare(PLACES, [PLAN], reading(pauses=pausing(0) if pauses else None), now)
    lab: Any = SimpleNamespace(name="zone-small", fabric=FABRIC)
    collector = HealthCollector()
    collector.snapshot = monitoring.Snapshot(
        lab, HealthSpec(), PLACES, now, sample, dict.fromkeys(Sli, 0), 1, 0.1
    )
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in collector.collect()
        for sample in family.samples
        if "pfc" in sample.name or sample.labels.get("sli") in set(LOSSLESS_SLIS)
    }


@pytest.mark.parametrize(
    ("gaps", "down", "said", "style"),
    [
        ((), False, "all fine,", "green"),
        (("rtsw1: it does not answer",), False, "all fine of what could be read,", "yellow"),
        (("rtsw1: it does not answer",), True, "1 place is not fine of what could be", "red"),
    ],
)
def test_a_view_is_green_only_where_everything_could_be_read(
    gaps: tuple[str, ...], down: bool, said: str, style: str
) -> None:
    lab: Any = SimpleNamespace(name="zone-small", fabric=FABRIC)
    now = replace(reading(1), gaps=gaps)
    sample = compare(PLACES, [PLAN], reading(), now)
    if down:
        sample = replace(sample, values={Sli.SESSIONS_DOWN: {LINK.name: 1.0}})
    view: Any = command.view(
        monitoring.Snapshot(lab, HealthSpec(), PLACES, now, sample, dict.fromkeys(Sli, 0), 1, 0.1)
    )
    summary = view.renderables[0]
    assert said in summary.plain
    assert summary.style == style


def test_the_exporter_names_counters_as_nics_do() -> None:
    counted = {
        **{"pauses_received": 4, "transitions": 3, "pauses_sent": 2, "paused_ns": 5 * 10**8},
        **{"longest_ns": 2 * 10**8},
        **{"dropped_packets": 6, "watchdog_fired": 1, "headroom_max": 900, "is_paused": True},
    }
    metrics = exported(pausing(1, {3: counted}))
    where = f"zone-small {LINK.a.node} {LINK.a.interface} 3"
    expected = {
        **{"rx_pause_total": 4, "rx_pause_transition_total": 3, "tx_pause_total": 2},
        **{"rx_pause_duration_seconds_total": 0.5, "rx_pause_longest_seconds": 0.2},
        **{"rx_discards_total": 6},
        **{"pause_storm_events_total": 1, "headroom_max_bytes": 900, "paused": 1},
    }
    assert {name: metrics[f"rocelab_pfc_{name} {where}"] for name in expected} == expected
    assert metrics["rocelab_pfc_process_up zone-small"] == 1
    assert metrics["rocelab_sli_worst zone-small pause_share"] == 0.5
    assert exported(pausing(1, is_alive=False))["rocelab_pfc_process_up zone-small"] == 0


def test_without_lossless_classes_the_exporter_has_nothing_of_them() -> None:
    assert exported(None) == {}


def test_marks_count_in_marked_classes_only() -> None:
    place = LINK.a.node, LINK.a.interface
    marked, other = (
        PLAN.marked_classes[0],
        next(
            traffic_class
            for traffic_class in PLAN.classes
            if traffic_class not in PLAN.marked_classes
        ),
    )
    now = {
        place: {
            marked: queue(packets=200, ce_out=50),
            other: queue(packets=10_000, ce_out=10_000),
        }
    }
    assert values(reading(), reading(1, queues=now))["ce_ratio"] == {
        f"{LINK.name} to {LINK.b.node}": 0.25
    }


def test_every_place_leads_to_the_nodes_concerned() -> None:
    assert PLACES.nodes_of(Sli.LINK_LOSS, f"{SERVER_LINK.name} to srv1-1") == ("srv1-1", "rtsw1")
    assert PLACES.nodes_of(Sli.FLAPS, LINK.name) == (LINK.a.node, LINK.b.node)
    assert PLACES.nodes_of(Sli.ACK_TIMEOUTS, "srv2-1") == ("srv2-1", "rtsw2")
    assert PLACES.nodes_of(Sli.ROUTES_INCOMPLETE, "ctsw1") == ("ctsw1",)


# Objectives and reports


def sample(time_s: int, **values: dict[str, float]) -> Sample:
    every = {sli: values.get(sli.value, {}) for sli in Sli}
    return Sample(time_s * 10**9, 10**9, every)


def test_a_report_has_the_worst_value_when_where_and_how_often() -> None:
    account = Account(HealthSpec())
    account.add(sample(1, queue_depth={"a": 0.7, "b": 0.81}))
    account.add(sample(2, queue_depth={"a": 0.95}))
    account.add(sample(3, queue_depth={"b": 0.9}))
    account.add(sample(4, queue_depth={"b": 0.8}))
    sli = next(sli for sli in account.slis() if sli.sli == "queue_depth")
    assert (sli.worst, sli.worst_where, sli.worst_ns) == (0.95, "a", 2 * 10**9)
    assert (sli.breached_samples, sli.breached_places, sli.met) == (3, 2, False)
    assert [(place.where, place.samples, place.worst) for place in sli.places] == [
        ("a", 1, 0.95),
        ("b", 2, 0.9),
    ]
    assert all(sli.met for sli in account.slis() if sli.sli != "queue_depth")


def test_a_lab_that_was_not_read_whole_is_not_known_to_be_healthy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def code_of(*samples: Sample) -> int:
        account = Account(HealthSpec())
        for sample in samples:
            account.add(sample)
        report = HealthReport(
            *("a-lab", 0, 1, 1, account.samples, account.slis(), account.problems, 0.0),
            unread_samples=account.unread_samples,
        )
        monkeypatch.setattr(command, "_watch", lambda *_: report)
        try:
            command.health("a-lab", once=True)
        except typer.Exit as ended:
            return ended.exit_code
        return 0

    monkeypatch.setattr(command, "need_root", lambda _: None)
    monkeypatch.setattr(command, "running_lab", lambda _: SimpleNamespace(fabric=FABRIC))
    whole = sample(1)
    assert code_of(whole) == 0
    assert code_of(whole, replace(whole, gaps=("could not read rtsw1: No such device",))) == 1
    said = capsys.readouterr().err
    assert "could not read rtsw1: No such device" in said
    assert "1 of 2 samples are of a lab that could not be" in said


def test_a_report_is_printed_after_ctrl_c_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "need_root", lambda _: None)
    monkeypatch.setattr(command, "running_lab", lambda _: SimpleNamespace(fabric=FABRIC))
    account = Account(HealthSpec())
    account.add(sample(1))
    report = HealthReport(
        *("a-lab", 0, 1, 1, account.samples, account.slis(), account.problems, 0.0)
    )
    monkeypatch.setattr(command, "_watch", lambda *_: report)

    command.health("a-lab")

    assert "lab a-lab: 0.0 s in" in capsys.readouterr().out


def test_the_report_says_how_far_apart_its_samples_were() -> None:
    account = Account(HealthSpec())
    for number, span_ns in enumerate((10**9, 2_340_000_000, 10**9), start=1):
        account.add(replace(sample(number), span_ns=span_ns))
    report = HealthReport(
        *("a-lab", 0, 1, 1, account.samples, account.slis(), account.problems, 0.0),
        longest_interval_ns=account.longest_interval_ns,
    )
    assert report.sampling == "3 samples, up to 2.34 s apart"
    assert replace(report, samples=1).sampling == "1 sample, up to 2.34 s apart"


def test_an_objective_can_be_raised_and_turned_off() -> None:
    spec = HealthSpec.model_validate({"flaps": 2, "out_of_sequence": "off", "link_loss": False})
    seen = sample(1, flaps={"a": 2.0}, out_of_sequence={"b": 99.0}, link_loss={"c": 1.0})
    assert seen.breaches(spec) == {}
    assert set(seen.breaches(HealthSpec())) == {Sli.FLAPS, Sli.OUT_OF_SEQUENCE, Sli.LINK_LOSS}


def test_every_sli_has_a_default_and_a_key() -> None:
    spec = HealthSpec()
    assert set(DEFINITIONS) == set(Sli)
    assert {sli: spec.objective(sli) for sli in Sli} == {
        sli: definition.default for sli, definition in DEFINITIONS.items()
    }


@pytest.mark.parametrize(
    "wrong", [{"queue_depth": 1.5}, {"flaps": -1}, {"interval": "1ms"}, {"loss": 0}]
)
def test_a_wrong_objective_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        HealthSpec.model_validate(wrong)


# Logs, tables, addresses, folders


def test_sessions_are_read_from_what_bgpd_logs() -> None:
    log = (
        b"2026/11/21 10:35:53.174577 BGP: [N9HHH-F8H1M] %ADJCHANGE: neighbor "
        b"198.18.0.21(ctsw2) in vrf default Up\n"
        b"2026/11/21 10:35:53.2 BGP: [M59KS-A3ZXZ] rcvd End-of-RIB from 198.18.0.21\n"
        b"2026/11/21 10:36:10.1 BGP: [N9HHH-F8H1M] %ADJCHANGE: neighbor ctsw1(ctsw1) in vrf default"
        b" Down Interface down\n"
    )
    assert FRR.session_changes(log) == [("198.18.0.21", True), ("ctsw1", False)]


@pytest.mark.parametrize("filler", [b"x", b"%ADJCHANGE: neighbor x "])
def test_a_long_line_of_a_log_gives_no_session_and_hides_none(filler: bytes) -> None:
    change = b"BGP: %ADJCHANGE: neighbor "
    filled = change + filler * (2**20 // len(filler))
    lines = [filled, change + b"ctsw1(ctsw1) in vrf default Up", filled, b""]
    assert FRR.session_changes(b"\n".join(lines)) == [("ctsw1", True)]


def test_a_neighbour_that_is_not_utf_8_is_one_that_nobody_knows() -> None:
    log = b"BGP: %ADJCHANGE: neighbor \xff\xfe(x) in vrf default Up\n"
    assert FRR.session_changes(log) == [("\ufffd\ufffd", True)]


def test_a_log_is_read_in_parts_however_large_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []

    def read(path: Path, offset: int, most_bytes: int) -> bytes:
        reads.append(most_bytes)
        return read_untrusted(path, offset, most_bytes)

    monkeypatch.setattr(sessions, "read_untrusted", read)
    monkeypatch.setattr(sessions, "READ_BYTES", 200)
    path = tmp_path / "bgpd.log"
    line = "BGP: %ADJCHANGE: neighbor ctsw1(ctsw1) in vrf default "
    path.write_text(f"{line}Up\n{'x' * 500}\n{line}Down Interface down\n{line}Up")
    log = SessionLog(path, FRR.session_changes)
    assert list(log.changes()) == [("ctsw1", True), ("ctsw1", False)]
    with path.open("a") as opened:
        opened.write("\n")
    assert list(log.changes()) == [("ctsw1", True)]
    assert set(reads) == {200}


def test_a_session_is_up_when_both_ends_say_so() -> None:
    assert both_up({"rtsw1": True, "ctsw1": True})
    assert not both_up({"rtsw1": True, "ctsw1": False})
    assert not both_up({"rtsw1": True})


def test_a_session_counts_at_the_ends_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"spine1": {"eth1": "Established", "10.0.5.1": "Idle"}}

    def answer(switch: NamespaceNode) -> dict[str, BgpPeer] | OSError:
        if switch.name not in states:
            return TimeoutError("timed out")
        return {name: BgpPeer(state, 0, 0) for name, state in states[switch.name].items()}

    monkeypatch.setattr(sessions, "_answered", answer)
    fabric = build_fabric(leaf_spine())
    speakers = {name: NamespaceNode(name, LabFiles("x")) for name in ("leaf1", "spine1")}
    asked = sessions.PolledSessions(fabric, speakers)
    # Nothing is said of leaf1:eth3: neither end answered.
    assert asked.established() == {"leaf1:eth2": True, "leaf2:eth2": False}
    assert asked.gaps == ("could not read leaf1: timed out",)
    states["leaf1"] = {"eth2": "Active", "10.0.3.2": "Established"}
    assert asked.established() == {"leaf1:eth2": False, "leaf1:eth3": True, "leaf2:eth2": False}
    assert asked.gaps == ()


def test_next_hops_without_carrier_do_not_count() -> None:
    def hop(flags: int) -> bytes:
        return struct.pack("=HBBi", 8, flags, 0, 3)

    hops = hop(0) + hop(0x10) + hop(0x01) + hop(0)
    body = struct.pack("=BBBBBBBBI", 2, 24, 0, 0, 254, 186, 0, 1, 0)
    body += struct.pack("=HH4s", 8, 1, bytes([198, 18, 128, 0]))
    body += struct.pack("=HH", 4 + len(hops), 9) + hops
    route = parse_route(body)
    assert route is not None
    assert live_widths([route]) == {"198.18.128.0/24": 2}
    local = body[:4] + bytes([255]) + body[5:]
    assert parse_route(local) is None


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9464", ("127.0.0.1", 9464)), ("[::1]:80", ("::1", 80))],
)
def test_loopback_is_served_on(text: str, address: tuple[str, int]) -> None:
    assert loopback_address(text) == address


@pytest.mark.parametrize(
    "text", ["0.0.0.0:9464", "10.0.0.1:9464", "[::]:9464", "9464", "localhost:1", "127.0.0.1:0", ""]
)
def test_nothing_else_is(text: str) -> None:
    with pytest.raises(InputError) as refused:
        loopback_address(text)
    assert refused.value.hint


def test_what_can_not_be_read_is_a_gap_and_no_error(tmp_path: Path) -> None:
    def stopped() -> str:
        raise TimeoutError

    shelf = EvidenceFolder(open_folder(tmp_path), "rtsw1")
    assert shelf.keep("a.txt", "something", lambda: "text")
    assert not shelf.keep("b.txt", "a daemon's answer", stopped)
    assert not shelf.keep("c.txt", "a file", (tmp_path / "none").read_bytes)
    assert [(item.file, item.size_bytes) for item in shelf.items] == [("rtsw1/a.txt", 4)]
    assert (shelf.gaps[0].file, shelf.gaps[0].why) == ("rtsw1/b.txt", "no answer in time")
    assert "No such file" in shelf.gaps[1].why
    assert shelf.folder.names() == ["a.txt"]


class Bundle:
    """A fake collection of evidence that the monitor begins."""

    begun: ClassVar[list[tuple[tuple[str, ...], float]]] = []

    def __init__(
        self, _: Lab, nodes: tuple[str, ...], folder: Path, *, capture_s: float, **__: object
    ) -> None:
        self.begun.append((nodes, capture_s))

    def collect(self) -> None:
        """Collects nothing."""


def test_what_measures_a_lab_has_its_evidence_collected_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "Collection", Bundle)
    monkeypatch.setattr(Bundle, "begun", [])
    monitor = HealthMonitor(
        Lab.planned("tiny").unstarted(), HealthSpec(), evidence=tmp_path, evidence_later=True
    )
    monitor._collect(Sli.ROUTES_INCOMPLETE, {"rtsw1": 1.0}, 7)
    assert Bundle.begun == []
    monitor.collect_evidence()
    assert [capture_s for _, capture_s in Bundle.begun] == [0]
    monitor.collect_evidence()
    assert len(Bundle.begun) == 1


def test_interrupted_evidence_removes_what_it_made_and_not_where_its_path_leads_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots, above = tmp_path / "roots", tmp_path / "above"
    (roots / "bundle").mkdir(parents=True)
    (roots / "bundle" / "passwd").touch()

    class Interrupted(bundle.Collection):
        def __init__(self, lab: Lab, nodes: object, folder: Path, **_: object) -> None:
            self._folder = open_folder(folder, make=True)

        def collect(self, progress: object) -> None:
            above.rename(tmp_path / "aside")
            above.symlink_to(roots)
            raise KeyboardInterrupt

        def end_captures(self) -> None:
            pass

    monkeypatch.setattr(bundle, "Collection", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        bundle.collect_evidence(Lab.planned("tiny").unstarted(), ["rtsw1"], above / "bundle")
    assert (roots / "bundle" / "passwd").exists()
    assert list((tmp_path / "aside").iterdir()) == []


def test_a_sample_covers_the_time_that_passed_though_the_clock_was_set() -> None:
    before = replace(reading(10), monotonic_ns=10**9)
    for set_back_s in (-3600, 0, 10):
        now = replace(reading(10 + set_back_s), monotonic_ns=3 * 10**9)
        assert compare(PLACES, [PLAN], before, now).span_ns == 2 * 10**9
