"""A drill of jobs computed by hand: a pair on one switch, and an incast with the model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from pytest import MonkeyPatch

from rocelab.base.statistics import spread
from rocelab.drills.drill_spec import DrillSpec
from rocelab.jobs.dcqcn_model import simulate
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_job
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.results.drill import DrillResult, JobsRun, PhaseRun, conclude
from rocelab.results.environment import Environment
from rocelab.results.job import (
    Clock,
    CountCheck,
    Fairness,
    Goodput,
    Headline,
    JobFidelity,
    JobReport,
    QueueFigures,
    RoundTrips,
    SenderGoodput,
    Times,
    Transport,
)
from rocelab.results.shares import FairShares
from rocelab.runs import fairness

US, MS = 10**3, 10**6
GBPS = 10**9
STEP_NS = MS // 2
LAB = {
    "name": "paper",
    "fabric": {"kind": "clos", "racks": 1, "spines": 1, "servers_per_rack": 3},
    "links": {"rate": "100G", "server_rate": "100G"},
    "dilation": 250,
    "queues": {"ecn": {"kmin": "400KB", "kmax": "1600KB", "pmax": 0.2}},
}
DRILL: dict[str, Any] = {
    "name": "two-to-one",
    "title": "Two to one",
    "lab": "paper",
    "phases": [
        {
            "name": "idle",
            "jobs": [{"pattern": "pairs", "ranks": 2, "size": "64KB"}],
            "expect": {"completed": True, "busbw": ">= 10", "switch_marks": 0},
        },
        {
            "name": "shared",
            "jobs": [
                {
                    "pattern": "incast",
                    "ranks": 3,
                    "duration": "60ms",
                    "starts": ["0ms", "10ms"],
                    "transport": {"dcqcn": "hpcc-dcqcn-paper"},
                }
            ],
            "model": {"round_trip": "idle", "seeds": [1, 2]},
            "expect": {"time_to_fairness": "<= 30ms", "queue_max": "<= 2MB"},
        },
    ],
}
ENVIRONMENT = Environment(
    tool_version="0.1.0",
    kernel="Linux 6.12.0",
    frr_version="8.4.4",
    python="3.11.2",
    cpu_model="an <ordinary> CPU",
    cpu_count=2,
    memory_bytes=24 * 2**30,
    started="2025-01-01T00:00:00Z",
)


def times(modelled_ns: float) -> Times:
    return Times(modelled_ns * 250.0, float(modelled_ns))


@lru_cache
def fabric() -> Fabric:
    return plan(LabSpec.model_validate(LAB))


@lru_cache
def drill() -> DrillSpec:
    return DrillSpec.model_validate(DRILL)


def queue(traffic_class: int, packets: int, marked: int, depth: int) -> QueueFigures:
    return QueueFigures(
        node="rtsw1",
        interface="srv1-1",
        traffic_class=traffic_class,
        packets=packets,
        bytes=packets * 4154,
        marked=marked,
        dropped_packets=0,
        ce_out=marked,
        depth_max_bytes=depth,
        depth_mean_bytes=depth / 2,
    )


TRANSPORT = Transport(
    queue_pairs=1,
    data_packets=1000,
    retransmitted=0,
    posted_bytes=4096_000,
    acked_bytes=4096_000,
    delivered_bytes=4096_000,
    timeouts=0,
    naks_sent=0,
    naks_received=0,
    out_of_order=0,
    duplicates=0,
    ce=0,
    cnps_sent=0,
    cnps_received=0,
    refused=0,
    icrc_errors=0,
    unexpected=0,
)


@lru_cache
def idle(busbw: float = 11.0, problems: tuple[str, ...] = ()) -> JobReport:
    """A pair that met no congestion."""
    return JobReport(
        schema_version=1,
        job=drill().phases[0].jobs[0].model_dump(mode="json", exclude_none=True),
        lab=fabric().spec.model_dump(mode="json", exclude_none=True),
        environment=ENVIRONMENT,
        clock=Clock(250.0),
        warnings=(),
        problems=problems,
        errors=(),
        fidelity=JobFidelity(0.0, 1000, 2000, 1.0, 1.0, 0.0, 0, 0),
        headlines=(
            Headline("iteration_time", "time", "ns", "iterations", spread([5500.0]), None),
            Headline("busbw", "busbw", "GB/s", "iterations", spread([busbw]), None),
        ),
        iterations=(times(5500),),
        roofline=times(5300),
        completion=times(5500),
        ranks=(),
        transport=TRANSPORT,
        round_trips=RoundTrips(16, times(40 * US), times(50 * US), times(60 * US)),
        queue_engine="bpf",
        queues=(queue(3, 1000, 0, 8308), queue(6, 63, 0, 82)),
        links=(),
        tiers=(),
        goodput=Goodput(times(STEP_NS), ()),
        fairness=None,
        accounting=(CountCheck("CNPs", "sent", 0, "counted", 0, 1, ()),),
    )


def rates(fair_after_ns: int) -> tuple[SenderGoodput, SenderGoodput]:
    """A sender alone for 10 ms, then two that share evenly after `fair_after_ns`."""
    first, second = [], []
    for end in range(STEP_NS, 60 * MS + 1, STEP_NS):
        before = end <= 10 * MS
        fair = end > 10 * MS + fair_after_ns
        first.append((95 if before else 48 if fair else 70) * float(GBPS))
        second.append((0 if before else 47 if fair else 25) * float(GBPS))
    return SenderGoodput(1, tuple(first)), SenderGoodput(2, tuple(second))


@lru_cache
def shared(fair_after_ns: int = 4 * MS) -> JobReport:
    """The incast under DCQCN."""
    return replace(
        idle(),
        job=drill().phases[1].jobs[0].model_dump(mode="json", exclude_none=True),
        headlines=(
            Headline("goodput", "goodput of all senders", "GB/s", "parts", spread([95 / 8]), None),
        ),
        iterations=(),
        roofline=None,
        completion=None,
        transport=replace(TRANSPORT, ce=90, cnps_sent=90, cnps_received=90),
        queues=(queue(3, 1000, 90, 1_900_000), queue(5, 90, 0, 82), queue(6, 63, 0, 82)),
        goodput=Goodput(times(STEP_NS), rates(fair_after_ns)),
        fairness=Fairness(
            times(35 * MS), times(60 * MS), {1: 48.0 * GBPS, 2: 47.0 * GBPS}, 0.99, 1.02
        ),
    )


# The model's rates are the same whatever the lab's are.
model = cache(simulate)


@lru_cache
def shares(fair_after_ns: int = 4 * MS) -> FairShares:
    depths = [(at * MS, 900_000.0) for at in range(65)]
    with MonkeyPatch.context() as patch:
        patch.setattr(fairness, "simulate", model)
        report = shared(fair_after_ns)
        plan = plan_job(fabric(), JobSpec.model_validate(report.job))
        return fairness.fair_shares(plan, report, 40 * US, depths, (1, 2))


def of_jobs(phase: str, *reports: JobReport, fair: FairShares | None = None) -> PhaseRun:
    problems = tuple(problem for report in reports for problem in report.problems)
    return PhaseRun(phase, jobs=JobsRun(problems, reports, phase == "shared", fair))


def diagnosed(run: PhaseRun, *findings: str | None) -> PhaseRun:
    """The run, whose phase expects a diagnosis, with what was found for each job."""
    assert run.jobs is not None
    return replace(run, jobs=replace(run.jobs, diagnoses=findings))


def repeat(
    fair_after_ns: int = 4 * MS, problems: tuple[str, ...] = ()
) -> tuple[PhaseRun, PhaseRun]:
    return (
        of_jobs("idle", idle(problems=problems)),
        of_jobs("shared", shared(fair_after_ns), fair=shares(fair_after_ns)),
    )


def result(*repeats: tuple[PhaseRun, ...]) -> DrillResult:
    return conclude(
        drill=drill().model_dump(mode="json", exclude_none=True),
        lab=fabric().spec.model_dump(mode="json", exclude_none=True),
        environment=ENVIRONMENT,
        dilation=250.0,
        notes=(),
        repeats=repeats or (repeat(),),
        expectations={phase.name: phase.expect.expectations() for phase in drill().phases},
        probes={},
    )
