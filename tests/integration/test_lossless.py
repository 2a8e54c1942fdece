"""Lossless classes on a real lab: no loss, real pause frames, pauses that end with their cause."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scapy.layers.l2 import Ether

from rocelab.dataplane.pfc import control
from rocelab.dataplane.pfc.journal import JournalAction, JournalEntry
from rocelab.dataplane.pfc.maps import CLASSES
from rocelab.diagnose.diagnose import diagnose_report
from rocelab.faults.base import Fault
from rocelab.faults.kinds.carrier_down import CarrierDown
from rocelab.faults.kinds.pause_deaf import PauseDeaf
from rocelab.faults.kinds.pause_storm import EFFECT_S, PauseStorm
from rocelab.faults.kinds.power_loss import SwitchPowerLoss
from rocelab.faults.kinds.slow_receiver import SlowDrain
from rocelab.jobs.job import JobSpec
from rocelab.lab.lab import Lab
from rocelab.lab.status import read_status
from rocelab.linux import namespaces
from rocelab.linux.priority import running_first
from rocelab.results.diagnosis import Cause
from rocelab.results.job import JobReport
from rocelab.results.lossless import propagation
from rocelab.runs.jobs import run_job
from rocelab.wire import pauseframe
from tests.helpers.command import rocelab
from tests.helpers.lossless import (
    LOSSLESS,
    NEIGHBOUR,
    PARTS,
    STORMED,
    Rig,
    Stream,
    parts_of,
    processes_of,
)
from tests.helpers.measured import measured
from tests.helpers.running import running
from tests.helpers.waiting import LIMIT_S, wait_until
from tests.integration.conftest import MakeLab

pytestmark = pytest.mark.few_at_once

BODY = """
fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 2}
links: {rate: 100G, server_rate: 100G}
dilation: 2500
queues:
  ecn: {kmin: 40MB, kmax: 60MB}
  pfc: {xoff: 100KB, xon_offset: 5KB, memory: 400KB%s}
