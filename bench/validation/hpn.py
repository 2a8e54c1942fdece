"""Case 7: the benefit of HPN's two planes and two ToRs per NIC.

Measures AllReduce across segments with one plane and with two, the imbalance of the two ports of a
NIC, and the effect of a NIC's failed link on a job. Seeds draw hash seeds and source ports.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from bench.validation.tasks import Found, Task
from bench.validation.zone import ECMP, GPUS, Group, Traffic, placed, transport
from rocelab import LabSpec, Pattern, SimulatedJob
from rocelab import SimulationOptions as Options
from rocelab.base.arrays import Floats
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.network import Network
from rocelab.sim.events.event_spec import EventSpec, RetransmissionSpec, TimelineSpec
from rocelab.sim.events.retransmission import Retransmission
from rocelab.sim.simulate import Simulation

SEGMENTS = 2
SERVERS = 16
"""Servers of a segment: enough for 256 GPUs over two segments; further servers would be idle."""

AGGS, CORES = 60, 8
JOB_GPUS = (32, 64, 128, 256)
QPS = (2, 4, 8, 16, 32, 64)
OUTAGES_S = (10, 30, 60, 120, 180)
FAIL_AT_S = 1
PATIENCE = {"nominal": 1, "four times": 4}
"""Hardware may take up to four times its nominal timeout (InfiniBand Architecture Specification
9.7.6.1.3)."""

LLAMA_7B = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "ffn": 11008,
    "vocab": 32000,
    "sequence": 2048,
}
OVERLAPS = ("100%", "50%", "0%")


def tasks(seeds: int) -> list[Task]:
    tasks = [
        Task(dual_plane, (gpus, shared, seed))
        for gpus in JOB_GPUS
        for shared in (True, False)
        for seed in range(seeds)
    ]
    tasks += [Task(single_tor, (patience,)) for patience in PATIENCE]
    tasks += [Task(dual_tor, (overlap,)) for overlap in OVERLAPS]
    return tasks


@cache
def pod(planes: int, ports: int, hash_seed: int | str = "per-node") -> LabSpec:
    """Two segments of eight rails; a NIC has 400G in total."""
    document: dict[str, Any] = {
        "name": f"hpn-{planes}-planes-{ports}-tors",
        "fabric": {
            "kind": "hpn",
            "segments": SEGMENTS,
            "servers_per_segment": SERVERS,
            "rails": GPUS,
            "ports_per_nic": ports,
            "planes": planes,
            "aggs": AGGS,
            # Where a NIC has lost a port, only cores lead from one plane to the other.
            "cores": CORES if planes == 2 else 0,
        },
        "links": {"server_rate": "200G" if ports == 2 else "400G"},
        "hashing": {"seed": hash_seed},
    }
    return LabSpec.model_validate(document)


def across(gpus: int) -> tuple[int, ...]:
    """Servers of the two segments in turn, so that every hop of a ring crosses."""
    pairs = range(gpus // GPUS // SEGMENTS)
    return tuple(SERVERS * segment + server for server in pairs for segment in range(SEGMENTS))


def dual_plane(gpus: int, shared: bool, seed: int) -> Found:
    """The gain in AllReduce bandwidth of two planes, and the busier port's share of a NIC's traffic
    with one, for each number of queue pairs. shared: all switches use the same hash seed."""
    hash_seed = 1 + seed if shared else "per-node"
    networks = {planes: network_of(pod(planes, 2, hash_seed)) for planes in (1, 2)}
    group = Group(across(gpus), Pattern.ALLREDUCE)
    hashes = "shared" if shared else "per-node"
    values: dict[str, list[float]] = {}
    for qps in QPS:
        times = {}
        for planes, network in networks.items():
            traffic = Traffic.of(network, placed([group], transport(qps), seed))
            paths = traffic.led(ECMP)
            outcome = traffic.run(paths)
            times[planes] = float(outcome.end_s.max())
            if planes == 1:
                parts = _busier_ports(network, outcome.sent_bits)
                values[f"ports/{hashes}/{gpus}/{qps}"] = [float(np.median(parts))]
        values[f"planes/{hashes}/{gpus}/{qps}"] = [times[1] / times[2] - 1]
    return values


def _busier_ports(network: Network, sent_bits: Floats) -> Floats:
    """The busier port's share of the traffic of each NIC that received."""
    received = sent_bits[2 * network.nic_links + 1]
    total = received.sum(axis=1)
    some = total > 0
    parts: Floats = received[some].max(axis=1) / total[some]
    return parts


def single_tor(patience: str) -> Found:
    """A NIC's only link fails and comes back: 1 if the job of 256 GPUs ends, 0 if it never does, by
    the duration of the failure; and how long the queue pairs survive."""
    network = network_of(pod(1, 1))
    nominal = RetransmissionSpec()
    spec = nominal.model_copy(update={"ack_timeout": nominal.ack_timeout * PATIENCE[patience]})
    values = {f"single-tor/{patience}/patience": [Retransmission.of(spec).gives_up_s]}
    for outage_s in OUTAGES_S:
        failed = f"link {network.link_name(int(network.nic_links[0, 0]))}"
        event = {"at": f"{FAIL_AT_S}s", "fail": failed, "lasts": f"{outage_s}s"}
        events = (EventSpec.model_validate(event),)
        timeline = TimelineSpec(events=events, retransmission=spec)
        simulation = Simulation(pod(1, 1), [_training("100%")], Options(timeline=timeline))
        ended = bool(np.isfinite(simulation.run().end_s).all())
        values[f"single-tor/{patience}/{outage_s}"] = [float(ended)]
    return values


def dual_tor(overlap: str) -> Found:
    """The slowdown of the same job's iterations without one of a NIC's two links, and that of an
    AllReduce of its gradients alone."""
    simulation = Simulation(pod(2, 2), [_training(overlap)])
    network = simulation.network
    up = np.ones(network.links, np.bool_)
    whole = simulation.iteration_times(up, network.capacity_bps)["llama-7b"]
    up[network.nic_links[0, 0]] = False
    capacity_bps = np.where(np.repeat(up, 2), network.capacity_bps, 0.0)
    broken = simulation.iteration_times(up, capacity_bps)["llama-7b"]
    group = Group(across(JOB_GPUS[-1]), Pattern.ALLREDUCE)
    traffic = Traffic.of(network, placed([group], transport(16), 1))
    alone = traffic.over_roofline(traffic.led(ECMP)) / traffic.over_roofline(traffic.led(ECMP, up))
    return {
        f"dual-tor/{overlap}": [1 - whole / broken],
        f"dual-tor/{overlap}/allreduce": (1 - alone).tolist(),
    }


def _training(overlap: str) -> SimulatedJob:
    """LLaMa-7B on 256 GPUs, tensor parallel in each server, replicas across segments in turn."""
    document = {
        "name": "llama-7b",
        "placement": [
            f"{_server(server)}:{nic}"
            for server in across(JOB_GPUS[-1])
            for nic in range(1, GPUS + 1)
        ],
        "transport": {"qps": 16, "strategy": "split"},
        "iterations": 4,
        "training": {
            "model": LLAMA_7B,
            "tensor": GPUS,
            "data": JOB_GPUS[-1] // GPUS,
            "micro_batches": 4,
            "micro_batch": 4,
            "gpu_flops": "200T",
            "overlap": overlap,
        },
    }
    return SimulatedJob.model_validate(document)


def _server(number: int) -> str:
    network = network_of(pod(1, 1))
    return network.node_names[int(network.nic_server[number * GPUS])]
