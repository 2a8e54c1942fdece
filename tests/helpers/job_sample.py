"""Results of jobs computed by hand: four ranks, every packet counted."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rocelab.agent.rc.requester import RequesterCounters
from rocelab.agent.rc.responder import ResponderCounters
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplan import JobPlan, QueuePairEnd
from rocelab.jobs.jobplanning import plan_job
from rocelab.jobs.tcp import TcpPath
from rocelab.labfile.model import LabSpec
from rocelab.labfile.queues import QueueEngine
from rocelab.observe.devices import DeviceCounts
from rocelab.observe.queues import traffic_class
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import DirectedLink, Fabric
from rocelab.results.environment import Environment
from rocelab.results.job import QueueFigures
from rocelab.results.probes import Event
from rocelab.runs.jobcounts import Paths
from rocelab.runs.jobreport import JobsRecord, NetworkRecord
from rocelab.traffic.jobparts import nic_links, nics_of
from rocelab.traffic.jobresult import (
    JobResult,
    PortRecord,
    QueuePairRecord,
    RankRecord,
    TcpRecord,
)
from rocelab.traffic.result import AgentRecord, TrafficResult

DILATION = 1000.0
MS = 10**6
MTU = 4096
ACKS = 10
"""Acknowledgements that each receiving end of a queue pair sends."""

ENVIRONMENT = Environment("0", "Linux", "8.4", "3.11", "a CPU", 2, 2**30, "2026-01-01T00:00:00Z")


def fabric() -> Fabric:
    spec = LabSpec(
        name="t",
        fabric=ClosSpec(racks=2, spines=2, servers_per_rack=2),
        dilation=DILATION,
    )
    return build_fabric(spec)


def allreduce(**keys: object) -> JobPlan:
    job = {"pattern": "allreduce", "ranks": 4, "size": "4MB", "iterations": 3} | keys
    return plan_job(fabric(), JobSpec.model_validate(job))


def incast(**keys: object) -> JobPlan:
    job = {"pattern": "incast", "ranks": 4, "duration": "2ms"} | keys
    return plan_job(fabric(), JobSpec.model_validate(job))


def sent_bytes(plan: JobPlan) -> Counter[tuple[int, int]]:
    """Payload from rank to rank, of all iterations; streams send 10 MB each."""
    sent: Counter[tuple[int, int]] = Counter()
    for send in plan.schedule.sends if plan.schedule else ():
        sent[send.source, send.destination] += send.size_bytes * plan.iterations
    for stream in plan.streams:
        sent[stream.source, stream.destination] = 10**7
    return sent


def _pair(plan: JobPlan, end: QueuePairEnd, ce: int, slow: int | None) -> QueuePairRecord:
    sent = sent_bytes(plan)
    out, into = sent[end.rank, end.peer], sent[end.peer, end.rank]
    samples = np.linspace(0, out, 11).astype(np.int64)
    if end.rank == slow:
        samples = samples // 2
    return QueuePairRecord(
        end=end,
        requester=RequesterCounters(packets=-(-out // MTU), posted_bytes=out, acked_bytes=out),
        responder=ResponderCounters(packets=-(-into // MTU), bytes=into, ce=ce if into else 0),
        cnps_received=0,
        error=None,
        acked_bytes=samples,
        rtt_ns=np.arange(1, 101, dtype=np.int64) * 1000 if out else np.empty(0, np.int64),
    )


def _connection(plan: JobPlan, path: TcpPath) -> TcpRecord:
    """A connection that carries all from its rank to the other."""
    sent = sent_bytes(plan)[path.rank, path.peer]
    samples = np.linspace(0, sent, 11).astype(np.int64)
    return TcpRecord(path, sent, sent, sent, None, samples)


def result(
    plan: JobPlan, *, ce: int = 0, slow: int | None = None, errors: tuple[str, ...] = ()
) -> JobResult:
    """Iteration n takes 100 + n ms of the lab; rank r waits r ms in each. `ce` marks at every
    receiving end; rank `slow` has half of its bytes acknowledged over time."""
    ended = np.cumsum([100 * MS + n * MS for n in range(plan.iterations)]).astype(np.int64)
    began = np.concatenate(([0], ended[:-1])).astype(np.int64)
    ranks = tuple(
        RankRecord(rank, began, ended, np.full(plan.iterations, rank * MS, np.int64), 0)
        for rank in range(plan.ranks)
    )
    end_ns = plan.duration_ns or int(ended[-1])
    samples = np.linspace(0, end_ns, 11).astype(np.int64)
    return JobResult(
        plan,
        ranks=ranks if plan.schedule else (),
        queue_pairs=tuple(_pair(plan, end, ce, slow) for end in plan.ends),
        ports=tuple(
            PortRecord(rank, 0, 100.0 * MS, 1.0 * MS, 10_000, 20_000, 0)
            for rank in range(plan.ranks)
        ),
        sampled_ns={place.server: samples for place in plan.places},
        errors=errors,
        connections=tuple(_connection(plan, path) for path in plan.tcp_paths),
        rto_is_scaled=True,
    )


def agents(*plans: JobPlan) -> tuple[AgentRecord, ...]:
    return tuple(AgentRecord(server, 0.5, 0, 0, {}, 0, 0, True) for server in nics_of(plans))


def traffic(*jobs: JobResult, problems: tuple[str, ...] = ()) -> TrafficResult:
    return TrafficResult((), agents(*(job.plan for job in jobs)), 0, 10**9, 0, 0, problems, jobs)


def counts(*jobs: JobResult) -> DeviceCounts:
    """The devices' counters, with every flow and its acknowledgements over spine 1."""
    plans = [job.plan for job in jobs]
    fabric = plans[0].fabric
    roce: Counter[DirectedLink] = Counter()
    data: Counter[DirectedLink] = Counter()
    marked: Counter[tuple[str, str, int]] = Counter()
    packets: Counter[tuple[str, str, int]] = Counter()
    nics = {link.name for link in nic_links(plans)}
    for plan, pair in ((job.plan, pair) for job in jobs for pair in job.queue_pairs):
        there, here = pair.end.peer, pair.end.rank
        of_data = traffic_class(fabric, plan.job.transport.dscp)
        for count, kind, ce in (
            (pair.responder.packets, of_data, pair.responder.ce),
            (ACKS if pair.requester.packets else 0, 6, 0),
        ):
            for link in _path(plan, there, here):
                roce[link] += count
                if link.name in nics and kind == of_data:
                    data[link] += count
                packets[link.sender, link.port.interface, kind] += count
            interface = plan.nic_link(here).b.interface
            marked[plan.nic_link(here).b.node, interface, kind] += ce
    queues = tuple(
        QueueFigures(node, interface, kind, n, n * 4000, ce, 0, ce, 5000, 100.0)
        for (node, interface, kind), n in packets.items()
        if n and fabric.node(node).is_switch
        for ce in (marked[node, interface, kind],)
    )
    zero = dict.fromkeys(fabric.directed_links, 0)
    return DeviceCounts(
        roce=zero | dict(roce),
        jobs={link: roce[link] for link in zero if link.name in nics},
        data={link: 0 for link in zero if link.name in nics} | dict(data),
        sent_packets=zero | dict(roce),
        sent_bytes={link: 4000 * roce[link] for link in zero},
        queues=queues,
        engine=QueueEngine.BPF,
    )


def record(
    traffic: TrafficResult,
    counts: DeviceCounts,
    *,
    events: tuple[Event, ...] = (),
    paths: Paths | None = None,
) -> JobsRecord:
    """A run of half a second on a lab with one network."""
    network = NetworkRecord(tuple(range(len(traffic.jobs))), counts, paths or {})
    return JobsRecord(ENVIRONMENT, traffic, (network,), 0.5, 0.0, events)


def paths(plan: JobPlan) -> dict[int, tuple[str, ...]]:
    """The links over which `counts` has what each end of a queue pair sends."""
    return {
        end.number: tuple(link.name for link in _path(plan, end.rank, end.peer))
        for end in plan.ends
    }


def _path(plan: JobPlan, source: int, destination: int) -> list[DirectedLink]:
    """The links from rank to rank."""
    first, last = plan.nic_link(source), plan.nic_link(destination)
    between = []
    if first.b.node != last.b.node:
        by_name = plan.fabric.link_by_name
        between = [by_name[f"{first.b.node}:ctsw1"].up, by_name[f"{last.b.node}:ctsw1"].down]
    return [first.up, *between, last.down]