"""
OTHER_LOSSLESS = 4
REPEATS = 3
XOFF_BYTES = 100_000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig.of(f"name: t-lossless\n{BODY % ''}", tmp_path_factory.mktemp("lossless")) as rig:
        yield rig


@pytest.fixture
def rig(made: Rig) -> Iterator[Rig]:
    with made.resting():
        yield made


def alltoall(rig: Rig, size: str = "8MB") -> JobReport:
    spec = JobSpec.model_validate(
        {
            "pattern": "alltoall",
            "in_flight": 1,  # at once to all, no port would fill
            "ranks": 4,
            "size": size,
            "iterations": 1,
            "transport": {"dcqcn": "off", "ecn": "not-ect"},
        }
    )
    return measured(lambda: run_job(rig.lab, spec))


def test_alltoall_loses_nothing_while_ports_pause_and_every_packet_is_accounted_for(
    rig: Rig,
) -> None:
    report = alltoall(rig)
    assert report.lossless is not None
    assert report.lossless.transitions > 0
    assert report.lossless.dropped == report.roce.retransmitted == 0
    assert report.lossless.unbalanced == ()
    assert all(port.pauses_received for port in report.lossless.ports if port.transitions)


def test_a_lab_with_lossless_classes_has_all_their_parts(rig: Rig) -> None:
    """And one without has none (`test_fabric.py`)."""
    programs = {f"{node} {part}" for node in ("rtsw1", NEIGHBOUR) for part in PARTS}
    assert parts_of(rig.lab) == {"process", "maps", "gates of NICs", *programs}


def test_pauses_of_a_slow_receiver_go_back_to_it(rig: Rig) -> None:
    slow = SlowDrain((rig.nic_link,), 100_000)
    slow.inject(rig.lab)
    try:
        report = alltoall(rig, "3MB")
    finally:
        slow.restore(rig.lab)
    verdict = diagnose_report(report)[0].verdict
    assert (verdict.cause, verdict.server) == (Cause.SLOW_RECEIVER, STORMED)
    assert report.lossless is not None
    lossless = report.lossless
    worst, *_ = propagation(lossless.spans, lossless.servers, report.fidelity.elapsed_ns)
    assert worst.root == STORMED
    assert worst.depth["rtsw1"] == 1
    assert max(worst.depth.values()) > 1
    assert report.lossless.dropped == 0


def test_a_pause_is_a_frame_of_802_1qbb_on_the_wire(rig: Rig) -> None:
    def capture() -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        opened.bind((rig.nic_link.port(STORMED).interface, 0x0003))
        opened.settimeout(LIMIT_S)
        return opened

    with namespaces.inside(rig.lab.node(STORMED).netns, capture) as sniffer, rig.storm():
        frame = bytes(60)
        while frame[12:14] != pauseframe.ETHERTYPE.to_bytes(2):
            frame = sniffer.recv(2048)
    decoded = Ether(frame)
    assert decoded.dst == "01:80:c2:00:00:01"
    assert decoded.src == rig.nic_link.port(STORMED).mac
    assert frame[12:18] == bytes.fromhex("8808 0101 0008")
    quanta = [int.from_bytes(frame[at : at + 2]) for at in range(18, 34, 2)]
    assert quanta == [0xFFFF if number == LOSSLESS else 0 for number in range(8)]
    assert frame[34:] == bytes(26)


def test_a_captured_pause_frame_is_one_for_tshark(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "pauses.pcapng"
    port = f"{STORMED}:{rig.nic_link.port(STORMED).interface}"
    with rig.storm():
        # It is refreshed twice a second, and packets that wait behind it come no further.
        captured = rocelab("capture", rig.lab.name, port, "--out", file, "--count", "4")
    assert captured.returncode == 0
    fields = ("macc.opcode", "macc.cbfc.enbv", f"macc.cbfc.pause_time.c{LOSSLESS}", "eth.dst")
    asked = [f"-e{field}" for field in fields]
    command = ["tshark", "-r", str(file), "-Y", "macc", "-T", "fields", *asked]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    frame = "\t".join(("0x0101", f"0x{1 << LOSSLESS:04x}", "65535", "01:80:c2:00:00:01"))
    assert set(text.splitlines()) == {frame}


def test_a_storming_nic_stops_its_victims_until_the_fault_is_restored(rig: Rig) -> None:
    with rig.storm():
        assert rig.is_gated(rig.gate)


def test_a_job_behind_a_storm_that_does_not_end_fails_and_names_the_nic(rig: Rig) -> None:
    spec = JobSpec.model_validate(
        {
            "pattern": "incast",
            "ranks": 2,
            "size": "8MB",
            "iterations": 1,
            "transport": {"ack_timeout": "400us", "retries": 1},
        }
    )
    with rig.storm():
        report = run_job(rig.lab, spec)
    (error,) = report.errors
    assert error.startswith("nothing moved for ")
    assert error.endswith(f": {STORMED} did not end a pause")
    assert report.iterations == ()


def test_a_storm_has_begun_when_its_first_frame_is_there_and_else_nobody_knows_when(
    rig: Rig,
) -> None:
    storm = PauseStorm((rig.nic_link,), (LOSSLESS,))
    index = rig.gate * CLASSES + LOSSLESS

    def pauses_sent(since: int) -> list[JournalEntry]:
        entries = rig.reader.entries(since)
        return [
            entry
            for entry in entries
            if (entry.what, entry.slot) == (JournalAction.PAUSE_SENT, rig.nic)
        ]

    def stormed() -> tuple[int, float, float]:
        """The frames that came until the injection was over, how long it took, and how long the
        first frame took to be sent."""
        rig.wait_for_rest()
        before, recorded = rig.maps.egresses.get(index, "pauses"), len(rig.reader.entries())
        begun_ns = time.monotonic_ns()
        try:
            with running_first():
                took_s = storm.inject(rig.lab).width_ns / 1e9
            frames = rig.maps.egresses.get(index, "pauses") - before
            wait_until(lambda: pauses_sent(recorded), "the first frame is recorded")
            return frames, took_s, (pauses_sent(recorded)[0].t_ns - begun_ns) / 1e9
        finally:
            storm.restore(rig.lab)

    def late(timing: tuple[int, float, float]) -> list[str]:
        *_, sent_s = timing
        return [f"the first frame was sent after {sent_s:.3g} s"] if sent_s > EFFECT_S / 2 else []

    frames, took_s, _ = measured(stormed, late)
    assert frames > 0
    assert took_s < EFFECT_S
    rig.wait_for_rest()
    pauser = processes_of(rig.files).pauser
    os.kill(pauser, signal.SIGSTOP)
    try:
        assert storm.inject(rig.lab).width_ns > EFFECT_S * 1e9
    finally:
        os.kill(pauser, signal.SIGCONT)
        storm.restore(rig.lab)


def test_pauses_that_the_disk_has_no_room_for_are_recorded_when_it_has(rig: Rig) -> None:
    """A limit of the process stands for the disk's."""
    pauser, file = rig.processes().pauser, control.journal_file(rig.files)
    before = len(rig.reader.entries())
    limits = resource.prlimit(pauser, resource.RLIMIT_FSIZE)
    resource.prlimit(pauser, resource.RLIMIT_FSIZE, (file.stat().st_size + 30, limits[1]))
    try:
        with rig.storm():
            wait_until(rig.reader.unrecorded, "records wait")
            lossless = read_status(rig.lab).lossless
            assert lossless is not None
            assert "wait for room" in str(lossless.problem)
            assert len(rig.reader.entries()) == before + 1
    finally:
        resource.prlimit(pauser, resource.RLIMIT_FSIZE, limits)
    with rig.storm():
        wait_until(lambda: not rig.reader.unrecorded(), "nothing waits any more")
    entries = [(entry.what, entry.slot) for entry in rig.reader.entries(before)]
    assert entries.count((JournalAction.STOPPED, rig.gate)) == 2
    assert not {JournalAction.LOST, JournalAction.TAKEN_OVER} & {what for what, _ in entries}


