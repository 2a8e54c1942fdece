"""On a small lab the simulator's link loads equal the kernels' counts, and its bandwidth the
lab's; so do the times of workloads and of flows packet by packet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.agreement.document import CellResult
from bench.agreement.plan import SHAPES, Cell
from bench.agreement.run import measure_cell
from bench.agreement.simulated import VETH_NS, simulate_job
from rocelab import Lab, RunningLab
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.results.engines import Engine, PortModel
from rocelab.results.job import JobReport
from rocelab.results.simulation import SimulationReport
from rocelab.runs.jobs import run_job
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
from tests.helpers.measured import measured
from tests.helpers.running import running

LAB = "fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 2}\ndilation: 8000\n"
RING, ACROSS, ALLTOALL, _ = SHAPES
MODEL = {
    "block": "llama",
    "hidden": 256,
    "layers": 4,
    "heads": 8,
    "ffn": 1024,
    "vocab": 1000,
    "sequence": 128,
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    file = tmp_path_factory.mktemp("agreement") / "t-agree-clos.yaml"
    file.write_text(f"name: t-agree-clos\n{LAB}")
    with running(Lab.planned(file)) as made:
        yield made


def switch_ports(lab: RunningLab) -> set[str]:
    return {
        f"{link.sender}:{link.port.interface}"
        for link in lab.fabric.directed_links
        if link.port.role.is_switch
    }


def agreement(lab: RunningLab, shape: int) -> CellResult:
    spec = lab.fabric.spec
    job = SHAPES[shape].job(4, 2**17)
    simulated = simulate_job(spec, job)
    return measured(
        lambda: measure_cell(lab, Cell(lab.name, SHAPES[shape], spec, job, simulated), 1),
        attempts=1,
    )


def test_simulated_loads_and_bandwidth_are_the_labs(lab: RunningLab) -> None:
    ring, alltoall = agreement(lab, 0), agreement(lab, 2)
    for result in (ring, alltoall):
        assert result.loads is not None
        assert result.loads.agree, result.loads.differing
        assert result.loads.packets > 1000
        # What comes from a NIC passes a switch's port for each link after its own.
        assert result.lab_queues is not None and result.packets_queues is not None
        assert sum(result.lab_queues.markable) > result.loads.packets / 2
        assert {port.port for port in result.lab_queues.ports} <= switch_ports(lab)
        assert {port.port for port in result.packets_queues.ports} <= switch_ports(lab)
    assert ring.bottleneck <= 1
    # docs/agreement.md holds it to 5 %; a machine that has run tests for minutes adds to a step.
    for ratio in (ring.fluid_ratio, ring.packets_ratio):
        assert abs(ratio.value - 1) <= 0.1, (ring.lab_ns, ring.fluid_ns, ring.packets_ns)


def both(lab: RunningLab, **block: object) -> tuple[JobReport, SimulationReport]:
    """A job on the lab and packet by packet, with the lab's ports and hosts."""
    job = SimulatedJob.model_validate({"name": "job", **block})
    options = Options(hop_latency_ns=VETH_NS, engine=Engine.PACKETS, ports=PortModel.LAB)
    return measured(lambda: run_job(lab, job)), simulate(lab.fabric.spec, [job], options)


def test_a_training_job_takes_as_long_as_packet_by_packet(lab: RunningLab) -> None:
    training = {"model": MODEL, "pipeline": 2, "data": 2, "micro_batches": 4, "gpu_flops": "100T"}
    report, simulated = both(lab, training=training, iterations=2)
    assert not report.errors
    for name in ("iteration_time", "tokens", "jct_ratio"):
        lab_value = report.headline(name).modelled.median
        assert lab_value == pytest.approx(simulated.jobs[0].headline(name).modelled.median, rel=0.1)
    assert report.workload is not None and report.workload.steps
    assert report.transport is not None
    assert report.transport.posted_bytes == simulated.jobs[0].payload_bytes


def test_flows_at_their_times_take_as_long_as_packet_by_packet(lab: RunningLab) -> None:
    poisson = {"sizes": "websearch", "load": "50%", "duration": "300us"}
    report, simulated = both(lab, poisson=poisson)
    assert report.workload is not None
    flows, of_packets = report.workload.flow_times, simulated.flow_times
    assert flows is not None and of_packets is not None
    assert flows.transfers == of_packets.transfers > 10
    assert flows.time_ns.mean == pytest.approx(of_packets.time_ns.mean, rel=0.1)
    assert flows.time_ns.maximum == pytest.approx(of_packets.time_ns.maximum, rel=0.1)
    # Not its highest: that is of the smallest flows, which have the time of a packet in a lab.
    assert flows.slowdown.p50 == pytest.approx(of_packets.slowdown.p50, rel=0.1)
