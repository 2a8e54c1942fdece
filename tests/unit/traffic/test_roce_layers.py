"""RoCEv2 frames and the Scapy layers in them: built frames are dissected, for every opcode."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import AETH, BTH, CNPPadding
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import NoPayload, Packet, Raw

from rocelab.traffic.roce import (
    Acknowledgement,
    AtomicOperation,
    AtomicOriginal,
    Envelope,
    Header,
    Immediate,
    Invalidate,
    RemoteMemory,
    roce_frame,
)
from rocelab.wire.headers import (
    ICRC_BYTES,
    OFFSETS,
    Extension,
    NakCode,
    Opcode,
    Syndrome,
    SyndromeKind,
    extension_bytes,
    extensions,
    family_of,
    has_imm,
    has_payload,
    is_last,
)
from tests.helpers.roce_layers import IETH, RETH, AtomicAckETH, AtomicETH, ImmDt
from tests.helpers.roce_packets import (
    CAPTURES,
    CONNECTX_4_LX_VF_ACK,
    CONNECTX_4_LX_VF_CNP,
    DSCP_CNP,
    ENVELOPE_4,
    ENVELOPE_6,
    ENVELOPES,
    HEADERS,
    PAYLOAD,
    PSN,
    cnp_frame,
    example_frame,
    example_headers,
)

every_envelope = pytest.mark.parametrize("envelope", [ENVELOPE_4, ENVELOPE_6], ids=["IPv4", "IPv6"])
every_opcode = pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)

RC_OPCODES = st.sampled_from([opcode for opcode in Opcode if opcode is not Opcode.CNP])


def header_of(layer: Packet) -> Header | None:
    """The header that `roce_frame` built this layer from."""
    match layer:
        case RETH():
            return RemoteMemory(layer.va, layer.rkey, layer.dmalen)
        case ImmDt():
            return Immediate(layer.data)
        case IETH():
            return Invalidate(layer.rkey)
        case AtomicETH():
            return AtomicOperation(layer.va, layer.rkey, layer.swap, layer.compare)
        case AETH():
            kind = SyndromeKind(layer.syndrome >> 5)
            return Acknowledgement(Syndrome(kind, layer.syndrome & 0b11111), layer.msn)
        case AtomicAckETH():
            return AtomicOriginal(layer.value)
    return None


def dissected_headers(packet: Packet) -> tuple[Header, ...]:
    """The headers between BTH and payload, in order."""
    headers = []
    layer = packet[BTH].payload
    while header := header_of(layer):
        headers.append(header)
        layer = layer.payload
    assert isinstance(layer, Raw | NoPayload)
    return tuple(headers)


def dissected_payload(packet: Packet) -> bytes:
    padded = bytes(packet[Raw].load) if Raw in packet else b""
    pad_bytes = packet[BTH].padcount
    assert padded.endswith(bytes(pad_bytes))
    return padded[: len(padded) - pad_bytes]


def built_anew(packet: Packet) -> bytes:
    """The frame rebuilt from its fields; Scapy computes every length and checksum that it can."""
    for layer, fields in ((IP, ("len", "chksum")), (IPv6, ("plen",)), (UDP, ("len",))):
        if layer in packet:
            for field in fields:
                packet[layer].delfieldval(field)
    packet[BTH].delfieldval("icrc")
    return bytes(packet)


@given(st.data(), ENVELOPES, RC_OPCODES, st.integers(0, 2**24 - 1), st.booleans())
def test_dissecting_a_built_frame_gives_back_what_went_in(
    data: st.DataObject,
    envelope: Envelope,
    opcode: Opcode,
    psn: int,
    ack_request: bool,
) -> None:
    headers = tuple(data.draw(HEADERS[extension]) for extension in extensions(opcode))
    payload = data.draw(st.binary(max_size=300)) if has_payload(opcode) else b""
    frame = roce_frame(
        envelope, opcode, *headers, psn=psn, payload=payload, ack_request=ack_request
    )
    packet = Ether(frame)
    ip = packet[IP] if IP in packet else packet[IPv6]
    bth = packet[BTH]
    assert (packet.src, packet.dst) == (envelope.source_mac, envelope.next_hop_mac)
    assert ip_address(ip.src) == ip_address(envelope.source_ip)
    assert ip_address(ip.dst) == ip_address(envelope.destination_ip)
    assert (packet[UDP].sport, packet[UDP].dport) == (envelope.sport, 4791)
    assert (bth.opcode, bth.psn, bth.dqpn) == (opcode, psn, envelope.dest_qp)
    assert (bth.ackreq, bth.solicited, bth.pkey) == (ack_request, 0, 0xFFFF)
    assert dissected_headers(packet) == headers
    assert dissected_payload(packet) == payload
    assert len(frame) == (
        OFFSETS[family_of(frame)].bth
        + 12
        + extension_bytes(opcode)
        + (len(payload) + 3) // 4 * 4
        + ICRC_BYTES
    )


@every_envelope
@every_opcode
def test_building_what_was_dissected_gives_the_same_frame(
    envelope: Envelope, opcode: Opcode
) -> None:
    frame = example_frame(envelope, opcode)
    assert bytes(Ether(frame)) == frame
    assert built_anew(Ether(frame)) == frame


@given(ENVELOPES, st.sampled_from(Opcode))
def test_building_what_was_dissected_gives_the_same_frame_for_any_addresses(
    envelope: Envelope, opcode: Opcode
) -> None:
    frame = example_frame(envelope, opcode)
    assert built_anew(Ether(frame)) == frame


@pytest.mark.parametrize("frame", CAPTURES.values(), ids=CAPTURES)
def test_a_nics_packet_is_dissected_and_built_to_the_same_bytes(frame: bytes) -> None:
    assert built_anew(Ether(frame)) == frame


@every_envelope
def test_every_byte_of_a_write_with_immediate_is_where_the_specification_puts_it(
    envelope: Envelope,
) -> None:
    frame = example_frame(envelope, Opcode.RC_WRITE_ONLY_WITH_IMM)
    assert frame[OFFSETS[family_of(frame)].bth : -4].hex(" ", 4) == (
        "0b50ffff 00123456 80abcdef "
        "01234567 89abcdef 89abcdef 00010005 "
        "c0ffee42 "
        "e1e2e3e4 e5e6e7e8 e9eaebec edeeef00"
    )


@every_envelope
def test_every_byte_of_an_atomic_operation_and_its_answer_is_where_it_belongs(
    envelope: Envelope,
) -> None:
    request = example_frame(envelope, Opcode.RC_COMPARE_SWAP)
    answer = example_frame(envelope, Opcode.RC_ATOMIC_ACKNOWLEDGE)
    assert request[OFFSETS[family_of(request)].bth + 12 : -4].hex(" ", 4) == (
        "11223344 55667788 99aabbcc 00776655 44332211 00000000 00000042"
    )
    assert (
        answer[OFFSETS[family_of(answer)].bth + 12 : -4].hex(" ", 4) == "62fedcba 88776655 44332211"
    )


def test_the_ack_of_a_connectx_is_rebuilt_from_its_fields() -> None:
    envelope = Envelope(
        source_mac="00:50:56:af:0d:ec",
        next_hop_mac="00:50:56:af:39:dc",
        source_ip="192.168.250.114",
        destination_ip="192.168.250.117",
        sport=53025,
        dest_qp=0xD1E,
        dscp=0,
    )
    acknowledgement = Acknowledgement(Syndrome(SyndromeKind.ACK, 0), 945922)
    frame = roce_frame(envelope, Opcode.RC_ACKNOWLEDGE, acknowledgement, psn=4615966)
    packet = Ether(frame)
    packet[IP].id = 0x3631
    assert built_anew(packet) == CONNECTX_4_LX_VF_ACK


def test_the_cnp_of_a_connectx_is_rebuilt_from_its_fields() -> None:
    envelope = Envelope(
        source_mac="00:50:56:af:0d:ec",
        next_hop_mac="00:50:56:af:39:dc",
        source_ip="192.168.250.114",
        destination_ip="192.168.250.117",
        sport=0,
        dest_qp=0xD1E,
        dscp=DSCP_CNP,
    )
    packet = Ether(cnp_frame(envelope))
    packet[IP].id = 0xB8C5
    assert built_anew(packet) == CONNECTX_4_LX_VF_CNP


@every_envelope
def test_a_cnp_has_becn_and_sixteen_zero_bytes(envelope: Envelope) -> None:
    packet = Ether(cnp_frame(envelope))
    assert (packet[BTH].opcode, packet[BTH].becn, packet[BTH].fecn) == (0x81, 1, 0)
    assert packet[BTH].dqpn == envelope.dest_qp
    assert bytes(packet[CNPPadding]) == bytes(16)


def test_an_ipv6_frame_carries_traffic_class_flow_label_and_hop_limit() -> None:
    envelope = replace(ENVELOPE_6, dscp=34, ecn=1, flow_label=0xFEDCB, ttl=3)
    ip = Ether(example_frame(envelope, Opcode.RC_SEND_ONLY))[IPv6]
    assert (ip.tc, ip.fl, ip.hlim, ip.nh) == (34 << 2 | 1, 0xFEDCB, 3, 17)


@every_opcode
def test_the_predicates_say_which_layers_a_dissected_packet_has(opcode: Opcode) -> None:
    packet = Ether(example_frame(ENVELOPE_4, opcode))
    assert (RETH in packet) == (Extension.RETH in extensions(opcode))
    assert (ImmDt in packet) == has_imm(opcode)
    assert (AETH in packet) == (Extension.AETH in extensions(opcode))
    assert is_last(opcode) == ("LAST" in opcode.name or "ONLY" in opcode.name)


@every_opcode
def test_opcodes_are_numbered_as_scapy_numbers_them(opcode: Opcode) -> None:
    theirs = BTH.fields_desc[0].i2s.get(opcode)
    text = opcode.name.replace("WRITE", "RDMA_WRITE").replace("READ", "RDMA_READ")
    if theirs is None:
        assert opcode.name.endswith("_WITH_INVALIDATE")
    else:
        assert theirs == text.replace("_WITH_IMM", "_WITH_IMMEDIATE")


def test_layers_without_a_bth_end_in_raw() -> None:
    assert isinstance(RETH(bytes(20)).payload, Raw)
    assert isinstance(AETH(bytes(12)).payload, Raw)


def test_scapys_own_defaults_are_left_alone() -> None:
    assert BTH in (UDP() / BTH() / RETH())
    assert (BTH() / RETH()).opcode == 0
    assert (UDP() / BTH()).dport == 4791


@pytest.mark.parametrize(
    ("syndrome", "byte"),
    [
        (Syndrome.ack(), 0x1F),
        (Syndrome(SyndromeKind.ACK, 0), 0x00),
        (Syndrome(SyndromeKind.RNR_NAK, 14), 0x2E),
        (Syndrome.nak(NakCode.PSN_SEQUENCE_ERROR), 0x60),
        (Syndrome.nak(NakCode.REMOTE_OPERATIONAL_ERROR), 0x63),
    ],
    ids=["ACK", "ACK with credits", "RNR NAK", "PSN sequence error", "remote operational error"],
)
def test_a_syndrome_is_the_byte_of_the_specification(syndrome: Syndrome, byte: int) -> None:
    assert syndrome.byte == byte


@pytest.mark.parametrize(
    ("opcode", "headers", "message"),
    [
        (Opcode.RC_WRITE_FIRST, (), "RC_WRITE_FIRST has RETH"),
        (Opcode.RC_SEND_ONLY, (Immediate(1),), "RC_SEND_ONLY has no header, got .'ImmDt'"),
        (
            Opcode.RC_WRITE_ONLY_WITH_IMM,
            (Immediate(1), RemoteMemory(0, 0, 0)),
            "has RETH, ImmDt, got .'ImmDt', 'RETH'",
        ),
        (Opcode.RC_WRITE_FIRST, (RemoteMemory(2**64, 0, 0),), "address is .* 64 bits"),
        (Opcode.RC_SEND_LAST_WITH_IMM, (Immediate(-1),), "immediate data is -1"),
    ],
)
def test_headers_that_are_not_the_opcodes_are_refused(
    opcode: Opcode, headers: tuple[Header, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        roce_frame(ENVELOPE_4, opcode, *headers, psn=0)


def test_payload_where_the_opcode_carries_none_is_refused() -> None:
    with pytest.raises(ValueError, match="RC_READ_REQUEST carries no payload"):
        roce_frame(
            ENVELOPE_4,
            Opcode.RC_READ_REQUEST,
            *example_headers(Opcode.RC_READ_REQUEST),
            psn=0,
            payload=PAYLOAD,
        )


def test_a_cnp_without_its_zero_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="16 zero bytes"):
        roce_frame(ENVELOPE_4, Opcode.CNP, psn=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("dscp", 64), ("ecn", 4), ("ttl", 256), ("sport", 65536), ("dest_qp", 2**24)],
)
def test_a_number_too_large_for_its_field_is_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        example_frame(replace(ENVELOPE_4, **{field: value}), Opcode.RC_SEND_ONLY)


def test_a_psn_beyond_24_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="psn"):
        roce_frame(ENVELOPE_4, Opcode.RC_SEND_ONLY, psn=PSN + 2**24)


def test_addresses_of_two_ip_versions_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in version"):
        example_frame(replace(ENVELOPE_4, destination_ip="2001:db8::1"), Opcode.RC_SEND_ONLY)
