"""Case 9: the difference of rocelab's fluid from a plain one, by size of transfer.

Measures the mean completion of a permutation's transfers, with headers and with the latency of
their paths, over that of a fluid of payload alone on the same paths; and the same packet by packet.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bench.validation.tasks import Found, Task
from bench.validation.zone import GPUS, SERVERS_PER_RACK, zone
from rocelab import JobSpec, Pattern
from rocelab import SimulationOptions as Options
from rocelab.jobs.job_spec import collective_job
from rocelab.jobs.merged_sends import sends_of
from rocelab.jobs.transport import TransportSpec
from rocelab.jobs.workload import Step, Workload
from rocelab.labfile.schemes.scheme_spec import SchemeSpec, scheme_of
from rocelab.results.engines import Engine
from rocelab.routes.arrays.paths import paths_of
from rocelab.routes.arrays.routes import Routes
from rocelab.sim.compile import PlacedJob, compile_jobs
from rocelab.sim.durations import HOP_LATENCY_NS
from rocelab.sim.engine.run import run
from rocelab.sim.simulate import PACKET_OVERHEAD_BYTES, Simulation

RACKS, UPLINKS = 16, 16
SIZES = {"64 kB": 2**16, "1 MB": 2**20, "16 MB": 2**24, "256 MB": 2**28}
PACKET_SIZES = ("64 kB", "1 MB", "16 MB")
"""Larger ones take the packet engine minutes each."""

SCHEMES: dict[str, SchemeSpec] = {
    "spray": scheme_of("spray"),
    "e-ecmp": scheme_of("e-ecmp"),
}


def tasks(seeds: int) -> list[Task]:
    return [
        Task(function, (scheme, size, seed))
        for function, sizes in ((permutation, SIZES), (packets, PACKET_SIZES))
        for scheme in SCHEMES
        for size in sizes
        for seed in range(seeds)
    ]


def permutation(scheme: str, size: str, seed: int) -> Found:
    """Every NIC sends to one other. Over the plain fluid: headers alone, then latency too."""
    network = zone(RACKS, UPLINKS)
    ranks = network.nics
    sends = sends_of(Pattern.PERMUTATION, ranks, SIZES[size], seed=seed)
    job = PlacedJob(
        Workload(ranks, (Step("permutation", sends=sends),)),
        np.arange(ranks, dtype=np.int32),
        TransportSpec(),
        seed,
    )
    jobs = compile_jobs(network, [job], overhead_bytes=PACKET_OVERHEAD_BYTES)
    paths = paths_of(network, Routes(network), jobs.flows, scheme=SCHEMES[scheme])
    finish_s = run(jobs.program, paths, network.capacity_bps).finish_s
    hops = np.where(
        network.nic_home[jobs.flows.source] == network.nic_home[jobs.flows.destination], 2, 4
    )
    plain = replace(jobs.program, size_bits=8 * jobs.payload_bytes.astype(np.float64))
    plain_s = run(plain, paths, network.capacity_bps).finish_s
    latency_s = hops * HOP_LATENCY_NS / 1e9
    key = f"fluid/{scheme}/{size}"
    return {
        f"{key}/headers": [float(finish_s.mean() / plain_s.mean() - 1)],
        f"{key}/all": [float((finish_s + latency_s).mean() / plain_s.mean() - 1)],
    }


def packets(scheme: str, size: str, seed: int) -> Found:
    """Packet by packet, from the first byte to the last ACK, without congestion control: over the
    plain fluid. Receivers take any order where packets are sprayed."""
    spec = zone(RACKS, UPLINKS).spec.model_copy(update={"scheme": SCHEMES[scheme]})
    keys = {"pattern": "permutation", "ranks": GPUS * SERVERS_PER_RACK * RACKS, "seed": seed}
    transport = {"out_of_order": scheme == "spray"}
    job = JobSpec.model_validate({**keys, "size": f"{SIZES[size]}B", "transport": transport})
    made = Simulation(spec, [collective_job(job)], Options(engine=Engine.PACKETS))
    took_s = made.run_packets().finish_s
    plain = replace(made.program, size_bits=8 * made.compiled.payload_bytes.astype(np.float64))
    plain_s = run(plain, made.whole_paths, made.network.capacity_bps).finish_s
    return {f"fluid/{scheme}/{size}/packets": [float(took_s.mean() / plain_s.mean() - 1)]}
