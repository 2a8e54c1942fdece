"""Hosts that gather arrivals, behind the ports of a lab."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rocelab.base.arrays import NONE
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.planning.queues import BURST_NS
from rocelab.results.engines import Engine, PortModel
from rocelab.routes.arrays.build import network_of
from rocelab.sim.options import Options
from rocelab.sim.packets.run import run_packets
from rocelab.sim.packets.sending import Gathering, gathering_of
from rocelab.sim.simulate import simulate
from tests.unit.sim.packet_runs import ENDLESS, FRAME, LATENCY_PS, Flow, arranged, finish_ps

LAB = replace(ENDLESS, ports=PortModel.LAB, burst_bytes=FRAME + 24)
TWO_SERVERS = np.array([0, NONE, 1, NONE])


@pytest.mark.parametrize(
    ("packets", "moderation_ns", "expected_ps"),
    [
        # The ACK is back after four links, while the host sleeps.
        (1, 10_000, 10_000_000),
        # It sends the second packet when it takes the first one's ACK, and sleeps again.
        (2, 10_000, 20_000_000),
        (1, 1, 4 * LATENCY_PS),
    ],
)
def test_a_host_takes_arrivals_and_sends_when_it_wakes(
    packets: int, moderation_ns: float, expected_ps: int
) -> None:
    flow = Flow([0, 3], packets * 4096)
    program, wirings, latency_s, sending, queues = arranged([flow], LAB)
    sending = replace(sending, gathering=Gathering(moderation_ns, 0, TWO_SERVERS))
    run = run_packets(program, wirings, latency_s, sending, queues)
    assert finish_ps(run) == pytest.approx([expected_ps], abs=0.5)


@pytest.mark.parametrize(
    ("dilation", "moderation_ns", "late_ns"),
    [(1, 50_000, 100_000), (100, 1000, 1000), (4000, 250, 25)],
)
def test_a_labs_hosts_wake_as_its_agents_do(
    dilation: float, moderation_ns: float, late_ns: float
) -> None:
    spec = load_spec(find_lab("tiny")).model_copy(update={"dilation": dilation})
    gathering = gathering_of(network_of(spec))
    assert (gathering.moderation_ns, gathering.late_ns) == (moderation_ns, late_ns)


def test_a_receivers_port_that_was_idle_takes_an_incast_below_its_bound() -> None:
    """By 200 us of the lab's clock at most, where that is more than a frame."""
    spec = load_spec(find_lab("two-leaves")).model_copy(update={"dilation": 20.0})
    keys = {"pattern": "incast", "ranks": 6, "size": "300KB", "transport": {"dcqcn": "off"}}
    options = Options(engine=Engine.PACKETS, ports=PortModel.LAB, hop_latency_ns=2)
    (job,) = simulate(spec, [collective_job(JobSpec.model_validate(keys))], options).jobs
    assert job.roofline_ns is not None and job.iterations_ns[0] is not None
    assert 1000 < job.roofline_ns - job.iterations_ns[0] < BURST_NS / spec.dilation


def test_a_server_is_one_host_for_all_its_ports() -> None:
    network = network_of(load_spec(find_lab("hpn-small")))
    server = gathering_of(network).server
    assert (server[network.tier[network.sender] > 0] == NONE).all()
    assert np.unique(server[server != NONE], return_counts=True)[1].tolist() == [
        (network.sender == node).sum() for node in np.flatnonzero(network.tier == 0)
    ]


@pytest.mark.parametrize("lab", ["hpn-small", "hpn-single-plane"])
def test_answers_that_leave_by_the_other_port_of_a_nic_are_not_held_up(lab: str) -> None:
    job = JobSpec.model_validate({"pattern": "alltoall", "ranks": 8, "size": "1MB"})
    options = Options(engine=Engine.PACKETS, ports=PortModel.LAB, hop_latency_ns=20)
    report = simulate(load_spec(find_lab(lab)), [collective_job(job)], options)
    assert report.packets is not None
    assert (report.packets.timeouts, report.packets.retransmitted) == (0, 0)
