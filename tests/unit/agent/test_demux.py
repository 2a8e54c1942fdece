"""Frames in a ring's memory: their receivers, and the frames that are dropped and counted."""

from __future__ import annotations

from functools import cache, partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.agent.demux import MAX_KINDS, SECOND_NS, Demux
from rocelab.agent.rc.queue_pair import QueuePair
from rocelab.base.family import Family
from rocelab.traffic.roce import (
    Acknowledgement,
    Header,
    Immediate,
    RemoteMemory,
    probe_frame,
    roce_frame,
)
from rocelab.wire.headers import (
    ICRC_BYTES,
    IP_OFFSET,
    OFFSETS,
    PAYLOAD_OFFSET,
    PSN_OFFSET,
    NakCode,
    Opcode,
    Syndrome,
)
from rocelab.wire.icrc import icrc, icrc_is_right
from rocelab.wire.probe import MIN_PAYLOAD_BYTES
from tests.helpers.rc_fakes import (
    ACK_TOS,
    CNP_TOS,
    ENDPOINTS,
    MS,
    FakeOutlet,
    FakeRing,
    envelope,
    header,
    marked,
    nic,
    pair_settings,
)
from tests.helpers.roce_packets import cnp_frame

OWN, REMOTE = 0x5A5A5A, 0x123456
IMM = 0x3C0FFEE4
LONGEST = RemoteMemory(0, 1, 1024)


class Server:
    """A demux over a ring, with one queue pair, and its calls."""

    def __init__(self, family: Family = Family.IPV4) -> None:
        self.outlet = FakeOutlet()
        self.pair = QueuePair(OWN, nic(self.outlet), header(REMOTE, family), pair_settings(), 1e9)
        self.ring = FakeRing()
        self.messages: list[tuple[int, int, int]] = []
        self.over: list[tuple[int, int]] = []
        self.demux = Demux(
            self.ring,  # type: ignore[arg-type]
            family,
            {OWN: self.pair},
            lambda pair, imm, size, now_ns: self.messages.append((imm, size, now_ns)),
            lambda pair, imm, now_ns: self.over.append((imm, now_ns)),
        )

    def take(self, *frames: bytes, now_ns: int = 0) -> int:
        for frame in frames:
            self.ring.put(frame)
        return self.demux.drain(now_ns)

    def answers(self) -> list[bytes]:
        self.pair.nic.send(0)
        sent, self.outlet.sent = self.outlet.sent, []
        return sent

    @property
    def dropped(self) -> tuple[int, int]:
        """Wrong ICRCs, and frames without a receiver here."""
        return self.demux.icrc_errors, self.demux.unexpected


def data(
    opcode: Opcode,
    *headers: Header,
    psn: int,
    size: int = 1024,
    asks: bool = False,
    qp: int = OWN,
    family: Family = Family.IPV4,
) -> bytes:
    ends = envelope(qp, family=family)
    return roce_frame(ends, opcode, *headers, psn=psn, payload=bytes(size), ack_request=asks)


@cache
def only(
    psn: int = 0,
    size: int = 1024,
    asks: bool = False,
    qp: int = OWN,
    family: Family = Family.IPV4,
) -> bytes:
    opcode = Opcode.RC_WRITE_ONLY_WITH_IMM
    ends = (LONGEST, Immediate(IMM))
    return data(opcode, *ends, psn=psn, size=size, asks=asks, qp=qp, family=family)


def acknowledgement(psn: int, syndrome: Syndrome) -> bytes:
    aeth = Acknowledgement(syndrome, 1)
    return roce_frame(envelope(OWN, ACK_TOS), Opcode.RC_ACKNOWLEDGE, aeth, psn=psn)


def probe(flow: int = 4, sequence: int = 9, dest_qp: int = 77, **changes: int) -> bytes:
    return probe_frame(
        ENDPOINTS[Family.IPV4],
        sport=0xC000,
        dest_qp=dest_qp,
        flow=flow,
        sequence=sequence,
        **changes,
    )


