"""The invariant CRC: against real NICs' packets, and against a bit-by-bit implementation of the
specification."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.traffic.roce import Envelope
from rocelab.wire.headers import OFFSETS, Opcode, family_of
from rocelab.wire.icrc import crc_before_psn, icrc, icrc_is_right
from tests.helpers.roce_packets import CAPTURES, ENVELOPE_4, ENVELOPE_6, example_frame

VARIANT, INVARIANT = True, False

# Widths in bits, in the order of the wire; variant fields count as ones (annex A17, A17.3.3).
IPV4_FIELDS = (
    (8, INVARIANT),  # version, header length
    (8, VARIANT),  # TOS
    (16 + 16 + 16, INVARIANT),  # length, identification, flags and fragment offset
    (8, VARIANT),  # TTL
    (8, INVARIANT),  # protocol
    (16, VARIANT),  # header checksum
    (32 + 32, INVARIANT),  # addresses
)
IPV6_FIELDS = (
    (4, INVARIANT),  # version
    (8, VARIANT),  # traffic class
    (20, VARIANT),  # flow label
    (16 + 8, INVARIANT),  # length, next header
    (8, VARIANT),  # hop limit
    (128 + 128, INVARIANT),  # addresses
)
UDP_FIELDS = ((16 + 16 + 16, INVARIANT), (16, VARIANT))
BTH_FIELDS = (
    (8 + 8 + 16, INVARIANT),  # opcode; SE, M, pad count, version; partition key
    (8, VARIANT),  # FECN, BECN, reserved
    (24 + 8 + 24, INVARIANT),  # QP; A, reserved; PSN
)
ETHERNET_BYTES = 14
ENVELOPES = [ENVELOPE_4, ENVELOPE_6]
IP_VERSIONS = ["IPv4", "IPv6"]
every_envelope = pytest.mark.parametrize("envelope", ENVELOPES, ids=IP_VERSIONS)
every_opcode = pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)


def bits_of_the_wire(data: bytes) -> Iterator[int]:
    """Least significant bit of each byte first, as Ethernet's CRC takes them."""
    return (byte >> i & 1 for byte in data for i in range(8))


def crc_bit_by_bit(bits: Iterator[int]) -> bytes:
    """Division by 0x04C11DB7, preset to ones, complemented, coefficient of x^31 sent first."""
    register = 0xFFFFFFFF
    for bit in bits:
        feedback = register >> 31 ^ bit
        register = register << 1 & 0xFFFFFFFF ^ (0x04C11DB7 if feedback else 0)
    remainder = register ^ 0xFFFFFFFF
    return bytes(
        sum((remainder >> 31 - (8 * byte + bit) & 1) << bit for bit in range(8))
        for byte in range(4)
    )


def variant_bits(frame: bytes) -> list[bool]:
    """For every bit behind Ethernet, most significant first, whether it may change on the way."""
    ip = IPV4_FIELDS if frame[12:14] == b"\x08\x00" else IPV6_FIELDS
    headers = list(
        chain.from_iterable([variant] * width for width, variant in ip + UDP_FIELDS + BTH_FIELDS)
    )
    return headers + [INVARIANT] * (8 * (len(frame) - ETHERNET_BYTES) - len(headers))


def icrc_by_the_specification(frame: bytes) -> bytes:
    covered = int.from_bytes(frame[ETHERNET_BYTES:-4], "big")
    length = len(frame) - ETHERNET_BYTES - 4
    ones = int("".join(str(int(v)) for v in variant_bits(frame)[: 8 * length]), 2)
    masked = (covered | ones).to_bytes(length, "big")
    return crc_bit_by_bit(bits_of_the_wire(b"\xff" * 8 + masked))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """RoCEv2 frames of any opcode, every field that can be anything being anything; no ICRC yet."""

    def octets(number: int) -> bytes:
        return draw(st.binary(min_size=number, max_size=number))

    bth = bytes([draw(st.sampled_from(Opcode))]) + octets(11)
    behind = draw(st.binary(max_size=300))
    udp_bytes = 8 + len(bth) + len(behind) + 4
    udp = octets(2) + (4791).to_bytes(2, "big") + udp_bytes.to_bytes(2, "big") + octets(2)
    if draw(st.booleans()):
        ip = b"\x08\x00\x45" + octets(1) + (20 + udp_bytes).to_bytes(2, "big") + octets(2)
        ip += b"\x40\x00" + octets(1) + b"\x11" + octets(2 + 8)
    else:
        ip = b"\x86\xdd" + bytes([0x60 | draw(st.integers(0, 15))]) + octets(3)
        ip += udp_bytes.to_bytes(2, "big") + b"\x11" + octets(1 + 32)
    return octets(12) + ip + udp + bth + behind + bytes(4)


