"""Lossless classes on a real lab: no loss, real pause frames, pauses that end with their cause."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from scapy.layers.l2 import Ether

from rocelab.agent import pauseframe
from rocelab.diagnose.diagnose import diagnose_report
from rocelab.faults.base import Fault
from rocelab.faults.links import CarrierDown
from rocelab.faults.pauses import PauseDeaf, PauseStorm, SlowDrain
from rocelab.faults.power import SwitchPowerLoss
from rocelab.jobs.job import JobSpec
from rocelab.kernel import namespaces, pidfile
from rocelab.measure.run import run_job
from rocelab.results.diagnosis import Cause
from rocelab.results.job import JobReport
from rocelab.results.lossless import propagation
from rocelab.runtime.lab import Lab
from rocelab.runtime.pfc import control
from rocelab.runtime.pfc.journal import What
from rocelab.runtime.pfc.maps import CLASSES, PauseMaps
from rocelab.runtime.pfc.program import pins_folder
from rocelab.runtime.pfc.reading import PauseReader
from rocelab.runtime.record import LabFiles
from rocelab.runtime.status import read_status
from tests.integration.conftest import MakeLab
from tests.integration.labs import running
from tests.integration.waiting import wait_until
from tests.measured import measured

pytestmark = pytest.mark.few_at_once

BODY = """
fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 2}
links: {rate: 100G, server_rate: 100G}
dilation: 2500
queues:
  ecn: {kmin: 40MB, kmax: 60MB}
  pfc: {xoff: 100KB, xon_offset: 5KB, memory: 400KB%s}
"""
LOSSLESS, TOS = 3, "96"
REPEATS = 3
SENDER, STORMED = "srv2-1", "srv1-1"


class Rig:
    """A lab that is up, and its maps."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.files = LabFiles(lab.name)
        self.reader = PauseReader(lab.fabric)
        self.plan = self.reader.plan
        self.maps = PauseMaps(pins_folder(self.files))
        self.nic_link = lab.fabric.nics(STORMED)[0].links[0]
        self.gate = self.plan.slots["rtsw1", self.nic_link.port("rtsw1").interface]

    def is_gated(self, slot: int) -> bool:
        return bool(self.maps.egresses.get(slot * CLASSES + LOSSLESS, "gated"))

    def passes(self) -> bool:
        """Whether a packet of the lossless class comes through, there and back."""
        address = self.lab.fabric.nics(STORMED)[0].ip
        command = ["ping", "-Q", TOS, "-c", "1", "-W", "1", address]
        return (
            namespaces.inside(
                self.lab.node(SENDER).netns, lambda: subprocess.run(command, capture_output=True)
            ).returncode
            == 0
        )

    def is_at_rest(self) -> bool:
        """Whether no gate is closed and nothing is held or queued."""
        counters = self.reader.counters(time.monotonic_ns()).items()
        return all(
            not each.is_paused and not each.in_queue and (port.is_nic or not each.held)
            for port, each in ((port, each) for (port, _), each in counters)
        )

    def wait_for_rest(self) -> None:
        wait_until(self.passes, "a packet of the lossless class passes")
        wait_until(self.is_at_rest, "nothing is paused or held")
        assert self.reader.imbalance() == ()

    @contextmanager
    def storm(self) -> Iterator[None]:
        """A pause that is open, with packets behind it."""
        fault = PauseStorm((self.nic_link,), (LOSSLESS,))
        fault.prepare(self.lab)
        fault.inject(self.lab)
        try:
            wait_until(
                lambda: self.is_gated(self.gate) and not self.passes(), "the switch is paused"
            )
            yield
        finally:
            fault.restore(self.lab)
        wait_until(lambda: not fault.remains(self.lab), "the storm is over")

    def supervisor(self) -> int:
        pid = pidfile.holder(control.pid_file(self.files))
        assert pid is not None
        return pid

    def child(self) -> int:
        pid = self.supervisor()
        children = Path(f"/proc/{pid}/task/{pid}/children")
        wait_until(children.read_text, "the supervisor has a child")
        return int(children.read_text().split()[0])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    file = tmp_path_factory.mktemp("lossless") / "lab.yaml"
    file.write_text(f"name: t-lossless\n{BODY % ''}")
    with running(Lab.planned(file)) as lab:
        yield Rig(lab)


