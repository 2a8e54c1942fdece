"""Invalid runs are repeated, but not for ever."""

from __future__ import annotations

import pytest

from rocelab.runs.attempts import RETRIES, measure_valid


def told(wanted: int, outcomes: list[bool]) -> tuple[list[bool], list[str]]:
    """The runs made if they have these outcomes in turn, and the output."""
    answer: list[str] = []

    def measure(which: str) -> bool:
        answer.append(which)
        return outcomes[len(answer) - 1]

    return measure_valid(wanted, RETRIES, measure, bool), answer


@pytest.mark.parametrize("wanted", [1, 5])
def test_valid_runs_are_not_made_again(wanted: int) -> None:
    runs, suffixes = told(wanted, [True] * (wanted + RETRIES))
    assert runs == [True] * wanted
    assert suffixes == ([""] if wanted == 1 else [f" (repeat {n} of 5)" for n in range(1, 6)])


def test_an_invalid_run_is_kept_and_made_again() -> None:
    runs, suffixes = told(2, [False, True, True])
    assert runs == [False, True, True]
    assert suffixes[-1] == " (repeat 3, in place of an invalid one)"


def test_a_machine_that_carries_no_run_is_not_asked_for_ever() -> None:
    runs, _ = told(2, [False] * 10)
    assert runs == [False] * (2 + RETRIES)
