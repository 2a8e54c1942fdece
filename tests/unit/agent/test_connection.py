"""A connection: sends cut, spread over queue pairs, and held until the receiver grants them."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.agent.rc.connection import CLEAR_TO_SEND, Admission, RcConnection
from rocelab.agent.rc.queue_pair import QueuePair

sends = st.lists(st.integers(1, 10_000), min_size=1, max_size=10)


class FakePair(QueuePair):
    """A queue pair that records posted messages."""

    def __init__(self) -> None:
        self.posted: deque[tuple[int, int]] = deque()

    def post(self, size_bytes: int, imm: int) -> None:
        self.posted.append((size_bytes, imm))


def connection(
    qps: int, *, split: bool, message_bytes: int = 1000, admitted: int = 0
) -> tuple[RcConnection, list[FakePair]]:
    pairs = [FakePair() for _ in range(qps)]
    admission = Admission(FakePair(), admitted) if admitted else None
    made = RcConnection(list(pairs), split=split, message_bytes=message_bytes, admission=admission)
    return made, pairs


def test_split_puts_a_part_of_every_message_on_every_queue_pair() -> None:
    made, pairs = connection(4, split=True)
    made.send(1002, imm=7)
    assert [list(pair.posted) for pair in pairs] == [
        [(250, 7), (1, 7)],
        [(250, 7), (1, 7)],
        [(250, 7), (0, 7)],
        [(250, 7), (0, 7)],
    ]


def test_round_robin_puts_whole_messages_on_one_queue_pair_after_the_other() -> None:
    made, pairs = connection(3, split=False)
    made.send(3500, imm=1)
    made.send(10, imm=2)
    assert [list(pair.posted) for pair in pairs] == [
        [(1000, 1), (500, 1)],
        [(1000, 1), (10, 2)],
        [(1000, 1)],
    ]


@given(st.integers(1, 9), st.booleans(), sends)
def test_the_parts_of_a_send_are_all_of_it_and_none_is_longer_than_a_message(
    qps: int, split: bool, sizes: list[int]
) -> None:
    made, pairs = connection(qps, split=split)
    for imm, size in enumerate(sizes):
        made.send(size, imm)
    posted: Counter[int] = Counter()
    for size, imm in (part for pair in pairs for part in pair.posted):
        assert 0 <= size <= 1000
        posted[imm] += size
    assert posted == dict(enumerate(sizes))
    counts = [len(pair.posted) for pair in pairs]
    assert max(counts) - min(counts) <= (0 if split else 1)


@given(st.integers(1, 5), st.booleans(), sends, st.randoms())
def test_a_send_is_over_with_the_last_of_its_parts(
    qps: int, split: bool, sizes: list[int], rng: object
) -> None:
    made, pairs = connection(qps, split=split)
    for imm, size in enumerate(sizes):
        made.send(size, imm)
    left = Counter(imm for pair in pairs for _, imm in pair.posted)
    parts = list(left.elements())
    rng.shuffle(parts)  # type: ignore[attr-defined]
    for imm in parts:
        left[imm] -= 1
        assert made.acknowledge_part(imm) is (left[imm] == 0)


def test_nothing_is_sent_before_it_is_granted() -> None:
    made, pairs = connection(2, split=True, admitted=4)
    made.send(2500, imm=1)
    assert not pairs[0].posted
    made.clear_to_send(1)
    assert not pairs[0].posted
    made.clear_to_send(1)
    assert [list(pair.posted) for pair in pairs] == [[(500, 1)], [(500, 1)]]


def test_a_receiver_grants_its_buffers_at_first_and_then_each_that_is_free_again() -> None:
    made, _ = connection(3, split=True, admitted=4)
    made.open()
    made.arrived()
    assert made.admission is not None
    control = made.admission.control
    assert isinstance(control, FakePair)
    assert list(control.posted) == [(0, CLEAR_TO_SEND | 12), (0, CLEAR_TO_SEND | 1)]
    assert made.admission.grants_sent == 13


def test_without_admission_nothing_is_granted_and_nothing_waits() -> None:
    made, pairs = connection(1, split=False)
    made.open()
    made.arrived()
    made.send(10, imm=1)
    assert list(pairs[0].posted) == [(10, 1)]


@given(
    qps=st.integers(1, 5),
    split=st.booleans(),
    admitted=st.integers(1, 5),
    sizes=st.tuples(sends, sends),
    choices=st.lists(st.integers(0, 100)),
)
def test_admission_never_exceeds_the_grants_and_both_ends_get_everything_through(
    qps: int,
    split: bool,
    admitted: int,
    sizes: tuple[list[int], list[int]],
    choices: list[int],
) -> None:
    ends = [connection(qps, split=split, admitted=admitted) for _ in range(2)]
    for (made, _), lengths in zip(ends, sizes, strict=True):
        made.open()
        for imm, size in enumerate(lengths):
            made.send(size, imm)
    received = [Counter[int](), Counter[int]()]
    over = [0, 0]
    turn = 0
    while True:
        # Every queue with something in it may be the next to deliver; order holds within each.
        ready = []
        for end, (made, pairs) in enumerate(ends):
            assert made.admission is not None
            control = made.admission.control
            ready += [(end, pair) for pair in (*pairs, control) if pair.posted]  # type: ignore[attr-defined]
            taken = sum(count for count in (len(pair.posted) for pair in pairs))
            per_message = qps if split else 1
            assert taken <= admitted * per_message
            assert made.admission.granted >= 0
        if not ready:
            break
        end, pair = ready[(choices[turn % len(choices)] if choices else turn) % len(ready)]
        turn += 1
        size, imm = pair.posted.popleft()  # type: ignore[attr-defined]
        sender, receiver = ends[end][0], ends[1 - end][0]
        if imm & CLEAR_TO_SEND:
            receiver.clear_to_send(imm & ~CLEAR_TO_SEND)
        else:
            received[1 - end][imm] += size
            receiver.arrived()
            over[end] += sender.acknowledge_part(imm)
    assert received[0] == dict(enumerate(sizes[1]))
    assert received[1] == dict(enumerate(sizes[0]))
    assert over == [len(sizes[0]), len(sizes[1])]
    for end, (made, _) in enumerate(ends):
        far = ends[1 - end][0]
        assert made.admission is not None
        assert far.admission is not None
        assert made.admission.grants_received == far.admission.grants_sent


@pytest.mark.parametrize("split", [False, True])
def test_a_long_send_is_cut_only_where_it_must_be(split: bool) -> None:
    made, pairs = connection(1, split=split, message_bytes=1 << 20)
    made.send((1 << 20) * 3, imm=1)
    assert list(pairs[0].posted) == [(1 << 20, 1)] * 3