def test_a_deaf_port_obeys_no_pause(rig: Rig) -> None:
    deaf = PauseDeaf((rig.nic_link,), STORMED)
    storm = PauseStorm((rig.nic_link,), (LOSSLESS,))
    deaf.inject(rig.lab)
    storm.inject(rig.lab)
    try:
        index = rig.gate * CLASSES + LOSSLESS
        before = rig.maps.egresses.get(index, "pauses")
        wait_until(lambda: rig.maps.egresses.get(index, "pauses") > before, "a pause comes")
        assert not rig.is_gated(rig.gate)
        wait_until(rig.passes, "a packet passes")
    finally:
        storm.restore(rig.lab)
        deaf.restore(rig.lab)
    assert not deaf.remains(rig.lab)


def test_a_slow_receiver_drains_at_its_share_and_at_its_own_rate_again(rig: Rig) -> None:
    slow = SlowDrain((rig.nic_link,), 250_000)

    def drain_bps() -> int:
        """In the lab's clock; 0: packets are taken as they come."""
        return 8 * rig.maps.ports.get(rig.nic, "drain")

    own_bps = drain_bps()
    assert own_bps == 0
    slow.inject(rig.lab)
    assert drain_bps() == 100e9 / 2500 / 4
    assert slow.remains(rig.lab)
    assert not slow.intact(rig.lab)
    slow.restore(rig.lab)
    assert drain_bps() == own_bps
    assert not slow.remains(rig.lab)


