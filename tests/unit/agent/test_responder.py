"""The receiving half of a queue pair: in order, each packet once, and its answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocelab.agent.rc.responder import ACK, NAK_SEQUENCE, Responder
from rocelab.wire.headers import PSN_MASK

NOTHING_COMPLETE = -1
IMM = 77


def take(
    responder: Responder, *psns: int, asks: bool = False, size: int = 100, last: bool = False
) -> list[int]:
    taken = []
    for psn in psns:
        complete = responder.receive(psn & PSN_MASK, asks, size, last, IMM)
        assert all(imm == IMM for imm, _ in complete)
        taken.append(sum(size for _, size in complete) if complete else NOTHING_COMPLETE)
    return taken


def answer(responder: Responder) -> tuple[int, int, int] | None:
    """PSN, syndrome and message sequence number of the due acknowledgement, or None."""
    if not responder.ack_due:
        return None
    psn, aeth = responder.acknowledgement()
    assert not responder.ack_due
    return psn, aeth >> 24, aeth & 0xFFFFFF


def test_a_message_is_complete_with_its_last_packet_and_all_its_bytes() -> None:
    responder = Responder()
    assert take(responder, 0, 1) == [NOTHING_COMPLETE] * 2
    assert take(responder, 2, last=True, size=7) == [207]
    assert take(responder, 3, last=True, size=0) == [0]
    assert (responder.counters.messages, responder.counters.bytes) == (2, 207)


def test_nothing_is_answered_until_the_requester_asks() -> None:
    responder = Responder()
    take(responder, 0, 1, 2)
    assert answer(responder) is None
    take(responder, 3, asks=True)
    assert answer(responder) == (3, ACK, 0)


def test_one_answer_stands_for_all_that_came_since() -> None:
    responder = Responder()
    take(responder, 0, asks=True, last=True)
    take(responder, 1, 2, 3)
    take(responder, 4, asks=True, last=True)
    take(responder, 5)
    assert answer(responder) == (5, ACK, 2)
    assert answer(responder) is None


def test_a_gap_is_answered_with_one_nak_that_names_the_missing_packet() -> None:
    responder = Responder()
    take(responder, 0, 1)
    assert take(responder, 3, 4, 5, asks=True, last=True) == [NOTHING_COMPLETE] * 3
    assert answer(responder) == (2, NAK_SEQUENCE, 0)
    take(responder, 6, asks=True)
    assert answer(responder) is None
    counters = responder.counters
    assert (counters.out_of_order, counters.naks, counters.packets) == (4, 1, 2)


def test_a_nak_outweighs_an_acknowledgement_that_is_due() -> None:
    responder = Responder()
    take(responder, 0, asks=True)
    take(responder, 2)
    take(responder, 0, asks=True)
    assert answer(responder) == (1, NAK_SEQUENCE, 0)


def test_after_a_closed_gap_the_next_gap_gets_its_own_nak() -> None:
    responder = Responder()
    take(responder, 1)
    assert answer(responder) == (0, NAK_SEQUENCE, 0)
    take(responder, 0, 1)
    take(responder, 3)
    assert answer(responder) == (2, NAK_SEQUENCE, 0)
    assert responder.counters.naks == 2


def test_a_late_packet_asks_again_for_those_that_overtook_it_and_were_discarded() -> None:
    responder = Responder()
    take(responder, 1, 2, asks=True)
    take(responder, 0)
    assert answer(responder) == (1, NAK_SEQUENCE, 0)
    take(responder, 1, 2, asks=True)
    assert answer(responder) == (2, ACK, 0)


def test_a_gap_that_closed_before_the_answer_left_is_acknowledged() -> None:
    responder = Responder()
    take(responder, 1, 2)
    take(responder, 0, 1, 2)
    assert answer(responder) == (2, ACK, 0)
    take(responder, 4)
    assert answer(responder) == (3, NAK_SEQUENCE, 0)


def test_a_duplicate_is_counted_not_delivered_and_acknowledged_where_it_asks() -> None:
    responder = Responder()
    take(responder, 0, 1, 2, last=True)
    assert take(responder, 0, 1, last=True) == [NOTHING_COMPLETE] * 2
    assert answer(responder) is None
    take(responder, 2, asks=True, last=True)
    assert answer(responder) == (2, ACK, 3)
    counters = responder.counters
    assert (counters.duplicates, counters.packets, counters.messages) == (3, 3, 3)


def test_psns_wrap_after_24_bits() -> None:
    responder = Responder(first_psn=PSN_MASK)
    take(responder, PSN_MASK, 0, 1, asks=True)
    assert answer(responder) == (1, ACK, 0)
    take(responder, PSN_MASK, asks=True)
    assert answer(responder) == (1, ACK, 0)
    take(responder, 3)
    assert answer(responder) == (2, NAK_SEQUENCE, 0)
    assert (responder.counters.duplicates, responder.counters.out_of_order) == (1, 1)


def test_an_answer_before_the_first_packet_wraps_too() -> None:
    responder = Responder()
    take(responder, PSN_MASK, asks=True)
    assert answer(responder) == (PSN_MASK, ACK, 0)


def test_the_message_sequence_number_has_24_bits() -> None:
    responder = Responder()
    responder.counters.messages = PSN_MASK
    take(responder, 0, asks=True, last=True)
    assert answer(responder) == (0, ACK, 0)


@given(
    first_psn=st.sampled_from([0, 5, PSN_MASK - 3, PSN_MASK]),
    order=st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.booleans()), max_size=200),
)
def test_whatever_comes_is_taken_once_and_in_order_and_every_packet_is_counted(
    first_psn: int, order: list[tuple[int, bool, bool]]
) -> None:
    responder = Responder(first_psn)
    expected = 0
    for number, asks, now_answered in order:
        completed = responder.receive((first_psn + number) & PSN_MASK, asks, 10, True, number)
        assert tuple(completed) == (((number, 10),) if number == expected else ())
        if number <= expected and asks:
            assert responder.ack_due
        expected += number == expected
        if now_answered and (due := answer(responder)):
            psn, syndrome, _ = due
            acknowledged = psn if syndrome == NAK_SEQUENCE else psn + 1
            assert acknowledged & PSN_MASK == (first_psn + expected) & PSN_MASK
    counters = responder.counters
    assert counters.packets == counters.messages == expected
    assert counters.packets + counters.duplicates + counters.discarded == len(order)
    assert counters.discarded == counters.out_of_order
