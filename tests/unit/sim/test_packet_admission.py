"""Receiver-driven admission in the packet engine, beside a plain simulator with the lab's own
connections (`rocelab.agent.rc.connection`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from random import Random

import numpy as np
import pytest

from rocelab.agent.rc.connection import CLEAR_TO_SEND, Admission, RcConnection
from rocelab.base.arrays import NONE, Floats, Longs
from rocelab.jobs.messages import loads_of, messages_of
from rocelab.jobs.transport import Strategy, TransportSpec
from rocelab.sim.engine.program import Program
from rocelab.sim.packets import sending as sent
from rocelab.sim.packets.draws import order_by_nic
from rocelab.sim.packets.run import run_packets
from rocelab.sim.packets.sending import Queues, Sending
from rocelab.sim.packets.wiring import Wiring
from tests.helpers.long import mostly_long
from tests.unit.sim.packet_oracle import Flow as OracleFlow
from tests.unit.sim.packet_oracle import Oracle, Task
from tests.unit.sim.packet_runs import Flow, arranged
from tests.unit.sim.test_packet_oracle import (
    LEAVES,
    SERVERS,
    figures_of_engine,
    figures_of_oracle,
    path_between,
)


@dataclass(frozen=True)
class Send:
    """A task's send over a connection, and its transfer on each queue pair that carries any."""

    task: int
    connection: int
    size_bytes: int
    transfer: dict[int, int]


@dataclass(frozen=True)
class Case:
    """The arguments of `run_packets`, what the transfers are parts of, and who clears them."""

    program: Program
    wiring: Wiring
    latency_s: Floats
    sending: Sending
    queues: Queues
    sends: list[Send]
    transport: TransportSpec

    @property
    def arguments(self) -> tuple[Program, list[Wiring], float, Sending, Queues]:
        return self.program, [self.wiring], self.latency_s, self.sending, self.queues


class AdmittingOracle(Oracle):
    """A connection of the lab for each of its directions, at both of their ends."""

    def __init__(self, case: Case) -> None:
        flows = len(case.sending.source)
        super().__init__(*case.arguments, [None] * flows)
        admission, transport = case.sending.admission, case.transport
        assert admission is not None and transport.admission is not None
        self.first = flows - len(admission.initial)
        self.waits_for = admission.waits_for.tolist()
        self.sends = case.sends
        self.connections = [
            RcConnection(
                [self.flows[flow].sender for flow in np.flatnonzero(admission.waits_for == number)],
                split=transport.strategy is Strategy.SPLIT,
                message_bytes=min(transport.message, transport.admission.buffer),
                admission=Admission(
                    self.flows[self.first + number].sender,
                    transport.admission.channels
                    * transport.admission.buffer
                    // min(transport.message, transport.admission.buffer),
                ),
            )
            for number in range(len(admission.initial))
        ]

    def run(self) -> Oracle:
        clears = self.sending.source[self.first :]
        for number in order_by_nic(self.queues.seed, clears).tolist():
            if self.connections[number].pairs:
                self.connections[number].open()
            else:
                self.flows[self.first + number].sender.post(0, CLEAR_TO_SEND)
            self.flows[self.first + number].nic.serve()
        return super().run()

    def serve(self, connection: int) -> None:
        for flow in np.flatnonzero(np.array(self.waits_for) == connection).tolist():
            self.flows[flow].nic.serve()

    def start(self, task: Task) -> None:
        task.start_ps = self.now
        task_sends = [send for send in self.sends if self.tasks[send.task] is task]
        for number, sends in groupby(task_sends, key=lambda send: send.connection):
            for send in sends:
                self.connections[number].send(send.size_bytes, self.sends.index(send))
            self.serve(number)
        if not task_sends:
            task.end_ps = self.now
            self.go_on(task.senders)

    def arrived(self, transfer: int, flow: OracleFlow) -> None:
        if transfer & CLEAR_TO_SEND:
            self.connections[flow.number - self.first].clear_to_send(transfer & ~CLEAR_TO_SEND)
            self.serve(flow.number - self.first)
            return
        clearing = self.waits_for[flow.number]
        self.connections[clearing].arrived()
        self.flows[self.first + clearing].nic.serve()
        super().arrived(self.sends[transfer].transfer[flow.number], flow)

    def acknowledged(self, transfer: int, flow: OracleFlow) -> None:
        if not transfer & CLEAR_TO_SEND:
            super().acknowledged(self.sends[transfer].transfer[flow.number], flow)


