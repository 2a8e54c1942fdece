"""The layout and codes of a RoCEv2 frame: offsets, opcodes, AETH syndromes.

Constants and small predicates for all code that handles packets. Standard library only, so that the
process in each server starts fast.

    Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8 | BTH 12 | extended headers | payload, pad | ICRC 4
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple

from rocelab.base.family import Family

ROCE_PORT = 4791
PSN_MASK = 0xFFFFFF
CNP_PAYLOAD_BYTES = 16

IP_OFFSET = 14
LABEL_BITS = 0x3FFF
"""Those of a UDP source port that are its packets' IPv6 flow label (`flow_label`)."""

UDP_BYTES = 8
BTH_BYTES = 12
ICRC_BYTES = 4


class HeaderOffsets(NamedTuple):
    """Where the headers after IP start in the frames of a family, without IPv4 options and IPv6
    extension headers."""

    udp: int
    bth: int
    psn: int
    """The BTH's word with the PSN in its lower 24 bits."""
    payload: int
    """What follows the BTH: extended headers, if the opcode has any."""


def _after(ip_bytes: int) -> HeaderOffsets:
    bth = IP_OFFSET + ip_bytes + UDP_BYTES
    return HeaderOffsets(bth - UDP_BYTES, bth, bth + 8, bth + BTH_BYTES)


OFFSETS = {Family.IPV4: _after(20), Family.IPV6: _after(40)}
UDP_OFFSET, BTH_OFFSET, PSN_OFFSET, PAYLOAD_OFFSET = OFFSETS[Family.IPV4]
"""Those of IPv4."""

_PROTOCOL_UDP = 17
_IPV4_NO_OPTIONS = b"\x08\x00\x45"
_IPV6_ETHERTYPE = b"\x86\xdd"
_IPV6_VERSION = 6
_CE = 0b11


def family_of(frame: bytes | bytearray) -> Family:
    """The family of a RoCEv2 frame.

    NICs send RoCEv2 without IPv4 options, IPv6 extension headers or fragments. Raises ValueError if
    the frame has any of these, a VLAN tag, another protocol than UDP, or no room for BTH and ICRC.
    """
    if len(frame) >= PAYLOAD_OFFSET + ICRC_BYTES:
        if frame[12:15] == _IPV4_NO_OPTIONS:
            if frame[23] == _PROTOCOL_UDP and not (frame[20] & 0x3F or frame[21]):
                return Family.IPV4
        elif (
            frame[12:14] == _IPV6_ETHERTYPE
            and frame[IP_OFFSET] >> 4 == _IPV6_VERSION
            and frame[20] == _PROTOCOL_UDP
            and len(frame) >= OFFSETS[Family.IPV6].payload + ICRC_BYTES
        ):
            return Family.IPV6
    raise ValueError("not an Ethernet frame with IPv4 without options, or IPv6, and UDP and a BTH")


def set_source_port(frame: bytearray, family: Family, port: int) -> None:
    """Give a frame of that family another UDP source port, and the flow label that goes with it.
    Its ICRC is not renewed."""
    frame[OFFSETS[family].udp : OFFSETS[family].udp + 2] = port.to_bytes(2, "big")
    if family is Family.IPV6:
        label = flow_label(port)
        frame[IP_OFFSET + 1] = frame[IP_OFFSET + 1] & 0xF0 | label >> 16
        frame[IP_OFFSET + 2 : IP_OFFSET + 4] = (label & 0xFFFF).to_bytes(2, "big")


def flow_label(source_port: int) -> int:
    """The IPv6 flow label of packets from a UDP source port.

    It is the one from which Linux's drivers make that port, in their range from 0xC000 on
    (rdma_flow_label_to_udp_sport, include/rdma/ib_verbs.h): a switch that hashes labels separates
    the flows that one that hashes ports does.
    """
    return source_port & LABEL_BITS


def is_marked(frame: bytes | bytearray, family: Family) -> bool:
    """Whether a switch has marked a frame of that family: ECN's CE (RFC 3168 section 5)."""
    return traffic_class(frame, family) & _CE == _CE


