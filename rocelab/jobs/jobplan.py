"""A job on a fabric: the NIC of each rank, its queue pairs and its sends, in the lab's clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rocelab.jobs.collectives import IterationEnd, Schedule
from rocelab.jobs.flow import Endpoints, resolve_endpoints
from rocelab.jobs.job import JobSpec, Stream
from rocelab.jobs.job_spec import LabJob
from rocelab.jobs.labhosts import LabHosts
from rocelab.jobs.labschedule import LabSchedule
from rocelab.jobs.patterns.base import Send
from rocelab.jobs.performance import roofline_ns, wire_overhead_bytes
from rocelab.jobs.placement import (
    NicRef,
    nic_of,
)
from rocelab.jobs.steps import roofline_s
from rocelab.jobs.tcp import TcpClock, TcpPath, payload_bytes, segment_overhead_bytes, tcp_clock
from rocelab.jobs.transport import message_bytes
from rocelab.jobs.workloads import JobPlace
from rocelab.planning.fabric import Fabric, Link, Nic

SAMPLES = 400
"""Points of a job's goodput over time, at most."""

RECORDED_SENDS = 2**15
"""The most sends whose times a result has: those of the last whole iterations."""

Pair = tuple[int, int, int | None]
"""Two ranks, and the send that has their connection for itself, if any."""

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

    send: int | None = None
    """The send that has the connection for itself; None: all between the two ranks."""


@dataclass(frozen=True)
class JobPlan:
    """A job, resolved. `schedule` is None for streams, `streams` empty for a schedule."""

    fabric: Fabric
    job: LabJob
    places: tuple[NicRef, ...]
    schedule: Schedule | None
    streams: tuple[Stream, ...]
    ends: tuple[QueuePairEnd, ...]
    hosts: LabHosts | None = None
    """None: hosts are agents, which take their own time."""
    of_workload: LabSchedule | None = None
    """The steps that `schedule` is made of; None for a collective and for streams."""
    start_ns: int = 0
    """When it begins, in the modelled network's clock."""
    where: JobPlace | None = None
    """Where a workload is."""
    tcp_paths: tuple[TcpPath, ...] = ()
    """The connections of a job of TCP, which has no queue pairs."""

    @property
    def tcp_clock(self) -> TcpClock | None:
        """What of its TCP's clock follows the lab's; None of RoCEv2."""
        transport = self.job.transport
        return tcp_clock(transport, self.dilation) if transport.is_tcp else None

    @cached_property
    def packet_payload_bytes(self) -> int:
        """The payload of a full packet."""
        if self.job.transport.is_tcp:
            return payload_bytes(self.nic_link(0).mtu, self.fabric.family)
        return self.job.transport.mtu

    @property
    def packet_overhead_bytes(self) -> int:
        """What a packet takes of a cable besides its payload."""
        if self.job.transport.is_tcp:
            return segment_overhead_bytes(self.fabric.family)
        return wire_overhead_bytes(self.fabric.family)

    @property
    def dilation(self) -> float:
        return self.fabric.spec.dilation

    @property
    def collective(self) -> JobSpec:
        """The job, if it is a collective or streams. Raises ValueError for a workload."""
        if not isinstance(self.job, JobSpec):
            raise ValueError(f"{self.job.title} is a workload")
        return self.job

    @property
    def ranks(self) -> int:
        return len(self.places)

    @property
    def is_open_loop(self) -> bool:
        """Whether it is flows that begin at given times, whatever the network does."""
        return self.schedule is not None and self.schedule.own_queue_pairs

    @property
    def iterations(self) -> int:
        """Repetitions of the schedule, including those that are not measured; 0 for streams."""
        if self.schedule is None or self.is_unrolled:
            return 0 if self.schedule is None else 1
        return self.job.iterations + self.job.warmup_iterations

    @property
    def is_unrolled(self) -> bool:
        """Whether the schedule has several iterations, of which some wait for the clock or go on
        beside others."""
        return self.of_workload is not None and self.of_workload.iterations > 1

    @property
    def recorded_iterations(self) -> int:
        """The number of last iterations in which each rank records the times of its sends."""
        if self.schedule is None:
            return 0
        return min(self.iterations, RECORDED_SENDS // max(1, len(self.schedule.sends)))

    @property
    def duration_ns(self) -> int:
        """How long streams run, in the lab's clock; 0 for a schedule."""
        duration = self.job.duration if isinstance(self.job, JobSpec) else None
        return round((duration or 0) * self.dilation)

    @property
    def launch_ns(self) -> float:
        """What hosts take before the first sends of an iteration; those of a workload have it in
        their own times."""
        return 0.0 if self.hosts is None or self.of_workload is not None else self.hosts.launch_ns

    def end(self, rank: int) -> IterationEnd:
        """What a rank's iteration ends with."""
        no_end = IterationEnd()
        return no_end if self.schedule is None else self.schedule.ends.get(rank, no_end)

    @cached_property
    def longest_wait_ns(self) -> float:
        """The longest time for which a rank computes or waits for a given time, at most, in the
        modelled network's clock."""
        if self.schedule is None:
            return 0.0
        waits: list[Send | IterationEnd] = [*self.schedule.sends, *self.schedule.ends.values()]
        return max((max((wait.at_ns, *wait.lags_ns)) for wait in waits), default=0)

    @cached_property
    def _pairs(self) -> frozenset[Pair]:
        """The ranks between which data is sent, and the sends that have a connection."""
        sends: Sequence[Send | Stream] = self.streams
        if self.schedule is not None:
            sends = self.schedule.sends
        if not self.is_open_loop:
            return frozenset((send.source, send.destination, None) for send in sends)
        return frozenset(
            (send.source, send.destination, number) for number, send in enumerate(sends)
        )

    def sends_by(self, end: QueuePairEnd) -> bool:
        """Whether a queue pair carries data from this end."""
        return (end.rank, end.peer, end.send) in self._pairs

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
        """The least time of an iteration: of its busiest NIC, or of a workload's longest chain of
        steps, each with its computing and alone on the network. None for streams."""
        if self.sending_ns is None or self.of_workload is None:
            return self.sending_ns
        made, ranks = self.of_workload, None if self.hosts is None else self.hosts.ranks
        nic_bps = np.array([float(self.nic_rate_bps(rank)) for rank in range(self.ranks)])
        chain_ns = roofline_s(made.workload, nic_bps, ranks) * 1e9
        return max(self.sending_ns, chain_ns) / made.iterations

    @cached_property
    def sending_ns(self) -> float | None:
        """The least time of an iteration on the modelled network, with Ethernet's preamble, FCS and
        gap, which the lab's links count as well, or on the fabrics of servers. None for streams."""
        if self.over_network is None or self.carried is None:
            return None
        network_ns = roofline_ns(
            self.over_network,
            max(self.nic_rate_bps(rank) for rank in range(self.ranks)),
            mtu_bytes=self.packet_payload_bytes,
            overhead_bytes=self.packet_overhead_bytes,
        )
        if self.hosts is None or self.hosts.model.local is None:
            return network_ns
        out, into = Counter[int](), Counter[int]()
        for send in filter(self.is_local, self.carried.sends):
            out[send.source] += send.size_bytes
            into[send.destination] += send.size_bytes
        busiest = max((*out.values(), *into.values()), default=0)
        local_ns = busiest * 8 * 10**9 / self.hosts.model.local.bandwidth_bps
        return self.launch_ns + max(network_ns, local_ns)

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
