"""The sending half of a queue pair: packets, acknowledgements, retries, failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.agent.rc.requester import MOST_GAPS, NEVER_NS, REMOTE_KEY, Requester
from rocelab.agent.rc.responder import ACK, NAK_SEQUENCE
from rocelab.traffic.roce import Immediate, RemoteMemory, roce_frame
from rocelab.wire.headers import (
    BTH_OFFSET,
    PAYLOAD_OFFSET,
    PSN_MASK,
    PSN_OFFSET,
    NakCode,
    Opcode,
    Syndrome,
    extension_bytes,
)
from tests.helpers.rc_fakes import MS, envelope, header, requester_settings

FIRST, MIDDLE, LAST, ONLY = (
    Opcode.RC_WRITE_FIRST,
    Opcode.RC_WRITE_MIDDLE,
    Opcode.RC_WRITE_LAST_WITH_IMM,
    Opcode.RC_WRITE_ONLY_WITH_IMM,
)


class Sent(list[bytes]):
    """Copies of emitted frames, and their fields."""

    def append(self, frame: bytes | bytearray) -> None:
        super().append(bytes(frame))

    @property
    def psns(self) -> list[int]:
        return [int.from_bytes(frame[PSN_OFFSET + 1 : PAYLOAD_OFFSET], "big") for frame in self]

    @property
    def opcodes(self) -> list[int]:
        return [frame[BTH_OFFSET] for frame in self]

    @property
    def asking(self) -> list[int]:
        """PSNs of the packets that ask for an acknowledgement."""
        return [psn for psn, frame in zip(self.psns, self, strict=True) if frame[PSN_OFFSET] & 0x80]

    @property
    def payload_bytes(self) -> list[int]:
        return [
            len(f)
            - PAYLOAD_OFFSET
            - extension_bytes(f[BTH_OFFSET])
            - (f[BTH_OFFSET + 1] >> 4 & 3)
            - 4
            for f in self
        ]


def requester(first_psn: int = 0, **changes: int) -> Requester:
    return Requester(header(), requester_settings(**changes), first_psn)


def emit(sender: Requester, limit: int = 10**6, now_ns: int = 0) -> Sent:
    sent = Sent()
    size = sender.emit(sent, limit, now_ns)
    assert size == sum(map(len, sent))
    return sent


def test_a_message_is_cut_by_the_path_mtu_and_only_its_last_packet_has_the_immediate() -> None:
    sender = requester()
    sender.post(2500, imm=7)
    assert emit(sender) == [
        roce_frame(
            envelope(), FIRST, RemoteMemory(0, REMOTE_KEY, 2500), psn=0, payload=bytes(1024)
        ),
        roce_frame(envelope(), MIDDLE, psn=1, payload=bytes(1024)),
        roce_frame(envelope(), LAST, Immediate(7), psn=2, payload=bytes(452), ack_request=True),
    ]


@pytest.mark.parametrize("size", [0, 1, 1023, 1024])
def test_a_message_of_one_packet_has_all_headers_at_once(size: int) -> None:
    sender = requester()
    sender.post(size, imm=9)
    assert emit(sender) == [
        roce_frame(
            envelope(),
            ONLY,
            RemoteMemory(0, REMOTE_KEY, size),
            Immediate(9),
            psn=0,
            payload=bytes(size),
            ack_request=True,
        )
    ]


@given(
    sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=8),
    limits=st.lists(st.integers(1, 7), min_size=1),
    first_psn=st.sampled_from([0, 1, PSN_MASK - 2, PSN_MASK]),
)
def test_messages_become_the_same_packets_however_they_are_batched(
    sizes: list[int], limits: list[int], first_psn: int
) -> None:
    sender = requester(first_psn)
    for imm, size in enumerate(sizes):
        sender.post(size, imm)
    sent = Sent()
    turn = 0
    while sender.sendable:
        sender.emit(sent, limits[turn % len(limits)], 0)
        turn += 1
    packets = [max(1, -(-size // 1024)) for size in sizes]
    assert sent.psns == [(first_psn + n) & PSN_MASK for n in range(sum(packets))]
    assert sum(sent.payload_bytes) == sum(sizes)
    shapes = [[ONLY] if n == 1 else [FIRST, *[MIDDLE] * (n - 2), LAST] for n in packets]
    assert sent.opcodes == [opcode for shape in shapes for opcode in shape]


def test_psns_wrap_after_24_bits_and_acknowledgements_with_them() -> None:
    sender = requester(first_psn=PSN_MASK - 1)
    sender.post(4 * 1024, imm=1)
    sent = emit(sender)
    assert sent.psns == [PSN_MASK - 1, PSN_MASK, 0, 1]
    assert not any(frame[PSN_OFFSET] & 0x7F for frame in sent), "bits that are reserved"
    assert sender.on_ack(PSN_MASK, ACK, 0) == []
    assert sender.counters.acked_bytes == 2048
    assert sender.on_ack(1, ACK, 0) == [1]
    assert sender.idle


def test_the_window_bounds_what_is_in_flight_and_its_last_packet_asks_for_more() -> None:
    sender = requester(window=10, ack_every=1000)
    sender.post(100 * 1024, imm=1)
    sent = emit(sender)
    assert sent.psns == list(range(10))
    assert sent.asking == [9]
    assert not sender.sendable
    assert emit(sender) == []
    sender.on_ack(3, ACK, 0)
    sent = emit(sender)
    assert (sent.psns, sent.asking) == ([10, 11, 12, 13], [13])


def test_acknowledgements_are_asked_for_every_so_many_packets_and_at_the_end_of_messages() -> None:
    sender = requester(ack_every=4)
    sender.post(6 * 1024, imm=1)
    sender.post(1, imm=2)
    sender.post(6 * 1024, imm=3)
    assert emit(sender).asking == [3, 5, 6, 7, 11, 12]


@given(window=st.integers(1, 20), ack_every=st.integers(1, 40), acked=st.data())
def test_a_sender_that_must_wait_has_always_asked(
    window: int, ack_every: int, acked: st.DataObject
) -> None:
    sender = requester(window=window, ack_every=ack_every)
    sender.post(60 * 1024, imm=1)
    asked = -1
    while not sender.idle:
        sent = emit(sender, acked.draw(st.integers(1, 30)))
        asked = max([asked, *sent.asking])
        if not sender.sendable:
            assert asked == sender.next - 1
            assert sender.deadline_ns != NEVER_NS
            sender.on_ack(acked.draw(st.integers(sender.una, sender.next - 1)), ACK, 0)


def test_one_acknowledgement_ends_every_message_before_it() -> None:
    sender = requester()
    for imm in range(5):
        sender.post(1024, imm)
    emit(sender)
    assert sender.on_ack(3, ACK, 0) == [0, 1, 2, 3]
    assert sender.counters.acked_bytes == 4096
    assert sender.on_ack(4, ACK, 0) == [4]
    assert sender.deadline_ns == NEVER_NS


def test_an_acknowledgement_in_the_middle_of_messages_counts_its_bytes_once() -> None:
    sender = requester()
    sender.post(3000, imm=1)
    sender.post(3000, imm=2)
    emit(sender)
    seen = []
    for psn in range(6):
        sender.on_ack(psn, ACK, 0)
        seen.append(sender.counters.acked_bytes)
    assert seen == [1024, 2048, 3000, 4024, 5048, 6000]


def test_a_nak_acknowledges_what_is_before_it_and_the_rest_is_sent_again() -> None:
    sender = requester()
    sender.post(10 * 1024, imm=1)
    emit(sender)
    assert sender.on_ack(4, NAK_SEQUENCE, 0) == []
    assert (sender.counters.acked_bytes, sender.counters.naks) == (4096, 1)
    again = emit(sender)
    assert again.psns == [4, 5, 6, 7, 8, 9]
    assert again.opcodes == [MIDDLE] * 5 + [LAST]
    assert (sender.counters.packets, sender.counters.retransmitted) == (16, 6)


def test_going_back_into_an_earlier_message_sends_its_own_packets() -> None:
    sender = requester()
    for imm, size in enumerate((3000, 500, 3000)):
        sender.post(size, imm)
    first = emit(sender)
    assert sender.on_ack(2, NAK_SEQUENCE, 0) == []
    assert emit(sender) == first[2:]


def test_a_copy_of_a_nak_that_was_heeded_costs_no_retry() -> None:
    sender = requester(retries=1)
    sender.post(10 * 1024, imm=1)
    emit(sender)
    for _ in range(5):
        sender.on_ack(4, NAK_SEQUENCE, 0)
    assert (sender.counters.naks, sender.retries, sender.error) == (5, 1, None)


def test_silence_after_a_request_for_an_acknowledgement_sends_all_again() -> None:
    sender = requester()
    sender.post(3 * 1024, imm=1)
    emit(sender, now_ns=5)
    assert sender.deadline_ns == 5 + MS
    sender.on_timer()
    assert sender.counters.timeouts == 1
    assert emit(sender, now_ns=7 * MS).psns == [0, 1, 2]
    assert sender.deadline_ns == 8 * MS


def test_the_timer_waits_for_a_sender_that_is_slow_to_ask() -> None:
    sender = requester(ack_every=16)
    sender.post(20 * 1024, imm=1)
    for n in range(15):
        emit(sender, 1, now_ns=n * 10 * MS)
        assert sender.deadline_ns == NEVER_NS
    emit(sender, 1, now_ns=150 * MS)
    assert sender.deadline_ns == 151 * MS


def test_the_timer_stops_where_nothing_asked_is_left_and_starts_afresh_on_progress() -> None:
    sender = requester(ack_every=4)
    sender.post(20 * 1024, imm=1)
    emit(sender, 9)
    sender.on_ack(3, ACK, 500)
    assert sender.deadline_ns == 500 + MS
    sender.on_ack(7, ACK, 600)
    assert sender.deadline_ns == NEVER_NS


def test_the_timer_waits_until_packets_to_repeat_have_left_again() -> None:
    sender = requester(ack_every=4)
    sender.post(20 * 1024, imm=1)
    emit(sender)
    sender.on_timer()
    assert sender.deadline_ns == NEVER_NS
    emit(sender, 3, now_ns=5 * MS)
    assert sender.deadline_ns == NEVER_NS
    emit(sender, 1, now_ns=6 * MS)
    assert sender.deadline_ns == 7 * MS


def test_too_many_retries_in_a_row_are_an_error_that_names_the_packet() -> None:
    sender = requester(first_psn=PSN_MASK + 1 - 2, retries=3)
    sender.post(10 * 1024, imm=1)
    emit(sender)
    sender.on_ack(0, ACK, 0)
    for _ in range(3):
        sender.on_timer()
        emit(sender)
        assert sender.error is None
    sender.on_timer()
    assert sender.error == "packet 1 was not acknowledged after 3 retries"
    assert not sender.sendable
    assert emit(sender) == []
    assert sender.on_ack(7, ACK, 0) == []
    assert sender.deadline_ns == NEVER_NS


def test_naks_use_up_the_same_retries() -> None:
    sender = requester(retries=2)
    sender.post(10 * 1024, imm=1)
    for _ in range(3):
        emit(sender)
        sender.on_ack(0, NAK_SEQUENCE, 0)
    assert sender.error == "packet 0 was not acknowledged after 2 retries"
    assert sender.deadline_ns == NEVER_NS


def test_progress_gives_all_retries_back() -> None:
    sender = requester(retries=1)
    sender.post(10 * 1024, imm=1)
    for psn in range(10):
        emit(sender)
        sender.on_timer()
        sender.on_ack(psn, ACK, 0)
    assert (sender.error, sender.idle, sender.counters.timeouts) == (None, True, 10)


def test_a_nak_for_anything_but_the_sequence_is_an_error_and_ends_the_timer() -> None:
    sender = requester()
    sender.post(1024, imm=1)
    emit(sender)
    sender.on_ack(0, Syndrome.nak(NakCode.REMOTE_ACCESS_ERROR).byte, 0)
    assert sender.error == "the responder answered packet 0 with syndrome 0x62"
    assert sender.deadline_ns == NEVER_NS


@pytest.mark.parametrize(
    ("psn", "syndrome"),
    [
        *((psn, ACK) for psn in (4, 3, 0, -1, -5000, 10, 11, 5000, 2**23)),
        *((psn, NAK_SEQUENCE) for psn in (4, 3, 0, -1, -5000, 11, 5000, 2**23)),
    ],
)
def test_stale_and_ghost_acknowledgements_change_nothing(psn: int, syndrome: int) -> None:
    sender = requester()
    sender.post(5 * 1024, imm=1)
    sender.post(50 * 1024, imm=2)
    emit(sender, 10)
    sender.on_ack(4, ACK, 0)
    before = (sender.una, sender.next, sender.deadline_ns, sender.counters.acked_bytes)
    assert (sender.una, sender.next) == (5, 10)
    assert sender.on_ack(psn & PSN_MASK, syndrome, 5) == []
    assert before == (sender.una, sender.next, sender.deadline_ns, sender.counters.acked_bytes)
    assert (sender.error, sender.counters.naks) == (None, 0)


def test_an_acknowledgement_from_before_a_timeout_spares_what_it_covers() -> None:
    sender = requester()
    sender.post(10 * 1024, imm=1)
    emit(sender)
    sender.on_timer()
    emit(sender, 2)
    sender.on_ack(6, ACK, 0)
    assert emit(sender).psns == [7, 8, 9]
    assert (sender.counters.packets, sender.counters.retransmitted) == (15, 5)


def test_round_trips_are_of_first_copies_only() -> None:
    sender = requester(ack_every=4)
    sender.post(8 * 1024, imm=1)
    emit(sender, 4, now_ns=100)
    sender.on_ack(3, ACK, 350)
    emit(sender, 4, now_ns=400)
    sender.on_timer()
    emit(sender, 4, now_ns=500)
    sender.on_ack(7, ACK, 600)
    assert sender.rtt_ns.tolist() == [250]


def test_a_queue_pair_takes_messages_again_after_all_were_over() -> None:
    sender = requester()
    for imm in range(3):
        sender.post(1500, imm)
        assert emit(sender).opcodes == [FIRST, LAST]
        assert sender.on_ack(2 * imm + 1, ACK, 0) == [imm]
        assert sender.idle
    assert sender.counters.posted_bytes == sender.counters.acked_bytes == 4500


def test_a_time_without_a_requested_acknowledgement_is_a_gap_with_what_was_sent_again() -> None:
    sender = requester(ack_every=1)
    sender.post(4096, imm=1)
    emit(sender, limit=2)
    sender.on_ack(0, ACK, 5 * MS)
    sender.on_timer()
    assert emit(sender, now_ns=100 * MS).psns == [1, 2, 3]
    assert sender.gaps == []
    assert sender.open_gap == (5 * MS, 0)
    sender.on_ack(1, ACK, 127 * MS)
    assert sender.gaps == [(True, 122 * MS, 5 * MS, 0)]
    # Nothing is awaited once all has arrived: idling is no gap.
    sender.on_ack(3, ACK, 130 * MS)
    assert sender.open_gap is None
    sender.post(1024, imm=2)
    emit(sender, now_ns=900 * MS)
    sender.on_ack(4, ACK, 901 * MS)
    assert len(sender.gaps) == 1


def test_packets_that_request_no_acknowledgement_are_not_waited_for() -> None:
    sender = requester(ack_every=16)
    sender.post(16 * 1024, imm=1)
    emit(sender, limit=3)
    assert sender.open_gap is None


def test_of_many_gaps_those_with_packets_sent_again_are_kept() -> None:
    sender = requester(ack_every=1, retries=200)
    now_ns = 0
    for number in range(3 * MOST_GAPS):
        sender.post(1024, imm=number)
        emit(sender, now_ns=now_ns)
        if number == 1:
            sender.on_timer()
            emit(sender, now_ns=now_ns)
        now_ns += (20 + number) * MS
        sender.on_ack(number, ACK, now_ns)
    assert len(sender.gaps) == MOST_GAPS
    (resent,) = [gap for gap in sender.gaps if gap[0]]
    assert resent[1] == 21 * MS
    assert sorted(gap[1] for gap in sender.gaps)[1] > 2 * MOST_GAPS * MS
