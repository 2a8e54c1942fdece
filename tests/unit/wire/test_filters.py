"""The frames that filters let into packet sockets, tested in the kernel on a pair of local
sockets."""

from __future__ import annotations

import socket

import pytest

from rocelab.linux.ring import slot_bytes
from rocelab.traffic.roce import probe_frame, roce_frame
from rocelab.wire.filters import (
    NOTHING,
    attach_filter,
    data_filter,
    flow_filter,
    probe_filter,
    queue_pair_filter,
    roce_filter,
)
from rocelab.wire.headers import BTH_OFFSET, IP_OFFSET, UDP_OFFSET, Opcode
from tests.helpers.rc_fakes import ENDPOINTS, envelope
from tests.helpers.roce_packets import CAPTURES, ENVELOPE_6

PROBE = probe_frame(ENDPOINTS, sport=0xC000, dest_qp=2)
DATA = roce_frame(envelope(), Opcode.RC_WRITE_MIDDLE, psn=0, payload=bytes(64))


def passes(program: bytes, frame: bytes) -> bool:
    """Whether the kernel gives the whole frame to a socket with this filter."""
    near, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, theirs:
        attach_filter(theirs, program)
        theirs.setblocking(False)
        # A local socket's sender is told what the receiver's filter did, or not: both mean no.
        try:
            near.send(frame)
            received = theirs.recv(len(frame) + 1)
        except OSError:
            return False
        assert received == frame
        return True


def changed(frame: bytes, offset: int, value: bytes) -> bytes:
    return frame[:offset] + value + frame[offset + len(value) :]


@pytest.mark.parametrize("name", CAPTURES)
def test_packets_of_real_nics_pass(name: str) -> None:
    assert passes(roce_filter(), CAPTURES[name])


def test_our_own_packets_pass_and_only_probes_where_only_they_are_wanted() -> None:
    assert passes(roce_filter(), PROBE)
    assert passes(roce_filter(), DATA)
    assert passes(probe_filter(), PROBE)
    assert not passes(probe_filter(), DATA)


def test_a_flow_is_told_from_others_by_each_of_its_numbers() -> None:
    source, destination = ENDPOINTS.source_ip, ENDPOINTS.destination_ip
    frame = probe_frame(ENDPOINTS, sport=0xC123, dest_qp=0x123456)
    assert passes(flow_filter(source, destination, 0xC123), frame)
    assert passes(flow_filter(source, destination, 0xC123, 0x123456), frame)
    for other in (
        flow_filter(destination, source, 0xC123),
        flow_filter(source, source, 0xC123),
        flow_filter(source, destination, 0xC124),
        flow_filter(source, destination, 0xC123, 0x123457),
        flow_filter(source, destination, 0xC123, 0x113456),
    ):
        assert not passes(other, frame)


def test_packets_of_queue_pairs_are_told_from_others_whatever_bits_are_before_the_number() -> None:
    for number, congestion in ((2, 0), (0x20000, 0xC0), (0x12345, 0x40)):
        frame = probe_frame(ENDPOINTS, sport=0xC123, dest_qp=number)
        frame = changed(frame, BTH_OFFSET + 4, bytes([congestion]))
        assert passes(queue_pair_filter(2, 0x20000), frame)
        assert passes(queue_pair_filter(number, number), frame)
        assert not passes(queue_pair_filter(number + 1, 0xFFFFFF), frame)
        assert not passes(queue_pair_filter(0, number - 1), frame)
        assert not passes(queue_pair_filter(2, 0x20000), changed(frame, IP_OFFSET + 6, b"\x20"))


def test_data_packets_are_told_from_acknowledgements_and_notifications() -> None:
    assert passes(data_filter(), DATA)
    assert passes(data_filter(), PROBE)
    last = bytes([Opcode.RC_WRITE_ONLY_WITH_IMM])
    assert passes(data_filter(), changed(DATA, BTH_OFFSET, last))
    for opcode in (Opcode.RC_ACKNOWLEDGE, Opcode.RC_READ_REQUEST, Opcode.CNP):
        assert not passes(data_filter(), changed(DATA, BTH_OFFSET, bytes([opcode]))), opcode
    assert not passes(data_filter(), changed(DATA, UDP_OFFSET + 2, b"\x12\xb8"))


@pytest.mark.parametrize(
    ("what", "offset", "value"),
    [
        ("another Ethernet type", 12, b"\x08\x06"),
        ("IP options", IP_OFFSET, b"\x46"),
        ("TCP", IP_OFFSET + 9, b"\x06"),
        ("another port", UDP_OFFSET + 2, b"\x12\xb8"),
        ("the first fragment", IP_OFFSET + 6, b"\x20\x00"),
        ("a later fragment", IP_OFFSET + 6, b"\x00\x01"),
    ],
)
def test_anything_else_does_not(what: str, offset: int, value: bytes) -> None:
    assert not passes(roce_filter(), changed(PROBE, offset, value)), what
    assert not passes(probe_filter(), changed(PROBE, offset, value)), what


def test_ipv6_and_short_frames_do_not() -> None:
    assert not passes(
        roce_filter(), roce_frame(ENVELOPE_6, Opcode.RC_SEND_ONLY, psn=0, payload=b"1234")
    )
    assert not passes(roce_filter(), PROBE[:30])


def test_a_sink_takes_nothing() -> None:
    assert not passes(NOTHING, PROBE)


@pytest.mark.parametrize("frame_bytes", [0, 62, 1500, 1920, 1921, 4174, 9018, 65_000])
def test_slots_hold_a_frame_and_its_header_and_no_more(frame_bytes: int) -> None:
    slot = slot_bytes(frame_bytes)
    assert frame_bytes + 128 <= slot < frame_bytes + 128 + 16
    assert slot % 16 == 0  # TPACKET_ALIGNMENT
    assert slot <= 64 * 1024
