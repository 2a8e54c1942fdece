"""Captures as scapy writes them, read in any pieces, and as tshark reads ours."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.l2 import Ether
from scapy.utils import PcapWriter

from rocelab.observe.pcapng import (
    PCAP_HEADER_BYTES,
    CapturedPacket,
    PcapReader,
    pcapng_header,
    pcapng_packet,
)

TIMES_NS = (1_700_000_000_000_000_001, 1_700_000_000_999_999_999, 1_700_000_001_000_000_000)


def pcap(times_ns: Sequence[int], *, nano: bool = True) -> bytes:
    """A capture with a frame at each of these times, as scapy writes it."""
    written = io.BytesIO()
    with PcapWriter(written, nano=nano, linktype=1) as writer:
        writer.write_header(None)
        for number, time_ns in enumerate(times_ns):
            seconds, nanoseconds = divmod(time_ns, 10**9)
            frame = bytes(Ether(type=0x88B5)) + bytes(number)
            writer.write_packet(frame, sec=seconds, usec=nanoseconds if nano else 0)
        writer.flush()
        return written.getvalue()


@given(st.integers(1, 200))
def test_a_capture_is_read_in_pieces_of_any_size(size: int) -> None:
    data = pcap(TIMES_NS)
    reader = PcapReader(data[:PCAP_HEADER_BYTES])
    rest = data[PCAP_HEADER_BYTES:]
    pieces = [rest[at : at + size] for at in range(0, len(rest), size)]
    packets = [packet for piece in pieces for packet in reader.feed(piece)]
    assert [packet.time_ns for packet in packets] == list(TIMES_NS)
    assert [len(packet.data) for packet in packets] == [14, 15, 16]


def test_a_packet_that_is_cut_off_is_left_out() -> None:
    data = pcap(TIMES_NS)
    reader = PcapReader(data[:PCAP_HEADER_BYTES])
    assert len(list(reader.feed(data[PCAP_HEADER_BYTES:-1]))) == 2


@pytest.mark.parametrize("data", [b"", pcap(())[:-1], pcap((), nano=False)])
def test_what_is_no_capture_with_nanoseconds_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="capture"):
        PcapReader(data[:PCAP_HEADER_BYTES])


@pytest.mark.skipif(
    shutil.which("tshark") is None,
    reason="tshark is not installed: whether it reads names and times as meant is not checked",
)
def test_tshark_reads_interfaces_and_nanoseconds() -> None:
    ports = {name: PcapReader(pcap(())) for name in ("rtsw1:ctsw1", "ctsw1:rtsw1")}
    sent = [
        (1, CapturedPacket(TIMES_NS[0], 60, bytes(14))),
        (0, CapturedPacket(TIMES_NS[1], 17, bytes(17))),
    ]
    blocks = [pcapng_packet(packet, number) for number, packet in sent]
    fields = ("frame.interface_name", "frame.time_epoch", "frame.cap_len", "frame.len")
    done = subprocess.run(
        ["tshark", "-r", "-", "-T", "fields", *(f"-e{field}" for field in fields)],
        input=pcapng_header("rocelab", ports) + b"".join(blocks),
        capture_output=True,
        check=True,
    )
    assert [line.split() for line in done.stdout.decode().splitlines()] == [
        ["ctsw1:rtsw1", "1700000000.000000001", "14", "60"],
        ["rtsw1:ctsw1", "1700000000.999999999", "17", "17"],
    ]