def test_a_message_is_told_with_its_immediate_its_bytes_and_the_time() -> None:
    server = Server()
    frames = [
        data(Opcode.RC_WRITE_FIRST, LONGEST, psn=0),
        data(Opcode.RC_WRITE_MIDDLE, psn=1),
        data(Opcode.RC_WRITE_LAST_WITH_IMM, Immediate(IMM), psn=2, size=5),
    ]
    assert server.take(*frames, now_ns=42) == 3
    assert server.messages == [(IMM, 2053, 42)]
    assert server.dropped == (0, 0)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 1023])
def test_padding_is_no_payload(size: int) -> None:
    server = Server()
    server.take(only(size=size))
    assert server.messages == [(IMM, size, 0)]


def test_a_message_without_an_immediate_is_taken_and_not_told() -> None:
    server = Server()
    server.take(data(Opcode.RC_WRITE_ONLY, LONGEST, psn=0), only(psn=1))
    assert server.messages == [(IMM, 1024, 0)]
    assert server.pair.responder.counters.messages == 2


def test_all_that_came_together_gets_one_acknowledgement() -> None:
    server = Server()
    server.take(*(only(psn=psn, asks=True) for psn in range(5)))
    assert server.answers() == [
        roce_frame(
            envelope(REMOTE, ACK_TOS),
            Opcode.RC_ACKNOWLEDGE,
            Acknowledgement(Syndrome.ack(), 5),
            psn=4,
        )
    ]
    assert server.answers() == []


def test_packets_over_ipv6_are_taken_answered_and_told_like_those_over_ipv4() -> None:
    family = Family.IPV6
    server = Server(family)
    ends = partial(envelope, family=family)
    aeth = Acknowledgement(Syndrome.ack(), 1)
    server.take(
        marked(only(asks=True, size=1001, family=family)),
        cnp_frame(ends(OWN, CNP_TOS)),
        probe_frame(ENDPOINTS[family], sport=0xC000, dest_qp=77, flow=4, ttl=61),
        now_ns=3,
    )
    assert server.messages == [(IMM, 1001, 3)]
    assert (server.pair.responder.counters.ce, server.pair.cnps_received) == (1, 1)
    assert (server.demux.probes.flow.tolist(), server.demux.probes.ttl.tolist()) == ([4], [61])
    # A notification for the mark, and the acknowledgement.
    assert server.answers() == [
        cnp_frame(ends(REMOTE, CNP_TOS)) for _ in range(server.pair.responder.counters.cnps)
    ] + [roce_frame(ends(REMOTE, ACK_TOS), Opcode.RC_ACKNOWLEDGE, aeth, psn=0)]
    server.pair.post(1024, 7)
    server.pair.nic.send(0)
    server.pair.nic.send(MS)
    (message,) = server.answers()
    assert icrc_is_right(message)
    server.take(roce_frame(ends(OWN, ACK_TOS), Opcode.RC_ACKNOWLEDGE, aeth, psn=0), now_ns=7)
    assert (server.over, server.dropped) == ([(7, 7)], (0, 0))
    server.take(only(psn=1), probe())
    assert server.dropped == (2, 0), "the other family"


def test_a_gap_gets_a_nak() -> None:
    server = Server()
    server.take(only(psn=0), only(psn=2))
    assert server.answers() == [
        roce_frame(
            envelope(REMOTE, ACK_TOS),
            Opcode.RC_ACKNOWLEDGE,
            Acknowledgement(Syndrome.nak(NakCode.PSN_SEQUENCE_ERROR), 1),
            psn=1,
        )
    ]


def test_an_acknowledgement_tells_what_is_over_and_a_nak_what_to_send_again() -> None:
    server = Server()
    for imm in range(4):
        server.pair.post(1024, imm)
    server.pair.nic.send(0)
    server.pair.nic.send(MS)
    server.take(acknowledgement(1, Syndrome.ack()), now_ns=7)
    assert server.over == [(0, 7), (1, 7)]
    server.take(acknowledgement(3, Syndrome.nak(NakCode.PSN_SEQUENCE_ERROR)), now_ns=8)
    assert server.over == [(0, 7), (1, 7), (2, 8)]
    assert (server.pair.requester.next, server.pair.requester.counters.naks) == (3, 1)
    assert server.dropped == (0, 0)


