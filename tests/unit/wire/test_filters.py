"""The frames that filters let into packet sockets, tested in the kernel on a pair of local
sockets."""

from __future__ import annotations

import socket

import pytest

from rocelab.base.family import Family
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
    within_vxlan,
)
from rocelab.wire.headers import IP_OFFSET, OFFSETS, Opcode
from rocelab.wire.vxlan import VXLAN_BYTES, VXLAN_PORT
from tests.helpers.rc_fakes import ENDPOINTS
from tests.helpers.roce_packets import CAPTURES, ENVELOPE_4, ENVELOPE_6

ENVELOPES = {Family.IPV4: ENVELOPE_4, Family.IPV6: ENVELOPE_6}
PROBES = {family: probe_frame(ENDPOINTS[family], sport=0xC000, dest_qp=2) for family in Family}
DATA = {
    family: roce_frame(ENVELOPES[family], Opcode.RC_WRITE_MIDDLE, psn=0, payload=bytes(64))
    for family in Family
}
in_each_family = pytest.mark.parametrize("family", Family)


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
    assert passes(roce_filter(Family.IPV4), CAPTURES[name])


@in_each_family
def test_our_own_packets_pass_and_only_probes_where_only_they_are_wanted(family: Family) -> None:
    assert passes(roce_filter(family), PROBES[family])
    assert passes(roce_filter(family), DATA[family])
    assert passes(probe_filter(family), PROBES[family])
    assert not passes(probe_filter(family), DATA[family])


@in_each_family
def test_packets_of_the_other_family_do_not_pass(family: Family) -> None:
    (other,) = set(Family) - {family}
    for program in (roce_filter, probe_filter, data_filter):
        assert not passes(program(family), PROBES[other])


@in_each_family
def test_a_flow_is_told_from_others_by_each_of_its_numbers(family: Family) -> None:
    source, destination = ENDPOINTS[family].source_ip, ENDPOINTS[family].destination_ip
    frame = probe_frame(ENDPOINTS[family], sport=0xC123, dest_qp=0x123456)
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


@in_each_family
def test_packets_of_queue_pairs_are_told_from_others_whatever_bits_are_before_the_number(
    family: Family,
) -> None:
    for number, congestion in ((2, 0), (0x20000, 0xC0), (0x12345, 0x40)):
        frame = probe_frame(ENDPOINTS[family], sport=0xC123, dest_qp=number)
        frame = changed(frame, OFFSETS[family].bth + 4, bytes([congestion]))
        assert passes(queue_pair_filter(2, 0x20000, family), frame)
        assert passes(queue_pair_filter(number, number, family), frame)
        assert not passes(queue_pair_filter(number + 1, 0xFFFFFF, family), frame)
        assert not passes(queue_pair_filter(0, number - 1, family), frame)
        fragment = changed(frame, IP_OFFSET + 6, b"\x20" if family is Family.IPV4 else b"\x2c")
        assert not passes(queue_pair_filter(2, 0x20000, family), fragment)


@in_each_family
def test_data_packets_are_told_from_acknowledgements_and_notifications(family: Family) -> None:
    offsets, frame = OFFSETS[family], DATA[family]
    assert passes(data_filter(family), frame)
    assert passes(data_filter(family), PROBES[family])
    last = bytes([Opcode.RC_WRITE_ONLY_WITH_IMM])
    assert passes(data_filter(family), changed(frame, offsets.bth, last))
    for opcode in (Opcode.RC_ACKNOWLEDGE, Opcode.RC_READ_REQUEST, Opcode.CNP):
        answer = changed(frame, offsets.bth, bytes([opcode]))
        assert not passes(data_filter(family), answer), opcode
    assert not passes(data_filter(family), changed(frame, offsets.udp + 2, b"\x12\xb8"))


@pytest.mark.parametrize(
    ("what", "family", "offset", "value"),
    [
        ("another Ethernet type", Family.IPV4, 12, b"\x08\x06"),
        ("IP options", Family.IPV4, IP_OFFSET, b"\x46"),
        ("TCP", Family.IPV4, IP_OFFSET + 9, b"\x06"),
        ("another port", Family.IPV4, OFFSETS[Family.IPV4].udp + 2, b"\x12\xb8"),
        ("the first fragment", Family.IPV4, IP_OFFSET + 6, b"\x20\x00"),
        ("a later fragment", Family.IPV4, IP_OFFSET + 6, b"\x00\x01"),
        ("another Ethernet type", Family.IPV6, 12, b"\x08\x06"),
        ("TCP", Family.IPV6, IP_OFFSET + 6, b"\x06"),
        ("a fragment", Family.IPV6, IP_OFFSET + 6, b"\x2c"),
        ("another port", Family.IPV6, OFFSETS[Family.IPV6].udp + 2, b"\x12\xb8"),
    ],
)
def test_anything_else_does_not(what: str, family: Family, offset: int, value: bytes) -> None:
    assert not passes(roce_filter(family), changed(PROBES[family], offset, value)), what
    assert not passes(probe_filter(family), changed(PROBES[family], offset, value)), what


@in_each_family
def test_short_frames_do_not(family: Family) -> None:
    assert not passes(roce_filter(family), PROBES[family][:30])


def test_a_sink_takes_nothing() -> None:
    assert not passes(NOTHING, PROBES[Family.IPV4])


@pytest.mark.parametrize("frame_bytes", [0, 62, 1500, 1920, 1921, 4174, 9018, 65_000])
def test_slots_hold_a_frame_and_its_header_and_no_more(frame_bytes: int) -> None:
    slot = slot_bytes(frame_bytes)
    assert frame_bytes + 128 <= slot < frame_bytes + 128 + 16
    assert slot % 16 == 0  # TPACKET_ALIGNMENT
    assert slot <= 64 * 1024


def in_vxlan(frame: bytes, port: int = VXLAN_PORT) -> bytes:
    """A frame as a leaf sends it to another."""
    outer = changed(
        PROBES[Family.IPV4][: VXLAN_BYTES - 8], OFFSETS[Family.IPV4].udp + 2, port.to_bytes(2)
    )
    return outer + bytes.fromhex("0800000000271a00") + frame


@in_each_family
def test_a_filter_within_vxlan_reads_the_frame_inside(family: Family) -> None:
    program = within_vxlan(probe_filter(family))

    assert passes(program, in_vxlan(PROBES[family]))
    assert not passes(program, in_vxlan(DATA[family])), "RoCE, and no probe"
    assert not passes(program, in_vxlan(PROBES[family][:20]))
    assert not passes(program, in_vxlan(PROBES[family], port=VXLAN_PORT + 1))
    assert not passes(probe_filter(family), in_vxlan(PROBES[family]))


@in_each_family
def test_a_filter_within_vxlan_reads_other_frames_as_it_did(family: Family) -> None:
    assert passes(within_vxlan(probe_filter(family)), PROBES[family])
    assert not passes(within_vxlan(probe_filter(family)), DATA[family])
    assert passes(within_vxlan(roce_filter(family)), DATA[family])


def test_the_flow_inside_of_vxlan_is_told_from_others() -> None:
    ends = ENDPOINTS[Family.IPV4]
    of_flow, of_another = (
        within_vxlan(flow_filter(ends.source_ip, ends.destination_ip, port, 2))
        for port in (0xC000, 0xC001)
    )

    assert passes(of_flow, in_vxlan(PROBES[Family.IPV4]))
    assert not passes(of_another, in_vxlan(PROBES[Family.IPV4]))