def random_case(seed: int) -> Case:
    random = Random(seed)
    channels, buffer = random.choice([1, 2, 5]), random.choice([3, 8, 60])
    transport = TransportSpec.model_validate(
        {
            "qps": random.choice([1, 2, 3]),
            "strategy": random.choice(list(Strategy)),
            "message": f"{random.choice([kb for kb in (3, 10, 50) if kb <= channels * buffer])}KB",
            "admission": {"channels": channels, "buffer": f"{buffer}KB"},
        }
    )
    spines, qps = random.randint(1, 2), transport.qps
    nics = range(LEAVES * SERVERS)
    pairs = random.sample([(a, b) for a in nics for b in nics if a < b], random.randint(1, 3))
    directions = [pair for a, b in pairs for pair in ((a, b), (b, a))]
    carrying = sorted(random.sample(range(len(directions)), random.randint(1, len(directions))))
    ends = [directions[number] for number in carrying for _ in range(qps)]
    # What clears a direction comes from its other end.
    ends += [(b, a) for a, b in directions]
    tasks = random.randint(1, 6)
    # One after the other, as steps: the queue pairs that get their messages follow from the order.
    after = [list(range(max(0, task - 1), task)) for task in range(tasks)]
    sends = [
        (task, place, random.randint(1, random.choice([2000, 100_000])))
        for task in range(tasks)
        for place in sorted(random.sample(range(len(carrying)), random.randint(1, len(carrying))))
    ]
    task, place, size = np.array(sends, np.int64).T
    one_each = np.ones_like(size)
    is_sent = loads_of(place, size, one_each, transport).wire > 0
    transfer = np.cumsum(is_sent).reshape(is_sent.shape) - 1
    messages = messages_of(place, size, one_each, transport, transfer, int(is_sent.sum()))
    frame = 1024 + 58
    queues = Queues(
        buffer_bytes=random.choice([3, 20, 1000]) * frame,
        kmin=0,
        kmax=frame,
        pmax=1.0,
        marked=(),
        quantum=1082,
        seed=seed,
    )
    of_all = {
        "payload": 1,
        "mtu": 1024,
        "window": random.choice([3, 20, 60]),
        "ack_every": random.choice([1, 4, 16]),
        "timeout_ns": random.randint(20_000, 100_000),
        "retries": 7,
        "any_order": random.random() < 0.3,
    }
    flows = [Flow(path_between(random, spines, *pair), **of_all) for pair in ends]  # type: ignore[arg-type]
    ports = 2 * (LEAVES * SERVERS + LEAVES * spines)
    capacity_bps = np.array([1e9 * random.uniform(40, 100) for _ in range(ports)])
    _, (wiring,), latency_s, sending, _ = arranged(
        flows, queues, latency_ps=random.randint(100_000, 2_000_000)
    )
    latency_s = np.full(ports, latency_s[0])
    counts = np.bincount(task, is_sent.sum(axis=1), tasks).astype(np.int64)
    program = Program(
        np.cumsum([0, *map(len, after)]),
        np.array([other for others in after for other in others], np.int32),
        np.array([random.randint(1, 3_000_000) / 1e12 for _ in range(tasks)]),
        np.zeros(tasks),
        np.concatenate(([0], np.cumsum(counts))),
        (place[:, None] * qps + np.arange(qps))[is_sent].astype(np.int32),
        np.ones(int(is_sent.sum())),
    )
    waits_for = np.concatenate((np.repeat(carrying, qps), np.full(len(directions), NONE)))
    sending = replace(sending, messages=messages, admission=admission_of(transport, waits_for))
    of_flow = list(transfers_of(transfer, is_sent, place * qps))
    return Case(
        program,
        replace(wiring, capacity_bps=capacity_bps),
        latency_s,
        sending,
        queues,
        [
            Send(number, carrying[which], bytes_, turn)
            for (number, which, bytes_), turn in zip(sends, of_flow, strict=True)
        ],
        transport,
    )


def admission_of(transport: TransportSpec, waits_for: Longs) -> sent.SendAdmission:
    control = int((waits_for == NONE).sum())
    admission = sent.admission_of(
        [transport], np.zeros(len(waits_for), np.int64), waits_for[: len(waits_for) - control]
    )
    assert admission is not None
    return admission


def transfers_of(transfer: Longs, is_sent: Longs, first_flow: Longs) -> Iterator[dict[int, int]]:
    for row, is_own, first in zip(transfer.tolist(), is_sent.tolist(), first_flow, strict=True):
        yield {int(first) + qp: row[qp] for qp, is_sent in enumerate(is_own) if is_sent}


@pytest.mark.parametrize("seed", mostly_long(range(200), range(40)))
def test_times_and_counts_are_those_of_the_lab_s_own_connections(seed: int) -> None:
    case = random_case(seed)
    oracle = AdmittingOracle(case)
    assert figures_of_engine(run_packets(*case.arguments)) == figures_of_oracle(oracle)
