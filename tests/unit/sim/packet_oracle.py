"""A plain simulator of packets, which the packet engine is compared with.

It is written for reading: one heap of events, an object for each port, queue pair and task, frames
as bytes. Its queue pairs are the lab's own (`rocelab.agent.rc`), in a lab whose nanoseconds are the
picoseconds of the modelled network. At one instant tasks start first, in the engine's order, and
packets reach a port or a NIC after all else, those that left a port early by its rate, in an order
that the seed draws, and then those that it sent whole.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import numpy as np

from rocelab.agent.dcqcn import DcqcnParameters
from rocelab.agent.nic import WIRE_OVERHEAD_BYTES
from rocelab.agent.rc.frames import ACK_REQUEST
from rocelab.agent.rc.queue_pair import QueuePair, QueuePairSettings
from rocelab.agent.rc.requester import NEVER_NS, RequesterSettings
from rocelab.base.arrays import NONE, Floats
from rocelab.labfile.queues import EcnSpec
from rocelab.planning.queues import BINS, STRICT_CLASSES, bin_edges_bytes
from rocelab.results.engines import PortModel
from rocelab.routes.arrays.flows import Ways
from rocelab.sim.engine.program import Program
from rocelab.sim.packets import state as at
from rocelab.sim.packets.build import PMAX_UNITS, start_order
from rocelab.sim.packets.draws import draw, drawn_order
from rocelab.sim.packets.pausing import Pausing
from rocelab.sim.packets.sending import Gathering, Queues, Sending
from rocelab.sim.packets.wiring import CUT_BYTES, Wiring
from rocelab.wire.headers import (
    BTH_OFFSET,
    IP_OFFSET,
    PAYLOAD_OFFSET,
    PSN_MASK,
    PSN_OFFSET,
    Opcode,
    extension_bytes,
    is_last,
)
from tests.helpers.queue_lines import mark_probability
from tests.helpers.rc_fakes import header
from tests.unit.sim.packet_oracle_pauses import Lane, ReceiveBuffer
from tests.unit.sim.packet_oracle_selective import SelectiveRequester, SelectiveResponder

PS = 1e12
CLASSES = range(8)
SHARED = [class_ for class_ in CLASSES if class_ not in STRICT_CLASSES]
ECN_BITS = {at.NOT_ECT: 0b00, at.ECT: 0b10, at.ALL_CE: 0b11}


Way = list[Any]
"""Ports, the last one None where packets are lost behind the first one's link."""


def sends_of(ways: Ways) -> list[list[int]]:
    start = ways.paths.start
    return [ways.paths.sends[a:b].tolist() for a, b in pairwise(start)]


@dataclass(eq=False)
class Packet:
    """A frame on its way through `ports`, the present one first."""

    flow: Flow
    frame: bytes
    ports: list[Port]
    is_marked: bool = False
    is_lost: bool = False
    came_by: Port | None = None

    @property
    def size(self) -> int:
        """As queues count it."""
        return len(self.frame)

    @property
    def tos(self) -> int:
        return self.frame[IP_OFFSET + 1]

    def leave(self) -> None:
        """It is no longer in the memory of its switch."""
        class_ = self.tos >> 5
        if self.came_by is not None and class_ in self.came_by.lanes:
            self.came_by.lanes[class_].leaves(self)

    @property
    def is_ce(self) -> bool:
        return self.is_marked or self.tos & 0b11 == 0b11


