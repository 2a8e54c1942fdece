"""Resolves one job, or several that run at once, on a `Fabric` to frozen `JobPlan`s.

Pure and repeatable.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rocelab.agent.program import MAX_ID
from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.base.progress import no_progress
from rocelab.base.wording import listed
from rocelab.hosts.model import HostModel
from rocelab.jobs.collectives import Schedule
from rocelab.jobs.flow import FIRST_QP
from rocelab.jobs.flow_list import FlowList
from rocelab.jobs.job import JobSpec, Stream, schedule_of, streams_of
from rocelab.jobs.job_spec import LabJob, SimulatedJob
from rocelab.jobs.jobplan import JobPlan, Pair, QueuePairEnd
from rocelab.jobs.labhosts import LabHosts, lab_hosts, workload_hosts
from rocelab.jobs.labplaces import endpoints_of, job_place, own_places
from rocelab.jobs.labschedule import SIMULATED, lab_schedule
from rocelab.jobs.patterns.base import Algorithm
from rocelab.jobs.placement import (
    NicRef,
    group_size,
    nic_of,
    place,
)
from rocelab.jobs.sport import base_port, source_port
from rocelab.jobs.tcp import TcpPath
from rocelab.jobs.tcp import tcp_paths as paths_between
from rocelab.jobs.transport import TransportSpec
from rocelab.jobs.workload import Workload
from rocelab.linux.lag import affinity
from rocelab.planning.fabric import Fabric
from rocelab.planning.queues import MOST_LAB_MTU
from rocelab.wire.headers import IP_OFFSET, most_header_bytes

MOST_FLOWS = 2**12
"""The most flows of a job whose flows have queue pairs of their own."""


def plan_job(fabric: Fabric, job: LabJob) -> JobPlan:
    """Resolve a job. Raises InputError if it does not fit the fabric."""
    (made,) = plan_jobs(fabric, [job])
    return made


def plan_jobs(fabric: Fabric, jobs: Sequence[LabJob]) -> tuple[JobPlan, ...]:
    """Resolve jobs that run at the same time: their queue pair numbers are disjoint.

    A job of a file of several has NICs that no job before it has, as in a simulation; the others
    may share some. Raises InputError if one does not fit the fabric; it names the job if there are
    several.
    """
    plans: list[JobPlan] = []
    used = _Used()
    created: dict[str | None, Counter[NicRef]] = defaultdict(Counter)
    taken: dict[str | None, set[NicRef]] = defaultdict(set)
    of_job: dict[str, tuple[NicRef, ...]] = {}
    _check_together(fabric, jobs)
    for job in jobs:
        part = fabric.network(job.network)
        for group in endpoints_of(part, job):
            taken[part.network_name].update(group)
    for which, job in enumerate(jobs, 1):
        try:
            part = fabric.network(job.network)
            name = part.network_name
            beside = _Beside(used, created[name], taken[name], of_job)
            plans.append(_planned(part, job, beside))
        except InputError as error:
            called = which if isinstance(job, JobSpec) else job.name
            named = f"job {called}: " if len(jobs) > 1 else ""
            raise InputError(f"{named}{error.message}", hint=error.hint) from error
        used.queue_pair += len(plans[-1].ends)
        used.connection += len(plans[-1].tcp_paths)
        taken[name].update(plans[-1].places)
        if not isinstance(job, JobSpec):
            of_endpoints = sum(map(len, endpoints_of(part, job)))
            of_job[job.name] = plans[-1].places[: plans[-1].ranks - of_endpoints]
    return tuple(plans)


@dataclass(slots=True)
class _Used:
    """What the jobs before have used of what is numbered in a run."""

    queue_pair: int = FIRST_QP
    connection: int = 0
    listening: Counter[str] = field(default_factory=Counter)
    """Ports of TCP at each address."""


@dataclass(frozen=True, slots=True)
class _Beside:
    """What the jobs before have in a network."""

    used: _Used
    created: Counter[NicRef]
    """Queue pairs of each NIC."""
    taken: Collection[NicRef]
    """NICs of other jobs, and those that jobs share as endpoints."""
    of_job: Mapping[str, tuple[NicRef, ...]]
    """The NICs of each named job."""


def _check_together(fabric: Fabric, jobs: Sequence[LabJob]) -> None:
    """Raises InputError for jobs that the servers of a lab cannot run at once."""
    networks = {part.network_name: part for part in (fabric.network(job.network) for job in jobs)}
    if len({part.family for part in networks.values()}) > 1:
        raise InputError(
            f"the jobs are in networks {listed(map(str, networks), 'and')}, of IPv4 and of IPv6, "
            "and agents send one of the two",
            "run those of each network by themselves",
        )
    of_network: dict[str | None, set[HostModel | None]] = defaultdict(set)
    for job in jobs:
        if job.transport.is_tcp:
            continue
        part = fabric.network(job.network)
        spec = job.host_model or part.spec.host_model
        of_network[part.network_name].add(None if spec is None else spec.model)
    models = {model for used in of_network.values() for model in used if model is not None}
    if len(models) > 1 or any(len(used) > 1 for used in of_network.values()):
        raise InputError(
            "the jobs' host_model differs, and servers of a lab are of one type",
            hint="give all jobs the same, or write host_model once, in the lab's file",
        )


def _planned(
    fabric: Fabric,
    job: LabJob,
    beside: _Beside,
) -> JobPlan:
    _check_transport(job)
    start_ns = 0
    if not isinstance(job, JobSpec):
        if job.collective is None:
            return _of_workload(fabric, job, beside)
        start_ns = job.start
        places = place(fabric, job.collective.ranks, job.placement, job.seed, beside.taken)
        job = job.collective.model_copy(update={"iterations": job.iterations})
    else:
        places = place(fabric, job.ranks, job.placement, job.seed)
    hosts = None
    if not job.transport.is_tcp:
        job, hosts = lab_hosts(fabric, job, places)
    schedule: Schedule | None = None
    streams: tuple[Stream, ...] = ()
    if job.size is None:
        streams = streams_of(job)
        pairs: list[Pair] = [(stream.source, stream.destination, None) for stream in streams]
    else:
        needs_group = job.group is None and job.algorithm is Algorithm.HIERARCHICAL
        schedule = schedule_of(job, group_size(fabric, places) if needs_group else None)
        if len(schedule.sends) > MAX_ID:
            raise InputError(
                f"{len(schedule.sends):,} sends in an iteration", hint=f"at most {MAX_ID:,}"
            )
        pairs = _pairs(schedule, hosts)
    ends, paths = _wired(fabric, job, places, pairs, beside)
    return JobPlan(
        fabric, job, places, schedule, streams, ends, hosts, start_ns=start_ns, tcp_paths=paths
    )


def _of_workload(
    fabric: Fabric,
    job: SimulatedJob,
    beside: _Beside,
) -> JobPlan:
    block = job.workload
    assert block is not None
    read = block.read(no_progress)
    nics = own_places(
        fabric, job, job.ranks if read is None else read.ranks, beside.taken, beside.of_job
    )
    if job.ranks is None:
        block = block.placed(len(nics))
    groups = endpoints_of(fabric, job)
    places = (*nics, *(nic for group in groups for nic in group))
    if len(set(places)) < len(places):
        raise InputError(
            "a NIC is two ranks of the job: its own and storage or a reader, or both of these",
            hint="take other servers for one of the two",
        )
    is_tcp = job.transport.is_tcp
    hosts = None if is_tcp else workload_hosts(fabric, job.host_model, places)
    block = block.on_hosts(None if hosts is None else hosts.ranks)
    job = job.model_copy(update={job.kind: block})
    where = job_place(fabric, job, places, [len(group) for group in groups], hosts)
    if block.elsewhere(where.servers[: where.own]) is not None:
        raise InputError(
            "it sends in another network too, and on a lab a job is in one",
            hint="write what it sends there as a job of its own with that network, such as a "
            f"checkpoint; {SIMULATED}",
        )
    known = read or block.workload(where)
    if isinstance(known, Workload) and known.is_alike:
        # Ranks repeat one of them.
        known = read or block.workload(replace(where, iterations=1))
    if isinstance(known, FlowList):
        if len(known) > MOST_FLOWS:
            raise InputError(
                f"{len(known):,} flows, each with a queue pair of its own; a lab takes "
                f"{MOST_FLOWS:,} at most",
                hint=f"take fewer or a shorter duration; {SIMULATED}",
            )
        known = known.workload()
    made = lab_schedule(known, 0.0 if hosts is None else hosts.launch_ns / 1e9)
    ends, paths = _wired(fabric, job, places, _pairs(made.schedule, hosts), beside)
    return JobPlan(
        fabric, job, places, made.schedule, (), ends, hosts, made, job.start, where, paths
    )


def _wired(
    fabric: Fabric,
    job: LabJob,
    places: Sequence[NicRef],
    pairs: Iterable[Pair],
    beside: _Beside,
) -> tuple[tuple[QueuePairEnd, ...], tuple[TcpPath, ...]]:
    """The queue pairs of a job, or its connections of TCP."""
    used = beside.used
    if job.transport.is_tcp:
        paths = paths_between(fabric, job.transport, places, pairs, used.connection, used.listening)
        return (), paths
    return _queue_pairs(fabric, job, places, pairs, used.queue_pair, beside.created), ()


def _check_transport(job: LabJob) -> None:
    """Raises InputError for what the NICs of a lab do not do."""
    transport = job.transport
    if transport.is_tcp and job.host_model is not None:
        raise InputError(
            "host_model: with TCP hosts are the servers' kernels, and take their own time",
            hint="leave it out, or leave out transport.kind",
        )
    if transport.selective_repeat:
        raise InputError(
            "transport.selective_repeat: the NICs of a lab go back N",
            hint="leave it out, or take `rocelab simulate --engine packets`, which has it",
        )
    if transport.congestion is not None:
        raise InputError(
            f"transport.congestion: the NICs of a lab have no {transport.congestion.kind}",
            hint="take transport.dcqcn, or `rocelab simulate --engine packets`, which has it",
        )
    if transport.mtu > MOST_LAB_MTU:
        raise InputError(
            f"transport.mtu: ports of a lab carry payloads of {MOST_LAB_MTU} at most",
            hint="lower it, or take `rocelab simulate`, which has no such limit",
        )


def _pairs(schedule: Schedule, hosts: LabHosts | None) -> list[Pair]:
    """The ranks that use the network, of each send. Raises InputError without any."""
    pairs = [
        (send.source, send.destination, send.id if schedule.own_queue_pairs else None)
        for send in schedule.sends
        if hosts is None or not hosts.is_local(send.source, send.destination)
    ]
    if not pairs:
        raise InputError(
            "host_model: all ranks are in one server, and nothing is sent over the network",
            hint="use more ranks, or `rocelab simulate`",
        )
    return pairs


def check_mtu(transport: TransportSpec, link_mtu: int, family: Family) -> None:
    """Raise InputError if packets of a transport are too long for links of `link_mtu` bytes."""
    needed = transport.mtu + most_header_bytes(family) - IP_OFFSET
    if link_mtu < needed:
        raise InputError(
            f"a path MTU of {transport.mtu} needs packets of {needed} bytes, and links carry "
            f"{link_mtu}",
            hint="lower transport.mtu, or raise links.mtu",
        )


def _queue_pairs(
    fabric: Fabric,
    job: LabJob,
    places: Sequence[NicRef],
    pairs: Iterable[Pair],
    first_qp: int,
    created: Counter[NicRef],
) -> tuple[QueuePairEnd, ...]:
    """Both ends of every queue pair, each connection's together; numbers count from `first_qp`.

    `created` counts the queue pairs of each NIC of the network across jobs: each new one gets the
    NIC's next port in turn, as in RoCE LAG (`rocelab.linux.lag`).
    """
    transport = job.transport
    for ref in places:
        check_mtu(transport, nic_of(fabric, ref).links[0].mtu, fabric.family)
    unsorted: set[Pair] = {
        (min(source, far), max(source, far), send) for source, far, send in pairs
    }
    connections = sorted(unsorted, key=_order)
    base = base_port(job.seed)
    ends = []
    number = first_qp
    for low, high, send in connections:
        for index in range(transport.queue_pairs):
            for local, remote, rank, peer in (
                (number, number + 1, low, high),
                (number + 1, number, high, low),
            ):
                sport = source_port(
                    transport.source_port, local_qpn=local, remote_qpn=remote, base=base
                )
                control = index == transport.qps
                place = places[rank]
                port = affinity(created[place], len(nic_of(fabric, place).links))
                created[place] += 1
                ends.append(QueuePairEnd(local, remote, rank, peer, sport, control, port, send))
            number += 2
    return tuple(ends)


def _order(connection: Pair) -> tuple[int, int, int]:
    low, high, send = connection
    return (low, high, 0) if send is None else (send, 0, 0)
