"""The setup messages of the agents for the jobs of a session: NICs, queue pairs and ranks per
server.

The plans of jobs that run at the same time are made together, by `plan_jobs` of
`rocelab.jobs.jobplanning`. Jobs may share servers and NICs: a NIC that several use is one NIC,
limited to its link's rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, NamedTuple

from rocelab.agent.nic import moderation_ns
from rocelab.base.family import Family
from rocelab.jobs.collectives import IterationEnd
from rocelab.jobs.dcqcn_profiles import parameters
from rocelab.jobs.flow import FIRST_QP, Endpoints
from rocelab.jobs.jobplan import JobPlan, QueuePairEnd
from rocelab.jobs.patterns.base import Send
from rocelab.jobs.placement import NicRef, nic_of
from rocelab.jobs.sport import FIRST_SPORT
from rocelab.jobs.tcp import TcpPath
from rocelab.jobs.transport import DCQCN_OFF, Ecn, Strategy
from rocelab.planning.fabric import Fabric, Link, Nic
from rocelab.planning.pauses import obedience_ns
from rocelab.planning.queues import class_of_dscp
from rocelab.traffic.agents import AgentPart
from rocelab.traffic.roce import Envelope, roce_frame
from rocelab.wire.headers import OFFSETS, Opcode, most_header_bytes, set_source_port

DATA, CONTROL = 0, 1
"""Kinds of queue pairs of a job: for payload, and for clear-to-sends."""

_ECN_BITS = {Ecn.NOT_ECT: 0b00, Ecn.ECT0: 0b10, Ecn.CE: 0b11}


class SessionNic(NamedTuple):
    """A NIC that jobs use, and its network in a lab with several, each of which counts NICs from
    1."""

    network: str | None
    ref: NicRef


def nics_of(plans: Sequence[JobPlan]) -> dict[str, tuple[SessionNic, ...]]:
    """The NICs that jobs use, by server, without duplicates, in order of the ranks."""
    by_server: dict[str, dict[SessionNic, None]] = defaultdict(dict)
    for plan in plans:
        for ref in plan.places:
            by_server[ref.server][session_nic(plan, ref)] = None
    return {server: tuple(nics) for server, nics in by_server.items()}


def session_nic(plan: JobPlan, ref: NicRef) -> SessionNic:
    """A NIC of a plan among those of all jobs."""
    return SessionNic(plan.fabric.network_name, ref)


def nic_links(plans: Sequence[JobPlan]) -> tuple[Link, ...]:
    """The links of all ports of the NICs that jobs use, without duplicates."""
    nics = (plan.nic(rank) for plan in plans for rank in range(plan.ranks))
    return tuple({link.name: link for nic in nics for link in nic.links}.values())


def ports_of(fabric: Fabric, nic: Nic, share: float = 1.0) -> list[dict[str, Any]]:
    """The ports of a NIC for a setup message; `macs` is the start of a port's frames, `obeys` the
    time in which it obeys a pause, and that of a quantum, in ns; None without lossless classes.
    share: of its links' rate at which it sends."""
    pfc = fabric.spec.queues.pfc
    dilation = fabric.spec.dilation
    return [
        {
            "interface": link.a.interface,
            "rate_bps": link.rate_bps * share / dilation,
            "macs": (link.b.mac + link.a.mac).replace(":", ""),
            "obeys": None if pfc is None else obedience_ns(pfc, fabric.spec, link, link.b),
        }
        for link in nic.links
    ]


def parts_of(plans: Sequence[JobPlan]) -> dict[str, AgentPart]:
    """The setup message of each participating server, without its namespace."""
    writers = [_Writer(number, plan) for number, plan in enumerate(plans)]
    return {server: _part(server, nics, writers) for server, nics in nics_of(plans).items()}


