"""RoCEv2 packets for tests: captures of real NICs, and a generated one for every opcode."""

from __future__ import annotations

from hypothesis import strategies as st

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
    CNP_PAYLOAD_BYTES,
    Extension,
    NakCode,
    Opcode,
    Syndrome,
    SyndromeKind,
    extensions,
    has_payload,
)

DSCP_CNP = 48
"""ConnectX NICs' default DSCP of CNPs, for a queue of strict priority."""

# From the tests of Scapy's RoCE module (test/contrib/roce.uts, secdev/scapy).
CONNECTX_4_LX_CNP = bytes.fromhex(
    "e41d2dab2bc27cfe90643b320800"
    "45c2003c718c4000401191610a0011010a001201"
    "000012b700280000"
    "8100ffff4000011800000000"
    "00000000000000000000000000000000"
    "82fd002a"
)
UC_SEND_ONLY = bytes.fromhex(
    "248a07a8fa22248a07a8fa220800"
    "45010040047840004011b4d5c0a80007c0a80007"
    "c00012b7002caca2"
    "2460ffff000000d300cf1710"
    "4630818be28935d90e9a95505401be885e500000"
    "78f353f3"
)

# Frames 1 and 42818 of rdma_ecn.pcap, virtual functions of ConnectX-4 Lx behind a Cisco Nexus, from
# the packet analysis in Enizaksoy/rdma-ai-cluster (GitHub): fields and ICRC from its field listing,
# IP identification and checksum from its hex dump. In the flags byte, the ACK's MSN and the CNP's
# BECN byte the dump contradicts the listing. Trying all identifications, DF, SE, M and A with what
# the listing says, one combination gives the captured ICRC, and it has the dump's identification.
CONNECTX_4_LX_VF_ACK = bytes.fromhex(
    "005056af39dc005056af0dec0800"
    "450200303631400040118e50c0a8fa72c0a8fa75"
    "cf2112b7001c0000"
    "1140ffff00000d1e00466f1e"
    "000e6f02"
    "8d64383d"
)
CONNECTX_4_LX_VF_CNP = bytes.fromhex(
    "005056af39dc005056af0dec0800"
    "45c2003cb8c5400040110af0c0a8fa72c0a8fa75"
    "000012b700280000"
    "8100ffff40000d1e00000000"
    "00000000000000000000000000000000"
    "b0081c7f"
)

CAPTURES = {
    "ConnectX-4 Lx CNP": CONNECTX_4_LX_CNP,
    "UC SEND_ONLY": UC_SEND_ONLY,
    "ConnectX-4 Lx VF ACK": CONNECTX_4_LX_VF_ACK,
    "ConnectX-4 Lx VF CNP": CONNECTX_4_LX_VF_CNP,
}

ENVELOPE_4 = Envelope(
    source_mac="02:00:00:00:00:01",
    next_hop_mac="06:00:00:00:00:01",
    source_ip="198.18.0.1",
    destination_ip="198.18.4.2",
    sport=0xC0DE,
    dest_qp=0x123456,
)
ENVELOPE_6 = Envelope(
    source_mac="02:00:00:00:00:01",
    next_hop_mac="06:00:00:00:00:01",
    source_ip="2001:db8::1",
    destination_ip="2001:db8:4::2",
    sport=0xC0DE,
    dest_qp=0x123456,
    flow_label=0x6789A,
)
PAYLOAD = bytes(range(0xE1, 0xF0))
PSN = 0xABCDEF

_EXAMPLES: dict[Extension, Header] = {
    Extension.RETH: RemoteMemory(0x0123456789ABCDEF, 0x89ABCDEF, 0x10005),
    Extension.IMM: Immediate(0xC0FFEE42),
    Extension.IETH: Invalidate(0x1A2B3C4D),
    Extension.ATOMIC: AtomicOperation(0x1122334455667788, 0x99AABBCC, 0x77665544332211, 0x42),
    Extension.AETH: Acknowledgement(Syndrome.nak(NakCode.REMOTE_ACCESS_ERROR), 0xFEDCBA),
    Extension.ATOMIC_ACK: AtomicOriginal(0x8877665544332211),
}


def cnp_frame(envelope: Envelope) -> bytes:
    """A congestion notification packet for the queue pair `dest_qp` (annex A17.9.3): BECN, PSN 0.

    ConnectX NICs send it with `DSCP_CNP` and UDP source port 0; the caller sets both in the
    envelope.
    """
    return roce_frame(envelope, Opcode.CNP, psn=0, payload=bytes(CNP_PAYLOAD_BYTES))


def example_headers(opcode: Opcode) -> tuple[Header, ...]:
    """The headers of the opcode, with distinct values in all bytes."""
    return tuple(_EXAMPLES[extension] for extension in extensions(opcode))


def example_frame(envelope: Envelope, opcode: Opcode) -> bytes:
    """A packet of the opcode with 15 bytes of payload, if it carries any."""
    if opcode is Opcode.CNP:
        return cnp_frame(envelope)
    return roce_frame(
        envelope,
        opcode,
        *example_headers(opcode),
        psn=PSN,
        payload=PAYLOAD if has_payload(opcode) else b"",
        ack_request=True,
    )


def _unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


_SYNDROMES = st.builds(Syndrome, st.sampled_from(SyndromeKind), st.integers(0, 31))
HEADERS: dict[Extension, st.SearchStrategy[Header]] = {
    Extension.RETH: st.builds(RemoteMemory, _unsigned(64), _unsigned(32), _unsigned(32)),
    Extension.IMM: st.builds(Immediate, _unsigned(32)),
    Extension.IETH: st.builds(Invalidate, _unsigned(32)),
    Extension.ATOMIC: st.builds(
        AtomicOperation, _unsigned(64), _unsigned(32), _unsigned(64), _unsigned(64)
    ),
    Extension.AETH: st.builds(Acknowledgement, _SYNDROMES, _unsigned(24)),
    Extension.ATOMIC_ACK: st.builds(AtomicOriginal, _unsigned(64)),
}

_MACS = st.binary(min_size=6, max_size=6).map(lambda octets: octets.hex(":"))


def _envelopes(addresses: st.SearchStrategy[str]) -> st.SearchStrategy[Envelope]:
    return st.builds(
        Envelope,
        source_mac=_MACS,
        next_hop_mac=_MACS,
        source_ip=addresses,
        destination_ip=addresses,
        sport=st.just(0) | st.integers(0xC000, 0xFFFF),
        dest_qp=_unsigned(24),
        dscp=_unsigned(6),
        ecn=_unsigned(2),
        ttl=_unsigned(8),
        flow_label=_unsigned(20),
    )


ENVELOPES = _envelopes(st.ip_addresses(v=4).map(str)) | _envelopes(st.ip_addresses(v=6).map(str))
