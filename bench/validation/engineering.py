"""Cases 3 and 4: traffic engineering against E-ECMP, whole and with failed links.

Measures the share of their roofline that AllReduce jobs reach on average, right after uplinks have
failed and after the controller's next round, and the balance of the uplinks.
"""

from __future__ import annotations

import numpy as np

from bench.validation.scaling import PLACEMENTS, UPLINKS
from bench.validation.tasks import Found, Task
from bench.validation.zone import (
    CSPF,
    E_ECMP,
    LP,
    Group,
    Traffic,
    failed_uplinks,
    placed,
    transport,
    zone,
)
from rocelab import Pattern
from rocelab.base.arrays import Floats
from rocelab.routes.arrays.flows import Paths
from rocelab.routes.arrays.routes import Routes
from rocelab.routes.arrays.te import fall_back

RACKS = 32
FAILED = (0, 1, 2, 4)
PART_OF_RACKS = 4
"""One in this many racks has failed uplinks."""

ENGINES = {"cspf": CSPF, "lp": LP}
HASHED_QPS = (4, 16, 32)
TE_QPS = (1, 4)

TEST_QPS = (4, 16, 32, 128)
TEST_SERVERS = 128
TEST_UPLINKS = 16
HOSTS = {"100%": "400G", "80%": "320G"}
"""The limit of the NICs' rate, as a share of their uplinks' rate."""


def tasks(seeds: int) -> list[Task]:
    tasks = [
        Task(with_failures, (placement, ratio, seed))
        for placement in PLACEMENTS
        for ratio in UPLINKS
        for seed in range(seeds)
    ]
    tasks += [Task(utilisation, (host, seed)) for host in HOSTS for seed in range(seeds)]
    return tasks


def with_failures(placement: str, ratio: str, seed: int) -> Found:
    """The part of the roofline reached, on average over the jobs, by scheme and failed uplinks."""
    network = zone(RACKS, UPLINKS[ratio])
    groups = PLACEMENTS[placement](2 * RACKS, np.random.default_rng(seed), alltoall=False)
    values: dict[str, list[float]] = {}

    def keep(failed: int, scheme: str, traffic: Traffic, paths: Paths) -> None:
        reached = (1 / traffic.over_roofline(paths)).mean()
        values[f"te/{placement}/{ratio}/{failed}/{scheme}"] = [float(reached)]

    hashed = {qps: Traffic.of(network, placed(groups, transport(qps), seed)) for qps in HASHED_QPS}
    for failed in FAILED:
        draw = np.random.default_rng(seed)
        up = failed_uplinks(network, RACKS // PART_OF_RACKS if failed else 0, failed, draw)
        for qps, traffic in hashed.items():
            keep(failed, f"e-ecmp {qps}", traffic, traffic.led(E_ECMP, up))
        for qps in TE_QPS:
            # One source port: the entries of a NIC pair, as they were keyed, hold all its flows.
            spec = transport(qps, fixed_port=qps == 1)
            traffic = Traffic.of(network, placed(groups, spec, seed))
            for name, engine in ENGINES.items() if qps == 1 else (("cspf", CSPF),):
                keep(failed, f"{name} {qps}", traffic, traffic.led(engine, up))
                if failed and qps == 1:
                    routes = Routes(network, up)
                    stale = fall_back(traffic.led(engine), routes, traffic.led(E_ECMP, up))
                    keep(failed, f"{name} before", traffic, stale)
    return values


def utilisation(host: str, seed: int) -> Found:
    """One AllReduce of 1,024 GPUs whose every hop leaves the rack: busy time of all uplinks until
    its end, and how much longer E-ECMP takes than TE."""
    racks = TEST_SERVERS // 2
    network = zone(racks, TEST_UPLINKS, nic=HOSTS[host])
    draw = np.random.default_rng(seed)
    first, second = 2 * draw.permutation(racks), 2 * draw.permutation(racks) + 1
    order = np.concatenate((first, second)).tolist()
    groups = [Group(tuple(order), Pattern.ALLREDUCE)]
    values: dict[str, list[float]] = {}
    engineered = Traffic.of(network, placed(groups, transport(1, fixed_port=True), seed))
    least_s = _kept(values, f"util/{host}/te", engineered, engineered.led(LP))
    for qps in TEST_QPS:
        traffic = Traffic.of(network, placed(groups, transport(qps), seed))
        end_s = _kept(values, f"util/{host}/e-ecmp {qps}", traffic, traffic.led(E_ECMP))
        values[f"util/{host}/e-ecmp {qps}/gain"] = [end_s / least_s - 1]
    return values


def _kept(values: dict[str, list[float]], key: str, traffic: Traffic, paths: Paths) -> float:
    """Record the use of the uplinks; return the job's end."""
    outcome = traffic.run(paths)
    network, end_s = traffic.network, float(outcome.end_s.max())
    used: Floats = outcome.sent_bits / network.capacity_bps / end_s
    up = used[2 * np.flatnonzero(network.tier[network.lower] == 1)]
    for name, share in (("low", 0.05), ("middle", 0.5), ("high", 0.95)):
        values[f"{key}/{name}"] = [float(np.quantile(up, share))]
    return end_s
