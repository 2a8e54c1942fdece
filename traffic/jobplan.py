"""What a job is on a fabric: which NIC each rank has, its queue pairs, its sends.

In: a `Fabric` and a `JobSpec`. Out: a frozen `JobPlan` in the lab's clock, and for each server the
part that its agent carries out. Nothing here touches a lab: plans are pure and repeatable.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from struct import pack_into
from typing import Any

from labs.errors import InputError
from labs.plan.fabric import Fabric, Link
from traffic.agents import Part
from traffic.collectives import Algorithm, Schedule, Send
from traffic.dcqcn import parameters
from traffic.flow import FIRST_QP, FIRST_SPORT, SPORTS, Endpoints, resolve_endpoints
from traffic.job import DCQCN_OFF, Ecn, JobSpec, Strategy, Stream, schedule_of, streams_of
from traffic.placement import NicRef, group_size, place
from traffic.program import MAX_ID
from traffic.roce import Envelope, roce_frame
from traffic.sport import source_port
from traffic.wire import (
    BTH_OFFSET,
    EXTENSION_BYTES,
    ICRC_BYTES,
    IP_OFFSET,
    PAYLOAD_OFFSET,
    UDP_OFFSET,
    Extension,
    Opcode,
)

MOST_EXTENSION_BYTES = EXTENSION_BYTES[Extension.RETH] + EXTENSION_BYTES[Extension.IMM]
MODERATION_US = 1
"""How long a NIC gathers arrivals before it wakes its host, of the modelled network."""

MODERATION_LIMITS_NS = (50_000, 1_000_000)
SAMPLES = 400
"""Points of a job's goodput over time, at most."""

SHORTEST_SAMPLE_NS = 5_000_000
LONGEST_SAMPLE_NS = 50_000_000
DATA, CONTROL = 0, 1
"""Kinds of queue pairs: for payload, and for clear-to-sends."""

_ECN_BITS = {Ecn.NOT_ECT: 0b00, Ecn.ECT0: 0b10, Ecn.CE: 0b11}


@dataclass(frozen=True, slots=True)
class QueuePairEnd:
    """One end of a queue pair: rank `rank`'s, for what it sends to rank `peer`.

    `number` is its own QP, `remote` the other end's; `control` marks one for clear-to-sends.
    """

    number: int
    remote: int
    rank: int
    peer: int
    sport: int
    control: bool