def traffic_class(frame: bytes | bytearray, family: Family) -> int:
    """IPv4's TOS or IPv6's traffic class of a frame: DSCP and ECN."""
    if family is Family.IPV4:
        return frame[IP_OFFSET + 1]
    return frame[IP_OFFSET] << 4 & 0xF0 | frame[IP_OFFSET + 1] >> 4


def hop_limit(frame: bytes | bytearray, family: Family) -> int:
    """IPv4's TTL or IPv6's hop limit of a frame."""
    return frame[IP_OFFSET + (8 if family is Family.IPV4 else 7)]


class Opcode(IntEnum):
    """The BTH's first byte: transport service in the upper three bits, operation in the lower five.

    InfiniBand Architecture Specification, volume 1, table "OpCode field"; CNP: annex A17.9.3.
    """

    RC_SEND_FIRST = 0x00
    RC_SEND_MIDDLE = 0x01
    RC_SEND_LAST = 0x02
    RC_SEND_LAST_WITH_IMM = 0x03
    RC_SEND_ONLY = 0x04
    RC_SEND_ONLY_WITH_IMM = 0x05
    RC_WRITE_FIRST = 0x06
    RC_WRITE_MIDDLE = 0x07
    RC_WRITE_LAST = 0x08
    RC_WRITE_LAST_WITH_IMM = 0x09
    RC_WRITE_ONLY = 0x0A
    RC_WRITE_ONLY_WITH_IMM = 0x0B
    RC_READ_REQUEST = 0x0C
    RC_READ_RESPONSE_FIRST = 0x0D
    RC_READ_RESPONSE_MIDDLE = 0x0E
    RC_READ_RESPONSE_LAST = 0x0F
    RC_READ_RESPONSE_ONLY = 0x10
    RC_ACKNOWLEDGE = 0x11
    RC_ATOMIC_ACKNOWLEDGE = 0x12
    RC_COMPARE_SWAP = 0x13
    RC_FETCH_ADD = 0x14
    RC_SEND_LAST_WITH_INVALIDATE = 0x16
    RC_SEND_ONLY_WITH_INVALIDATE = 0x17
    UC_SEND_FIRST = 0x20
    UC_SEND_MIDDLE = 0x21
    UC_SEND_LAST = 0x22
    UC_SEND_LAST_WITH_IMM = 0x23
    UC_SEND_ONLY = 0x24
    UC_SEND_ONLY_WITH_IMM = 0x25
    UC_WRITE_FIRST = 0x26
    UC_WRITE_MIDDLE = 0x27
    UC_WRITE_LAST = 0x28
    UC_WRITE_LAST_WITH_IMM = 0x29
    UC_WRITE_ONLY = 0x2A
    UC_WRITE_ONLY_WITH_IMM = 0x2B
    CNP = 0x81


class Extension(Enum):
    """A header that follows the BTH with some opcodes."""

    RETH = "RETH"
    IMM = "ImmDt"
    IETH = "IETH"
    ATOMIC = "AtomicETH"
    AETH = "AETH"
    ATOMIC_ACK = "AtomicAckETH"


EXTENSION_BYTES = {
    Extension.RETH: 16,
    Extension.IMM: 4,
    Extension.IETH: 4,
    Extension.ATOMIC: 28,
    Extension.AETH: 4,
    Extension.ATOMIC_ACK: 8,
}

MOST_EXTENSION_BYTES = EXTENSION_BYTES[Extension.RETH] + EXTENSION_BYTES[Extension.IMM]


def frame_overhead_bytes(family: Family) -> int:
    """The bytes of a frame beside what follows its BTH: Ethernet, IP, UDP, BTH and ICRC."""
    return OFFSETS[family].payload + ICRC_BYTES


def most_header_bytes(family: Family) -> int:
    """The bytes of the longest frame beside its payload."""
    return frame_overhead_bytes(family) + MOST_EXTENSION_BYTES


