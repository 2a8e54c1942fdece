"""The simulator's side of a comparison: link loads and durations of a lab's job, from both engines.

From a lab's spec and its `JobSpec` it computes data packets and flows per link and sender, the
time of each measured iteration of the fluid, and runs of the packet engine. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np

from bench.agreement.document import Run
from bench.agreement.queues import PortCounts, Queues
from rocelab import JobSpec, LabSpec, plan
from rocelab import SimulationOptions as Options
from rocelab.agent.nic import SECOND_NS
from rocelab.base.arrays import Floats
from rocelab.jobs.job_spec import collective_job
from rocelab.prediction.loads import by_link
from rocelab.results.engines import Engine, PortModel
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.paths import flows_per_send
from rocelab.sim.compile import PlacedJob, compile_jobs
from rocelab.sim.packets.run import PacketRun
from rocelab.sim.simulate import PACKET_OVERHEAD_BYTES, Simulation
from rocelab.traffic.taps import LinkPackets

VETH_NS = 10.0
"""Latency of a hop of the packet engine. A lab's veth pairs have no length; the engine needs one,
and this is an eighth of a packet's time at 400G."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """packets, flows: data by (link, sender), over all iterations including the warm-up;
    iteration_ns: the times of measured iterations. bottleneck: the time that the busiest link
    between switches needs for its load, over that of the busiest link of a NIC; least_ns: the time
    that the busiest link of all needs for an iteration."""

    packets: LinkPackets
    flows: LinkPackets
    iteration_ns: tuple[float, ...]
    bottleneck: float
    least_ns: float


def simulate_job(spec: LabSpec, job: JobSpec) -> Simulated:
    """A lab's job as a fluid, exactly (eps 0) and without latency: a lab's idle port lets a packet
    through at once, out of its token bucket.

    Its warm-up is an iteration like the others, so that round-robin puts the same messages on the
    same queue pairs.

    Raises InputError for jobs that the simulator does not accept.
    """
    simulation = _simulation(spec, job, Options(eps=0.0, hop_latency_ns=0.0))
    outcome = simulation.run()
    (seconds,) = simulation.iteration_seconds(outcome)
    network, paths, fabric = simulation.network, simulation.whole_paths, plan(spec)
    carried = np.bincount(
        paths.sends,
        np.repeat(_packets(simulation), np.diff(paths.start)),
        minlength=network.sends,
    )
    used_s = outcome.sent_bits / network.capacity_bps
    of_server = np.repeat(network.tier[network.lower] == 0, 2)
    return Simulated(
        packets=by_link(fabric, np.rint(carried).astype(np.int64)),
        flows=by_link(fabric, flows_per_send(network, paths).astype(np.int64)),
        iteration_ns=tuple(second * SECOND_NS for second in seconds[job.warmup_iterations :]),
        bottleneck=float(used_s[~of_server].max() / used_s[of_server].max()),
        least_ns=float(used_s.max()) * SECOND_NS / (job.iterations + job.warmup_iterations),
    )


def simulate_packets(spec: LabSpec, job: JobSpec, seed: int) -> tuple[Run, Queues]:
    """A run of the packet engine, with the ports and hosts of a lab; `seed` draws how late hosts
    wake. Raises as `simulate_job` does."""
    options = Options(
        hop_latency_ns=VETH_NS,
        engine=Engine.PACKETS,
        ports=PortModel.LAB,
        seed=seed,
    )
    simulation = _simulation(spec, job, options)
    outcome = simulation.run_packets()
    (seconds,) = simulation.iteration_seconds(outcome)
    run = Run(
        iteration_ns=fmean(seconds[job.warmup_iterations :]) * SECOND_NS,
        marked=int(outcome.marks.sum()),
        dropped=int(outcome.drops.sum()),
        retransmitted=int(outcome.retransmitted.sum()),
        cnps=int(outcome.cnps.sum()),
        timeouts=int(outcome.timeouts.sum()),
    )
    return run, _queues(simulation.network, outcome)


def _queues(network: Network, outcome: PacketRun) -> Queues:
    is_switch = network.tier[network.sender] > 0
    counts = np.stack(
        (
            outcome.marks,
            outcome.drops,
            np.where(is_switch, outcome.highest_bytes, 0),
            outcome.pause.stops.sum(axis=1),
        ),
        axis=1,
    )
    return Queues(
        tuple(
            PortCounts(network.send_name(send), *((count,) for count in counts[send].tolist()))
            for send in np.flatnonzero(counts.any(axis=1)).tolist()
        ),
        *(tuple(column) for column in outcome.marking.T.tolist()),
    )


def _simulation(spec: LabSpec, job: JobSpec, options: Options) -> Simulation:
    whole = job.model_copy(
        update={"iterations": job.iterations + job.warmup_iterations, "warmup_iterations": 0}
    )
    return Simulation(spec, [collective_job(whole)], options)


def _packets(simulation: Simulation) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Data packets of each flow."""
    program = simulation.compiled.program
    packets = (_longer(simulation) - program.size_bits) / 8
    of_flow = np.bincount(program.flow, packets, minlength=len(simulation.compiled.flows))
    return np.rint(of_flow).astype(np.int64)


def _longer(simulation: Simulation) -> Floats:
    """Bits of each transfer if headers were a byte longer: one more byte per packet."""
    placed = [
        PlacedJob(workload, places, job.transport, job.seed)
        for workload, places, job in zip(
            simulation.workloads, simulation.places, simulation.jobs, strict=True
        )
    ]
    overhead_bytes = PACKET_OVERHEAD_BYTES + 1
    compiled = compile_jobs(simulation.network, placed, overhead_bytes=overhead_bytes)
    return compiled.program.size_bits