class Port:
    """A port of a switch or a NIC. `turns` are the queue pairs that take turns at a NIC's."""

    def __init__(self, oracle: Oracle, number: int, rate_bps: float, is_nic: bool) -> None:
        self.oracle, self.number, self.is_nic = oracle, number, is_nic
        self.queues: list[deque[Packet]] = [deque() for _ in CLASSES]
        self.deficits = [oracle.queues.quantum] * len(CLASSES)
        self.turn = SHARED[0]
        self.turns: deque[Flow] = deque()
        self.host = oracle.host_of(self)
        self.is_idle = True
        self.is_busy = self.host is not None and is_nic
        self.carried = self.highest = self.marks = self.drops = self.draws = 0
        self.lanes: dict[int, Lane] = {}
        self.buffer: ReceiveBuffer | None = None
        self.is_cut = False
        self.on_link: set[Packet] = set()
        self.connect(rate_bps)
        self.free_ps = self.shaped_ps = -self.burst_ps
        self.is_shaping = False

    def connect(self, rate_bps: float) -> None:
        """From now on; what a link holds that is cut is lost."""
        if rate_bps:
            self.rate_bps = rate_bps
            is_shaped = self.host is not None and self.oracle.queues.pausing is not None
            saves_up = self.oracle.queues.ports is PortModel.LAB and (not self.is_nic or is_shaped)
            burst_bytes = int(self.oracle.queues.burst_bytes)
            self.burst_ps = round(burst_bytes * 8 * PS / rate_bps) * saves_up
        elif not self.is_cut:
            for packet in self.on_link:
                packet.is_lost = True
            for class_ in STRICT_CLASSES + tuple(SHARED):
                while self.queues[class_]:
                    self.queues[class_].popleft().leave()
                    self.oracle.lost += 1
        self.is_cut = not rate_bps

    def bytes_of(self, class_: int) -> int:
        return sum(packet.size for packet in self.queues[class_])

    def enqueue(self, packet: Packet) -> None:
        class_ = packet.tos >> 5
        lane = self.lanes.get(class_)
        if self.is_cut:
            self.oracle.lost += 1
            return
        if not self.is_nic and not self.takes(packet):
            self.drops += 1
            return
        if not self.is_busy and not (lane and lane.is_closed):
            packet.leave()
            self.transmit(packet)
            return
        if self.is_nic and not lane:
            class_ = STRICT_CLASSES[0]
        if not self.is_nic and packet.tos & 0b11 and not packet.is_ce and self.marked(class_):
            packet.is_marked = True
            self.marks += 1
        self.highest = max(self.highest, self.bytes_of(class_))
        self.queues[class_].append(packet)
        if lane and lane.is_closed and len(self.queues[class_]) == 1:
            lane.watch()

    def takes(self, packet: Packet) -> bool:
        """Whether a switch has room for a packet."""
        class_, limit = packet.tos >> 5, self.oracle.queues.buffer_bytes
        if class_ in self.lanes:
            if self.lanes[class_].discards_all:
                self.lanes[class_].discards += 1
                return False
            assert packet.came_by is not None
            return packet.came_by.lanes[class_].admits(packet)
        queued = self.bytes_of(class_) + packet.size
        if self.oracle.queues.pausing:
            return queued <= limit
        in_port = sum(self.bytes_of(traffic_class) for traffic_class in CLASSES) + packet.size
        return queued <= min(limit, 8 * (limit + limit / 8 - in_port))

    def marked(self, class_: int) -> bool:
        queues, depth = self.oracle.queues, self.bytes_of(class_)
        if class_ not in queues.marked or depth <= queues.kmin:
            return False
        is_marked = depth > queues.kmax
        if not is_marked:
            self.draws += 1
            ecn = EcnSpec.model_construct(kmin=queues.kmin, kmax=queues.kmax, pmax=queues.pmax)
            limit = int(mark_probability(ecn, depth) * PMAX_UNITS)
            is_marked = draw(queues.seed, self.number, self.draws) < limit
        floors = bin_edges_bytes(queues.kmin, queues.kmax, queues.buffer_bytes)
        by_depth = self.oracle.marking[bisect_right(floors, depth) - 1]
        by_depth[0] += 1
        by_depth[1] += is_marked
        return is_marked

    def dequeue(self) -> Packet | None:
        ready = self.ready
        for class_ in STRICT_CLASSES:
            if class_ in ready:
                return self.queues[class_].popleft()
        if not ready:
            return None
        while self.turn not in ready:
            self.pass_turn()
        class_ = self.turn
        packet = self.queues[class_].popleft()
        self.deficits[class_] -= packet.size
        if self.deficits[class_] < 0:
            self.deficits[class_] += self.oracle.queues.quantum
            self.pass_turn()
        packet.leave()
        return packet

    @property
    def ready(self) -> set[int]:
        """The classes that may send a packet of their queues."""
        return {i for i in CLASSES if self.queues[i] and not self.is_closed(i)}

    def is_closed(self, class_: int) -> bool:
        return class_ in self.lanes and self.lanes[class_].is_closed

    def pass_turn(self) -> None:
        self.turn = SHARED[(SHARED.index(self.turn) + 1) % len(SHARED)]

    def serve(self) -> None:
        if self.host is not None:
            self.host.offer(self)
            return
        while not self.is_busy and (packet := self.dequeue() or self.data()):
            self.transmit(packet)

    def data(self) -> Packet | None:
        while self.turns:
            flow = self.turns.popleft()
            if flow.sender.requester.sendable and self.is_closed(flow.class_):
                self.lanes[flow.class_].parked.append(flow)
                continue
            flow.is_listed = False
            packet = flow.emit()
            if packet:
                return packet
        return None

    def transmit(self, packet: Packet) -> None:
        oracle, now = self.oracle, self.oracle.now
        self.count(packet)
        saved_ps = min(now - self.free_ps, self.burst_ps)
        self.free_ps = now - saved_ps + self.time_of(packet)
        early_bytes = self.early_bytes(packet)
        if early_bytes is not None:
            early_ps = round(self.latency_ps + early_bytes * 8 * PS / self.rate_bps)
            oracle.at(now + early_ps, oracle.reach, packet, rank=self.early_rank)
            if self.free_ps > now:
                self.is_busy = True
                oracle.at(self.free_ps, self.sent)
        else:
            self.is_busy = True
            oracle.at(self.free_ps, self.sent_whole, packet)

    def count(self, packet: Packet) -> None:
        self.carried += packet.size + WIRE_OVERHEAD_BYTES
        self.oracle.hops += 1
        packet.is_lost |= self.is_cut
        self.on_link.add(packet)

    def time_of(self, packet: Packet) -> int:
        return round((packet.size + WIRE_OVERHEAD_BYTES) * 8 * PS / self.rate_bps)

    def hand_over(self, packet: Packet) -> None:
        """What a host that wakes sends at once waits for the link if its class is lossless."""
        self.free_ps += self.time_of(packet)
        class_ = packet.tos >> 5
        if class_ in self.lanes and not self.is_cut:
            self.highest = max(self.highest, self.bytes_of(class_))
            self.queues[class_].append(packet)
            self.shape()
        else:
            self.put_on_link(packet)

    def shape(self) -> None:
        oracle = self.oracle
        while self.ready and not self.is_shaping:
            if self.shaped_ps > oracle.now:
                self.is_shaping = True
                oracle.at(self.shaped_ps, self.shaped)
            elif packet := self.dequeue():
                self.shaped_ps = max(self.shaped_ps, oracle.now - self.burst_ps)
                self.shaped_ps += self.time_of(packet)
                self.put_on_link(packet)

    def shaped(self) -> None:
        self.is_shaping = False
        self.shape()

    def put_on_link(self, packet: Packet) -> None:
        self.count(packet)
        due_ps = self.oracle.now + self.latency_ps
        self.oracle.at(due_ps, self.oracle.reach, packet, rank=self.early_rank)

    @property
    def latency_ps(self) -> int:
        return self.oracle.latency_ps[self.number]

    @property
    def early_rank(self) -> int:
        return self.oracle.rank_of[self.rate_bps, self.latency_ps]

    def early_bytes(self, packet: Packet) -> int | None:
        """The bytes after which a packet is on its way; None for all."""
        model = self.oracle.queues.ports
        if model is PortModel.LAB:
            return 0
        is_slower = len(packet.ports) > 1 and packet.ports[1].rate_bps <= self.rate_bps
        return CUT_BYTES if model is PortModel.CUT_THROUGH and is_slower else None

    def sent_whole(self, packet: Packet) -> None:
        oracle = self.oracle
        rank = oracle.rank_of_latency[self.latency_ps]
        oracle.at(oracle.now + self.latency_ps, oracle.reach, packet, rank=rank)
        self.sent()

    def sent(self) -> None:
        self.is_busy = False
        self.serve()


