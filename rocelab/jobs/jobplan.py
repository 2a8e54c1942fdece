"""A job on a fabric: the NIC of each rank, its queue pairs and its sends.

Resolves one `JobSpec`, or several that run at once, on a `Fabric` to frozen `JobPlan`s in the lab's
clock. Pure and repeatable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rocelab.agent.program import MAX_ID
from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.base.wording import listed
from rocelab.jobs.collectives import Schedule
from rocelab.jobs.flow import FIRST_QP, Endpoints, resolve_endpoints
from rocelab.jobs.job import JobSpec, Stream, schedule_of, streams_of
from rocelab.jobs.labhosts import LabHosts, lab_hosts
from rocelab.jobs.patterns.base import Algorithm, Send
from rocelab.jobs.performance import roofline_ns, wire_overhead_bytes
from rocelab.jobs.placement import NicRef, group_size, nic_of, place
from rocelab.jobs.sport import base_port, source_port
from rocelab.jobs.transport import TransportSpec
from rocelab.linux.lag import affinity
from rocelab.planning.fabric import Fabric, Link, Nic
from rocelab.planning.queues import MOST_LAB_MTU
from rocelab.wire.headers import IP_OFFSET, most_header_bytes

SAMPLES = 400
"""Points of a job's goodput over time, at most."""

RECORDED_SENDS = 2**15
"""The most sends whose times a result has: those of the last whole iterations."""

SHORTEST_SAMPLE_NS = 5_000_000
LONGEST_SAMPLE_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class QueuePairEnd:
    """The end of a queue pair from which rank `rank` sends to rank `peer`."""

    number: int
    """Its QP."""

    remote: int
    """The other end's QP."""

    rank: int
    peer: int
    sport: int
    control: bool
    """Whether it sends clear-to-sends."""

    port: int
    """The port of its NIC (from 0) by which everything leaves that this end sends, ACKs too."""


