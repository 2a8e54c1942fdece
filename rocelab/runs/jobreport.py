"""The report of each job of a run, and whether it is valid, from what the run recorded. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rocelab.base.wording import listed
from rocelab.faults.base import SingleFaultSpec
from rocelab.faults.door import KINDS
from rocelab.jobs.load import warning
from rocelab.labfile.queues import QueueEngine
from rocelab.observe.devices import DeviceCounts
from rocelab.planning.pfc import too_small
from rocelab.planning.profiles import profile_conflicts
from rocelab.results.environment import Environment
from rocelab.results.job import SCHEMA_VERSION, Clock, CountCheck, JobFidelity, JobReport, Times
from rocelab.results.lossless import Lossless, find_deadlock, traced
from rocelab.results.probes import Disturbance, Event
from rocelab.routes.balance import link_loads, tier_balances
from rocelab.runs import jobcounts as counted
from rocelab.runs import jobfigures as figures
from rocelab.runs.accounting import check_all, disagreements
from rocelab.runs.jobcounts import Paths
from rocelab.runs.othertraffic import described, judged
from rocelab.runs.tcp import TcpSeen, tcp_figures, tcp_round_trips
from rocelab.runs.workloadfigures import iteration_times_ns, workload_figures, workload_headlines
from rocelab.traffic.jobresult import JobResult
from rocelab.traffic.result import TrafficResult


@dataclass(frozen=True, slots=True)
class NetworkRecord:
    """What the devices of a network counted; of a lab with one network, all."""

    jobs: tuple[int, ...]
    """The numbers of its jobs, from 0."""
    counts: DeviceCounts
    paths: Paths = field(default_factory=dict)
    """Of its jobs, whose queue pairs have numbers of their own; empty if unknown."""


@dataclass(frozen=True, slots=True)
class JobsRecord:
    """What was counted and seen in a run of jobs."""

    environment: Environment
    traffic: TrafficResult
    networks: tuple[NetworkRecord, ...]
    """Those that have jobs."""
    elapsed_s: float
    stolen_s: float
    """CPU time that the hypervisor stole meanwhile."""
    events: tuple[Event, ...] = ()
    """The injected faults, since the jobs' start."""
    disturbed: tuple[Disturbance, ...] = ()
    """The faults of others that the jobs allow."""
    problems: tuple[str, ...] = ()
    """Why faults or switches were not as planned."""
    tcp: TcpSeen | None = None
    """The connections of all jobs of TCP; None without one."""


def _iterations(job: JobResult) -> tuple[Times, ...]:
    if job.plan.of_workload is not None:
        dilation = job.plan.dilation
        return tuple(Times(took * dilation, took) for took in iteration_times_ns(job))
    return tuple(figures.times(lab_ns, job.plan.dilation) for lab_ns in job.iteration_ns.tolist())


