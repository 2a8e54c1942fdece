"""What programs write, cut into lines."""

from __future__ import annotations

import pytest

from rocelab.programs import running
from rocelab.programs.running import OutputLine


def cut(*pieces: bytes) -> list[OutputLine]:
    """The lines of an output that comes in pieces, and ends."""
    lines = running._Lines(3, "stderr")
    return [line for piece in (*pieces, b"") for line in lines.lines(piece, 7)]


@pytest.mark.parametrize(
    ("pieces", "texts"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"on", b"e\nt", b"wo"], ["one", "two"]),
        ([b"one\r", b"\ntwo\r\n", b"\n"], ["one", "two", ""]),
        ([b"10%\r20%\r", b"30%\r", b"done\n"], ["10%", "20%", "30%", "done"]),
        ([b"\r10%", b"\r20%"], ["", "10%", "20%"]),
        ([b"\xff\x00\xe2\x82", b"\xac\n"], ["\ufffd\0\u20ac"]),
        (["no end: \u2028 \x85 \x0b \x0c".encode()], ["no end: \u2028 \x85 \x0b \x0c"]),
        ([], []),
    ],
)
def test_lines_are_whole_wherever_their_pieces_end(pieces: list[bytes], texts: list[str]) -> None:
    lines = cut(*pieces)
    assert [line.text for line in lines] == texts
    assert b"".join(line.written for line in lines) == b"".join(pieces)
    assert {(line.rank, line.stream, line.at_ns) for line in lines} <= {(3, "stderr", 7)}


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    piece = bytes(running._MOST_LINE_BYTES // 2)
    lines = running._Lines(0, "stdout")
    got = [sum(len(line.written) for line in lines.lines(piece, 0)) for _ in range(3)]
    assert got == [0, 0, 3 * len(piece)]