def _part(server: str, nics: Sequence[SessionNic], writers: Sequence[_Writer]) -> AgentPart:
    plans = [writer.plan for writer in writers]
    # Jobs of a network have one host model, and all networks that have one have the same.
    plan_of = {plan.fabric.network_name: plan for plan in reversed(plans)}
    hosts = next((plan.hosts for plan in plans if plan.hosts is not None), None)
    fields: dict[str, Any] = {
        "frame_bytes": most_header_bytes(plans[0].fabric.family)
        + max(
            (plan.job.transport.mtu for plan in plans if not plan.job.transport.is_tcp), default=0
        ),
        "moderation_ns": moderation_ns(plans[0].dilation),
        "sample_ns": min(plan.sample_ns for plan in plans),
        "nics": [
            _ports(plan_of[network], nic_of(plan_of[network].fabric, ref)) for network, ref in nics
        ],
        "local_bps": 0.0 if hosts is None else hosts.model.local_row_bps / plans[0].dilation,
        "is_mesh": hosts is not None and hosts.model.is_mesh,
        "kinds": [],
        "queue_pairs": [],
        "ranks": [],
        "tcp": {"kinds": [writer.tcp(server) for writer in writers if writer.plan.tcp_clock]},
    }
    headers: list[bytes] = []
    for writer in writers:
        ranks = writer.ranks_of.get(server, [])
        first_kind = len(fields["kinds"])
        if not writer.plan.job.transport.is_tcp:
            fields["kinds"] += [writer.kind(ranks[0], kind) for kind in (DATA, CONTROL) if ranks]
        for rank in ranks:
            nic = nics.index(session_nic(writer.plan, writer.plan.places[rank]))
            for end in writer.ends[rank]:
                kind = first_kind + (CONTROL if end.control else DATA)
                fields["queue_pairs"].append((end.number, nic, end.port, kind))
                headers.append(writer.header(end))
            fields["ranks"].append(writer.rank(rank))
    return AgentPart(fields, tuple(headers))


def _ports(plan: JobPlan, nic: Nic) -> list[dict[str, Any]]:
    return ports_of(plan.fabric, nic, 1.0 if plan.hosts is None else plan.hosts.share_of(nic))


