"""A receiver of packets in any order: acceptance, completion, acknowledgements and counters."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from rocelab.agent.rc.reordering import ReorderingResponder
from rocelab.agent.rc.responder import ACK, NO_IMM, Complete
from rocelab.wire.headers import PSN_MASK

WINDOW = 16


def take(
    responder: ReorderingResponder, psn: int, *, asks: bool = False, imm: int = NO_IMM
) -> Sequence[Complete]:
    """A packet of 100 bytes; one with an immediate ends its message."""
    return responder.receive(psn & PSN_MASK, asks, 100, imm != NO_IMM, imm)


def test_a_message_is_complete_once_its_last_gap_is_closed() -> None:
    responder = ReorderingResponder(WINDOW)
    assert take(responder, 2, imm=7) == ()
    assert take(responder, 0) == []
    assert take(responder, 1) == [(7, 300)]


def test_messages_complete_in_the_order_of_their_sending() -> None:
    responder = ReorderingResponder(WINDOW)
    assert take(responder, 3, imm=9) == ()
    assert take(responder, 2) == ()
    assert take(responder, 1, imm=8) == ()
    assert take(responder, 0) == [(8, 200), (9, 200)]


def test_what_asked_behind_a_gap_is_acknowledged_when_the_gap_closes() -> None:
    responder = ReorderingResponder(WINDOW)
    take(responder, 1, asks=True)
    take(responder, 3, asks=True)
    assert not responder.ack_due
    take(responder, 0)
    assert responder.ack_due == ACK
    assert responder.acknowledgement()[0] == 1
    take(responder, 2)
    assert responder.acknowledgement()[0] == 3
    assert responder.counters.naks == 0


def test_a_copy_behind_the_gap_is_a_duplicate_whose_question_is_remembered() -> None:
    responder = ReorderingResponder(WINDOW)
    take(responder, 1)
    take(responder, 1, asks=True)
    assert (responder.counters.duplicates, responder.ack_due) == (1, 0)
    take(responder, 0)
    assert responder.ack_due == ACK
    take(responder, 0, asks=True)
    assert responder.counters.duplicates == 2


def test_what_no_window_allows_is_discarded() -> None:
    responder = ReorderingResponder(WINDOW)
    take(responder, WINDOW - 1)
    take(responder, WINDOW)
    counters = responder.counters
    assert (counters.packets, counters.discarded) == (1, 1)


def test_the_extent_is_of_the_first_that_should_have_come_later() -> None:
    """RFC 4737's own definition: 4 is late by the three that came since 5; 3 by those and 4."""
    responder = ReorderingResponder(WINDOW)
    for psn in (0, 1, 2, 5, 6, 7, 4, 3, 8):
        take(responder, psn)
    counters = responder.counters
    assert (counters.reordered, counters.reorder_extent) == (2, 4)
    assert counters.out_of_order == 4
    assert counters.packets == 9


def extents(order: Sequence[int]) -> list[int]:
    """RFC 4737 section 4.2.3 to the letter: of each reordered packet i its distance to the earliest
    packet j before it with a greater number."""
    extents = []
    for i, number in enumerate(order):
        later = [j for j in range(i) if order[j] > number]
        if later:
            extents.append(i - min(later))
    return extents


@given(
    first_psn=st.sampled_from([0, 5, PSN_MASK - 3, PSN_MASK]),
    order=st.permutations(range(40)),
    window=st.sampled_from([40, 64]),
    copies=st.lists(st.integers(0, 39), max_size=20),
)
def test_in_any_order_all_is_taken_once_and_measured_as_the_rfc_says(
    first_psn: int, order: list[int], window: int, copies: list[int]
) -> None:
    responder = ReorderingResponder(window, first_psn)
    delivered: list[Complete] = []
    seen: set[int] = set()
    for place, number in enumerate(order):
        for again in [number, *copies[place : place + 1]]:
            if again not in seen and again != number:
                continue
            seen.add(again)
            imm = again if again % 3 == 2 else NO_IMM
            delivered += take(responder, first_psn + again, asks=True, imm=imm)
            if responder.ack_due:
                psn, _ = responder.acknowledgement()
                through = (psn - first_psn + 1) & PSN_MASK
                assert set(range(through)) <= seen
                assert through not in seen
    counters = responder.counters
    assert delivered == [(imm, 300) for imm in range(2, 40, 3)]
    assert (counters.packets, counters.bytes) == (40, 4000)
    expected = extents(order)
    assert counters.reordered == len(expected)
    assert counters.reorder_extent == max(expected, default=0)


@given(st.lists(st.integers(0, 7), min_size=200, max_size=400))
def test_gaps_that_never_all_close_are_measured_just_as_well(jitter: list[int]) -> None:
    order = sorted(range(len(jitter)), key=lambda n: (n + jitter[n], n))
    responder = ReorderingResponder(8)
    for number in order:
        take(responder, number)
    expected = extents(order)
    counters = responder.counters
    assert counters.packets == len(order)
    assert counters.reordered == len(expected)
    assert counters.reorder_extent == max(expected, default=0)