def test_a_notification_reaches_its_queue_pair() -> None:
    server = Server()
    server.take(cnp_frame(envelope(OWN, CNP_TOS)), cnp_frame(envelope(OWN, CNP_TOS)))
    assert (server.pair.cnps_received, server.dropped) == (2, (0, 0))


def test_a_congestion_mark_is_seen_and_harms_nothing() -> None:
    server = Server()
    server.take(only(psn=0), marked(only(psn=1)), only(psn=2), marked(only(psn=3)))
    counters = server.pair.responder.counters
    assert (counters.ce, counters.packets, server.dropped) == (2, 4, (0, 0))


@pytest.mark.parametrize(
    "frame",
    [
        only(qp=OWN + 1),
        acknowledgement(0, Syndrome.ack()).replace(
            OWN.to_bytes(3, "big"), (OWN - 1).to_bytes(3, "big")
        ),
        roce_frame(envelope(OWN), Opcode.RC_READ_REQUEST, LONGEST, psn=0),
        roce_frame(envelope(OWN), Opcode.UC_SEND_ONLY, psn=0, payload=bytes(64)),
        roce_frame(envelope(9), Opcode.RC_SEND_ONLY, psn=0, payload=bytes(64)),
    ],
    ids=["unknown QP", "ACK to an unknown QP", "READ", "UC", "SEND that is no probe"],
)
def test_what_no_queue_pair_here_can_take_is_counted_each_time(frame: bytes) -> None:
    server = Server()
    frame = frame[:-ICRC_BYTES] + icrc(frame)
    server.take(frame, frame)
    server.take(frame)
    assert server.dropped == (0, 3)
    assert (server.messages, server.over, server.answers()) == ([], [], [])


def test_a_packet_too_short_for_its_headers_is_dropped() -> None:
    server = Server()
    frame = bytearray(only(size=0))
    del frame[PAYLOAD_OFFSET + 8 : -ICRC_BYTES]
    frame[IP_OFFSET + 2 : IP_OFFSET + 4] = (len(frame) - IP_OFFSET).to_bytes(2, "big")
    server.take(bytes(frame[:-ICRC_BYTES]) + icrc(frame))
    assert (server.dropped, server.messages) == ((0, 1), [])


def _bits(*names: int) -> set[int]:
    return {8 * byte + bit for byte in names for bit in range(8)}


# What the ICRC does not cover: the Ethernet header, TOS, TTL and both checksums of IPv4, traffic
# class, flow label and hop limit of IPv6, and the BTH's FECN, BECN and reserved bits.
_OPEN_IP = {
    Family.IPV4: _bits(*(IP_OFFSET + byte for byte in (1, 8, 10, 11))),
    # The version's four bits are the upper ones.
    Family.IPV6: _bits(*(IP_OFFSET + byte for byte in (1, 2, 3, 7)))
    | {8 * IP_OFFSET + bit for bit in range(4)},
}


