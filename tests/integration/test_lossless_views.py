"""Lossless classes as commands show them: status, health, and what a killed process leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from rocelab.dataplane.pfc import control
from rocelab.dataplane.pfc.journal import JournalAction
from rocelab.dataplane.pfc.reading import PauseReader
from rocelab.jobs.job import JobSpec
from rocelab.lab.lab import Lab, RunningLab
from rocelab.observe.health.health_spec import HealthSpec
from rocelab.observe.health.monitor import HealthMonitor, Snapshot
from rocelab.record import LabFiles
from rocelab.results.health import HealthReport, Sli
from rocelab.results.job import JobReport
from rocelab.runs.jobs import run_job
from tests.helpers.command import PROGRAM, Outcome, read, rocelab
from tests.helpers.lossless import processes_of
from tests.helpers.measured import measured, problems_of_command
from tests.helpers.running import running
from tests.helpers.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.few_at_once

NAME = "t-lossless-views"
FILES = LabFiles(NAME)
BODY = """
fabric: {racks: 2, spines: 1, servers_per_rack: 3}
links: {rate: 100G, server_rate: 100G}
dilation: 2500
queues:
  ecn: {kmin: 40MB, kmax: 60MB}
  buffer: 150KB
  pfc: {xoff: 100KB, xon_offset: 5KB, memory: 400KB}
"""
MINE = "t-lossless-mine"
WITH_DEFAULTS = """
fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 2}
queues:
  pfc: {}
"""
SPEC = HealthSpec.model_validate({"interval": "200ms"})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningLab, str]]:
    """A lab, and its status before it has carried anything."""
    file = tmp_path_factory.mktemp("lab") / "lab.yaml"
    file.write_text(f"name: {NAME}\n{BODY}")
    with running(Lab.planned(file)) as lab:
        yield lab, rocelab("status", NAME).stdout


@pytest.fixture
def lab(made: tuple[RunningLab, str]) -> RunningLab:
    return made[0]


def shown() -> dict[tuple[str, str], dict[str, Any]]:
    """The ports of `rocelab status --json`, by node and peer."""
    return {(port["node"], port["peer"]): port for port in read("status", NAME)["pfc"]["ports"]}


def test_a_lab_that_has_carried_nothing_has_paused_nothing(made: tuple[RunningLab, str]) -> None:
    assert "no pauses so far" in made[1]


def test_pauses_are_no_loss_and_both_ends_count_them(lab: RunningLab) -> None:
    """Three senders of a rack share one uplink and would need three."""
    transport = {"ecn": "not-ect", "dcqcn": False}
    job = {"pattern": "alltoall", "ranks": 6, "size": "1MB", "transport": transport}

    def run() -> tuple[JobReport, HealthReport]:
        with HealthMonitor(lab, SPEC) as monitor:
            outcome = run_job(lab, JobSpec.model_validate(job))
        return outcome, monitor.report

    _, report = measured(run, lambda made: made[0].problems)
    for sli in (Sli.LINK_LOSS, Sli.LOSSLESS_DROPS, Sli.WATCHDOG_EVENTS, Sli.QUEUE_DROPS):
        assert report.sli(sli).met, report.sli(sli)
    assert report.sli(Sli.PAUSE_SHARE).worst > 0
    assert report.problems == ()

    wait_until(
        lambda: not any(port["is_paused"] or port["held_bytes"] for port in shown().values()),
        "the last pauses end",
    )
    ports = shown()
    for (node, peer), port in ports.items():
        far = ports[peer, node]
        assert (far["rx_pause"], far["rx_resume"]) == (port["tx_pause"], port["tx_resume"])
        assert port["rx_pause_longest_ns"] <= port["rx_pause_duration_ns"]
        assert bool(port["rx_pause_transition"]) == bool(port["rx_pause_duration_ns"])
    assert any(port["rx_pause"] for (node, _), port in ports.items() if node.startswith("srv"))
    assert "ports that paused or were paused" in rocelab("status", NAME).stdout


def test_a_storm_is_seen_while_it_lasts_and_by_the_process_that_takes_over(lab: RunningLab) -> None:
    slot = slot_of_a_nic(lab)
    place = "srv1-1:rtsw1 to srv1-1"
    names = {f"{link.name} to {link.receiver}" for link in lab.fabric.directed_links}
    assert place in names
    seen: list[Snapshot] = []
    with HealthMonitor(lab, SPEC, on_sample=seen.append) as monitor:
        control.storm(FILES, slot, 1 << 3)
        wait_until(
            lambda: any(
                message.sample.values[Sli.PAUSE_SHARE].get(place, 0) > 0.9 for message in seen
            ),
            "a sample in which the switch's port was paused",
        )
        assert shown()["rtsw1", "srv1-1"]["is_paused"]
        with PauseReader(lab.fabric) as reader:

            def begun() -> int:
                """How many processes that pause have begun since the lab was up."""
                return [entry.what for entry in reader.entries()].count(JournalAction.TAKEN_OVER)

            before = begun()
            os.kill(processes_of(FILES).pauser, signal.SIGKILL)
            wait_until(lambda: begun() > before, "the next process")
        wait_until(lambda: shown()["rtsw1", "srv1-1"]["is_paused"], "its pause")
        control.storm(FILES, slot, 0)
        wait_until(lambda: not shown()["rtsw1", "srv1-1"]["is_paused"], "the storm's end")
    assert rocelab("status", NAME).returncode == 0
    assert not monitor.report.sli(Sli.PAUSE_SHARE).met


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGKILL, "the PFC process ended and was restarted"),
        pytest.param(
            signal.SIGSTOP,
            "the PFC process had ended or was stopped",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_job_whose_pausing_process_was_killed_or_stopped_is_not_valid(
    lab: RunningLab, number: signal.Signals, said: str
) -> None:
    job = {"pattern": "alltoall", "ranks": 6, "size": "4MB", "iterations": 2}
    transport = {"ecn": "not-ect", "dcqcn": False}
    pauser = processes_of(FILES).pauser
    with PauseReader(lab.fabric) as reader, ThreadPoolExecutor(1) as pool:

        def pauses() -> int:
            return [entry.what for entry in reader.entries()].count(JournalAction.STOPPED)

        before = pauses()
        ran = pool.submit(run_job, lab, JobSpec.model_validate({**job, "transport": transport}))
        try:
            wait_until(lambda: pauses() > before, "a pause of the job")
            os.kill(pauser, number)
            problems = ran.result().problems
        finally:
            if number == signal.SIGSTOP:
                os.kill(pauser, signal.SIGCONT)
    assert any(said in problem for problem in problems), problems
    wait_until(
        lambda: not any(port["is_paused"] or port["held_bytes"] for port in shown().values()),
        "the last pauses end",
    )


def test_without_the_process_that_pauses_a_lab_is_not_as_planned(lab: RunningLab) -> None:
    with PauseReader(lab.fabric) as reader:
        plan = reader.plan
    os.kill(processes_of(FILES).supervisor, signal.SIGKILL)
    try:
        wait_until(lambda: not control.is_alive(FILES), "the process's end")
        status = rocelab("status", NAME)
        assert status.returncode == 1
        assert "the PFC process does not run" in status.stdout
        document = read("status", NAME)
        assert (document["converged"], document["pfc"]["alive"]) == (False, False)
        health = rocelab("health", NAME, "--once")
        assert health.returncode == 1
        ended = "lossless classes: the PFC process does not run"
        assert ended in health.stderr
    finally:
        control.start(plan, FILES)


def slot_of_a_nic(lab: RunningLab) -> int:
    """The slot of a server's NIC."""
    with PauseReader(lab.fabric) as reader:
        return reader.plan.slots["srv1-1", "rtsw1"]


