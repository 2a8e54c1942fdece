"""Stamped frames against the same packets built by Scapy, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.agent.rc.frames import ACK_REQUEST, Template, unwrapped
from rocelab.agent.rc.requester import REMOTE_KEY
from rocelab.base.family import Family
from rocelab.traffic.roce import (
    Acknowledgement,
    Header,
    Immediate,
    RemoteMemory,
    roce_frame,
)
from rocelab.wire.headers import CNP_PAYLOAD_BYTES, PSN_MASK, NakCode, Opcode, Syndrome
from rocelab.wire.icrc import icrc_is_right
from tests.helpers.rc_fakes import ACK_TOS, CNP_TOS, DATA_TOS, envelope, header
from tests.helpers.roce_packets import cnp_frame

in_each_family = pytest.mark.parametrize("family", Family)
PSNS = [0, 1, 0x800000, PSN_MASK - 1, PSN_MASK]
IMM = 0xC0FFEE42

KINDS: dict[Opcode, tuple[Header, ...]] = {
    Opcode.RC_WRITE_FIRST: (RemoteMemory(0, REMOTE_KEY, 70_000),),
    Opcode.RC_WRITE_MIDDLE: (),
    Opcode.RC_WRITE_LAST_WITH_IMM: (Immediate(IMM),),
    Opcode.RC_WRITE_ONLY_WITH_IMM: (RemoteMemory(0, REMOTE_KEY, 70_000), Immediate(IMM)),
}
EXTENSIONS = {
    Opcode.RC_WRITE_FIRST: bytes(8) + REMOTE_KEY.to_bytes(4, "big") + (70_000).to_bytes(4, "big"),
    Opcode.RC_WRITE_MIDDLE: b"",
    Opcode.RC_WRITE_LAST_WITH_IMM: IMM.to_bytes(4, "big"),
}
EXTENSIONS[Opcode.RC_WRITE_ONLY_WITH_IMM] = (
    EXTENSIONS[Opcode.RC_WRITE_FIRST] + EXTENSIONS[Opcode.RC_WRITE_LAST_WITH_IMM]
)


@in_each_family
@pytest.mark.parametrize("opcode", KINDS)
@pytest.mark.parametrize("payload_bytes", [0, 1, 2, 3, 4, 5, 1021, 1022, 1023, 1024, 4096])
@pytest.mark.parametrize("asks", [False, True])
def test_a_data_packet_is_what_scapy_builds(
    opcode: Opcode, payload_bytes: int, asks: bool, family: Family
) -> None:
    template = Template(header(family=family), opcode, payload_bytes, tos=DATA_TOS)
    for psn in PSNS:
        expected = roce_frame(
            envelope(family=family),
            opcode,
            *KINDS[opcode],
            psn=psn,
            payload=bytes(payload_bytes),
            ack_request=asks,
        )
        word = psn | (ACK_REQUEST if asks else 0)
        assert template.stamp(word, EXTENSIONS[opcode]) == expected


@in_each_family
@pytest.mark.parametrize("psn", PSNS)
@pytest.mark.parametrize(
    "syndrome", [Syndrome.ack(), Syndrome.nak(NakCode.PSN_SEQUENCE_ERROR)], ids=["ACK", "NAK"]
)
def test_an_acknowledgement_is_what_scapy_builds(
    psn: int, syndrome: Syndrome, family: Family
) -> None:
    template = Template(header(family=family), Opcode.RC_ACKNOWLEDGE, 0, tos=ACK_TOS)
    aeth = bytes([syndrome.byte]) + (0xFEDCBA).to_bytes(3, "big")
    assert template.stamp(psn, aeth) == roce_frame(
        envelope(tos=ACK_TOS, family=family),
        Opcode.RC_ACKNOWLEDGE,
        Acknowledgement(syndrome, 0xFEDCBA),
        psn=psn,
    )


@in_each_family
def test_a_notification_is_what_scapy_builds(family: Family) -> None:
    ends = header(family=family)
    template = Template(ends, Opcode.CNP, CNP_PAYLOAD_BYTES, tos=CNP_TOS, becn=True)
    assert template.stamp(0) == cnp_frame(envelope(tos=CNP_TOS, family=family))


@given(
    opcode=st.sampled_from(list(KINDS)),
    payload_bytes=st.integers(0, 4096),
    tos=st.integers(0, 255),
    words=st.lists(st.integers(0, PSN_MASK), min_size=1, max_size=4),
)
def test_a_template_stamps_nothing_of_the_packet_before(
    opcode: Opcode, payload_bytes: int, tos: int, words: list[int]
) -> None:
    template = Template(header(), opcode, payload_bytes, tos=tos)
    for word in words:
        template.stamp(word, EXTENSIONS[opcode])
    fresh = Template(header(), opcode, payload_bytes, tos=tos)
    last = bytes(template.stamp(words[-1], EXTENSIONS[opcode]))
    assert last == fresh.stamp(words[-1], EXTENSIONS[opcode])
    assert icrc_is_right(last)


@pytest.mark.parametrize(
    ("family", "cut"), [(Family.IPV4, 0), (Family.IPV4, 13), (Family.IPV4, 53), (Family.IPV6, 73)]
)
def test_half_a_header_is_refused(family: Family, cut: int) -> None:
    with pytest.raises(ValueError, match="IPv4"):
        Template(header(family=family)[:cut], Opcode.RC_WRITE_MIDDLE, 1024, tos=0)


@given(near=st.integers(0, 2**40), away=st.integers(-(2**23), 2**23 - 1))
def test_a_psn_is_unwrapped_to_the_number_it_was(near: int, away: int) -> None:
    assert unwrapped((near + away) & PSN_MASK, near) == near + away