@pytest.fixture
def rig(made: Rig) -> Iterator[Rig]:
    made.wait_for_rest()
    yield made
    made.wait_for_rest()


def alltoall(rig: Rig) -> JobReport:
    spec = JobSpec.model_validate(
        {
            "pattern": "alltoall",
            "ranks": 4,
            "size": "8MB",
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
    assert report.lossless.dropped == report.transport.retransmitted == 0
    assert report.lossless.unbalanced == ()
    assert all(port.pauses_received for port in report.lossless.ports if port.transitions)


def test_pauses_of_a_slow_receiver_go_back_to_it(rig: Rig) -> None:
    slow = SlowDrain((rig.nic_link,), 100_000)
    slow.inject(rig.lab)
    try:
        report = alltoall(rig)
    finally:
        slow.restore(rig.lab)
    verdict = diagnose_report(report)[0].verdict
    assert (verdict.cause, verdict.server) == (Cause.SLOW_RECEIVER, STORMED)
    assert report.lossless is not None
    found = report.lossless
    worst, *_ = propagation(found.spans, found.servers, report.fidelity.elapsed_ns)
    assert worst.root == STORMED
    assert worst.depth["rtsw1"] == 1
    assert max(worst.depth.values()) > 1
    assert report.lossless.dropped == 0


def test_a_pause_is_a_frame_of_802_1qbb_on_the_wire(rig: Rig) -> None:
    def capture() -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        opened.bind((rig.nic_link.port(STORMED).interface, 0x0003))
        opened.settimeout(60)
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
    assert quanta == [0xFFFF if each == LOSSLESS else 0 for each in range(8)]
    assert frame[34:] == bytes(26)


def test_a_storming_nic_stops_its_victims_until_the_fault_is_restored(rig: Rig) -> None:
    with rig.storm():
        assert rig.is_gated(rig.gate)


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
        assert rig.passes()
    finally:
        storm.restore(rig.lab)
        deaf.restore(rig.lab)
    assert not deaf.remains(rig.lab)


def test_a_slow_receiver_drains_at_its_share_and_at_its_own_rate_again(rig: Rig) -> None:
    slow = SlowDrain((rig.nic_link,), 250_000)
    slow.inject(rig.lab)
    assert slow.remains(rig.lab)
    assert not slow.intact(rig.lab)
    slow.restore(rig.lab)
    assert not slow.remains(rig.lab)


def kill_the_child(rig: Rig) -> None:
    child = rig.child()
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: rig.child() != child, "another child")


def kill_the_supervisor(rig: Rig) -> None:
    child = Path(f"/proc/{rig.child()}")
    os.kill(rig.supervisor(), signal.SIGKILL)
    wait_until(lambda: not child.exists(), "the child ends")
    assert not rig.is_gated(rig.gate)
    control.start(rig.plan, rig.files)


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


@pytest.mark.parametrize("kill", [kill_the_child, kill_the_supervisor, lose_the_link])
def test_an_open_pause_ends_with_what_held_it(rig: Rig, kill: Callable[[Rig], None]) -> None:
    for _ in range(REPEATS):
        with rig.storm():
            kill(rig)
        rig.wait_for_rest()


def test_an_open_pause_ends_with_its_switch(rig: Rig) -> None:
    with rig.storm():
        lose_the_switch(rig)


def test_the_watchdog_frees_a_stormed_queue_and_obeys_again_after_it(make_lab: MakeLab) -> None:
    watchdog = ", watchdog: {detection: 100us, restoration: 1ms}"
    lab = make_lab("t-watchdog", BODY % watchdog)
    lab.up()
    rig = Rig(lab)
    index = rig.gate * CLASSES + LOSSLESS
    wait_until(rig.passes, "a packet of the lossless class passes")

    def noted(what: What) -> bool:
        return any(each.what is what and each.slot == rig.gate for each in rig.reader.entries())

    with rig.storm():
        wait_until(lambda: noted(What.FIRED), "the watchdog fires")
        wait_until(
            lambda: rig.maps.egresses.get(index, "discarded_packets"), "the queue's packets go"
        )
        assert not rig.is_gated(rig.gate)
    wait_until(lambda: noted(What.RESTORED), "pauses are obeyed again")
    rig.wait_for_rest()
