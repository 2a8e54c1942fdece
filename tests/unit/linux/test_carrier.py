"""Link messages of the kernel: which interfaces have carrier, and that no bytes cause an error."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.linux.carrier import carriers

NEWLINK, DELLINK, NEWADDR = 16, 17, 20
UP = 1 << 0 | 1 << 16
MTU, NAME = 4, 3


def attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)


def message(kind: int, name: str, flags: int, before: bytes = b"") -> bytes:
    body = struct.pack("=BxHiII", 0, 1, 7, flags, 0) + before
    body += attribute(NAME, name.encode() + b"\0")
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


@pytest.mark.parametrize(
    ("kind", "flags", "present"),
    [(NEWLINK, UP, True), (NEWLINK, 1, False), (NEWLINK, 0, False), (DELLINK, UP, False)],
)
def test_carrier_is_there_while_the_link_below_is_up(kind: int, flags: int, present: bool) -> None:
    assert list(carriers(message(kind, "s1-tor1a", flags))) == [("s1-tor1a", present)]


def test_every_link_of_a_part_is_read_whatever_stands_before_its_name() -> None:
    data = message(NEWLINK, "a", UP, attribute(MTU, bytes(5))) + message(NEWADDR, "x", UP)
    data += message(NEWLINK, "b", 0)
    assert list(carriers(data)) == [("a", True), ("b", False)]


@given(st.lists(st.tuples(st.text("abc-12", min_size=1, max_size=15), st.booleans()), max_size=5))
def test_what_is_written_is_read(links: list[tuple[str, bool]]) -> None:
    data = b"".join(message(NEWLINK, name, UP if up else 0) for name, up in links)
    assert list(carriers(data)) == links


@given(st.binary(max_size=200))
def test_any_bytes_are_read_to_an_end(data: bytes) -> None:
    assert all(name for name, _ in carriers(data))


@given(
    st.lists(st.sampled_from(["a", "tor1b"]), min_size=1, max_size=3),
    st.data(),
)
def test_a_message_that_is_cut_or_damaged_does_no_harm(
    names: list[str], data: st.DataObject
) -> None:
    whole = bytearray(b"".join(message(NEWLINK, name, UP) for name in names))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    assert len(list(carriers(bytes(whole[:cut])))) <= cut // 36


def test_a_message_without_its_last_byte_says_nothing() -> None:
    assert list(carriers(message(NEWLINK, "abc", UP)[:-1])) == []