def flipped(frame: bytes, bit: int) -> bytes:
    """The frame with one bit behind Ethernet changed, counted from the most significant."""
    changed = bytearray(frame)
    changed[ETHERNET_BYTES + bit // 8] ^= 0x80 >> bit % 8
    return bytes(changed)


@pytest.mark.parametrize("frame", CAPTURES.values(), ids=CAPTURES)
def test_the_icrc_of_a_packet_captured_from_a_nic_is_reproduced(frame: bytes) -> None:
    assert icrc(frame) == frame[-4:]
    assert icrc_is_right(frame)


@pytest.mark.parametrize("frame", CAPTURES.values(), ids=CAPTURES)
def test_the_bit_by_bit_icrc_agrees_with_the_nics(frame: bytes) -> None:
    assert icrc_by_the_specification(frame) == frame[-4:]


@pytest.mark.parametrize("frame", CAPTURES.values(), ids=CAPTURES)
def test_the_captures_have_right_ip_checksums(frame: bytes) -> None:
    words = sum(int.from_bytes(frame[i : i + 2], "big") for i in range(14, 34, 2))
    assert (words & 0xFFFF) + (words >> 16) == 0xFFFF


@given(frames())
def test_the_icrc_of_any_packet_is_that_of_the_specification(frame: bytes) -> None:
    assert icrc(frame) == icrc_by_the_specification(frame)


@every_envelope
@every_opcode
def test_the_icrc_that_scapy_builds_is_right_for_every_opcode(
    envelope: Envelope, opcode: Opcode
) -> None:
    frame = example_frame(envelope, opcode)
    assert icrc_is_right(frame)
    assert icrc_by_the_specification(frame) == frame[-4:]


@every_envelope
@every_opcode
def test_exactly_the_bits_that_may_change_on_the_way_leave_the_icrc_right(
    envelope: Envelope, opcode: Opcode
) -> None:
    frame = example_frame(envelope, opcode)
    assert [icrc_is_right(flipped(frame, bit)) for bit in range(8 * (len(frame) - 14))] == (
        variant_bits(frame)
    )


@given(frames())
def test_the_crc_before_the_psn_continues_to_the_icrc(frame: bytes) -> None:
    rest = frame[OFFSETS[family_of(frame)].bth + 8 : -4]
    assert crc32(rest, crc_before_psn(frame)).to_bytes(4, "little") == icrc(frame)


@given(frames(), st.binary(max_size=20))
def test_bytes_behind_the_ip_packet_do_not_count(frame: bytes, trailer: bytes) -> None:
    assert icrc_is_right(frame[:-4] + icrc(frame) + trailer)


@given(frames(), st.data())
def test_a_cut_packet_is_never_right(frame: bytes, data: st.DataObject) -> None:
    whole = frame[:-4] + icrc(frame)
    assert not icrc_is_right(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=120))
def test_other_bytes_are_never_right(frame: bytes) -> None:
    assert not icrc_is_right(frame)


@pytest.mark.parametrize(
    ("offset", "value"),
    [(12, b"\x81\x00"), (14, b"\x46"), (20, b"\x20\x00"), (20, b"\x40\x01"), (23, b"\x06")],
    ids=["VLAN tag", "IPv4 options", "first fragment", "later fragment", "TCP"],
)
def test_what_is_not_plain_rocev2_over_ipv4_has_no_icrc(offset: int, value: bytes) -> None:
    frame = bytearray(example_frame(ENVELOPE_4, Opcode.RC_SEND_ONLY))
    frame[offset : offset + len(value)] = value
    with pytest.raises(ValueError, match="without options"):
        icrc(frame)


def test_an_ipv6_extension_header_has_no_icrc() -> None:
    frame = bytearray(example_frame(ENVELOPE_6, Opcode.RC_SEND_ONLY))
    frame[20] = 44
    with pytest.raises(ValueError, match="UDP"):
        crc_before_psn(frame)
