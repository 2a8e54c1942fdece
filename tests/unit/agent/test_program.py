"""Ranks at work: whole collectives, iteration after iteration, over a transport in memory."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocelab.agent.nic import NEVER_NS
from rocelab.agent.program import ROUNDS, AgentProgram, PlannedSend, StreamProgram, Wait, immediate
from rocelab.agent.rc.connection import CLEAR_TO_SEND, Admission, RcConnection
from rocelab.agent.rc.queue_pair import QueuePair
from rocelab.jobs.collectives import Pattern, Schedule, schedule
from rocelab.jobs.patterns.base import Algorithm
from rocelab.jobs.patterns.building import PIECE_BYTES

Delay = Callable[[int, int, int], int]
"""Nanoseconds that a message takes, by source rank, destination rank and bytes."""


class MemoryPair(QueuePair):
    """A queue pair whose messages arrive, in order, after a delay; ACKs take as long."""

    def __init__(self, lab: Lab, source: int, destination: int) -> None:
        self.lab, self.source, self.destination = lab, source, destination
        self._free_ns = 0

    def post(self, size_bytes: int, imm: int) -> None:
        now_ns = self.lab.now_ns
        delay_ns = self.lab.delay(self.source, self.destination, size_bytes)
        self._free_ns = arrival_ns = max(now_ns + delay_ns, self._free_ns)
        self.lab.at(arrival_ns, lambda: self.lab.deliver(self, size_bytes, imm))
        self.lab.at(arrival_ns + 5, lambda: self.lab.acknowledge(self, imm))


class Lab:
    """Every rank of a schedule with its program and connections, wired as endpoints wire them."""

    def __init__(
        self,
        planned: Schedule,
        iterations: int,
        *,
        delay: Delay = lambda source, destination, size: 10,
        compute_ns: int = 0,
        qps: int = 1,
        split: bool = False,
        admitted: int = 0,
        message_bytes: int = 1 << 20,
    ) -> None:
        self.planned, self.delay, self.now_ns = planned, delay, 0
        self.iterations = iterations
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self.ended: Counter[tuple[int, int]] = Counter()
        self.connections: dict[tuple[int, int], RcConnection] = {}
        for here, there in {(s.source, s.destination) for s in planned.sends}:
            for ends in ((here, there), (there, here)):
                if ends not in self.connections:
                    self.connections[ends] = RcConnection(
                        [MemoryPair(self, *ends) for _ in range(qps)],
                        split=split,
                        message_bytes=message_bytes,
                        admission=Admission(MemoryPair(self, *ends), admitted)
                        if admitted
                        else None,
                    )
        self.programs = [
            AgentProgram(
                rank,
                [
                    PlannedSend(
                        s.id,
                        self.connections[rank, s.destination],
                        s.size_bytes,
                        Wait(s.after, s.lags_ns, s.at_ns),
                    )
                    for s in planned.sends
                    if s.source == rank
                ],
                {s.id: s.size_bytes for s in planned.sends if s.destination == rank},
                iterations,
                compute_ns,
                self._note,
            )
            for rank in range(planned.ranks)
        ]

    def _note(self, rank: int, iteration: int) -> None:
        self.ended[rank, iteration] += 1

    def at(self, when_ns: int, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when_ns, self._number, action))

    def deliver(self, pair: MemoryPair, size_bytes: int, imm: int) -> None:
        connection = self.connections[pair.destination, pair.source]
        if imm & CLEAR_TO_SEND:
            connection.clear_to_send(imm & ~CLEAR_TO_SEND)
            return
        connection.arrived()
        self.programs[pair.destination].arrived(imm, size_bytes, self.now_ns)

    def acknowledge(self, pair: MemoryPair, imm: int) -> None:
        connection = self.connections[pair.source, pair.destination]
        if not imm & CLEAR_TO_SEND and connection.acknowledge_part(imm):
            self.programs[pair.source].acknowledged(imm, self.now_ns)

    def run(self, starts_ns: list[int] | None = None) -> None:
        for connection in self.connections.values():
            connection.open()
        for rank, program in enumerate(self.programs):
            program.due_ns = starts_ns[rank] if starts_ns else 0
        while True:
            due_ns = min(program.due_ns for program in self.programs)
            next_ns = min(due_ns, self._events[0][0] if self._events else NEVER_NS)
            if next_ns == NEVER_NS:
                return
            self.now_ns = next_ns
            for program in self.programs:
                if program.due_ns <= self.now_ns:
                    program.begin(self.now_ns)
            while self._events and self._events[0][0] <= self.now_ns:
                heapq.heappop(self._events)[2]()

    def check(self) -> None:
        """Check that every iteration ended once at every rank, and every byte arrived."""
        ranks = range(self.planned.ranks)
        assert self.ended == {(r, i): 1 for r in ranks for i in range(self.iterations)}
        for rank, program in enumerate(self.programs):
            assert program.finished
            assert program.due_ns == NEVER_NS
            into = sum(s.size_bytes for s in self.planned.sends if s.destination == rank)
            assert program.received_bytes == into * self.iterations
            began, ended, waited = program.began_ns, program.ended_ns, program.waited_ns
            assert len(began) == len(ended) == len(waited) == self.iterations
            for begin_ns, end_ns, wait_ns in zip(began, ended, waited, strict=True):
                assert 0 <= wait_ns <= end_ns - begin_ns


def planned(pattern: Pattern, ranks: int, size: int, algorithm: Algorithm) -> Schedule:
    group = ranks // 2 if algorithm is Algorithm.HIERARCHICAL and ranks % 2 == 0 else None
    if algorithm is Algorithm.HIERARCHICAL and group is None:
        group = ranks
    return schedule(pattern, ranks, size, algorithm=algorithm, group=group, channels=2)


def random_delays(seed: int, longest_ns: int) -> Delay:
    rng = random.Random(seed)
    return lambda source, destination, size: rng.randrange(1, longest_ns)


SHAPES = [
    *((pattern, Algorithm.RING) for pattern in Pattern),
    (Pattern.ALLREDUCE, Algorithm.TREE),
    (Pattern.ALLREDUCE, Algorithm.HIERARCHICAL),
]


@pytest.mark.parametrize(("pattern", "algorithm"), SHAPES)
@settings(max_examples=15)
@given(
    ranks=st.sampled_from([2, 4, 6, 8]),
    size=st.integers(1, 10 * PIECE_BYTES),
    qps=st.integers(1, 3),
    split=st.booleans(),
    admitted=st.integers(0, 3),
    compute_ns=st.sampled_from([0, 1, 1000]),
    seed=st.integers(0, 1000),
    starts=st.lists(st.integers(0, 2000), min_size=8, max_size=8),
)
def test_every_collective_ends_everywhere_with_every_byte_whatever_the_delays(
    pattern: Pattern,
    algorithm: Algorithm,
    ranks: int,
    size: int,
    qps: int,
    split: bool,
    admitted: int,
    compute_ns: int,
    seed: int,
    starts: list[int],
) -> None:
    lab = Lab(
        planned(pattern, ranks, size, algorithm),
        iterations=4,
        delay=random_delays(seed, 300),
        compute_ns=compute_ns,
        qps=qps,
        split=split,
        admitted=admitted,
        message_bytes=PIECE_BYTES // 3,
    )
    lab.run(starts)
    lab.check()


def test_a_sender_any_number_of_iterations_ahead_is_not_mistaken() -> None:
    iterations = 2 * ROUNDS + 100
    lab = Lab(
        schedule(Pattern.INCAST, 3, 1000),
        iterations,
        delay=lambda source, destination, size: 10 if source == 1 else 10_000,
    )
    lab.run()
    lab.check()
    fast, slow = lab.programs[1], lab.programs[2]
    assert fast.ended_ns[-1] < slow.ended_ns[2]
    receiver = lab.programs[0]
    assert [end // 10_005 for end in receiver.ended_ns] == list(range(iterations))


def test_more_iterations_than_an_immediate_tells_apart() -> None:
    iterations = 3 * ROUNDS
    lab = Lab(schedule(Pattern.ALLREDUCE, 4, 4000), iterations, delay=random_delays(1, 50), qps=2)
    lab.run()
    lab.check()


def test_what_arrives_before_a_rank_begins_counts_once_it_has() -> None:
    lab = Lab(schedule(Pattern.PAIRS, 2, 1000), iterations=2)
    lab.run(starts_ns=[0, 5000])
    lab.check()
    assert lab.programs[1].began_ns.tolist() == lab.programs[1].ended_ns.tolist() == [5000, 5000]


def test_a_send_waits_for_what_it_is_after() -> None:
    ring = schedule(Pattern.BROADCAST, 4, 1000)
    lab = Lab(ring, iterations=1, delay=lambda source, destination, size: 100)
    lab.run()
    lab.check()
    assert [program.ended_ns[0] for program in lab.programs] == [105, 205, 305, 300]


def test_a_rank_waits_while_it_has_nothing_of_its_own_under_way() -> None:
    chain = schedule(Pattern.BROADCAST, 3, 1000)
    lab = Lab(chain, iterations=1, delay=lambda source, destination, size: 100)
    lab.run()
    assert [program.waited_ns.tolist() for program in lab.programs] == [[0], [100], [200]]


def test_compute_time_passes_between_the_end_of_an_iteration_and_the_next() -> None:
    lab = Lab(schedule(Pattern.PAIRS, 2, 10), iterations=3, compute_ns=1000)
    lab.run()
    lab.check()
    sender = lab.programs[0]
    gaps = [b - e for e, b in zip(sender.ended_ns, sender.began_ns[1:], strict=False)]
    assert gaps == [1000, 1000]


def test_a_rank_with_nothing_to_do_ends_its_iterations_at_once() -> None:
    ended: list[int] = []
    program = AgentProgram(3, [], {}, 2, 0, lambda rank, iteration: ended.append(iteration))
    program.begin(5)
    assert program.due_ns == 5
    program.begin(5)
    assert (ended, program.finished, program.due_ns) == ([0, 1], True, NEVER_NS)


@given(iteration=st.integers(0, 10_000), send=st.integers(0, (1 << 22) - 1))
def test_an_immediate_leaves_the_bit_of_a_grant_alone(iteration: int, send: int) -> None:
    imm = immediate(iteration, send)
    assert 0 <= imm < CLEAR_TO_SEND
    assert imm == immediate(iteration + ROUNDS, send)
    assert imm != immediate(iteration + 1, send)


def stream_of(posted: list[tuple[int, int]], ends_ns: int) -> tuple[StreamProgram, RcConnection]:
    """A stream that has begun, over a queue pair that only records posted messages."""

    class Pair(QueuePair):
        def __init__(self) -> None:
            pass

        def post(self, size_bytes: int, imm: int) -> None:
            posted.append((size_bytes, imm))

    connection = RcConnection([Pair()], split=False, message_bytes=1000)
    stream = StreamProgram(connection, send_id=3, chunk_bytes=1000, at_ns=0, ends_ns=ends_ns)
    stream.begin()
    return stream, connection


def test_a_stream_keeps_two_sends_under_way_until_it_is_stopped() -> None:
    posted: list[tuple[int, int]] = []
    stream, connection = stream_of(posted, NEVER_NS)
    assert posted == [(1000, immediate(0, 3)), (1000, immediate(1, 3))]
    for sequence in range(2, ROUNDS + 5):
        assert connection.acknowledge_part(immediate(sequence - 2, 3))
        stream.acknowledged(sequence)
        assert posted[-1] == (1000, immediate(sequence, 3))
    stream.stopped = True
    stream.acknowledged(ROUNDS + 5)
    assert len(posted) == ROUNDS + 5


def test_a_stream_posts_nothing_from_its_end_on() -> None:
    posted: list[tuple[int, int]] = []
    stream, _ = stream_of(posted, 500)
    stream.acknowledged(499)
    stream.acknowledged(500)
    assert len(posted) == 3