@dataclass(frozen=True)
class JobPlan:
    """A job, resolved. `schedule` is None for streams, `streams` empty for a schedule."""

    fabric: Fabric
    job: JobSpec
    places: tuple[NicRef, ...]
    schedule: Schedule | None
    streams: tuple[Stream, ...]
    ends: tuple[QueuePairEnd, ...]
    hosts: LabHosts | None = None
    """None: hosts are agents, which take their own time."""

    @property
    def dilation(self) -> float:
        return self.fabric.spec.dilation

    @property
    def iterations(self) -> int:
        """Repetitions, including those that are not measured; 0 for streams."""
        return 0 if self.schedule is None else self.job.iterations + self.job.warmup_iterations

    @property
    def recorded_iterations(self) -> int:
        """The number of last iterations in which each rank records the times of its sends."""
        if self.schedule is None:
            return 0
        return min(self.iterations, RECORDED_SENDS // max(1, len(self.schedule.sends)))

    @property
    def duration_ns(self) -> int:
        """How long streams run, in the lab's clock; 0 for a schedule."""
        return round((self.job.duration or 0) * self.dilation)

    def is_local(self, send: Send) -> bool:
        """Whether a send does not use the network."""
        return self.hosts is not None and self.hosts.is_local(send.source, send.destination)

    def host_ns(self, send: Send) -> int:
        """What its host takes before a send leaves, in the lab's clock."""
        if self.hosts is None:
            return 0
        return round(self.hosts.before_ns(is_local=self.is_local(send)) * self.dilation)

    @cached_property
    def carried(self) -> Schedule | None:
        """The schedule with what sends are on their way, headers apart."""
        schedule, hosts = self.schedule, self.hosts
        if schedule is None or hosts is None:
            return schedule
        sends = [
            replace(
                send,
                size_bytes=hosts.carried_bytes(send.size_bytes, is_local=self.is_local(send)),
            )
            for send in schedule.sends
        ]
        return replace(schedule, sends=tuple(sends))

    @cached_property
    def over_network(self) -> Schedule | None:
        """What the network carries of `carried`: sends keep their ids."""
        if self.carried is None or self.hosts is None:
            return self.carried
        sends = (send for send in self.carried.sends if not self.is_local(send))
        return replace(self.carried, sends=tuple(sends))

    @cached_property
    def least_ns(self) -> float | None:
        """The least time of an iteration on the modelled network, with Ethernet's preamble, FCS and
        gap, which the lab's links count as well, or on the fabrics of servers. None for streams."""
        if self.over_network is None or self.carried is None:
            return None
        network_ns = roofline_ns(
            self.over_network,
            max(self.nic_rate_bps(rank) for rank in range(self.job.ranks)),
            mtu_bytes=self.job.transport.mtu,
            overhead_bytes=wire_overhead_bytes(self.fabric.family),
        )
        if self.hosts is None or self.hosts.model.local is None:
            return network_ns
        out, into = Counter[int](), Counter[int]()
        for send in filter(self.is_local, self.carried.sends):
            out[send.source] += send.size_bytes
            into[send.destination] += send.size_bytes
        busiest = max((*out.values(), *into.values()), default=0)
        local_ns = busiest * 8 * 10**9 / self.hosts.model.local.bandwidth_bps
        return self.hosts.launch_ns + max(network_ns, local_ns)

    def nic(self, rank: int) -> Nic:
        """A rank's NIC."""
        return nic_of(self.fabric, self.places[rank])

    def nic_link(self, rank: int) -> Link:
        """The first link of a rank's NIC; both of a NIC's links have the same rate."""
        return self.nic(rank).links[0]

    def nic_rate_bps(self, rank: int) -> int:
        """The rate at which a rank's NIC sends, of all its ports together."""
        nic = self.nic(rank)
        share = 1.0 if self.hosts is None else self.hosts.share_of(nic)
        return round(share * sum(link.rate_bps for link in nic.links))

    def lab_rate_bps(self, rank: int) -> float:
        """The rate of a rank's NIC, of all its ports together, in the lab's clock."""
        return self.nic_rate_bps(rank) / self.dilation

    @cached_property
    def sample_ns(self) -> int:
        """The interval between samples of goodput, in the lab's clock."""
        if self.schedule is not None:
            return LONGEST_SAMPLE_NS
        return max(SHORTEST_SAMPLE_NS, self.duration_ns // SAMPLES)

    @property
    def message_bytes(self) -> int:
        """The longest message: of the transport, or a receiver's buffer where that is shorter."""
        return message_bytes(self.job.transport)

    def endpoints(self, rank: int, peer: int, port: int = 0) -> Endpoints:
        """The addresses of packets from `rank` to `peer` by port `port` (from 0) of its NIC."""
        source, destination = self.places[rank], self.places[peer]
        return resolve_endpoints(
            self.fabric, source.server, destination.server, source.nic, destination.nic, port
        )


def plan_job(fabric: Fabric, job: JobSpec) -> JobPlan:
    """Resolve a job. Raises InputError if it does not fit the fabric."""
    return _planned(fabric, job, FIRST_QP, Counter())


def plan_jobs(fabric: Fabric, jobs: Sequence[JobSpec]) -> tuple[JobPlan, ...]:
    """Resolve jobs that run at the same time: their queue pair numbers are disjoint.

    Raises InputError if one does not fit the fabric; it names the job if there are several. Jobs
    of several networks do not run together.
    """
    networks = dict.fromkeys(fabric.network(job.network).network_name for job in jobs)
    if len(networks) > 1:
        raise InputError(
            f"the jobs are in networks {listed(map(str, networks), 'and')}",
            "run those of each network by themselves: nothing that one sends meets the other's",
        )
    plans: list[JobPlan] = []
    number = FIRST_QP
    created: Counter[NicRef] = Counter()
    models = [job.host_model or fabric.spec.host_model for job in jobs]
    if any(model != models[0] for model in models):
        raise InputError(
            "the jobs' host_model differs, and servers of a lab are of one type",
            hint="give all jobs the same, or write host_model once, in the lab's file",
        )
    for which, job in enumerate(jobs, 1):
        try:
            plans.append(_planned(fabric, job, number, created))
        except InputError as error:
            named = f"job {which}: " if len(jobs) > 1 else ""
            raise InputError(f"{named}{error.message}", hint=error.hint) from error
        number += len(plans[-1].ends)
    return tuple(plans)


def _planned(fabric: Fabric, job: JobSpec, first_qp: int, created: Counter[NicRef]) -> JobPlan:
    if job.transport.selective_repeat:
        raise InputError(
            "transport.selective_repeat: the NICs of a lab go back N",
            hint="leave it out, or take `rocelab simulate --engine packets`, which has it",
        )
    if job.transport.congestion is not None:
        raise InputError(
            f"transport.congestion: the NICs of a lab have no {job.transport.congestion.kind}",
            hint="take transport.dcqcn, or `rocelab simulate --engine packets`, which has it",
        )
    if job.transport.mtu > MOST_LAB_MTU:
        raise InputError(
            f"transport.mtu: ports of a lab carry payloads of {MOST_LAB_MTU} at most",
            hint="lower it, or take `rocelab simulate`, which has no such limit",
        )
    fabric = fabric.network(job.network)
    places = place(fabric, job.ranks, job.placement, job.seed)
    job, hosts = lab_hosts(fabric, job, places)
    for ref in places:
        check_mtu(job.transport, nic_of(fabric, ref).links[0].mtu, fabric.family)
    schedule: Schedule | None = None
    streams: tuple[Stream, ...] = ()
    if job.size is None:
        streams = streams_of(job)
        pairs = [(stream.source, stream.destination) for stream in streams]
    else:
        needs_group = job.group is None and job.algorithm is Algorithm.HIERARCHICAL
        schedule = schedule_of(job, group_size(fabric, places) if needs_group else None)
        if len(schedule.sends) > MAX_ID:
            raise InputError(
                f"{len(schedule.sends):,} sends in an iteration", hint=f"at most {MAX_ID:,}"
            )
        pairs = [
            (send.source, send.destination)
            for send in schedule.sends
            if hosts is None or not hosts.is_local(send.source, send.destination)
        ]
        if not pairs:
            raise InputError(
                "host_model: all ranks are in one server, and nothing is sent over the network",
                hint="use more ranks, or `rocelab simulate`",
            )
    ends = _queue_pairs(fabric, job, places, pairs, first_qp, created)
    return JobPlan(fabric, job, places, schedule, streams, ends, hosts)


def message_bytes(transport: TransportSpec) -> int:
    """The longest message: of the transport, or a receiver's buffer where that is shorter."""
    if transport.admission is None:
        return transport.message
    return min(transport.message, transport.admission.buffer)


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
    job: JobSpec,
    places: Sequence[NicRef],
    pairs: Iterable[tuple[int, int]],
    first_qp: int,
    created: Counter[NicRef],
) -> tuple[QueuePairEnd, ...]:
    """Both ends of every queue pair, each connection's together; numbers count from `first_qp`.

    `created` counts the queue pairs of each NIC across jobs: each new one gets the NIC's next port
    in turn, as in RoCE LAG (`rocelab.linux.lag`).
    """
    transport = job.transport
    connections = sorted({(min(pair), max(pair)) for pair in pairs})
    base = base_port(job.seed)
    ends = []
    number = first_qp
    for low, high in connections:
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
                ends.append(QueuePairEnd(local, remote, rank, peer, sport, control, port))
            number += 2
    return tuple(ends)
