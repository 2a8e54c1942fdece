"""Links that take time (`links.delay`) on a real lab."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from rocelab.dataplane.impairments import cables, lineprocess
from rocelab.dataplane.impairments.impairment import Impairment, ImpairmentKind
from rocelab.dataplane.impairments.program import CABLES
from rocelab.jobs.flow import ProbeStream
from rocelab.jobs.job import JobSpec
from rocelab.lab.lab import RunningLab
from rocelab.lab.status import read_status
from rocelab.linux import pidfile, probes
from rocelab.runs.jobs import run_job
from rocelab.traffic.result import TrafficResult
from rocelab.traffic.session import TrafficSession
from tests.helpers.directed import towards
from tests.helpers.measured import measured
from tests.helpers.waiting import wait_until
from tests.integration.conftest import MakeLab

pytestmark = pytest.mark.few_at_once

MS = 10**6
HOLD_NS = 4 * MS
"""1 us at a dilation of 4,000."""
BODY = """
fabric: {racks: 2, spines: 1, servers_per_rack: 2}
links: {rate: 100G, server_rate: 100G, delay: 1us}
dilation: 4000
"""


@pytest.fixture
def lab(make_lab: MakeLab) -> Iterator[RunningLab]:
    made = make_lab("t-cables", BODY)
    made.start()
    yield made


def run(lab: RunningLab) -> TrafficResult:
    """A flow over four links, and one over two."""
    ends = ("srv1-1", "srv2-1"), ("srv1-2", "srv1-1")
    flows = [
        ProbeStream(number, source, 1, destination, 1, 50000 + number, 17 + number, 500, 256)
        for number, (source, destination) in enumerate(ends)
    ]
    with TrafficSession(lab.fabric, lambda name: lab.node(name).netns, flows) as session:
        session.start()
        time.sleep(0.5)
        return session.stop()


def one_way_ns(result: TrafficResult) -> list[float]:
    for flow in result.flows:
        assert flow.received_seq.tolist() == sorted(flow.sent_seq.tolist())
    return [float(np.median(flow.receive_ns - flow.send_ns)) for flow in result.flows]


def test_a_packet_takes_the_delay_of_each_of_its_links(lab: RunningLab) -> None:
    far, near = one_way_ns(measured(lambda: run(lab)))
    # A busy machine lets go of packets late, by less than what one more link would take.
    assert 4 * HOLD_NS <= far + 4 * 20_000 < 5 * HOLD_NS
    assert 2 * HOLD_NS <= near + 2 * 20_000 < 3 * HOLD_NS


def test_a_delay_fault_adds_to_that_of_the_cable_and_is_cleared(lab: RunningLab) -> None:
    before, _ = one_way_ns(measured(lambda: run(lab)))
    link = towards(lab.fabric, "srv1-1:rtsw1", "rtsw1")
    lab.impairments.impair(link, Impairment(ImpairmentKind.DELAY, delay_ns=100 * MS))
    during, _ = one_way_ns(measured(lambda: run(lab)))
    lab.impairments.clear(link, ImpairmentKind.DELAY)
    after, _ = one_way_ns(measured(lambda: run(lab)))
    assert during - before == pytest.approx(100 * MS, abs=10 * MS)
    assert after == pytest.approx(before, abs=10 * MS)


def test_status_names_a_switch_whose_cables_are_stopped_or_have_ended(lab: RunningLab) -> None:
    files = lab.runtime.files
    assert read_status(lab).converged
    if probes.missing(("netem",)) is None:
        pytest.skip("netem holds the packets here")
    pid = pidfile.holder(lineprocess.pid_file(CABLES, files, "rtsw2"))
    assert pid is not None
    for number in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(pid, number)
        wait_until(lambda: cables.broken(lab.fabric, files), "the process stopped or ended")
        status = read_status(lab)
        assert status.broken_cables == ("rtsw2",)
        assert "cables of rtsw2 let no packet through" in status.problems
        assert not status.converged


@pytest.mark.long
def test_lossless_classes_lose_nothing_over_cables_that_hold_as_much_as_their_headroom(
    make_lab: MakeLab,
) -> None:
    """Four senders to one receiver; 5 us of a cable at 10G are 6,250 bytes, there and back twice
    that, and the headroom of a port has just room for it."""
    body = """
fabric: {racks: 2, spines: 1, servers_per_rack: 2}
links: {rate: 10G, server_rate: 10G, delay: 5us}
dilation: 2500
queues:
  ecn: {kmin: 40MB, kmax: 60MB}
  pfc: {xoff: 50KB, xon_offset: 5KB, memory: 400KB}
"""
    lab = make_lab("t-cables-pfc", body)
    lab.start()
    spec = JobSpec.model_validate(
        {
            "pattern": "incast",
            "ranks": 4,
            "size": "1MB",
            "iterations": 1,
            "warmup_iterations": 0,
            "transport": {"dcqcn": "off", "ecn": "not-ect"},
        }
    )
    report = measured(lambda: run_job(lab, spec))
    assert report.lossless is not None
    assert report.lossless.transitions > 0
    assert report.lossless.dropped == report.roce.retransmitted == 0
    assert report.lossless.unbalanced == ()


def test_a_job_says_what_of_its_latency_is_the_machine_s(make_lab: MakeLab) -> None:
    lab = make_lab("t-cables-job", BODY.replace("1us", "10ns"))  # 40 us of the lab
    if probes.missing(("netem",)) is None:
        pytest.skip("netem holds the packets here, and counts none")
    lab.start()
    spec = JobSpec.model_validate({"pattern": "allreduce", "ranks": 2, "size": "64KB"})
    report = run_job(lab, spec)
    assert any(
        "packets left a link later than links.delay" in warning for warning in report.warnings
    )


def test_a_job_whose_delay_line_stood_still_is_not_valid(lab: RunningLab) -> None:
    if probes.missing(("netem",)) is None:
        pytest.skip("netem holds the packets here")
    line = pidfile.holder(lineprocess.pid_file(CABLES, lab.runtime.files, "rtsw1"))
    assert line is not None
    spec = JobSpec.model_validate({"pattern": "pairs", "ranks": 2, "size": "4MB"})
    held = partial(cables.lateness, lab.fabric, lab.runtime.files)
    with ThreadPoolExecutor(1) as pool:
        before = held().packets
        ran = pool.submit(run_job, lab, spec)
        wait_until(lambda: held().packets > before, "packets of the job")
        os.kill(line, signal.SIGSTOP)
        try:
            time.sleep(0.5)  # six times the limit
        finally:
            os.kill(line, signal.SIGCONT)
        problems = ran.result().problems
    assert any("packets left a link more than 80 ms late" in problem for problem in problems), (
        problems
    )