_EXTENSIONS: dict[int, tuple[Extension, ...]] = {
    Opcode.RC_SEND_LAST_WITH_IMM: (Extension.IMM,),
    Opcode.RC_SEND_ONLY_WITH_IMM: (Extension.IMM,),
    Opcode.RC_WRITE_FIRST: (Extension.RETH,),
    Opcode.RC_WRITE_LAST_WITH_IMM: (Extension.IMM,),
    Opcode.RC_WRITE_ONLY: (Extension.RETH,),
    Opcode.RC_WRITE_ONLY_WITH_IMM: (Extension.RETH, Extension.IMM),
    Opcode.RC_READ_REQUEST: (Extension.RETH,),
    Opcode.RC_READ_RESPONSE_FIRST: (Extension.AETH,),
    Opcode.RC_READ_RESPONSE_LAST: (Extension.AETH,),
    Opcode.RC_READ_RESPONSE_ONLY: (Extension.AETH,),
    Opcode.RC_ACKNOWLEDGE: (Extension.AETH,),
    Opcode.RC_ATOMIC_ACKNOWLEDGE: (Extension.AETH, Extension.ATOMIC_ACK),
    Opcode.RC_COMPARE_SWAP: (Extension.ATOMIC,),
    Opcode.RC_FETCH_ADD: (Extension.ATOMIC,),
    Opcode.RC_SEND_LAST_WITH_INVALIDATE: (Extension.IETH,),
    Opcode.RC_SEND_ONLY_WITH_INVALIDATE: (Extension.IETH,),
    Opcode.UC_SEND_LAST_WITH_IMM: (Extension.IMM,),
    Opcode.UC_SEND_ONLY_WITH_IMM: (Extension.IMM,),
    Opcode.UC_WRITE_FIRST: (Extension.RETH,),
    Opcode.UC_WRITE_LAST_WITH_IMM: (Extension.IMM,),
    Opcode.UC_WRITE_ONLY: (Extension.RETH,),
    Opcode.UC_WRITE_ONLY_WITH_IMM: (Extension.RETH, Extension.IMM),
}

_WITHOUT_PAYLOAD = frozenset(
    {
        Opcode.RC_READ_REQUEST,
        Opcode.RC_ACKNOWLEDGE,
        Opcode.RC_ATOMIC_ACKNOWLEDGE,
        Opcode.RC_COMPARE_SWAP,
        Opcode.RC_FETCH_ADD,
    }
)

_LAST = frozenset(opcode for opcode in Opcode if "_LAST" in opcode.name or "_ONLY" in opcode.name)


def extensions(opcode: int) -> tuple[Extension, ...]:
    """The headers between BTH and payload, in the order of the wire; none for unknown opcodes."""
    return _EXTENSIONS.get(opcode, ())


def extension_bytes(opcode: int) -> int:
    """The total length of the headers between BTH and payload."""
    return sum(EXTENSION_BYTES[extension] for extension in extensions(opcode))


def has_imm(opcode: int) -> bool:
    """Whether the packet carries immediate data."""
    return Extension.IMM in extensions(opcode)


def has_payload(opcode: int) -> bool:
    """Whether the packet may carry payload."""
    return opcode not in _WITHOUT_PAYLOAD


def is_last(opcode: int) -> bool:
    """Whether the packet ends a message: every LAST and every ONLY."""
    return opcode in _LAST


class SyndromeKind(IntEnum):
    """The kind of an AETH: bits 6 and 5 of its first byte."""

    ACK = 0b00
    RNR_NAK = 0b01
    NAK = 0b11


class NakCode(IntEnum):
    """Why a request was refused: the lower five bits of a NAK's syndrome."""

    PSN_SEQUENCE_ERROR = 0
    INVALID_REQUEST = 1
    REMOTE_ACCESS_ERROR = 2
    REMOTE_OPERATIONAL_ERROR = 3
    INVALID_RD_REQUEST = 4


NO_CREDITS = 0b11111
"""The credit count of an ACK from a responder that does not use end-to-end credits."""


class Syndrome(NamedTuple):
    """The fields of an AETH's first byte (InfiniBand specification, volume 1, AETH syndrome field).

    `value` is the credit count of an ACK, the encoded timer of an RNR NAK, the code of a NAK.
    """

    kind: SyndromeKind
    value: int

    @classmethod
    def ack(cls) -> Syndrome:
        """An acknowledgement."""
        return cls(SyndromeKind.ACK, NO_CREDITS)

    @classmethod
    def nak(cls, code: NakCode) -> Syndrome:
        """A negative acknowledgement."""
        return cls(SyndromeKind.NAK, code)

    @property
    def byte(self) -> int:
        """The byte on the wire."""
        return self.kind << 5 | self.value
