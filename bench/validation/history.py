"""Cases 5 and 6: the four phases of a zone's uplinks and routing, and the weaknesses of pinning.

Measures the AllReduce bandwidth of every job, 1 at its roofline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.validation.scaling import PLACEMENTS
from bench.validation.tasks import Found, Task
from bench.validation.zone import (
    CSPF,
    E_ECMP,
    LP,
    PINNED,
    Traffic,
    churned,
    failed_uplinks,
    placed,
    scattered,
    transport,
    whole_racks,
    zone,
)
from rocelab.labfile.schemes.scheme_spec import SchemeSpec

RACKS = 64
NIC = "200G"


@dataclass(frozen=True)
class Phase:
    """The uplinks and the routing of a zone of 200G NICs."""

    title: str
    uplinks: int
    uplink: str
    scheme: SchemeSpec
    qps: int = 1
    failed: int = 0


PHASES = {
    "1": Phase("1: 1:1, pinned", 16, "200G", PINNED),
    "2": Phase("2: 1:2, pinned", 16, "400G", PINNED),
    "2e": Phase("2: 1:2, E-ECMP 4 QPs", 16, "400G", E_ECMP, qps=4),
    "3": Phase("3: 1:2, TE", 16, "400G", CSPF),
    "4": Phase("4: 1:1.125, TE", 18, "200G", LP),
    "4f": Phase("4: two failed, TE", 18, "200G", LP, failed=2),
    "4c": Phase("4: 1:1.125, CSPF", 18, "200G", CSPF),
}


def tasks(seeds: int) -> list[Task]:
    tasks = [
        Task(phase_of, (name, placement, seed))
        for placement in PLACEMENTS
        for name in PHASES
        for seed in range(seeds)
    ]
    tasks += [Task(pinned, (seed,)) for seed in range(seeds)]
    return tasks


def phase_of(name: str, placement: str, seed: int) -> Found:
    """The jobs of one seed, the same ones in every phase."""
    phase = PHASES[name]
    network = zone(RACKS, phase.uplinks, nic=NIC, uplink=phase.uplink)
    groups = PLACEMENTS[placement](2 * RACKS, np.random.default_rng(seed), alltoall=False)
    spec = transport(phase.qps, fixed_port=phase.qps == 1)
    traffic = Traffic.of(network, placed(groups, spec, seed))
    up = None
    if phase.failed:
        up = failed_uplinks(network, RACKS // 4, phase.failed, np.random.default_rng(seed))
    reached = 1 / traffic.over_roofline(traffic.led(phase.scheme, up))
    return {f"phase/{placement}/{name}": reached.tolist()}


def pinned(seed: int) -> Found:
    """Path pinning at 1:1: with whole racks per job, the same with a failed uplink in each rack,
    and with fragments; per seed, the loss of the mean job and of the worst."""
    network = zone(RACKS, 16)
    servers = 2 * RACKS
    draws = [np.random.default_rng(seed) for _ in range(4)]
    broken = failed_uplinks(network, RACKS, 1, draws[3])
    cases = {
        "whole": (whole_racks(servers, draws[0]), None),
        "failed": (whole_racks(servers, np.random.default_rng(seed)), broken),
        "churn": (churned(servers, draws[1], alltoall=False), None),
        "scatter": (scattered(servers, draws[2], alltoall=False), None),
    }
    values: dict[str, list[float]] = {}
    for name, (groups, up) in cases.items():
        traffic = Traffic.of(network, placed(groups, transport(1, fixed_port=True), seed))
        lost = 1 - 1 / traffic.over_roofline(traffic.led(PINNED, up))
        values[f"pin/{name}/mean"] = [float(lost.mean())]
        values[f"pin/{name}/worst"] = [float(lost.max())]
    return values
