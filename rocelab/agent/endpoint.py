"""A server's side of its jobs: NICs, queue pairs, connections and its ranks' programs.

From the server's part of a run, arrived packets and the time, it sends packets on the NICs when
they are due, and counts everything sent, acknowledged and delivered.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rocelab.agent.dcqcn import DcqcnParameters
from rocelab.agent.nic import NEVER_NS, AgentNic, FrameOutlet
from rocelab.agent.program import AgentProgram, PlannedSend, SendWay, StreamProgram, Wait
from rocelab.agent.rc.connection import CLEAR_TO_SEND, Admission, RcConnection
from rocelab.agent.rc.queue_pair import QueuePair, QueuePairSettings
from rocelab.agent.rc.requester import Requester, RequesterSettings
from rocelab.agent.serverfabric import ServerFabric
from rocelab.agent.steps import Stalls
from rocelab.agent.tcp import TcpPort, TcpWay
from rocelab.linux.lag import Lag, LagPort

Tell = Callable[[dict[str, object]], None]
"""Sends the session an unsolicited message."""

TIMERS_PER_TIMEOUT = 8
"""How often the timers are checked within an ACK timeout; it limits how late an expiry is seen."""


class Endpoint:
    """Everything of one server that is not a probe."""

    def __init__(
        self,
        fields: Mapping[str, Any],
        headers: Sequence[bytes],
        outlet: Callable[[str], FrameOutlet],
        tell: Tell,
    ) -> None:
        """`fields` as `rocelab.traffic.jobparts` writes them, `headers` one per queue pair.

        Raises OSError if an interface cannot be opened.
        """
        self._tell = tell
        self.stalls = Stalls()
        self.nics = [
            Lag([_port(port, outlet, fields["frame_bytes"]) for port in ports])
            for ports in fields["nics"]
        ]
        self._ports = [port.way for nic in self.nics for port in nic.ports]
        self.queue_pairs: dict[int, QueuePair] = {}
        for (number, nic, port, kind), header in zip(fields["queue_pairs"], headers, strict=True):
            self.queue_pairs[number] = QueuePair(
                number,
                self.nics[nic].ports[port].way,
                header,
                _settings(fields["kinds"][kind]),
                fields["nics"][nic][port]["rate_bps"],
            )
            self.nics[nic].add(self.queue_pairs[number], port)
        self._pairs = list(self.queue_pairs.values())
        self._connections: list[RcConnection] = []
        self._owner: dict[int, tuple[RcConnection, AgentProgram | None]] = {}
        self._streams: dict[RcConnection | TcpWay, StreamProgram] = {}
        self._fabric = ServerFabric(fields["local_bps"], is_mesh=fields["is_mesh"])
        self._program_of: dict[tuple[int, int], AgentProgram] = {}
        self._programs: list[AgentProgram] = []
        self._jobs: list[int] = []
        self._starts_ns: list[int] = []
        self._start_ns = 0
        self.tcp = TcpPort(fields["tcp"], self._part_arrived, tell)
        self._program_of_way: dict[TcpWay, AgentProgram | None] = {}
        self._receiver_of: dict[int, AgentProgram | None] = {}
        for rank in fields["ranks"]:
            self._add_rank(rank)
        timeouts = [pair.requester.settings.ack_timeout_ns for pair in self._pairs]
        self._timer_step_ns = min(timeouts, default=NEVER_NS) // TIMERS_PER_TIMEOUT
        self._timers_ns = NEVER_NS
        self._sample_step_ns = fields["sample_ns"]
        self._samples_ns = NEVER_NS
        self.sampled_ns = array("q")
        self.sampled_bytes = [array("q") for _ in self._pairs]
        self._begins: list[tuple[int, StreamProgram]] = []
        self._failed: set[int] = set()

    def _add_rank(self, rank: Mapping[str, Any]) -> None:
        connections: dict[int, RcConnection] = {}
        # A way is the number of the other rank, or of a send's own connection.
        for peer in rank["peers"]:
            pairs = [self.queue_pairs[number] for number in peer["queue_pairs"]]
            control = peer["control"]
            connections[peer["way"]] = RcConnection(
                pairs,
                split=rank["split"],
                message_bytes=rank["message_bytes"],
                admission=None
                if control is None
                else Admission(self.queue_pairs[control], rank["admitted"]),
            )
        by_tcp = {way: self._tcp_way(numbers) for way, numbers in rank["tcp"]}
        program = None
        if rank["iterations"]:
            ways: dict[int, SendWay] = {**connections, **by_tcp}
            for peer, gpus in rank["local"]:
                ways[peer] = _LocalConnection(self, rank["job"], (rank["rank"], peer), gpus)
            sends = [
                PlannedSend(send_id, ways[way], size, Wait(*wait), host_ns)
                for send_id, way, size, wait, host_ns in rank["sends"]
            ]
            program = AgentProgram(
                rank["rank"],
                sends,
                dict(rank["receives"]),
                rank["iterations"],
                rank["compute_ns"],
                self._iteration_over,
                rank["recorded"],
                rank["launch_ns"],
                Wait(*rank["end"]),
            )
            self._starts_ns.append(rank["start_ns"])
            self._program_of[rank["job"], rank["rank"]] = program
            self._programs.append(program)
            self._jobs.append(rank["job"])
        for peer in rank["peers"]:
            owner = (connections[peer["way"]], program)
            for number in (*peer["queue_pairs"], peer["control"]):
                if number is not None:
                    self._owner[number] = owner
        self._program_of_way.update(dict.fromkeys(by_tcp.values(), program))
        self._receiver_of.update(dict.fromkeys(rank["tcp_from"], program))
        for send_id, peer, chunk_bytes, at_ns, ends_ns in rank["streams"]:
            line: RcConnection | TcpWay = by_tcp.get(peer) or connections[peer]
            self._streams[line] = StreamProgram(line, send_id, chunk_bytes, at_ns, ends_ns)
        self._connections.extend(connections.values())

    def _tcp_way(self, numbers: Sequence[int]) -> TcpWay:
        def acknowledged(imm: int, now_ns: int) -> None:
            self._sent(way, self._program_of_way[way], imm, now_ns)

        way = self.tcp.way(numbers, acknowledged)
        return way

    def start(self, at_ns: int) -> None:
        """Begin at `at_ns` (CLOCK_MONOTONIC)."""
        self._start_ns = at_ns
        for connection in self._connections:
            connection.open()
        self.tcp.start()
        for program, start_ns in zip(self._programs, self._starts_ns, strict=True):
            program.due_ns = at_ns + start_ns
        self._begins = sorted(
            ((at_ns + stream.at_ns, stream) for stream in self._streams.values()),
            key=lambda begin: begin[0],
        )
        self._timers_ns = at_ns
        if self._sample_step_ns:
            self._samples_ns = at_ns

    def stop(self) -> None:
        """End streams; posted sends are still delivered."""
        self._begins.clear()
        for stream in self._streams.values():
            stream.stopped = True

    @property
    def idle(self) -> bool:
        """Whether everything posted on working queue pairs has been acknowledged."""
        failed = any(pair.requester.error for pair in self._pairs)
        if not failed and any(connection.waiting for connection in self._connections):
            return False
        sent = all(pair.requester.idle or pair.requester.error for pair in self._pairs)
        return sent and self._fabric.idle and self.tcp.idle

    def send_local(
        self, job: int, ranks: tuple[int, int], gpus: tuple[int, int], size_bytes: int, imm: int
    ) -> None:
        """Send from one rank of a job to another on this server, without the network."""
        sender, receiver = (self._program_of[job, rank] for rank in ranks)

        def ended(now_ns: int) -> None:
            receiver.arrived(imm, size_bytes, now_ns)
            sender.acknowledged(imm, now_ns)

        self._fabric.begin(*gpus, size_bytes, ended)

    def turn(self, now_ns: int) -> int:
        """Begin, send and time out what is due; return the next deadline."""
        self.tcp.turn(now_ns)
        for program in self._programs:
            program.turn(now_ns)
        self._fabric.turn(now_ns)
        next_ns = min((program.next_ns for program in self._programs), default=NEVER_NS)
        next_ns = min(next_ns, self._fabric.due_ns)
        while self._begins and self._begins[0][0] <= now_ns:
            self._begins.pop(0)[1].begin()
        if self._begins:
            next_ns = min(next_ns, self._begins[0][0])
        if now_ns >= self._timers_ns:
            self._check_timers(now_ns)
        if now_ns >= self._samples_ns:
            self._sample(now_ns)
        next_ns = min(next_ns, self._timers_ns, self._samples_ns)
        for port in self._ports:
            next_ns = min(next_ns, port.send(now_ns))
        return next_ns

    def _check_timers(self, now_ns: int) -> None:
        for pair in self._pairs:
            if pair.requester.deadline_ns <= now_ns:
                pair.on_timer()
            # The error may come from this timer or from an acknowledgement.
            if pair.requester.error is not None and pair.number not in self._failed:
                self._failed.add(pair.number)
                self._tell({"queue_pair": pair.number, "error": pair.requester.error})
        self._timers_ns = now_ns + self._timer_step_ns

    def _sample(self, now_ns: int) -> None:
        self.sampled_ns.append(now_ns)
        for pair, column in zip(self._pairs, self.sampled_bytes, strict=True):
            column.append(pair.requester.counters.acked_bytes)
        self.tcp.sample()
        self._samples_ns += self._sample_step_ns * (
            (now_ns - self._samples_ns) // self._sample_step_ns + 1
        )

    def on_message(self, pair: QueuePair, imm: int, size_bytes: int, now_ns: int) -> None:
        """Handle a complete message."""
        connection, program = self._owner[pair.number]
        if imm & CLEAR_TO_SEND:
            connection.clear_to_send(imm & ~CLEAR_TO_SEND)
            return
        connection.arrived()
        if program is not None:
            program.arrived(imm, size_bytes, now_ns)

    def on_acknowledged(self, pair: QueuePair, imm: int, now_ns: int) -> None:
        """Handle the acknowledgement of a message."""
        connection, program = self._owner[pair.number]
        if imm & CLEAR_TO_SEND or not connection.acknowledge_part(imm):
            return
        self._sent(connection, program, imm, now_ns)

    def _part_arrived(self, number: int, imm: int, size_bytes: int, now_ns: int) -> None:
        program = self._receiver_of[number]
        if program is not None:
            program.arrived(imm, size_bytes, now_ns)

    def _sent(
        self, way: RcConnection | TcpWay, program: AgentProgram | None, imm: int, now_ns: int
    ) -> None:
        """Handle the acknowledgement of a whole send."""
        if program is not None:
            program.acknowledged(imm, now_ns)
        elif way in self._streams:
            self._streams[way].acknowledged(now_ns - self._start_ns)

    def _iteration_over(self, rank: int, iteration: int) -> None:
        self._tell({"rank": rank, "iteration": iteration})

    def report(self) -> tuple[dict[str, object], list[bytes]]:
        """Counts of all NICs, queue pairs and ranks, and columns of samples, round trips, stalls
        and steps."""
        fields: dict[str, object] = {
            "nics": [[_port_report(port.way) for port in nic.ports] for nic in self.nics],
            "queue_pairs": [_pair_report(pair) for pair in self._pairs],
            "ranks": [
                {
                    "job": job,
                    "rank": program.rank,
                    "began_ns": program.began_ns.tolist(),
                    "ended_ns": program.ended_ns.tolist(),
                    "waited_ns": program.waited_ns.tolist(),
                    "received_bytes": program.received_bytes,
                }
                for job, program in zip(self._jobs, self._programs, strict=True)
            ],
            "tcp": self.tcp.report(),
        }
        columns = [self.sampled_ns, *self.sampled_bytes]
        columns += [pair.requester.rtt_ns for pair in self._pairs]
        columns += [self.stalls.ended_ns, self.stalls.length_ns]
        steps = [part for program in self._programs for part in program.steps.columns()]
        by_tcp = [column.tobytes() for column in self.tcp.sampled_bytes.values()]
        return fields, [column.tobytes() for column in columns] + steps + by_tcp


class _LocalConnection:
    """The way of a rank to another one of its server."""

    def __init__(
        self, endpoint: Endpoint, job: int, ranks: tuple[int, int], gpus: Sequence[int]
    ) -> None:
        self._endpoint, self._job, self._ranks = endpoint, job, ranks
        self._gpus = (gpus[0], gpus[1])

    def send(self, size_bytes: int, imm: int) -> None:
        self._endpoint.send_local(self._job, self._ranks, self._gpus, size_bytes, imm)


def _settings(kind: Mapping[str, Any]) -> QueuePairSettings:
    dcqcn = kind["dcqcn"]
    return QueuePairSettings(
        RequesterSettings(**kind["requester"]),
        ack_tos=kind["ack_tos"],
        cnp_tos=kind["cnp_tos"],
        dcqcn=None if dcqcn is None else DcqcnParameters(**dcqcn),
        out_of_order=kind["out_of_order"],
        traffic_class=kind["traffic_class"],
    )


def _port(
    fields: Mapping[str, Any], outlet: Callable[[str], FrameOutlet], size: int
) -> LagPort[AgentNic]:
    interface = fields["interface"]
    line = AgentNic(outlet(interface), fields["rate_bps"], size)
    return LagPort(interface, line, bytes.fromhex(fields["macs"]))


def _port_report(port: AgentNic) -> dict[str, object]:
    late = sorted(port.late_ns)
    return {
        "busy_ns": port.busy_ns,
        "lost_ns": port.lost_ns,
        "late_p99_ns": late[len(late) * 99 // 100] if late else 0,
        "late_max_ns": late[-1] if late else 0,
        "refused": port.refused,
    }


def _gaps(requester: Requester) -> list[tuple[int, int | None, bool, int]]:
    """The gaps in acknowledgements in order of time: begin, end (None: there is none yet), whether
    packets were retransmitted meanwhile, and how many had been before."""
    gaps: list[tuple[int, int | None, bool, int]] = [
        (began_ns, began_ns + length_ns, resent, before)
        for resent, length_ns, began_ns, before in requester.gaps
    ]
    if requester.open_gap is not None:
        began_ns, before = requester.open_gap
        gaps.append((began_ns, None, requester.counters.retransmitted > before, before))
    return sorted(gaps, key=lambda gap: gap[0])


def _pair_report(pair: QueuePair) -> dict[str, object]:
    return {
        "number": pair.number,
        "requester": asdict(pair.requester.counters),
        "responder": asdict(pair.responder.counters),
        "cnps_received": pair.cnps_received,
        "gaps": _gaps(pair.requester),
        "port_moves": pair.port_moves,
        "error": pair.requester.error,
    }