@pytest.mark.parametrize("payload", [1000, 4096, 8900])
def test_a_headroom_loses_exactly_what_does_not_fit_from_a_sender_that_is_deaf_to_pauses(
    rig: Rig, payload: int
) -> None:
    """No late rule: packets of a deaf sender are never late."""
    deaf = PauseDeaf((rig.lab.fabric.nics(NEIGHBOUR)[0].links[0],), "rtsw1")
    with Stream(rig, payload) as stream:
        to_xoff = -(-XOFF_BYTES // stream.frame)
        in_headroom = stream.port.headroom // stream.frame
        with rig.storm():
            deaf.inject(rig.lab)
            try:
                stream.send(to_xoff - 1)
                stream.reach_the_switch()
                assert stream.count("xoffs") == stream.pauses == 0
                stream.send()
                wait_until(lambda: stream.pauses, "the sender's NIC hears a pause")
                assert stream.count("xoffs") == 1
                for _ in range(in_headroom):
                    stream.send()
                    stream.reach_the_switch()
                    assert stream.count("dropped_packets") == 0
                assert stream.count("held") == (to_xoff + in_headroom) * stream.frame
                stream.send()
                stream.reach_the_switch()
                assert stream.count("dropped_packets") == 1
                assert stream.count("late_packets") == 0
                assert not stream.is_stopped
            finally:
                deaf.restore(rig.lab)
        stream.receive(to_xoff + in_headroom)


def test_the_same_packets_wait_at_a_sender_that_obeys(rig: Rig) -> None:
    with Stream(rig, 4096) as stream:
        to_xoff = -(-XOFF_BYTES // stream.frame)
        with rig.storm():
            stream.send(to_xoff)
            wait_until(lambda: stream.is_stopped, "the sender has stopped")
            stream.send(stream.port.headroom // stream.frame + 1)
            time.sleep(1)
            assert stream.count("packets") == to_xoff
            assert stream.count("dropped_packets") == 0
        stream.receive(stream.sent)


def test_what_does_not_fit_a_nic_s_receive_buffer_is_the_nic_s_drop(rig: Rig) -> None:
    """The host takes next to nothing, and the port in front of the NIC is deaf to its pauses."""
    slow, deaf = SlowDrain((rig.nic_link,), 1), PauseDeaf((rig.nic_link,), STORMED)
    nic = rig.plan.by_slot[rig.nic]
    assert nic.buffer is not None

    def dropped() -> int:
        return rig.counters()[nic, LOSSLESS].dropped_packets

    before = dropped()
    with Stream(rig, 8900) as stream:
        fitting, more = nic.buffer.size // stream.frame, 3
        slow.inject(rig.lab)
        deaf.inject(rig.lab)
        try:
            stream.send(fitting)
            stream.reach_the_switch()
            stream.send(more)
            wait_until(lambda: dropped() - before == more, "the NIC drops what does not fit")
        finally:
            deaf.restore(rig.lab)
            slow.restore(rig.lab)
        stream.receive(fitting)
        assert dropped() - before == more
        assert stream.count("dropped_packets") == 0
    slow.inject(rig.lab)
    assert rig.counters()[nic, LOSSLESS].held == 0, "a host that took all has left nothing"
    slow.restore(rig.lab)


def kill_the_child(rig: Rig) -> None:
    child = rig.processes().pauser
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: rig.processes().pauser != child, "another child")


def kill_the_supervisor(rig: Rig) -> None:
    supervisor, *others = rig.processes()
    os.kill(supervisor, signal.SIGKILL)
    folders = [Path(f"/proc/{other}") for other in others]
    wait_until(lambda: not any(folder.exists() for folder in folders), "its children end")
    assert not rig.is_gated(rig.gate)
    control.start(rig.plan, rig.files)


def kill_both_at_once(rig: Rig) -> None:
    supervisor, child, _ = rig.processes()
    os.kill(supervisor, signal.SIGSTOP)
    wait_until(lambda: state_of(supervisor) == "T", "the supervisor cannot see the other's end")
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: state_of(child) == "Z", "the child's end")
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not rig.is_gated(rig.gate), "the guard opens the gate")
    control.start(rig.plan, rig.files)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def kill_the_guard_and_then_both(rig: Rig) -> None:
    guard = rig.processes().guard
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: rig.processes().guard != guard, "another guard")
    assert rig.is_gated(rig.gate)
    kill_both_at_once(rig)


def lose(rig: Rig, fault: Fault) -> None:
    fault.prepare(rig.lab)
    fault.inject(rig.lab)
    try:
        wait_until(lambda: not rig.is_gated(rig.gate), "the pause ends with its link")
    finally:
        fault.restore(rig.lab)
    wait_until(lambda: not fault.remains(rig.lab), "the fault is undone")


def lose_the_link(rig: Rig) -> None:
    lose(rig, CarrierDown((rig.nic_link,)))


def lose_the_switch(rig: Rig) -> None:
    lose(rig, SwitchPowerLoss("rtsw1"))
    wait_until(lambda: read_status(rig.lab).converged, "the switch has booted")


