"""Trials of `bench.forensics` on labs with lossless classes: who makes others wait with pauses.

A host that receives packets slowly, a NIC that storms, an incast, a job beside any of these, or
nothing. Servers, ports, times and jobs are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from bench.trial import Run, Trial
from rocelab import JobReport, JobSpec, Lab, LabSpec, RunningLab, plan, run_jobs
from rocelab.faults.base import Timed
from rocelab.faults.kinds.pause_storm import PauseStormSpec
from rocelab.faults.kinds.slow_receiver import SlowReceiverSpec
from rocelab.results.diagnosis import Cause

DILATION = 2500
SLOW_PERCENT = (10, 50)
"""How fast a slow host takes packets, of its link's rate."""

STORM_S = (1.0, 3.0)
STORM_AFTER_S = 0.15
"""The first of two iterations takes twice that."""

LABS: dict[str, dict[str, Any]] = {
    "static": {
        "links": {"rate": "400G", "server_rate": "100G"},
        "pfc": {
            "xoff": "100KB",
            "xon_offset": "5KB",
            "memory": "400KB",
            "nic": {"buffer": "500KB"},
        },
    },
    "dynamic": {
        "links": {"rate": "100G", "server_rate": "100G"},
        "pfc": {"dynamic_th": -1, "memory": "300KB", "nic": {"buffer": "300KB"}},
        "scheme": "e-ecmp",
    },
}
"""Thresholds of both kinds. Links between switches carry a rack in the first, and can be full in
the second."""

ALLTOALL: dict[str, Any] = {"pattern": "alltoall", "size": "4MB"}
EVEN: tuple[dict[str, Any], ...] = (
    {"pattern": "allreduce", "size": "6MB"},
    {"pattern": "allgather", "size": "8MB"},
    {"pattern": "reducescatter", "size": "8MB"},
    ALLTOALL,
)
PATTERNS = (*EVEN, {"pattern": "alltoallv", "size": "4MB"})
"""The last is uneven: it has incasts without being asked for one, so no healthy run is of it."""

QUIET: dict[str, Any] = {"dcqcn": "off", "ecn": "not-ect", "ack_timeout": "6ms"}
"""Pauses alone hold senders back, and no timeout ends a storm."""


def lab_of(kind: str, name: str = "bench-forensics") -> Lab:
    """Three racks of three servers under two spines, as `LABS` says."""
    keys = dict(LABS[kind])
    queues = {"ecn": {"kmin": "40MB", "kmax": "60MB"}, "pfc": keys.pop("pfc")}
    shape = {"kind": "clos", "racks": 3, "spines": 2, "servers_per_rack": 3}
    base = {"name": name, "fabric": shape, "dilation": DILATION, "queues": queues}
    return Lab(plan(LabSpec.model_validate(base | keys)))


def healthy(lab: RunningLab, rng: random.Random) -> Trial:
    """A collective that sends as much to each rank, without a fault."""
    ranks = _shuffled(lab, rng)[:8]
    return Trial(Cause.NONE, (), _report(lab, [_collective(rng, ranks, EVEN)]))


def slow_receiver(lab: RunningLab, rng: random.Random) -> Trial:
    """A collective with a rank on a host that takes packets at a tenth to half of its rate."""
    ranks = _shuffled(lab, rng)[:8]
    slow = rng.choice(ranks)
    report = _report(lab, [_collective(rng, ranks)], [_slow(slow, rng)])
    return Trial.of_fault(Cause.SLOW_RECEIVER, (slow,), report)


def pause_storm(lab: RunningLab, rng: random.Random) -> Trial:
    """A collective with a rank whose NIC storms for 1 to 3 s of the lab."""
    ranks = _shuffled(lab, rng)[:8]
    stormed = rng.choice(ranks)
    report = _report(lab, [_collective(rng, ranks)], [_storm(stormed, rng)])
    return Trial.of_fault(Cause.PAUSE_STORM, (stormed,), report)


def incast(lab: RunningLab, rng: random.Random) -> Trial:
    """Three to eight servers that send to one."""
    ranks = _shuffled(lab, rng)[: rng.randint(4, 9)]
    job = _job(rng, ranks, pattern="incast", size="2MB", iterations=1)
    return Trial(Cause.INCAST, (_port_of(lab, ranks[0]),), _report(lab, [job]))


def victim(lab: RunningLab, rng: random.Random) -> Trial:
    """A collective beside senders to a server that has no rank of it: that storms, is slow, or gets
    more than it carries."""
    target, *others = _shuffled(lab, rng)
    cause = rng.choice((Cause.SLOW_RECEIVER, Cause.PAUSE_STORM, Cause.INCAST))
    senders = rng.sample(others, 4 if cause is Cause.INCAST else 2)
    jobs = [
        _collective(rng, others[:6], (ALLTOALL,)),
        _job(rng, [target, *senders], pattern="incast", duration="2ms"),
    ]
    match cause:
        case Cause.SLOW_RECEIVER:
            faults, root = [_slow(target, rng)], target
        case Cause.PAUSE_STORM:
            faults, root = [_storm(target, rng)], target
        case _:
            faults, root = [], _port_of(lab, target)
    return Trial.of_fault(Cause.VICTIM, (f"of {cause} {root}",), _report(lab, jobs, faults))


FAULTS: dict[Cause, Run] = {
    Cause.SLOW_RECEIVER: slow_receiver,
    Cause.PAUSE_STORM: pause_storm,
    Cause.INCAST: incast,
    Cause.VICTIM: victim,
}


def _report(lab: RunningLab, jobs: Sequence[JobSpec], faults: Sequence[Timed] = ()) -> JobReport:
    """Of the first of some jobs."""
    return run_jobs(lab, jobs, faults=faults).reports[0]


def _shuffled(lab: RunningLab, rng: random.Random) -> list[str]:
    names = [server.name for server in lab.fabric.servers]
    return rng.sample(names, len(names))


def _collective(
    rng: random.Random, ranks: Sequence[str], kinds: Sequence[dict[str, Any]] = PATTERNS
) -> JobSpec:
    return _job(rng, ranks, iterations=1, **rng.choice(kinds))


def _job(rng: random.Random, ranks: Sequence[str], **keys: object) -> JobSpec:
    transport = {**QUIET, "qps": rng.choice((1, 2, 4))}
    base = {"ranks": len(ranks), "placement": list(ranks), "transport": transport}
    return JobSpec.model_validate(base | {"seed": rng.randrange(1000)} | keys)


def _slow(server: str, rng: random.Random) -> Timed:
    keys = {"kind": "slow-receiver", "server": server, "rate": f"{rng.randint(*SLOW_PERCENT)}%"}
    return Timed(SlowReceiverSpec.model_validate(keys), 0, None)


def _storm(server: str, rng: random.Random) -> Timed:
    begins_ns = round(rng.uniform(0, STORM_AFTER_S) * 1e9)
    ends_ns = begins_ns + round(rng.uniform(*STORM_S) * 1e9)
    spec = PauseStormSpec.model_validate({"kind": "pause-storm", "server": server})
    return Timed(spec, begins_ns, ends_ns)


def _port_of(lab: RunningLab, server: str) -> str:
    """The port towards a server, as a verdict names it."""
    (link,) = lab.fabric.nics(server)[0].links
    return f"{link.name} towards {server}"