class _Writer:
    """Adds one job to the setup messages; `number` is its index in the session."""

    def __init__(self, number: int, plan: JobPlan) -> None:
        self.plan = plan
        self._number = number
        self._headers: dict[tuple[int, int, int], bytes] = {}
        self.ranks_of: dict[str, list[int]] = defaultdict(list)
        for rank, ref in enumerate(plan.places):
            self.ranks_of[ref.server].append(rank)
        self.ends: dict[int, list[QueuePairEnd]] = defaultdict(list)
        for end in plan.ends:
            self.ends[end.rank].append(end)
        self._sends: dict[int, list[Send]] = defaultdict(list)
        self._receives: dict[int, list[Send]] = defaultdict(list)
        for send in plan.carried.sends if plan.carried else ():
            self._sends[send.source].append(send)
            self._receives[send.destination].append(send)
        self._tcp_from: dict[int, list[TcpPath]] = defaultdict(list)
        self._tcp_to: dict[int, list[TcpPath]] = defaultdict(list)
        for path in plan.tcp_paths:
            self._tcp_from[path.rank].append(path)
            self._tcp_to[path.peer].append(path)

    def tcp(self, server: str) -> dict[str, Any]:
        """The connections of a job of TCP at a server, and what it listens to."""
        clock, ranks = self.plan.tcp_clock, self.ranks_of.get(server, [])
        assert clock is not None
        return {
            "congestion_control": clock.congestion_control.value,
            "tos": self.plan.job.transport.dscp << 2,
            "rto_min_us": clock.rto_min_ns // 1000,
            "listeners": list(
                dict.fromkeys(
                    (path.destination_ip, path.port)
                    for rank in ranks
                    for path in self._tcp_to[rank]
                )
            ),
            "connections": [
                (path.number, path.source_ip, path.destination_ip, path.port)
                for rank in ranks
                for path in self._tcp_from[rank]
            ],
        }

    def kind(self, rank: int, kind: int) -> dict[str, Any]:
        plan = self.plan
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
            "out_of_order": transport.out_of_order,
            "traffic_class": class_of_dscp(plan.fabric.spec.queues.dscp)[dscp],
        }

    def header(self, end: QueuePairEnd) -> bytes:
        """Built once per pair of ranks and port of the NIC; its queue pairs differ only in
        UDP port and QP."""
        key = (end.rank, end.peer, end.port)
        if key not in self._headers:
            self._headers[key] = _header(self.plan.endpoints(end.rank, end.peer, end.port))
        frame, family = bytearray(self._headers[key]), self.plan.fabric.family
        offsets = OFFSETS[family]
        set_source_port(frame, family, end.sport)
        frame[offsets.bth + 5 : offsets.psn] = end.remote.to_bytes(3, "big")
        return bytes(frame)

    @cached_property
    def _admitted(self) -> int:
        admission = self.plan.job.transport.admission
        if admission is None:
            return 0
        return admission.channels * admission.buffer // self.plan.message_bytes

    def rank(self, rank: int) -> dict[str, Any]:
        plan = self.plan
        transport = plan.job.transport
        is_own = plan.schedule is not None and plan.schedule.own_queue_pairs
        peers: dict[int, dict[str, Any]] = {}
        for end in self.ends[rank]:
            way = end.peer if end.send is None else _own_way(plan, end.send)
            peer = peers.setdefault(way, {"way": way, "queue_pairs": [], "control": None})
            if end.control:
                peer["control"] = end.number
            else:
                peer["queue_pairs"].append(end.number)
        tcp: dict[int, list[int]] = defaultdict(list)
        for path in self._tcp_from[rank]:
            way = path.peer if path.send is None else _own_way(plan, path.send)
            tcp[way].append(path.number)
        return {
            "job": self._number,
            "rank": rank,
            "peers": list(peers.values()),
            "tcp": list(tcp.items()),
            "tcp_from": [path.number for path in self._tcp_to[rank]],
            "split": transport.strategy is Strategy.SPLIT,
            "message_bytes": plan.message_bytes,
            "admitted": self._admitted,
            "local": [
                (peer, (plan.places[rank].nic, plan.places[peer].nic))
                for peer in dict.fromkeys(
                    send.destination for send in self._sends[rank] if plan.is_local(send)
                )
            ],
            "sends": [
                (
                    send.id,
                    _own_way(plan, send.id) if is_own else send.destination,
                    send.size_bytes,
                    _wait(send, plan.dilation),
                    plan.host_ns(send),
                )
                for send in self._sends[rank]
            ],
            "receives": [(send.id, send.size_bytes) for send in self._receives[rank]],
            "launch_ns": round(plan.launch_ns * plan.dilation),
            "start_ns": round(plan.start_ns * plan.dilation),
            "end": _wait(plan.end(rank), plan.dilation),
            "iterations": plan.iterations,
            "recorded": plan.recorded_iterations,
            "compute_ns": round(plan.job.compute * plan.dilation),
            "streams": [
                (
                    number,
                    stream.destination,
                    plan.message_bytes,
                    round(stream.start_ns * plan.dilation),
                    plan.duration_ns,
                )
                for number, stream in enumerate(plan.streams)
                if stream.source == rank
            ],
        }


def _own_way(plan: JobPlan, send: int) -> int:
    """The number of a send's own connection, beyond those of ranks."""
    return plan.ranks + send


def _wait(what: Send | IterationEnd, dilation: float) -> tuple[Sequence[int], Sequence[int], int]:
    """What something waits for, in the lab's clock."""
    lags_ns = [round(lag_ns * dilation) for lag_ns in what.lags_ns]
    return what.after, lags_ns, round(what.at_ns * dilation)


def _header(ends: Endpoints) -> bytes:
    envelope = Envelope(
        source_mac=ends.source_mac,
        next_hop_mac=ends.next_hop_mac,
        source_ip=ends.source_ip,
        destination_ip=ends.destination_ip,
        sport=FIRST_SPORT,
        dest_qp=FIRST_QP,
    )
    frame = roce_frame(envelope, Opcode.RC_SEND_MIDDLE, psn=0)
    return frame[: OFFSETS[Family.of(ends.source_ip)].payload]