class Host:
    """The host of some NICs that takes arrivals and sends only when it wakes."""

    def __init__(self, oracle: Oracle, gathering: Gathering) -> None:
        self.oracle, self.ports = oracle, list[Port]()
        self.moderation_ps = round(1000 * gathering.moderation_ns)
        self.late_ps = round(1000 * gathering.late_ns)
        self.arrived: list[Packet] = []
        self.woke_ps, self.due_ps = -at.NEVER, at.NEVER
        self.wakes = 0

    def gather(self, packet: Packet) -> None:
        self.arrived.append(packet)
        self.wake_by(self.oracle.now)

    def wake_by(self, time: int) -> None:
        oracle = self.oracle
        stream = len(oracle.ports) + len(oracle.flows) + self.ports[0].number
        late_ps = draw(oracle.queues.seed, stream, self.wakes) * self.late_ps >> 31
        due_ps = max(time, self.woke_ps + self.moderation_ps) + late_ps
        if due_ps < self.due_ps:
            self.due_ps = due_ps
            oracle.at(due_ps, self.wake)

    def wake(self) -> None:
        if self.due_ps != self.oracle.now:
            return
        self.wakes += 1
        arrived, self.arrived = self.arrived, []
        for packet in arrived:
            packet.flow.deliver(packet)
        self.woke_ps, self.due_ps = self.oracle.now, at.NEVER
        for port in self.ports:
            self.offer(port)

    def rouse(self) -> None:
        self.woke_ps = -at.NEVER
        self.wake_by(self.oracle.now)

    def offer(self, port: Port) -> None:
        """The port may have something to send."""
        now = self.oracle.now
        if self.due_ps == now:
            return
        if not port.turns:
            port.is_idle = True
            return
        self.occupy(port)
        if self.woke_ps < now:
            self.wake_by(max(now, port.free_ps))
            return
        while port.free_ps <= now and (packet := port.data()):
            port.hand_over(packet)
        port.is_idle = not port.turns
        if not port.is_idle:
            self.wake_by(port.free_ps)

    def occupy(self, port: Port) -> None:
        if port.is_idle:
            port.free_ps = max(port.free_ps, self.oracle.now)
            port.is_idle = False

    def answer(self, packet: Packet, port: Port) -> None:
        if port.is_cut:
            self.oracle.lost += 1
            return
        self.occupy(port)
        port.hand_over(packet)


