"""Case 2: the effect of queue pairs on E-ECMP in zones full of jobs, by uplink ratio.

Measures, per seed, completion over roofline on average over the jobs and of the worst one, and
AllReduce bandwidth against ECMP without queue pair scaling. Seeds draw jobs and their places.
"""

from __future__ import annotations

import numpy as np

from bench.validation.tasks import Found, Task
from bench.validation.zone import (
    E_ECMP,
    ECMP,
    GPUS,
    Group,
    Traffic,
    churned,
    placed,
    scattered,
    transport,
    zone,
)
from rocelab import Pattern

RACKS = 64
LARGE_RACKS = 256
UPLINKS = {"1:1": 16, "1:1.125": 18, "1:2": 32}
QPS = (1, 4, 8, 16, 32)
PLACEMENTS = {"churn": churned, "scatter": scattered}
GAIN_QPS = 16
RINGS = (1, 4)
"""Concurrent rings of an AllReduce: with four a GPU uses as many queue pairs as published."""

LARGE_SEEDS = 5
LARGE_QPS = (4, 32)


def tasks(seeds: int) -> list[Task]:
    tasks = [
        Task(mixed, (placement, ratio, seed, RACKS, QPS))
        for placement in PLACEMENTS
        for ratio in UPLINKS
        for seed in range(seeds)
    ]
    tasks += [
        Task(mixed, ("churn", ratio, seed, LARGE_RACKS, LARGE_QPS))
        for ratio in ("1:1", "1:2")
        for seed in range(min(seeds, LARGE_SEEDS))
    ]
    tasks += [
        Task(against_ecmp, (ratio, rings, seed))
        for ratio in ("1:1", "1:2")
        for rings in RINGS
        for seed in range(seeds)
    ]
    tasks += [Task(alltoall, (ratio, seed)) for ratio in ("1:1", "1:2") for seed in range(seeds)]
    return tasks


def mixed(placement: str, ratio: str, seed: int, racks: int, qps: tuple[int, ...]) -> Found:
    """Jobs of AllReduce and AlltoAll side by side, the same ones for each number of queue pairs."""
    network = zone(racks, UPLINKS[ratio])
    groups = PLACEMENTS[placement](2 * racks, np.random.default_rng(seed))
    values: dict[str, list[float]] = {}
    for number in qps:
        traffic = Traffic.of(network, placed(groups, transport(number), seed))
        ratios = traffic.over_roofline(traffic.led(E_ECMP))
        key = f"qp/{racks}/{placement}/{ratio}/{number}"
        values[f"{key}/mean"] = [ratios.mean()]
        values[f"{key}/worst"] = [1 / ratios.max()]
    return values


def against_ecmp(ratio: str, rings: int, seed: int) -> Found:
    """AllReduce bandwidth of E-ECMP and queue pair scaling over that of ECMP with one queue pair
    and one source port: the mean over the jobs, and the best one's."""
    network = zone(RACKS, UPLINKS[ratio])
    groups = churned(2 * RACKS, np.random.default_rng(seed), alltoall=False)
    before = Traffic.of(network, placed(groups, transport(1, fixed_port=True), seed, rings=rings))
    after = Traffic.of(
        network, placed(groups, transport(GAIN_QPS, fixed_port=True), seed, rings=rings)
    )
    gain = before.over_roofline(before.led(ECMP)) / after.over_roofline(after.led(E_ECMP)) - 1
    key = f"gain/{ratio}/{rings}"
    return {f"{key}/mean": [gain.mean()], f"{key}/most": [gain.max()]}


def alltoall(ratio: str, seed: int) -> Found:
    """An AlltoAll among 128 GPUs on random servers, over roofline."""
    network = zone(RACKS, UPLINKS[ratio])
    servers = np.random.default_rng(seed).permutation(2 * RACKS)[: 128 // GPUS].tolist()
    jobs = placed([Group(tuple(servers), Pattern.ALLTOALL)], transport(1), seed)
    traffic = Traffic.of(network, jobs)
    return {f"alltoall/{ratio}": traffic.over_roofline(traffic.led(E_ECMP)).tolist()}
