"""The stages of a reconvergence on a real fabric: which daemon learns what, how and in which order,
and that tracing leaves the switches unchanged."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from rocelab.dataplane.impairments.control import Impairments
from rocelab.dataplane.impairments.impairment import Impairment, ImpairmentKind
from rocelab.jobs.flow import ProbeStream, permutation
from rocelab.jobs.placement import find_nic
from rocelab.lab.lab import Lab, RunningLab
from rocelab.linux.fibtable import FibOf
from rocelab.observe.stages.measure import FlowRecovery, stages_of
from rocelab.observe.stages.recorder import StageRecorder
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.record import LabFiles
from rocelab.results.convergence import (
    FlowSamples,
    MeasurementMethod,
    Window,
    measure_flow,
    offered_rate_pps,
)
from rocelab.results.stages import DetectionCause, SwitchStages
from rocelab.routes.path import walk
from rocelab.routing.frr import vty
from rocelab.routing.frr.peers import bgp_peers
from rocelab.traffic.result import TrafficResult
from rocelab.traffic.session import TrafficSession
from tests.helpers.directed import sent_by
from tests.helpers.measured import measured
from tests.helpers.running import running
from tests.helpers.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.few_at_once

NAME = "t-stages"
LAB = f"""name: {NAME}
fabric: {{kind: clos, racks: 3, spines: 2, servers_per_rack: 2}}
routing: {{hold: 3s, keepalive: 1s, bfd: {{interval: 300ms, multiplier: 3}}}}
"""
LINK = "rtsw1:ctsw2"
MS = 10**6
SLACK_NS = 500 * MS
"""Allowance for a daemon that waits for one of two CPUs: less than the detection time of BFD, 900
ms, which is less than the hold timer, so that the time shows which of them detected a failure."""


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    file = tmp_path_factory.mktemp("stages") / f"{NAME}.yaml"
    file.write_text(LAB)
    with running(Lab.planned(file)) as lab:
        yield lab


@pytest.fixture
def timeline(lab: RunningLab) -> Iterator[FibTimeline]:
    """The FIBs, complete before the test and after it."""
    with (
        opened_namespaces(lab, lab.fabric.switches) as netns_of,
        FibTimeline(lab, netns_of) as timeline,
    ):
        timeline.wait_until_whole(LIMIT_S)
        yield timeline
        timeline.wait_until_whole(LIMIT_S)


def wait_for_changes(timeline: FibTimeline, since_ns: int, nodes: set[str]) -> None:
    """Wait until each of these switches has changed its FIB."""
    deadline = time.monotonic() + LIMIT_S
    while not nodes <= {change.node for change in timeline.changes(since_ns, now_ns())}:
        assert time.monotonic() < deadline, f"no FIB change of {nodes}"
        time.sleep(0.01)


def assert_in_order(stages: SwitchStages) -> None:
    times = [stages.detected_ns, stages.best_path_ns, stages.zebra_ns, stages.kernel_ns]
    known = [instant_ns for instant_ns in times if instant_ns is not None]
    assert len(known) == len(times), stages
    assert known == sorted(known), stages


@contextmanager
def watched_machine(lab: RunningLab, problems: list[str]) -> Iterator[None]:
    """Flows that show this machine's lateness; afterwards `problems` has the reasons why it is too
    late for a measurement, if any."""
    flows = permutation(lab.fabric, flows=6, rate_pps=200, payload_bytes=64, seed=1)
    with TrafficSession(lab.fabric, lambda name: lab.node(name).netns, flows) as session:
        session.start()
        yield
        problems += session.stop().problems


@dataclass(frozen=True)
class EventRun:
    """The stages of an event, and the reasons why they are invalid, if any."""

    stages: dict[str, SwitchStages]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class CarrierLoss:
    """The events after a carrier was removed under traffic."""

    problems: tuple[str, ...]
    stages: dict[str, SwitchStages]
    recorder: StageRecorder
    recovered_ns: tuple[int | None, ...]
    """When each flow that lost packets had recovered, from the event on."""


@pytest.fixture(scope="module")
def carrier_loss(lab: RunningLab) -> CarrierLoss:
    """Flows between all racks, while the carrier of one uplink is removed."""
    return measured(lambda: carrier_taken(lab))


def carrier_taken(lab: RunningLab) -> CarrierLoss:
    flows = permutation(lab.fabric, flows=24, rate_pps=1000, payload_bytes=256, seed=1)
    with (
        opened_namespaces(lab, lab.fabric.switches) as netns_of,
        FibTimeline(lab, netns_of) as timeline,
    ):
        fibs = timeline.wait_until_whole(LIMIT_S)
        with (
            StageRecorder(lab) as recorder,
            TrafficSession(lab.fabric, lambda name: lab.node(name).netns, flows) as session,
        ):
            time.sleep(max(0.0, (session.start() - now_ns()) / 10**9) + 0.3)
            event_ns = now_ns()
            lab.link(LINK).down()
            took_ns = now_ns() - event_ns
            try:
                wait_for_changes(timeline, event_ns, {"rtsw1", "ctsw2", "rtsw2", "rtsw3"})
                # Traffic on the new paths, which tells when each flow was good again.
                time.sleep(1.0)
            finally:
                end_ns = now_ns()
                lab.link(LINK).up()
            traffic = session.stop()
        window = Window(event_ns, end_ns, took_ns)
        paths = {flow.id: path_of(lab, fibs.__getitem__, flow) for flow in flows}
        recoveries = recoveries_of(traffic, window, paths)
        stages = stages_of(
            event_ns, window, recorder.records, timeline.changes(event_ns, end_ns), recoveries
        )
        timeline.wait_until_whole(LIMIT_S)
        return CarrierLoss(
            (*traffic.problems, *recorder.problems()),
            {one.node: one for one in stages},
            recorder,
            tuple(
                None if one.recovered_ns is None else one.recovered_ns - event_ns
                for one in recoveries
            ),
        )


def path_of(lab: RunningLab, fib_of: FibOf, flow: ProbeStream) -> tuple[str, ...]:
    source = find_nic(lab.fabric, flow.source, flow.source_nic)
    destination = find_nic(lab.fabric, flow.destination, flow.destination_nic)
    return walk(lab.fabric, fib_of, source, destination, flow.sport).nodes


def recoveries_of(
    traffic: TrafficResult, window: Window, paths: dict[int, tuple[str, ...]]
) -> Sequence[FlowRecovery]:
    method = MeasurementMethod(sampling_interval_ns=10 * MS, sustained_ns=50 * MS)
    recoveries = []
    for record in traffic.flows:
        samples = FlowSamples(
            record.sent_seq, record.sent_ns, record.received_seq, record.receive_ns
        )
        measured = measure_flow(samples, [window], offered_rate_pps(record.sent_ns), method)
        event = measured.events[0]
        if event.affected:
            after_ns = event.convergence_ns
            recovered_ns = None if after_ns is None else window.start_ns + after_ns
            recoveries.append(FlowRecovery(paths[record.flow.id], recovered_ns))
    return recoveries


def test_both_ends_of_a_dead_link_know_by_carrier_and_the_others_by_a_withdrawal(
    carrier_loss: CarrierLoss,
) -> None:
    causes = {node: one.detected_by for node, one in carrier_loss.stages.items()}
    assert causes == {
        "rtsw1": DetectionCause.CARRIER,
        "ctsw2": DetectionCause.CARRIER,
        "rtsw2": DetectionCause.PEER,
        "rtsw3": DetectionCause.PEER,
    }
    for node in ("rtsw1", "ctsw2"):
        detected_ns = carrier_loss.stages[node].detected_ns
        assert detected_ns is not None and detected_ns < SLACK_NS


def test_every_switch_detects_decides_and_installs_in_this_order(
    carrier_loss: CarrierLoss,
) -> None:
    for stages in carrier_loss.stages.values():
        assert_in_order(stages)


def test_a_remote_rack_hears_of_it_only_after_the_spine_has_decided(
    carrier_loss: CarrierLoss,
) -> None:
    decided_ns = carrier_loss.stages["ctsw2"].best_path_ns
    for node in ("rtsw2", "rtsw3"):
        heard_ns = carrier_loss.stages[node].detected_ns
        assert decided_ns is not None and heard_ns is not None and heard_ns > decided_ns


def test_the_last_flow_is_good_again_at_a_switch_that_it_crossed(
    carrier_loss: CarrierLoss,
) -> None:
    instants = {one.first_good_packet_ns for one in carrier_loss.stages.values()}
    known = [one for one in carrier_loss.recovered_ns if one is not None]
    assert len(known) == len(carrier_loss.recovered_ns) > 0
    assert carrier_loss.stages["ctsw2"].first_good_packet_ns == max(known)
    assert min(known) <= min(one for one in instants if one is not None)


def test_the_resolution_is_measured_and_within_a_millisecond(carrier_loss: CarrierLoss) -> None:
    assert carrier_loss.recorder.problems() == ()
    delay = carrier_loss.recorder.read_delay
    assert delay is not None and delay.probes >= 20
    assert delay.median_ns <= MS
    assert carrier_loss.recorder.resolution(MS).log_stamp_ns == 1000


def test_afterwards_no_daemon_traces_and_its_configuration_is_as_it_was(
    lab: RunningLab, carrier_loss: CarrierLoss
) -> None:
    for node in lab.fabric.switches:
        files = lab.node(node.name).daemon_files
        for daemon in ("zebra", "bgpd", "bfdd"):
            answer = vty.vty_command(files, daemon, "show debugging")
            assert [line for line in answer.splitlines() if " debugging is on" in line] == []
            running = vty.vty_command(files, daemon, "show running-config")
            assert f"log file {files.log(daemon)} informational" in running
            assert "\ndebug " not in running


def test_tracing_ends_also_where_what_was_recorded_fails(
    lab: RunningLab, timeline: FibTimeline
) -> None:
    with pytest.raises(ZeroDivisionError), StageRecorder(lab):
        files = lab.node("rtsw1").daemon_files
        answer = vty.vty_command(files, "bgpd", "show debugging")
        assert "BGP zebra debugging is on" in answer
        raise ZeroDivisionError
    assert "is on" not in vty.vty_command(files, "bgpd", "show debugging")


def test_a_silent_failure_is_seen_by_bfd_within_its_detection_time(
    lab: RunningLab, timeline: FibTimeline
) -> None:
    impairments = Impairments(lab.fabric, LabFiles(lab.name))
    ends = ("rtsw1", "ctsw2")
    for end in ends:
        impairments.prepare(sent_by(lab.fabric, LINK, end), ImpairmentKind.BLACKHOLE)

    def run() -> EventRun:
        timeline.wait_until_whole(LIMIT_S)
        problems: list[str] = []
        with watched_machine(lab, problems), StageRecorder(lab) as recorder:
            event_ns = now_ns()
            try:
                for end in ends:
                    impairments.impair(
                        sent_by(lab.fabric, LINK, end), Impairment(ImpairmentKind.BLACKHOLE)
                    )
                wait_for_changes(timeline, event_ns, {"rtsw1", "ctsw2", "rtsw2", "rtsw3"})
            finally:
                end_ns = now_ns()
                for end in ends:
                    impairments.clear(sent_by(lab.fabric, LINK, end), ImpairmentKind.BLACKHOLE)
        return event_run(event_ns, end_ns, recorder, timeline, problems)

    stages = measured(run).stages
    for end in ends:
        assert stages[end].detected_by is DetectionCause.BFD
        detected_ns = stages[end].detected_ns
        # The last packet before the fault may have come one interval earlier, with its jitter.
        assert detected_ns is not None and 450 * MS <= detected_ns <= 900 * MS + SLACK_NS
        assert_in_order(stages[end])
    assert stages["rtsw2"].detected_by is DetectionCause.PEER


def test_a_hung_bgpd_is_noticed_by_the_hold_timer_of_its_neighbours(
    lab: RunningLab, timeline: FibTimeline
) -> None:
    pid = lab.node("ctsw1").daemons()["bgpd"]

    def run() -> EventRun:
        timeline.wait_until_whole(LIMIT_S)
        problems: list[str] = []
        with watched_machine(lab, problems), StageRecorder(lab) as recorder:
            event_ns = now_ns()
            try:
                os.kill(pid, signal.SIGSTOP)
                wait_for_changes(timeline, event_ns, {"rtsw1", "rtsw2", "rtsw3"})
            finally:
                end_ns = now_ns()
                os.kill(pid, signal.SIGCONT)
        return event_run(event_ns, end_ns, recorder, timeline, problems)

    stages = measured(run).stages
    assert set(stages) == {"rtsw1", "rtsw2", "rtsw3"}
    for one in stages.values():
        assert one.detected_by is DetectionCause.HOLD_TIMER
        assert one.detected_ns is not None and one.detected_ns == one.session_ns
        assert 2000 * MS - SLACK_NS <= one.detected_ns <= 3000 * MS + SLACK_NS
        assert_in_order(one)


def test_stamps_of_log_and_kernel_are_of_one_clock(lab: RunningLab, timeline: FibTimeline) -> None:
    """zebra reads the kernel's message of a lost carrier like rocelab, and informs bgpd at once."""
    frr = lab.node("rtsw1").daemon_files

    def run() -> EventRun:
        timeline.wait_until_whole(LIMIT_S)
        problems: list[str] = []
        with watched_machine(lab, problems), StageRecorder(lab) as recorder:
            event_ns = now_ns()
            lab.link(LINK).down()
            wait_for_changes(timeline, event_ns, {"rtsw1", "rtsw2"})
            wait_until(
                lambda: not all(peer.established for peer in bgp_peers(frr).values()),
                "bgpd's own end of the session",
            )
            end_ns = now_ns()
            lab.link(LINK).up()
        read_ns = min(
            one.time_ns
            for one in recorder.records.links
            if (one.node, one.interface, one.carrier) == ("rtsw1", "ctsw2", False)
        )
        ran = event_run(event_ns, end_ns, recorder, timeline, problems)
        session_ns = ran.stages["rtsw1"].session_ns
        assert session_ns is not None
        apart.append(abs(session_ns + event_ns - read_ns))
        return ran

    apart: list[int] = []
    for _ in range(3):
        measured(run)
    # zebra and bgpd may wait for a CPU before they write, so it is the smallest that tells: clocks
    # that differ do so in every run.
    assert min(apart) < 20 * MS


def event_run(
    event_ns: int,
    end_ns: int,
    recorder: StageRecorder,
    timeline: FibTimeline,
    problems: Sequence[str],
) -> EventRun:
    changes = timeline.changes(event_ns, end_ns)
    stages = stages_of(event_ns, Window(event_ns, end_ns), recorder.records, changes, ())
    return EventRun({one.node: one for one in stages}, (*problems, *recorder.problems()))


def test_the_log_is_read_from_where_the_recording_began(
    lab: RunningLab, carrier_loss: CarrierLoss, timeline: FibTimeline
) -> None:
    log = lab.node("rtsw1").daemon_files.log("bgpd")
    assert "Tx route" in log.read_text()
    with StageRecorder(lab) as recorder:
        pass
    assert recorder.records.log == ()