class Flow:
    """A queue pair of the lab at each end; this is the NIC that they know."""

    def __init__(self, oracle: Oracle, number: int, data: list[Way], back: list[Way]) -> None:
        self.oracle, self.number, self.data, self.back = oracle, number, data, back
        self.nic = data[0][0]
        # Of data, of what comes back: the hash that chooses a way, and when a packet used it.
        self.drawn = {True: (0, -at.NEVER), False: (0, -at.NEVER)}
        self.draws = 0
        self.is_listed = False
        self.deadline_ps = 0
        self.acks = 0
        self.class_ = int(oracle.sending.data_class[number])
        of, dcqcn = oracle.sending, oracle.dcqcn[number]

        def tos(class_: int) -> int:
            return class_ << 5 | ECN_BITS[int(of.ecn[number])]

        settings = QueuePairSettings(
            RequesterSettings(
                mtu=int(of.mtu[number]),
                window=int(of.window[number]),
                ack_every=int(of.ack_every[number]),
                ack_timeout_ns=1000 * int(of.ack_timeout_ns[number]),
                retries=int(of.retries[number]),
                tos=tos(int(of.data_class[number])),
            ),
            ack_tos=tos(int(of.ack_class[number])),
            cnp_tos=tos(int(of.cnp_class[number])),
            dcqcn=None if dcqcn is None else dcqcn.dilated(1000),
            out_of_order=bool(of.reach[number] and not of.selective[number]),
        )
        self.sender, self.receiver = (
            QueuePair(0, self, header(), settings, self.nic.rate_bps / 1000)  # type: ignore[arg-type]
            for _ in range(2)
        )
        if of.selective[number]:
            self.sender.requester = SelectiveRequester(header(), settings.requester)
            self.receiver.responder = SelectiveResponder(settings.requester.window)

    def connect(self, data: list[Way], back: list[Way]) -> None:
        """The ways of packets from now on."""
        self.data, self.back, before = data, back, self.nic
        self.nic = data[0][0]
        if self.nic is before:
            return
        parked = before.lanes[self.class_].parked if self.class_ in before.lanes else []
        for turns in (before.turns, parked):
            if self in turns:
                turns.remove(self)
                self.is_listed = False
                self.activate(self.sender)
                self.nic.serve()

    def way(self, is_data: bool) -> Way:
        """The way of the next packet."""
        ways = self.data if is_data else self.back
        if len(ways) > 1:
            hash_, seen_ps = self.drawn[is_data]
            if self.oracle.now - seen_ps > self.oracle.gap_ps:
                self.draws += 1
                ports = len(self.oracle.ports)
                hash_ = draw(self.oracle.queues.seed, ports + self.number, self.draws)
            self.drawn[is_data] = hash_, self.oracle.now
            return ways[hash_ * len(ways) >> 31]
        return ways[0]

    def packet(self, frame: bytes, is_data: bool) -> Packet:
        way = self.way(is_data)
        return Packet(self, frame, [port for port in way if port], is_lost=None in way)

    def activate(self, _: QueuePair) -> None:
        """Join the end of the turns at the NIC, if there is something to send."""
        if not self.is_listed and self.sender.requester.sendable:
            self.is_listed = True
            self.nic.turns.append(self)

    def emit(self) -> Packet | None:
        now, frames = self.oracle.now, Frames()
        if not self.sender.requester.sendable:
            return None
        if (due_ps := self.sender.due_ns(now)) > now:
            self.is_listed = True
            rise_ps = self.sender.rate_limit._increase_due_ns  # type: ignore[union-attr]
            self.oracle.at(min(due_ps, rise_ps), self.be_due)
            return None
        free_ps = now if self.nic.host is None else self.nic.free_ps
        self.sender.emit(frames, 1, now, free_ps)  # type: ignore[arg-type]
        self.activate(self.sender)
        self.watch()
        return self.packet(frames[0], is_data=True)

    def be_due(self) -> None:
        """Take part in the turns again: its rate permits the next packet, or has risen."""
        self.is_listed = False
        self.activate(self.sender)
        self.nic.serve()

    def watch(self) -> None:
        """Come back when the local ACK timer runs out."""
        deadline_ps = self.sender.requester.deadline_ns
        if deadline_ps not in (NEVER_NS, self.deadline_ps):
            self.deadline_ps = deadline_ps
            self.oracle.at(deadline_ps, self.expire)

    def expire(self) -> None:
        if self.sender.requester.deadline_ns == self.oracle.now:
            self.sender.on_timer()
            self.nic.serve()

    def control(self, frame: bytes) -> None:
        """The receiver sends an ACK, a NAK or a CNP."""
        self.acks += frame[BTH_OFFSET] == Opcode.RC_ACKNOWLEDGE
        packet = self.packet(frame, is_data=False)
        port = packet.ports[0]
        if port.host is not None:
            port.host.answer(packet, port)
        else:
            port.enqueue(packet)

    def deliver(self, packet: Packet) -> None:
        frame, oracle = packet.frame, self.oracle
        opcode = frame[BTH_OFFSET]
        word = int.from_bytes(frame[PSN_OFFSET : PSN_OFFSET + 4], "big")
        if opcode == Opcode.CNP:
            self.sender.on_cnp(oracle.now)
        elif opcode == Opcode.RC_ACKNOWLEDGE:
            requester = self.sender.requester
            if isinstance(requester, SelectiveRequester):
                end = PAYLOAD_OFFSET + extension_bytes(opcode)
                requester.ahead = int.from_bytes(frame[end - 3 : end], "big")
            for transfer in self.sender.on_ack(word & PSN_MASK, frame[PAYLOAD_OFFSET], oracle.now):
                oracle.acknowledged(transfer, self)
            self.watch()
            self.nic.serve()
        else:
            end = PAYLOAD_OFFSET + extension_bytes(opcode)
            imm = int.from_bytes(frame[end - 4 : end], "big")
            complete = self.receiver.receive(
                word & PSN_MASK,
                bool(word & ACK_REQUEST),
                0,
                is_last(opcode),
                imm,
                packet.is_ce,
                oracle.now,
            )
            if self.receiver.responder.ack_due:
                self.receiver.answer()
            for transfer, _ in complete:
                oracle.arrived(transfer, self)


