"""RoCEv2 probes: their fields, and stamping compared with Scapy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from rocelab.jobs.flow import Endpoints
from rocelab.traffic.roce import probe_frame
from rocelab.wire.icrc import icrc
from rocelab.wire.probe import MIN_PAYLOAD_BYTES, ProbeStamper
from tests.helpers.probe_reader import Probe, parse_probe
from tests.helpers.roce_packets import CONNECTX_4_LX_CNP

OCTETS = st.integers(0, 255)
MACS = st.lists(OCTETS, min_size=6, max_size=6).map(lambda o: ":".join(f"{x:02x}" for x in o))


def endpoints_of(addresses: st.SearchStrategy[str]) -> st.SearchStrategy[Endpoints]:
    return st.builds(
        Endpoints,
        source=st.just("srv1-1"),
        interface=st.just("rtsw1"),
        destination=st.just("srv2-1"),
        source_mac=MACS,
        next_hop_mac=MACS,
        source_ip=addresses,
        destination_ip=addresses,
        mtu=st.just(9000),
    )


ENDPOINTS = endpoints_of(st.ip_addresses(v=4).map(str)) | endpoints_of(
    st.ip_addresses(v=6).map(str)
)
SPORTS = st.integers(1, 2**16 - 1)
QPS = st.integers(0, 2**24 - 1)
IDS = st.integers(0, 2**32 - 1)
LONG = st.integers(0, 2**64 - 1)
SIZES = st.integers(MIN_PAYLOAD_BYTES, 300) | st.integers(4000, 4096)
TTLS = st.integers(1, 255)

NICS = Endpoints(
    source="srv1-1",
    interface="rtsw1",
    destination="srv2-1",
    source_mac="02:00:00:00:00:01",
    next_hop_mac="06:00:00:00:00:01",
    source_ip="198.18.0.0",
    destination_ip="198.18.0.4",
    mtu=9000,
)


def test_a_probe_is_rocev2_as_a_nic_sends_it() -> None:
    packet = Ether(probe_frame(NICS, sport=0xC001, dest_qp=0x123456, sequence=5, payload_bytes=256))
    assert (packet[Ether].src, packet[Ether].dst) == (NICS.source_mac, NICS.next_hop_mac)
    assert packet[IP].tos >> 2 == 26
    assert packet[IP].tos & 3 == 2
    assert packet[IP].len == 20 + 8 + 12 + 256 + 4
    assert (packet[UDP].sport, packet[UDP].dport, packet[UDP].chksum) == (0xC001, 4791, 0)
    assert packet[BTH].opcode == 4
    assert (packet[BTH].dqpn, packet[BTH].psn, packet[BTH].padcount) == (0x123456, 5, 0)


def test_the_ipv4_header_checksum_is_right() -> None:
    header = probe_frame(NICS, sport=1, dest_qp=1)[14:34]
    words = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, 20, 2))
    assert (words & 0xFFFF) + (words >> 16) == 0xFFFF


def test_the_psn_is_the_sequence_number_modulo_its_24_bits() -> None:
    probe = parse_probe(probe_frame(NICS, sport=1, dest_qp=1, sequence=2**24 + 7))
    assert probe is not None
    assert (probe.sequence, probe.psn) == (2**24 + 7, 7)


@given(ENDPOINTS, SPORTS, QPS, IDS, LONG, LONG, SIZES, TTLS)
def test_parsing_a_built_probe_gives_back_what_went_in(
    endpoints: Endpoints,
    sport: int,
    dest_qp: int,
    flow: int,
    sequence: int,
    send_ns: int,
    payload_bytes: int,
    ttl: int,
) -> None:
    frame = probe_frame(
        endpoints,
        sport=sport,
        dest_qp=dest_qp,
        flow=flow,
        sequence=sequence,
        send_ns=send_ns,
        payload_bytes=payload_bytes,
        ttl=ttl,
    )
    assert parse_probe(frame) == Probe(
        flow, sequence, send_ns, sequence % 2**24, dest_qp, sport, ttl
    )


@given(ENDPOINTS, SPORTS, QPS, IDS, st.lists(st.tuples(LONG, LONG), max_size=4), SIZES)
def test_a_stamped_frame_equals_the_one_scapy_builds(
    endpoints: Endpoints,
    sport: int,
    dest_qp: int,
    flow: int,
    stamps: list[tuple[int, int]],
    payload_bytes: int,
) -> None:
    def build(sequence: int, send_ns: int) -> bytes:
        return probe_frame(
            endpoints,
            sport=sport,
            dest_qp=dest_qp,
            flow=flow,
            sequence=sequence,
            send_ns=send_ns,
            payload_bytes=payload_bytes,
        )

    stamper = ProbeStamper(build(0, 0))
    for sequence, send_ns in stamps:
        assert bytes(stamper.stamp(sequence, send_ns)) == build(sequence, send_ns)


@given(st.data(), SIZES)
def test_a_flipped_bit_anywhere_in_the_payload_fails_the_icrc(
    data: st.DataObject, payload_bytes: int
) -> None:
    frame = bytearray(probe_frame(NICS, sport=1, dest_qp=1, payload_bytes=payload_bytes))
    bit = data.draw(st.integers(0, 8 * payload_bytes - 1))
    frame[54 + bit // 8] ^= 1 << bit % 8
    assert icrc(frame) != frame[-4:]
    assert parse_probe(bytes(frame)) is None


@given(tos=OCTETS, ttl=OCTETS, checksum=st.binary(min_size=2, max_size=2))
def test_what_switches_change_on_the_way_leaves_the_icrc_valid(
    tos: int, ttl: int, checksum: bytes
) -> None:
    frame = bytearray(probe_frame(NICS, sport=1, dest_qp=1))
    frame[15], frame[22], frame[24:26] = tos, ttl, checksum
    probe = parse_probe(bytes(frame))
    assert probe is not None
    assert probe.ttl == ttl


@given(st.binary(max_size=200))
def test_other_bytes_are_no_probe(frame: bytes) -> None:
    assert parse_probe(frame) is None


@given(st.integers(0, 81))
def test_a_cut_probe_is_no_probe(length: int) -> None:
    assert parse_probe(probe_frame(NICS, sport=1, dest_qp=1)[:length]) is None


def test_bytes_behind_the_ip_packet_do_not_matter() -> None:
    frame = probe_frame(NICS, sport=1, dest_qp=1)
    assert parse_probe(frame + b"trailer") == parse_probe(frame) is not None


def test_a_cnp_is_no_probe() -> None:
    assert parse_probe(CONNECTX_4_LX_CNP) is None


def test_a_payload_too_small_for_a_probe_is_refused() -> None:
    with pytest.raises(ValueError, match="24 bytes"):
        probe_frame(NICS, sport=1, dest_qp=1, payload_bytes=23)


def test_a_frame_of_another_family_than_its_header_is_no_probe() -> None:
    mixed = bytearray(probe_frame(NICS, sport=1, dest_qp=1))
    mixed[12:14] = b"\x86\xdd"
    assert parse_probe(bytes(mixed)) is None
    with pytest.raises(ValueError, match="not an Ethernet frame"):
        ProbeStamper(bytes(mixed))
