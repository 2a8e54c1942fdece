"""Figures of a run of programs: its exit code, and those of its connections."""

from __future__ import annotations

import pytest

from rocelab.results.programs import ProgramReport, RankEnd, Stall, TcpConnection


def report(*codes: int | None) -> ProgramReport:
    """Of programs that ended with these codes, the last one first."""
    ranks = tuple(RankEnd(rank, f"srv{rank}", code, 1000 - rank) for rank, code in enumerate(codes))
    return ProgramReport(1, "x", 1, ("y",), ranks, 0, 1000, (), (), 10**8, 0, 0.0, ())


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ((0, 0), 0),
        ((3, 0), 3),
        ((3, 4), 4),
        ((-9, None), 137),
        ((3, -15, 0), 143),
        ((None, None), 0),
    ],
)
def test_the_exit_code_is_that_of_the_program_that_failed_first(
    codes: tuple[int | None, ...], code: int
) -> None:
    assert report(*codes).code == code


def test_goodput_is_of_what_was_delivered_and_resent_is_a_share_of_all() -> None:
    stalls = (Stall(0, 7), Stall(100, 120))
    connection = TcpConnection("a", 1, "b", 2, 10**9, 3 * 10**9, 3000, 1000, 5, 4, stalls)
    assert connection.goodput_bps == 3000 * 8 / 2
    assert connection.resent_share == 0.25
    assert connection.longest_stall_ns == 20