def covered_bits(frame: bytes, family: Family) -> list[int]:
    udp, bth = OFFSETS[family].udp, OFFSETS[family].bth
    is_open = _OPEN_IP[family] | _bits(*range(IP_OFFSET), udp + 6, udp + 7, bth + 4)
    return sorted(_bits(*range(len(frame))) - is_open)


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("learned_before", [False, True])
def test_a_flipped_bit_anywhere_covered_is_an_icrc_error_and_delivers_nothing(
    learned_before: bool, family: Family
) -> None:
    intact = only(psn=learned_before, size=30, family=family)
    for bit in covered_bits(intact, family):
        server = Server(family)
        if learned_before:
            server.take(only(size=30, family=family))
        before = (list(server.messages), server.pair.responder.counters.packets)
        damaged = bytearray(intact)
        damaged[bit // 8] ^= 1 << bit % 8
        server.take(bytes(damaged))
        assert server.dropped == (1, 0), f"bit {bit % 8} of byte {bit // 8}"
        assert before == (server.messages, server.pair.responder.counters.packets)
        server.take(intact)
        assert server.messages[-1] == (IMM, 30, 0)


@given(st.binary(min_size=60, max_size=200), st.integers(0, 40))
def test_noise_is_never_delivered(noise: bytes, start: int) -> None:
    server = Server()
    frame = only(size=100)[:start] + noise
    server.take(frame)
    assert server.messages == []
    assert sum(server.dropped) == 1


def test_a_frame_that_claims_to_be_longer_than_the_ring_is_dropped() -> None:
    server = Server()
    frame = bytearray(only())
    frame[IP_OFFSET + 2 : IP_OFFSET + 4] = b"\xff\xff"
    server.take(bytes(frame))
    assert server.dropped == (1, 0)


def test_probes_are_logged_with_the_kernels_time_and_the_ttl_they_came_with() -> None:
    server = Server()
    server.ring.put(probe(sequence=2**40, send_ns=123, ttl=64), seconds=5, nanoseconds=6)
    server.ring.put(probe(flow=8, send_ns=2**62, ttl=61, payload_bytes=1000), nanoseconds=7)
    assert server.demux.drain(0) == 2
    log = server.demux.probes
    assert log.flow.tolist() == [4, 8]
    assert log.sequence.tolist() == [2**40, 9]
    assert log.send_ns.tolist() == [123, 2**62]
    assert log.receive_ns.tolist() == [5 * SECOND_NS + 6, 7]
    assert log.ttl.tolist() == [64, 61]
    assert server.dropped == (0, 0)


def test_a_damaged_probe_is_not_logged() -> None:
    server = Server()
    frame = bytearray(probe(payload_bytes=MIN_PAYLOAD_BYTES))
    frame[-ICRC_BYTES - 1] ^= 1
    server.take(probe(payload_bytes=MIN_PAYLOAD_BYTES), bytes(frame))
    assert server.demux.probes.sequence.tolist() == [9]
    assert server.dropped == (1, 0)


def test_a_probe_whose_random_qp_is_a_queue_pairs_is_still_a_probe() -> None:
    server = Server()
    server.take(probe(dest_qp=OWN), only(psn=0))
    assert server.demux.probes.flow.tolist() == [4]
    assert server.pair.responder.counters.packets == 1
    assert server.pair.responder.counters.out_of_order == 0


@given(
    st.lists(st.sampled_from(["data", "marked", "probe", "cnp", "unknown", "damaged"]), max_size=40)
)
def test_every_frame_is_counted_once_whatever_came_before(kinds: list[str]) -> None:
    server = Server()
    psn = 0
    for kind in kinds:
        frame = only(psn=psn, size=64)
        match kind:
            case "data":
                psn += 1
            case "marked":
                frame, psn = marked(frame), psn + 1
            case "probe":
                frame = probe()
            case "cnp":
                frame = cnp_frame(envelope(OWN, CNP_TOS))
            case "unknown":
                frame = only(qp=1)
            case "damaged":
                frame = frame[:PSN_OFFSET] + b"\x7f" + frame[PSN_OFFSET + 1 :]
        server.take(frame)
    count = {kind: kinds.count(kind) for kind in kinds}
    counters = server.pair.responder.counters
    assert counters.packets == len(server.messages) == psn
    assert counters.ce == count.get("marked", 0)
    assert len(server.demux.probes.flow) == count.get("probe", 0)
    assert server.pair.cnps_received == count.get("cnp", 0)
    assert server.dropped == (count.get("damaged", 0), count.get("unknown", 0))


def test_more_kinds_of_frames_than_are_remembered_are_still_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MAX_KINDS > 1
    monkeypatch.setattr("rocelab.agent.demux.MAX_KINDS", 1)
    server = Server()
    server.take(*(only(psn=psn, size=psn) for psn in range(20)))
    assert [size for _, size, _ in server.messages] == list(range(20))