@pytest.mark.parametrize(
    "kill",
    [
        kill_the_child,
        kill_the_supervisor,
        kill_both_at_once,
        kill_the_guard_and_then_both,
        lose_the_link,
    ],
)
def test_an_open_pause_ends_with_what_held_it(rig: Rig, kill: Callable[[Rig], None]) -> None:
    for _ in range(REPEATS):
        with rig.storm():
            kill(rig)
        rig.wait_for_rest()


def test_an_open_pause_ends_with_its_switch(rig: Rig) -> None:
    with rig.storm():
        lose_the_switch(rig)


def watched(make_lab: MakeLab, action: str) -> Rig:
    """A lab with a watchdog."""
    times = f"detection: 100us, restoration: 1ms, action: {action}"
    lab = make_lab("t-watchdog", BODY % f", classes: [3, 4], watchdog: {{{times}}}")
    lab.start()
    rig = Rig(lab)
    wait_until(rig.passes, "a packet of the lossless class passes")
    return rig


def noted(rig: Rig, what: JournalAction) -> bool:
    """Whether this has happened at the gate."""
    return any(entry.what is what and entry.slot == rig.gate for entry in rig.reader.entries())


def test_the_watchdog_frees_a_stormed_queue_alone_and_obeys_again_after_it(
    make_lab: MakeLab,
) -> None:
    rig = watched(make_lab, "drop")
    index = rig.gate * CLASSES + LOSSLESS

    # Half as long as the detection takes.
    rig.send_foreign_pause({LOSSLESS: 10_000})
    assert rig.passes()
    wait_until(lambda: noted(rig, JournalAction.EXPIRED), "the short pause ends")
    assert not noted(rig, JournalAction.FIRED)

    with rig.storm():
        wait_until(lambda: noted(rig, JournalAction.FIRED), "the watchdog fires")
        wait_until(
            lambda: rig.maps.egresses.get(index, "discarded_packets"), "the queue's packets go"
        )
        assert not rig.is_gated(rig.gate)
        wait_until(lambda: rig.passes(OTHER_LOSSLESS), "a packet of the other class passes")
        other = rig.gate * CLASSES + OTHER_LOSSLESS
        assert rig.maps.egresses.get(other, "packets")
        assert not rig.maps.egresses.get(other, "discarded_packets")
    wait_until(lambda: noted(rig, JournalAction.RESTORED), "pauses are obeyed again")
    rig.wait_for_rest()


@pytest.mark.long
def test_a_watchdog_that_forwards_sends_the_stormed_queue_and_drops_nothing(
    make_lab: MakeLab,
) -> None:
    rig = watched(make_lab, "forward")
    storm = PauseStorm((rig.nic_link,), (LOSSLESS,))
    storm.inject(rig.lab)
    try:
        wait_until(
            lambda: rig.passes() and noted(rig, JournalAction.FIRED),
            "a packet passes after it has fired",
        )
        assert rig.passes()
    finally:
        storm.restore(rig.lab)
    assert not any(counter.discarded_packets for counter in rig.counters().values())
    wait_until(lambda: noted(rig, JournalAction.RESTORED), "pauses are obeyed again")
    rig.wait_for_rest()


def test_a_switch_holds_no_more_than_its_memory_where_static_thresholds_promise_more(
    tmp_path: Path,
) -> None:
    """A queue of what no threshold stopped would hold three times as much as all of the memory."""
    file = tmp_path / "lab.yaml"
    body = (BODY % "").replace("servers_per_rack: 2", "servers_per_rack: 4")
    body = body.replace("xoff: 100KB", "xoff: 300KB").replace("memory: 400KB", "memory: 100KB")
    file.write_text(f"name: t-lossless-small\n{body}")
    incast = {"pattern": "incast", "ranks": 8, "size": "1MB", "iterations": 1}
    job = JobSpec.model_validate({**incast, "warmup_iterations": 0})
    with running(Lab.planned(file)) as lab:
        report = measured(lambda: run_job(lab, job))
        ports = len(lab.fabric.links_of["rtsw1"])
    assert report.lossless is not None
    assert report.lossless.dropped == report.roce.retransmitted == 0
    assert 0 < max(queue.depth_max_bytes or 0 for queue in report.queues) <= ports * 100_000