@dataclass(frozen=True)
class JobPlan:
    """A job, resolved. `schedule` is None for streams, `streams` empty for a schedule."""

    fabric: Fabric
    job: JobSpec
    places: tuple[NicRef, ...]
    schedule: Schedule | None
    streams: tuple[Stream, ...]
    ends: tuple[QueuePairEnd, ...]

    @property
    def dilation(self) -> float:
        return self.fabric.spec.dilation

    @property
    def iterations(self) -> int:
        """Repetitions, those that are not measured included; 0 for streams."""
        return 0 if self.schedule is None else self.job.iterations + self.job.warmup_iterations

    @property
    def duration_ns(self) -> int:
        """How long streams run, in the lab's clock; 0 for a schedule."""
        return round((self.job.duration or 0) * self.dilation)

    def nic_link(self, rank: int) -> Link:
        """The link of a rank's NIC."""
        ref = self.places[rank]
        return self.fabric.uplinks(ref.server)[ref.nic - 1]

    def lab_rate_bps(self, rank: int) -> float:
        """The rate of a rank's NIC in the lab's clock."""
        return self.nic_link(rank).rate_bps / self.dilation

    @cached_property
    def sample_ns(self) -> int:
        """How far samples of goodput are apart, in the lab's clock."""
        if self.schedule is not None:
            return LONGEST_SAMPLE_NS
        return max(SHORTEST_SAMPLE_NS, self.duration_ns // SAMPLES)

    @property
    def message_bytes(self) -> int:
        """The longest message: of the transport, or a receiver's buffer where that is shorter."""
        transport = self.job.transport
        if transport.admission is None:
            return transport.message
        return min(transport.message, transport.admission.buffer)

    def endpoints(self, rank: int, peer: int) -> Endpoints:
        """The addresses of what `rank` sends to `peer`."""
        here, there = self.places[rank], self.places[peer]
        return resolve_endpoints(self.fabric, here.server, there.server, here.nic, there.nic)

    def parts(self) -> dict[str, Part]:
        """What the agent of each server that takes part is told, without its namespace."""
        ranks_of: dict[str, list[int]] = defaultdict(list)
        for rank, ref in enumerate(self.places):
            ranks_of[ref.server].append(rank)
        writer = _PartWriter(self)
        return {server: writer.part(ranks) for server, ranks in ranks_of.items()}


def plan_job(fabric: Fabric, job: JobSpec) -> JobPlan:
    """Resolve a job. Raises InputError where it does not fit the fabric."""
    places = place(fabric, job.ranks, job.placement, job.seed)
    _check_mtu(fabric, places, job)
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
        pairs = [(send.source, send.destination) for send in schedule.sends]
    return JobPlan(fabric, job, places, schedule, streams, _queue_pairs(job, pairs))


def _check_mtu(fabric: Fabric, places: Iterable[NicRef], job: JobSpec) -> None:
    needed = job.transport.mtu + PAYLOAD_OFFSET - IP_OFFSET + MOST_EXTENSION_BYTES + ICRC_BYTES
    for ref in places:
        link = fabric.uplinks(ref.server)[ref.nic - 1]
        if link.mtu < needed:
            raise InputError(
                f"a path MTU of {job.transport.mtu} needs packets of {needed} bytes, and links "
                f"carry {link.mtu}",
                hint="lower transport.mtu, or raise links.mtu",
            )


def _queue_pairs(job: JobSpec, pairs: Iterable[tuple[int, int]]) -> tuple[QueuePairEnd, ...]:
    """Both ends of every queue pair, each connection's together; numbers count from FIRST_QP."""
    transport = job.transport
    connections = sorted({(min(pair), max(pair)) for pair in pairs})
    base = FIRST_SPORT + random.Random(job.seed).randrange(SPORTS)  # noqa: S311 - no secret
    ends = []
    number = FIRST_QP
    per_connection = transport.qps + (transport.admission is not None)
    for low, high in connections:
        for index in range(per_connection):
            for own, remote, rank, peer in (
                (number, number + 1, low, high),
                (number + 1, number, high, low),
            ):
                sport = source_port(
                    transport.source_port, local_qpn=own, remote_qpn=remote, base=base
                )
                control = index == transport.qps
                ends.append(QueuePairEnd(own, remote, rank, peer, sport, control))
            number += 2
    return tuple(ends)


class _PartWriter:
    """Writes setup messages of one plan."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._headers: dict[tuple[int, int], bytes] = {}
        self._ends: dict[int, list[QueuePairEnd]] = defaultdict(list)
        for end in plan.ends:
            self._ends[end.rank].append(end)
        self._sends: dict[int, list[Send]] = defaultdict(list)
        self._receives: dict[int, list[Send]] = defaultdict(list)
        for send in plan.schedule.sends if plan.schedule else ():
            self._sends[send.source].append(send)
            self._receives[send.destination].append(send)

    def part(self, ranks: list[int]) -> Part:
        plan = self._plan
        transport = plan.job.transport
        frame_bytes = PAYLOAD_OFFSET + MOST_EXTENSION_BYTES + transport.mtu + ICRC_BYTES
        low_ns, high_ns = MODERATION_LIMITS_NS
        ends = [(nic, end) for nic, rank in enumerate(ranks) for end in self._ends[rank]]
        fields = {
            "frame_bytes": frame_bytes,
            "moderation_ns": int(min(high_ns, max(low_ns, MODERATION_US * 1000 * plan.dilation))),
            "sample_ns": plan.sample_ns,
            "nics": [
                {
                    "interface": plan.nic_link(rank).a.interface,
                    "rate_bps": plan.lab_rate_bps(rank),
                }
                for rank in ranks
            ],
            "kinds": [self._kind(ranks[0], DATA), self._kind(ranks[0], CONTROL)],
            "queue_pairs": [
                (end.number, nic, CONTROL if end.control else DATA) for nic, end in ends
            ],
            "ranks": [self._rank(rank) for rank in ranks],
        }
        return Part(fields, tuple(self._header(end) for _, end in ends))

    def _kind(self, rank: int, kind: int) -> dict[str, Any]:
        plan = self._plan
        transport = plan.job.transport
        ecn = _ECN_BITS[transport.ecn]
        dcqcn = None
        if transport.dcqcn != DCQCN_OFF and kind == DATA:
            modelled = parameters(transport.dcqcn, plan.nic_link(rank).rate_bps)
            dcqcn = asdict(modelled.dilated(plan.dilation))
        dscp = transport.dscp if kind == DATA else transport.ack_dscp
        return {
            "requester": {
                "mtu": transport.mtu,
                "window": transport.window,
                "ack_every": transport.ack_every,
                "ack_timeout_ns": round(transport.ack_timeout * plan.dilation),
                "retries": transport.retries,
                "tos": dscp << 2 | ecn,
            },
            "ack_tos": transport.ack_dscp << 2 | ecn,
            "cnp_tos": transport.cnp_dscp << 2 | ecn,
            "dcqcn": dcqcn,
        }

    def _header(self, end: QueuePairEnd) -> bytes:
        """Built by Scapy once per pair of ranks; its queue pairs differ in port and QP alone."""
        key = (end.rank, end.peer)
        if key not in self._headers:
            self._headers[key] = _header(self._plan.endpoints(end.rank, end.peer))
        frame = bytearray(self._headers[key])
        pack_into("!H", frame, UDP_OFFSET, end.sport)
        frame[BTH_OFFSET + 5 : BTH_OFFSET + 8] = end.remote.to_bytes(3, "big")
        return bytes(frame)

    def _rank(self, rank: int) -> dict[str, Any]:
        plan = self._plan
        transport = plan.job.transport
        peers: dict[int, dict[str, Any]] = {}
        for end in self._ends[rank]:
            peer = peers.setdefault(
                end.peer, {"rank": end.peer, "queue_pairs": [], "control": None}
            )
            if end.control:
                peer["control"] = end.number
            else:
                peer["queue_pairs"].append(end.number)
        admitted = 0
        if transport.admission is not None:
            room = transport.admission.channels * transport.admission.buffer
            admitted = room // plan.message_bytes
        return {
            "rank": rank,
            "peers": list(peers.values()),
            "split": transport.strategy is Strategy.SPLIT,
            "message_bytes": plan.message_bytes,
            "admitted": admitted,
            "sends": [
                (send.id, send.destination, send.size_bytes, send.after)
                for send in self._sends[rank]
            ],
            "receives": [(send.id, send.size_bytes) for send in self._receives[rank]],
            "iterations": plan.iterations,
            "compute_ns": round(plan.job.compute * plan.dilation),
            "streams": [
                (
                    number,
                    stream.destination,
                    plan.message_bytes,
                    round(stream.start_ns * plan.dilation),
                )
                for number, stream in enumerate(plan.streams)
                if stream.source == rank
            ],
        }


def _header(ends: Endpoints) -> bytes:
    envelope = Envelope(
        source_mac=ends.source_mac,
        next_hop_mac=ends.next_hop_mac,
        source_ip=ends.source_ip,
        destination_ip=ends.destination_ip,
        sport=FIRST_SPORT,
        dest_qp=FIRST_QP,
    )
    return roce_frame(envelope, Opcode.RC_SEND_MIDDLE, psn=0)[:PAYLOAD_OFFSET]
