"""Two queue pairs over a link that loses, delays, reorders, duplicates and marks, in virtual time.

Everything between the two is real: NICs, frames and their ICRC, the demux, timers; only the
interface, the ring and the clock are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocelab.agent.dcqcn import DcqcnParameters
from rocelab.agent.demux import Demux
from rocelab.agent.nic import NEVER_NS
from rocelab.agent.rc.queue_pair import QueuePair
from rocelab.agent.rc.reordering import ReorderingResponder
from rocelab.agent.rc.requester import Requester
from rocelab.agent.rc.responder import Responder
from rocelab.base.family import Family
from rocelab.jobs.dcqcn_profiles import parameters
from rocelab.wire.headers import PSN_MASK
from tests.helpers.rc_fakes import (
    MS,
    Copy,
    FakeOutlet,
    FakeRing,
    Fate,
    Link,
    header,
    nic,
    pair_settings,
)

STEP_LIMIT = 100_000
LINE_RATE_BPS = 10**9
# Slow enough that a queue pair at its least rate needs longer for a window than its ACK timeout.
DCQCN = parameters("sigcomm15", 40 * 10**9).dilated(100)

Message = tuple[int, int]
"""Immediate and bytes."""


class Side:
    """One end: its queue pair, and the outcome of the messages of both directions."""

    def __init__(
        self,
        outgoing: Link,
        *,
        numbers: tuple[int, int],
        first_psns: tuple[int, int],
        dcqcn: DcqcnParameters | None,
        out_of_order: bool,
        **changes: int,
    ) -> None:
        self.outgoing = outgoing
        self.nic = nic(FakeOutlet(outgoing.enter), LINE_RATE_BPS)
        local, remote = numbers
        self.pair = QueuePair(
            local,
            self.nic,
            header(remote),
            replace(pair_settings(**changes), dcqcn=dcqcn, out_of_order=out_of_order),
            LINE_RATE_BPS,
        )
        self.first_psn = first_psns[0]
        self.pair.requester = Requester(
            header(remote), self.pair.requester.settings, self.first_psn
        )
        window = self.pair.requester.settings.window
        self.pair.responder = (
            ReorderingResponder(window, first_psns[1]) if out_of_order else Responder(first_psns[1])
        )
        self.ring = FakeRing()
        self.delivered: list[Message] = []
        self.over: list[int] = []
        self.posted: list[Message] = []
        self.demux = Demux(
            self.ring,  # type: ignore[arg-type]
            Family.IPV4,
            {local: self.pair},
            lambda pair, imm, size, now_ns: self.delivered.append((imm, size)),
            lambda pair, imm, now_ns: self.over.append(imm),
        )
        self.send_ns = NEVER_NS
        self.frames = 0

    def post(self, sizes: Sequence[int]) -> None:
        for imm, size in enumerate(sizes, 1 << 20):
            self.posted.append((imm, size))
            self.pair.post(size, imm)

    def turn(self, now_ns: int) -> None:
        self.frames += self.demux.drain(now_ns)
        if self.pair.requester.deadline_ns <= now_ns:
            self.pair.on_timer()
        self.send_ns = self.nic.send(now_ns)


class World:
    """Both sides and both directions."""

    def __init__(
        self,
        fates: tuple[Sequence[Fate], Sequence[Fate]] = ((), ()),
        *,
        repeats: bool = False,
        first_psn: int = 0,
        wake_step_ns: int = 1,
        dcqcn: DcqcnParameters | None = None,
        out_of_order: bool = False,
        **changes: int,
    ) -> None:
        self.links = [Link(pattern, repeats) for pattern in fates]
        psns = (first_psn, first_psn // 2)
        self.sides = [
            Side(
                self.links[here],
                numbers=(11 + here, 12 - here),
                first_psns=(psns[here], psns[1 - here]),
                dcqcn=dcqcn,
                out_of_order=out_of_order,
                **changes,
            )
            for here in (0, 1)
        ]
        self._wake_step_ns = wake_step_ns
        self.now_ns = 0

    def run(self) -> None:
        """Run until nothing more can happen."""
        for _ in range(STEP_LIMIT):
            self._turn()
            events = [side.send_ns for side in self.sides]
            events += [side.pair.requester.deadline_ns for side in self.sides]
            events += [link.next_ns for link in self.links if link.next_ns is not None]
            next_ns = min(events)
            if next_ns == NEVER_NS:
                return
            step = self._wake_step_ns
            self.now_ns = max(self.now_ns, -(-next_ns // step) * step)
        raise AssertionError("it goes on for ever")

    def _turn(self) -> None:
        for link in self.links:
            link.now_ns = self.now_ns
        for here, side in enumerate(self.sides):
            self.links[1 - here].leave(side.ring)
            side.turn(self.now_ns)
            sender, receiver = side, self.sides[1 - here]
            assert len(sender.over) <= len(receiver.delivered)


def check(world: World) -> None:
    """Check what holds at the end for any behaviour of the links."""
    for here, sender in enumerate(world.sides):
        receiver = world.sides[1 - here]
        requester, responder = sender.pair.requester, receiver.pair.responder
        sent, taken = requester.counters, responder.counters
        assert receiver.delivered == sender.posted[: len(receiver.delivered)]
        assert sender.over == [imm for imm, _ in sender.posted[: len(sender.over)]]
        assert sent.packets - sent.retransmitted == requester.highest - sender.first_psn
        assert sent.acked_bytes <= taken.bytes <= sent.posted_bytes
        assert taken.bytes >= sum(size for _, size in receiver.delivered)
        assert taken.packets <= requester.highest - sender.first_psn
        assert sent.naks + sent.timeouts >= bool(sent.retransmitted)
        assert receiver.demux.icrc_errors == receiver.demux.unexpected == 0
        assert receiver.frames == world.links[here].copies
        if requester.error is None:
            assert requester.idle
            assert sent.posted_bytes == sent.acked_bytes == taken.bytes
            assert sender.over == [imm for imm, _ in sender.posted]
            assert receiver.delivered == sender.posted
        else:
            assert "not acknowledged" in requester.error
            assert not requester.idle
            assert requester.retries == requester.settings.retries


copies = st.builds(
    Copy, st.sampled_from([1_000, 10_000, 11_000, 40_000, 300_000, 2 * MS]), st.booleans()
)
fates = st.lists(st.lists(copies, max_size=2).map(tuple), max_size=30)
sizes = st.lists(st.integers(0, 20_000), max_size=6)


@given(
    patterns=st.tuples(fates, fates),
    repeats=st.booleans(),
    posts=st.tuples(sizes, sizes),
    first_psn=st.sampled_from([0, 7, PSN_MASK - 8, PSN_MASK]),
    wake_step_ns=st.sampled_from([1, 50_000, MS]),
    window=st.integers(1, 40),
    ack_every=st.integers(1, 50),
    retries=st.integers(0, 7),
    dcqcn=st.sampled_from([None, DCQCN]),
    out_of_order=st.booleans(),
)
@example(
    patterns=([(), (Copy(10_000),)], [(Copy(1_000), Copy(2 * MS))]),
    repeats=True,
    posts=([20_000] * 3, [3]),
    first_psn=PSN_MASK,
    wake_step_ns=1,
    window=8,
    ack_every=3,
    retries=7,
    dcqcn=None,
    out_of_order=False,
)
def test_every_message_arrives_once_in_order_and_whole_or_the_queue_pair_fails(
    patterns: tuple[list[Fate], list[Fate]],
    repeats: bool,
    posts: tuple[list[int], list[int]],
    first_psn: int,
    wake_step_ns: int,
    window: int,
    ack_every: int,
    retries: int,
    dcqcn: DcqcnParameters | None,
    out_of_order: bool,
) -> None:
    world = World(
        patterns,
        repeats=repeats,
        first_psn=first_psn,
        wake_step_ns=wake_step_ns,
        dcqcn=dcqcn,
        out_of_order=out_of_order,
        window=window,
        ack_every=ack_every,
        retries=retries,
    )
    for side, sizes_posted in zip(world.sides, posts, strict=True):
        side.post(sizes_posted)
    world.run()
    check(world)


@given(patterns=st.tuples(fates, fates), posts=st.tuples(sizes, sizes), out_of_order=st.booleans())
def test_with_retries_enough_no_pattern_that_ends_stops_a_queue_pair(
    patterns: tuple[list[Fate], list[Fate]],
    posts: tuple[list[int], list[int]],
    out_of_order: bool,
) -> None:
    world = World(patterns, out_of_order=out_of_order, retries=1000)
    for side, sizes_posted in zip(world.sides, posts, strict=True):
        side.post(sizes_posted)
    world.run()
    check(world)
    assert [side.pair.requester.error for side in world.sides] == [None, None]


delays = st.lists(
    st.sampled_from([1_000, 30_000, 90_000, 200_000]).map(lambda ns: (Copy(ns),)), max_size=60
)


@given(pattern=delays, repeats=st.booleans(), window=st.integers(2, 64), posts=sizes)
def test_reordering_alone_costs_a_receiver_of_any_order_nothing(
    pattern: list[Fate], repeats: bool, window: int, posts: list[int]
) -> None:
    world = World((pattern, ()), repeats=repeats, out_of_order=True, window=window)
    world.sides[0].post(posts)
    world.run()
    check(world)
    sent = world.sides[0].pair.requester.counters
    taken = world.sides[1].pair.responder.counters
    assert (sent.retransmitted, sent.naks, sent.timeouts) == (0, 0, 0)
    assert (taken.naks, taken.duplicates, taken.discarded) == (0, 0, 0)
    assert taken.packets == sent.packets
    assert bool(taken.reordered) == bool(taken.out_of_order) == bool(taken.reorder_extent)
    # All that may come between two packets is within a window of one of them.
    assert taken.reorder_extent < 2 * window


def test_the_same_reordering_makes_go_back_n_send_again() -> None:
    early, late_copy = Copy(10_000), Copy(100_000)
    late: list[Fate] = [(early,), (early,), (early,), (late_copy,)]
    sent, taken = {}, {}
    for out_of_order in (False, True):
        world = World((late, ()), repeats=True, out_of_order=out_of_order, retries=1000)
        world.sides[0].post([40 * 1024])
        world.run()
        check(world)
        sent[out_of_order] = world.sides[0].pair.requester.counters
        taken[out_of_order] = world.sides[1].pair.responder.counters
    assert sent[False].naks > 0
    assert sent[False].retransmitted > 10
    assert sent[True].retransmitted == 0
    # Every fourth of 40 but the last, behind which nothing came.
    assert taken[True].reordered == 9
    assert taken[True].out_of_order > 10


def test_a_loss_among_packets_of_any_order_costs_one_timeout_and_no_nak() -> None:
    world = World(([(Copy(10_000),)] * 4 + [()], ()), out_of_order=True)
    world.sides[0].post([20 * 1024])
    world.run()
    check(world)
    sent = world.sides[0].pair.requester.counters
    taken = world.sides[1].pair.responder.counters
    assert (sent.naks, sent.timeouts) == (0, 1)
    assert taken.out_of_order == 15
    # The first copy fills the gap; what leaves before it is acknowledged is there already.
    assert sent.retransmitted == 1 + taken.duplicates


def test_an_unharmed_link_carries_every_packet_once() -> None:
    world = World(first_psn=PSN_MASK - 50)
    world.sides[0].post([100_000] * 5)
    world.run()
    check(world)
    sent = world.sides[0].pair.requester.counters
    taken = world.sides[1].pair.responder.counters
    assert (sent.packets, sent.retransmitted, sent.naks, sent.timeouts) == (490, 0, 0, 0)
    assert (taken.packets, taken.duplicates, taken.out_of_order) == (490, 0, 0)


def test_one_lost_packet_costs_a_nak_and_no_timeout() -> None:
    world = World(([(Copy(10_000),)] * 4 + [()], ()))
    world.sides[0].post([20 * 1024])
    world.run()
    check(world)
    sent = world.sides[0].pair.requester.counters
    assert (sent.naks, sent.timeouts) == (1, 0)
    assert sent.retransmitted == 1 + world.sides[1].pair.responder.counters.out_of_order


def test_packets_overtaken_in_one_batch_are_asked_for_without_a_timeout() -> None:
    late, rest = (Copy(100_000),), (Copy(10_000),)
    world = World(([rest, late, rest, rest], ()), wake_step_ns=200_000)
    world.sides[0].post([4 * 1024])
    world.run()
    check(world)
    sent = world.sides[0].pair.requester.counters
    assert (sent.naks, sent.timeouts, sent.retransmitted) == (1, 0, 2)


def test_a_lost_acknowledgement_costs_a_timeout_and_the_duplicates_are_not_delivered() -> None:
    world = World(((), [()]))
    world.sides[0].post([3 * 1024])
    world.run()
    check(world)
    sent = world.sides[0].pair.requester.counters
    taken = world.sides[1].pair.responder.counters
    assert (sent.timeouts, sent.retransmitted, taken.duplicates, taken.messages) == (1, 3, 3, 1)


@pytest.mark.parametrize("direction", [0, 1])
def test_a_dead_link_is_an_error_after_the_last_retry(direction: int) -> None:
    fates: list[Sequence[Fate]] = [(), ()]
    fates[direction] = [()]
    world = World((fates[0], fates[1]), repeats=True, retries=4)
    world.sides[0].post([2048])
    world.run()
    check(world)
    requester = world.sides[0].pair.requester
    assert requester.error == "packet 0 was not acknowledged after 4 retries"
    assert (requester.counters.timeouts, requester.counters.packets) == (5, 10)
    assert 5 * MS <= world.now_ns < 6 * MS


def test_a_rate_far_below_the_ack_timeout_is_no_reason_to_send_again() -> None:
    world = World(
        ([(Copy(10_000, is_marked=True),)], ()),
        repeats=True,
        dcqcn=replace(DCQCN, min_rate_bps=10**6, cnp_interval_ns=0),
        ack_every=64,
    )
    world.sides[0].post([200 * 1024])
    world.run()
    check(world)
    sent = world.sides[0].pair.requester.counters
    assert (sent.retransmitted, sent.timeouts) == (0, 0)
    assert world.now_ns > 1000 * MS


def test_marks_are_counted_and_told_once_per_interval() -> None:
    world = World(
        ([(Copy(10_000, is_marked=True),)], ()),
        repeats=True,
        dcqcn=replace(DCQCN, cnp_interval_ns=MS),
    )
    world.sides[0].post([100 * 1024])
    world.run()
    check(world)
    taken = world.sides[1].pair.responder.counters
    assert taken.ce == taken.packets == 100
    assert world.sides[0].pair.cnps_received == taken.cnps > 1
    assert taken.cnps <= world.now_ns // MS + 1
    rate_limit = world.sides[0].pair.rate_limit
    assert rate_limit is not None
    assert rate_limit.rate_bps < LINE_RATE_BPS


def test_marks_are_counted_and_not_told_without_congestion_control() -> None:
    world = World(([(Copy(10_000, is_marked=True),)], ()), repeats=True)
    world.sides[0].post([10 * 1024])
    world.run()
    check(world)
    assert world.sides[1].pair.responder.counters.ce == 10
    assert world.sides[0].pair.cnps_received == 0