class Frames(list[bytes]):
    """What a queue pair emits, which uses its frame again."""

    def append(self, frame: bytes | bytearray) -> None:
        super().append(bytes(frame))


@dataclass(eq=False)
class Task:
    """The tasks that wait for it are `receivers`, for its data, and `senders`, for its ACKs."""

    waiting: int
    delay_ps: int
    transfers: range
    coming: int
    open: int
    receivers: list[Task] = field(default_factory=list)
    senders: list[Task] = field(default_factory=list)
    start_ps: int = -1
    end_ps: int = -1


class Oracle:
    """The arguments are those of `rocelab.sim.packets.run.run_packets`, and the congestion control
    of each flow."""

    def __init__(
        self,
        program: Program,
        wirings: Sequence[Wiring],
        latency_s: Floats,
        sending: Sending,
        queues: Queues,
        dcqcn: Sequence[DcqcnParameters | None],
    ) -> None:
        self.program, self.sending, self.queues, self.dcqcn = program, sending, queues, dcqcn
        self.latency_ps: list[int] = np.rint(latency_s * PS).astype(int).tolist()
        latencies = np.unique(self.latency_ps)
        by_latency = latencies[drawn_order(queues.seed, len(latencies))].tolist()
        self.rank_of_latency = {ps: 10**6 + place for place, ps in enumerate(by_latency)}
        self.now = 0
        self.hops = 0
        self.events: list[tuple[int, float, int, Callable[..., None], tuple[object, ...]]] = []
        self.born = count()
        self.lost = 0
        self.marking = [[0, 0] for _ in range(BINS)]
        self.gap_ps = round(wirings[0].ways.gap_s * PS) or -1
        self.hosts: dict[int, Host] = {}
        kinds = sorted(
            {
                kind
                for wiring in wirings
                for kind in zip(wiring.capacity_bps.tolist(), self.latency_ps, strict=True)
                if kind[0] > 0
            }
        )
        drawn = drawn_order(queues.seed, len(kinds)).tolist()
        self.rank_of = {kinds[number]: 1 + place for place, number in enumerate(drawn)}
        nics = {way[0] for wiring in wirings for way in sends_of(wiring.ways) if way}
        self.ports = [
            Port(self, number, bps, number in nics)
            for number, bps in enumerate(wirings[0].capacity_bps.tolist())
        ]
        self.lanes: list[Lane] = []
        if queues.pausing is not None:
            self.add_lanes(queues.pausing)
        ways = self.ways_of(wirings[0], [])
        half = len(ways) // 2
        self.flows = [Flow(self, i, ways[i], ways[half + i]) for i in range(half)]
        self.finish_ps = [-1] * program.transfers
        self.starts = start_order(program, sending, queues.seed).tolist()
        self.tasks = self.made_tasks()
        self.task_of = [task for task in self.tasks for _ in task.transfers]
        self.open = [len(self.messages(transfer)) for transfer in range(program.transfers)]
        self.coming = list(self.open)
        for wiring in wirings[1:]:
            self.at(wiring.time_ps, self.connect, wiring, rank=-1)

    def host_of(self, port: Port) -> Host | None:
        """The host that gathers arrivals behind a port of a NIC."""
        gathering = self.sending.gathering
        if gathering is None or gathering.server[port.number] == NONE:
            return None
        server = int(gathering.server[port.number])
        host = self.hosts.setdefault(server, Host(self, gathering))
        host.ports.append(port)
        return host

    def ways_of(self, wiring: Wiring, nics: list[Port]) -> list[list[Way]]:
        """Of the data of each flow, then of what comes back. One that leads nowhere begins at the
        port of `nics`."""
        ways, sends = wiring.ways, sends_of(wiring.ways)
        return [
            [
                [self.ports[send] for send in sends[way]] or [nics[number], None]
                for way in ways.way[ways.first[number] : ways.first[number + 1]].tolist()
            ]
            for number in range(len(ways))
        ]

    def connect(self, wiring: Wiring) -> None:
        for port, bps in zip(self.ports, wiring.capacity_bps.tolist(), strict=True):
            port.connect(bps)
        nics = [flow.nic for flow in self.flows] + [flow.back[0][0] for flow in self.flows]
        ways = self.ways_of(wiring, nics)
        for flow, data, back in zip(self.flows, ways, ways[len(self.flows) :], strict=False):
            flow.connect(data, back)

    def add_lanes(self, pausing: Pausing) -> None:
        for port in self.ports:
            port.lanes = {i: Lane(self, pausing, port, i) for i in pausing.classes}
            self.lanes += port.lanes.values()
            if pausing.drain is not None and pausing.drain.rate_bps[port.number]:
                port.buffer = ReceiveBuffer(pausing, port)

    def made_tasks(self) -> list[Task]:
        program = self.program
        tasks = []
        for number, delay_s in enumerate(program.delay_s):
            transfers = range(*program.first_transfer[number : number + 2].tolist())
            waiting = int(np.diff(program.after_start)[number])
            tasks.append(
                Task(waiting, round(delay_s * PS), transfers, len(transfers), len(transfers))
            )
        for number, task in enumerate(tasks):
            first, last = program.after_start[number : number + 2]
            sources = {int(self.sending.source[program.flow[i]]) for i in task.transfers}
            for other in (tasks[number] for number in program.after[first:last]):
                ends = {int(self.sending.destination[program.flow[i]]) for i in other.transfers}
                is_receiver = len(ends) == 1 and sources == ends
                (other.receivers if is_receiver else other.senders).append(task)
        return tasks

    def messages(self, transfer: int) -> list[int]:
        """The bytes of a transfer's messages."""
        of = self.sending.messages
        runs = slice(*of.first[transfer : transfer + 2])
        values: list[int] = np.repeat(of.size_bytes[runs], of.count[runs]).tolist()
        return values

    def at(self, time: int, call: Callable[..., None], *arguments: object, rank: float = 0) -> None:
        heapq.heappush(self.events, (time, rank, next(self.born), call, arguments))

    def run(self) -> Oracle:
        for task in self.tasks:
            if not task.waiting:
                self.time(task)
        while self.events or any(lane.pool != NONE and lane.look() for lane in self.lanes):
            self.now, _, _, call, arguments = heapq.heappop(self.events)
            call(*arguments)
        return self

    def time(self, task: Task) -> None:
        """Start a task after its delay, those of one instant in their order."""
        rank = self.starts.index(self.tasks.index(task)) / len(self.tasks) - 1
        self.at(self.now + task.delay_ps, self.start, task, rank=rank)

    def start(self, task: Task) -> None:
        task.start_ps = self.now
        for transfer in task.transfers:
            flow = self.flows[self.program.flow[transfer]]
            for size in self.messages(transfer):
                flow.sender.post(size, transfer)
            flow.nic.serve()
        if not task.transfers:
            task.end_ps = self.now
            self.go_on(task.senders)

    def reach(self, packet: Packet) -> None:
        packet.came_by, *packet.ports = packet.ports
        packet.came_by.on_link.remove(packet)
        if packet.is_lost:
            self.lost += 1
        elif packet.ports:
            packet.ports[0].enqueue(packet)
        elif packet.came_by.buffer is None or packet.came_by.buffer.takes(packet):
            host = self.ports[packet.came_by.number ^ 1].host
            if host is None:
                packet.flow.deliver(packet)
            else:
                host.gather(packet)

    def arrived(self, transfer: int, _: Flow) -> None:
        self.coming[transfer] -= 1
        task = self.task_of[transfer]
        if not self.coming[transfer]:
            task.coming -= 1
            if not task.coming:
                self.go_on(task.receivers)

    def acknowledged(self, transfer: int, _: Flow) -> None:
        self.open[transfer] -= 1
        task = self.task_of[transfer]
        if not self.open[transfer]:
            self.finish_ps[transfer] = self.now
            task.open -= 1
            if not task.open:
                task.end_ps = self.now
                self.go_on(task.senders)

    def go_on(self, tasks: list[Task]) -> None:
        for task in tasks:
            task.waiting -= 1
            if not task.waiting:
                self.time(task)