@pytest.mark.long
def test_with_defaults_a_slow_receiver_is_reported_captured_and_diagnosed(tmp_path: Path) -> None:
    """As docs/pfc.md does by hand: all that a user wrote is `queues: {pfc: {}}`."""
    file, out, pcap = tmp_path / "mine.yaml", tmp_path / "job", tmp_path / "pauses.pcapng"
    file.write_text(f"name: {MINE}\n{WITH_DEFAULTS}")
    job = ("--pattern", "allreduce", "--ranks", "4", "--size", "8MB", "--iterations", "2")

    def ran() -> Outcome:
        command = [*PROGRAM, "capture", MINE, "rtsw2:srv2-1", "--out", str(pcap), "--force"]
        with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as capture:
            assert capture.stderr is not None
            assert "Ctrl-C" in capture.stderr.readline()
            try:
                return rocelab("traffic", MINE, *job, "--out", out, "--force")
            finally:
                capture.send_signal(signal.SIGINT)
                capture.communicate(timeout=LIMIT_S)

    with running(Lab.planned(file)):
        slow = ("slow-receiver", "server=srv2-1", "rate=25%")
        assert rocelab("fault", "inject", MINE, *slow).returncode == 0
        text = measured(ran, problems_of_command).stdout
    pauses = json.loads((out / "result.json").read_text())["lossless"]["ports"]
    by = {(pause["node"], pause["peer"]): pause["transitions"] for pause in pauses}
    assert by["rtsw2", "srv2-1"] > 0
    tables = text.partition("Ports that were paused")[2].partition("Where pauses began")
    assert re.search(r"rtsw2:srv2-1 +3 +srv2-1 ", tables[0])
    assert re.search(r"srv2-1 +3 .* 1: rtsw2", tables[2])
    frames = subprocess.run(
        ["tshark", "-r", pcap, "-Y", "macc.opcode == 0x0101", "-T", "fields", "-eeth.src"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(frames) > 1
    assert rocelab("diagnose", out / "result.json").stdout.startswith("slow-receiver: srv2-1;")
