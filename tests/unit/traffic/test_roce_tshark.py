"""rocelab's packets in another dissector, tshark, which shows ICRCs but does not check them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from scapy.utils import wrpcap

from rocelab.traffic.roce import (
    Acknowledgement,
    AtomicOperation,
    AtomicOriginal,
    Envelope,
    Immediate,
    Invalidate,
    RemoteMemory,
)
from rocelab.wire.headers import Opcode, has_payload
from tests.helpers.roce_packets import (
    ENVELOPE_4,
    ENVELOPE_6,
    PAYLOAD,
    PSN,
    example_frame,
    example_headers,
)

pytestmark = pytest.mark.skipif(
    shutil.which("tshark") is None,
    reason="tshark is not installed: whether it reads every field as meant is not checked",
)

FIELDS = (
    "ip.dsfield.dscp",
    "ip.dsfield.ecn",
    "ip.ttl",
    "ipv6.tclass.dscp",
    "ipv6.tclass.ecn",
    "ipv6.hlim",
    "ipv6.flow",
    "udp.srcport",
    "udp.dstport",
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.m",
    "infiniband.bth.padcnt",
    "infiniband.bth.tver",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.immdt",
    "infiniband.ieth",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.syndrome.opcode",
    "infiniband.aeth.syndrome.error_code",
    "infiniband.aeth.msn",
    "infiniband.atomicacketh.origremdt",
    "data.data",
    "infiniband.invariant.crc",
    "_ws.malformed",
)
IP_PREFIXES = ("ip.", "ipv6.", "udp.")

CASES = [
    pytest.param(envelope, opcode, id=f"{version} {opcode.name}")
    for version, envelope in (("IPv4", ENVELOPE_4), ("IPv6", ENVELOPE_6))
    for opcode in Opcode
]
Reading = dict[str, str]


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[Envelope, Opcode], Reading]:
    """The fields that tshark finds in a packet of every opcode over IPv4 and IPv6."""
    packets = [(envelope, opcode) for envelope in (ENVELOPE_4, ENVELOPE_6) for opcode in Opcode]
    path = tmp_path_factory.mktemp("tshark") / "packets.pcap"
    wrpcap(str(path), [example_frame(*packet) for packet in packets], linktype=1)
    return dict(zip(packets, read_by_tshark(path), strict=True))


def read_by_tshark(path: Path) -> list[Reading]:
    wanted = [argument for field in FIELDS for argument in ("-e", field)]
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-E", "occurrence=l", *wanted]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = output.split("\n")[:-1]
    return [
        {field: value for field, value in zip(FIELDS, line.split("\t"), strict=True) if value}
        for line in lines
    ]


def number(text: str) -> int:
    """tshark writes some fields in hexadecimal, flags as 0 and 1 or as words."""
    return {"False": 0, "True": 1}[text] if text in ("False", "True") else int(text, 0)


def expected_headers(opcode: Opcode) -> dict[str, int | str]:
    fields: dict[str, int | str] = {}
    for header in example_headers(opcode):
        match header:
            case RemoteMemory():
                fields["infiniband.reth.va"] = header.address
                fields["infiniband.reth.r_key"] = header.rkey
                fields["infiniband.reth.dmalen"] = header.length_bytes
            case Immediate():
                fields["infiniband.immdt"] = f"{header.data:08x}"
            case Invalidate():
                fields["infiniband.ieth"] = f"{header.rkey:08x}"
            case AtomicOperation():
                fields["infiniband.reth.va"] = header.address
                fields["infiniband.reth.r_key"] = header.rkey
                fields["infiniband.atomiceth.swapdt"] = header.swap
                fields["infiniband.atomiceth.cmpdt"] = header.compare
            case Acknowledgement():
                fields["infiniband.aeth.syndrome"] = header.syndrome.byte
                fields["infiniband.aeth.syndrome.opcode"] = header.syndrome.kind
                fields["infiniband.aeth.syndrome.error_code"] = header.syndrome.value
                fields["infiniband.aeth.msn"] = header.msn
            case AtomicOriginal():
                fields["infiniband.atomicacketh.origremdt"] = header.value
    return fields


@pytest.mark.parametrize(("envelope", "opcode"), CASES)
def test_tshark_reads_every_field_behind_udp_as_meant(
    readings: dict[tuple[Envelope, Opcode], Reading], envelope: Envelope, opcode: Opcode
) -> None:
    is_cnp = opcode is Opcode.CNP
    pad_bytes = 1 if has_payload(opcode) and not is_cnp else 0
    expected: dict[str, int | str] = {
        "infiniband.bth.opcode": opcode,
        "infiniband.bth.se": 0,
        "infiniband.bth.m": int(not is_cnp),
        "infiniband.bth.padcnt": pad_bytes,
        "infiniband.bth.tver": 0,
        "infiniband.bth.p_key": 0xFFFF,
        "infiniband.bth.destqp": envelope.dest_qp,
        "infiniband.bth.a": int(not is_cnp),
        "infiniband.bth.psn": 0 if is_cnp else PSN,
        **expected_headers(opcode),
    }
    if pad_bytes:
        expected["data.data"] = (PAYLOAD + bytes(pad_bytes)).hex()
    reading = {
        field: value
        for field, value in readings[envelope, opcode].items()
        if not field.startswith(IP_PREFIXES)
    }
    # Wireshark 4.0 does not know CNPs and leaves what follows their BTH alone.
    crc = reading.pop("infiniband.invariant.crc", None)
    if not is_cnp:
        assert crc is not None
        assert int(crc, 16).to_bytes(4, "big") == example_frame(envelope, opcode)[-4:]
    assert {
        field: value if isinstance(expected.get(field), str) else number(value)
        for field, value in reading.items()
    } == expected


@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
def test_tshark_reads_the_ip_and_udp_headers_as_meant(
    readings: dict[tuple[Envelope, Opcode], Reading], opcode: Opcode
) -> None:
    over_4, over_6 = readings[ENVELOPE_4, opcode], readings[ENVELOPE_6, opcode]
    ipv4 = ("ip.dsfield.dscp", "ip.dsfield.ecn", "ip.ttl", "udp.srcport", "udp.dstport")
    ipv6 = ("ipv6.tclass.dscp", "ipv6.tclass.ecn", "ipv6.hlim", "ipv6.flow", "udp.dstport")
    assert [number(over_4[field]) for field in ipv4] == [26, 2, 64, ENVELOPE_4.sport, 4791]
    assert [number(over_6[field]) for field in ipv6] == [26, 2, 64, ENVELOPE_6.flow_label, 4791]