@dataclass(frozen=True, slots=True)
class _Judged:
    """The jobs of a network, and what holds for each of them."""

    network: NetworkRecord
    jobs: tuple[JobResult, ...]
    checks: tuple[CountCheck, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def job_reports(record: JobsRecord) -> tuple[JobReport, ...]:
    """The report of each job of a run. A run that is no measurement in one network is none in any.
    Raises ValueError for a run without jobs."""
    jobs = _with_standstill(record.traffic, [network.counts for network in record.networks])
    if not jobs:
        raise ValueError("the session had no job")
    fidelity = _fidelity(record, jobs)
    judged_networks = [_judged(record, network, jobs) for network in record.networks]
    problems = tuple(
        dict.fromkeys(problem for network in judged_networks for problem in network.problems)
    )
    reports = {
        number: _report(record, job, replace(network, problems=problems), fidelity)
        for network in judged_networks
        for number, job in zip(network.network.jobs, network.jobs, strict=True)
    }
    return tuple(reports[number] for number in range(len(jobs)))


def _report(
    record: JobsRecord, job: JobResult, judgement: _Judged, fidelity: JobFidelity
) -> JobReport:
    plan, counts = job.plan, judgement.network.counts
    trips = counted.round_trips(job)
    return JobReport(
        schema_version=SCHEMA_VERSION,
        job=plan.job.model_dump(mode="json", exclude_none=True),
        lab=plan.fabric.spec.model_dump(mode="json", exclude_none=True),
        environment=record.environment,
        clock=Clock(plan.dilation),
        warnings=(
            *judgement.warnings,
            *(() if plan.of_workload is None else plan.of_workload.differs),
            *(() if plan.of_workload is None else plan.of_workload.workload.warnings),
            *figures.warnings(job),
            *profile_conflicts(plan.fabric.spec.queues),
        ),
        problems=judgement.problems,
        errors=job.errors,
        fidelity=fidelity,
        headlines=figures.headlines(job) if plan.of_workload is None else workload_headlines(job),
        iterations=_iterations(job),
        roofline=figures.bound(plan),
        completion=figures.completion(job),
        ranks=counted.ranks(job),
        transport=counted.transport(job, record.traffic.agents),
        round_trips=trips or tcp_round_trips(job, record.tcp),
        queue_engine=counts.engine.value,
        queues=counts.queues,
        links=counted.links(plan.fabric, counts),
        tiers=tier_balances(link_loads(plan.fabric, counts.roce)),
        goodput=figures.goodput(job),
        fairness=figures.fairness(job),
        accounting=judgement.checks,
        flows=counted.flows(job, judgement.network.paths),
        # Rows of sends are iterations, and of such a schedule all.
        steps=None if plan.is_unrolled else counted.steps(job),
        stalls=counted.stalls(job),
        events=record.events,
        impact=figures.impact_of(job, record.events),
        lossless=counts.lossless,
        resolution=figures.resolution(job, trips, fidelity.late_max_ns),
        disturbed=record.disturbed,
        outages=counted.outages(job, trips, fidelity.late_max_ns),
        workload=workload_figures(job, judgement.network.paths),
        hosts="" if plan.hosts is None else plan.hosts.words,
        tcp=tcp_figures(job, record.tcp),
    )


def _judged(record: JobsRecord, network: NetworkRecord, of_all: Sequence[JobResult]) -> _Judged:
    """Why the run is not valid by a network's devices, and what its readers have to know."""
    counts, traffic = network.counts, record.traffic
    jobs = tuple(of_all[number] for number in network.jobs)
    checks = check_all(jobs, traffic.agents, counts)
    # Packets that a broken link took are missing, and no queue dropped them: a fault did, or it
    # ended a queue pair, or moved some to another port.
    moves = sum(pair.port_moves for job in jobs for pair in job.queue_pairs)
    kinds = {change.kind for event in record.events for change in event.faults}
    kinds |= {fault.kind for fault in record.disturbed}
    spared = counts.engine is QueueEngine.BPF and all(
        issubclass(model := KINDS.find(kind), SingleFaultSpec) and model.spares_packets
        for kind in kinds
    )
    is_whole = not moves and (spared or not kinds)
    of_others, disturbed = judged(jobs, counts, record.elapsed_s)
    if any(job.connections for job in jobs):
        # What the jobs' own TCP took of the links is what they are run for.
        of_others, disturbed = described(counts), ()
    problems = (
        *traffic.problems,
        *(() if record.tcp is None else record.tcp.problems(of_all, record.elapsed_s)),
        *(f"not valid because {reason}" for job in jobs for reason in job.unfinished),
        *(disagreements(checks, counts.engine) if is_whole and not jobs[0].errors else ()),
        *disturbed,
        *record.problems,
        *_lossless_problems(counts, is_whole=is_whole),
        *counts.processes.problems,
    )
    warnings = (
        *_warnings(of_all, record.environment.cpu_count, moves, counts.engine),
        *of_others,
        *(() if record.tcp is None else record.tcp.warnings),
        *counts.processes.warnings,
        *too_small(jobs[0].plan.fabric),
    )
    return _Judged(network, jobs, checks, problems, warnings)


def _fidelity(record: JobsRecord, jobs: Sequence[JobResult]) -> JobFidelity:
    traffic, ports = record.traffic, [port for job in jobs for port in job.ports]
    backlog_ns = max(agent.backlog_ns for agent in traffic.agents)
    return JobFidelity(
        lost_share=max(map(counted.lost_share, jobs)),
        late_p99_ns=max((port.late_p99_ns for port in ports), default=0),
        late_max_ns=max((port.late_max_ns for port in ports), default=0),
        agents_cpu_s=traffic.cpu_s,
        elapsed_s=record.elapsed_s,
        stolen_s=record.stolen_s,
        clock_jump_ns=traffic.clock_jump_ns,
        softnet_drops=traffic.softnet_drops,
        backlog_share=backlog_ns / 1e9 / record.elapsed_s,
    )


def _warnings(
    jobs: Sequence[JobResult], cpu_count: int, moves: int, engine: QueueEngine
) -> tuple[str, ...]:
    warnings = []
    if engine is QueueEngine.OFF:
        warnings.append(
            "ports have no rate and no queue here: flows do not slow each other, so that times and "
            "bandwidths are those of NICs alone"
        )
    overload = warning([job.plan for job in jobs], cpu_count)
    if overload is not None:
        warnings.append(overload)
    if moves:
        warnings.append(
            f"NICs lost carrier on a port, or got it back: queue pairs moved to another {moves} "
            "times, and counts may differ by the packets lost on dead links"
        )
    return tuple(warnings)


def _with_standstill(
    traffic: TrafficResult, counts: Sequence[DeviceCounts]
) -> tuple[JobResult, ...]:
    """The jobs, failed where packets that are left wait for each other, or nothing moves for
    another reason, and nothing arrives."""
    jobs = traffic.jobs
    is_still = all(agent.drained for agent in traffic.agents)
    if not is_still or not any(job.unfinished for job in jobs):
        return jobs
    of_networks = [count.lossless for count in counts if count.lossless is not None]
    rings = (find_deadlock(lossless.spans, lossless.servers) for lossless in of_networks)
    ring = next((ring for ring in rings if ring), ())
    if ring:
        error = f"deadlock: {' waits for '.join((*ring, ring[0]))}"
    elif traffic.still_ns:
        error = f"nothing moved for {traffic.still_ns / 1e9:,.0f} s{_paused_by(of_networks)}"
    else:
        return jobs
    return tuple(replace(job, errors=(*job.errors, error)) for job in jobs)


def _paused_by(of_networks: Sequence[Lossless]) -> str:
    """Who asked for the pauses that last."""
    pauses = [
        pause for lossless in of_networks for pause in traced(lossless.spans, lossless.servers)
    ]
    roots = sorted({pause.root for pause in pauses if pause.span.end_ns is None})
    return f": {listed(roots, 'and')} did not end a pause" if roots else ""


def _lossless_problems(counts: DeviceCounts, *, is_whole: bool) -> tuple[str, ...]:
    """Why the run is no measurement of lossless classes. is_whole: nothing was broken."""
    lossless, late = counts.lossless, counts.processes.late_on_cables
    if lossless is None:
        return ()
    problems = lossless.problems()
    if is_whole:
        problems += lossless.losses()
    if lossless.dropped and late:
        problems += (
            f"not valid because lossless classes dropped {lossless.dropped:,} packets while "
            f"cables released {late:,} late: these arrive together with the packets behind them",
        )
    return problems
