"""The simulator's side of a comparison: the link loads and the duration of a lab's job.

From a lab's spec and its `JobSpec` it computes data packets and flows per link and sender, and the
time of each measured iteration. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bench.agreement.packets import PacketRun
from rocelab.agent.nic import SECOND_NS
from rocelab.arrays import Floats
from rocelab.jobs.job import JobSpec
from rocelab.jobs.spec import collective_job
from rocelab.plan.build import plan
from rocelab.predict.loads import by_link
from rocelab.sim.compile import PlacedJob, compile_jobs
from rocelab.sim.fabric.paths import flows_per_send
from rocelab.sim.simulate import PACKET_OVERHEAD_BYTES, Options, Simulation
from rocelab.spec.model import LabSpec
from rocelab.traffic.taps import LinkPackets


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
    """A lab's job in the simulator, exactly (eps 0) and without latency.

    Its warm-up is an iteration like the others, so that round-robin puts the same messages on the
    same queue pairs.

    Raises InputError for jobs that the simulator does not accept.
    """
    simulation = _simulation(spec, job)
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
        iteration_ns=tuple(each * SECOND_NS for each in seconds[job.warmup_iterations :]),
        bottleneck=float(used_s[~of_server].max() / used_s[of_server].max()),
        least_ns=float(used_s.max()) * SECOND_NS / (job.iterations + job.warmup_iterations),
    )


def simulate_packets(spec: LabSpec, job: JobSpec, late_ns: float, seed: int) -> tuple[float, ...]:
    """The time of each measured iteration, ns, packet by packet over first-in-first-out queues.

    Endpoints act up to `late_ns` late, drawn from `seed`. Raises as `simulate_job` does.
    """
    simulation = _simulation(spec, job)
    program = simulation.program
    sizes = _longer(simulation) - program.size_bits
    end_s = PacketRun(simulation, np.rint(sizes / 8), late_ns / SECOND_NS, seed).run()
    (seconds,) = simulation.iteration_seconds(replace(simulation.run(), end_s=end_s))
    return tuple(each * SECOND_NS for each in seconds[job.warmup_iterations :])


def _simulation(spec: LabSpec, job: JobSpec) -> Simulation:
    whole = job.model_copy(
        update={"iterations": job.iterations + job.warmup_iterations, "warmup_iterations": 0}
    )
    # A lab's idle port lets a packet through at once, out of its token bucket.
    options = Options(eps=0.0, hop_latency_ns=0.0)
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
