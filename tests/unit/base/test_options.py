"""Options that fields of dataclasses declare: their names, how they are read, what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pytest

from rocelab.base.errors import InputError
from rocelab.base.options import option, options_of, read_options
from rocelab.base.wording import RefusedError


class Pace(StrEnum):
    SLOW = "slow"
    QUICK = "quick"


def length(text: str) -> int:
    if not text.endswith("m"):
        raise RefusedError(f"expected metres, got {text}", "such as 5m")
    return int(text.removesuffix("m"))


def lengths(texts: list[str]) -> tuple[int, ...]:
    return tuple(map(length, texts))


@dataclass(frozen=True, slots=True)
class Walk:
    pace: Pace = option(Pace.SLOW, "How fast.")
    length_m: int | None = option(None, "How far.", name="walk_length", read=length)
    stops: tuple[int, ...] = option((), "Where.", name="stop", read=lengths, several=True)
    alone: bool = option(False, "Without others.")
    steps: int = 0


def test_an_option_has_the_name_of_its_field_or_one_of_its_own() -> None:
    assert list(options_of(Walk)) == ["pace", "walk_length", "stop", "alone"]


def test_values_are_read_by_the_options_names_and_none_is_the_default() -> None:
    values = {"pace": "quick", "walk_length": "5m", "stop": ["1m", "2m"], "alone": None}
    assert read_options(Walk, values) == Walk(Pace.QUICK, 5, (1, 2))
    assert read_options(Walk, {}) == Walk()


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"pace": "quik"}, "--pace: expected slow or quick, got 'quik'", "did you mean quick?"),
        ({"pace": "xyz"}, "--pace: expected slow or quick, got 'xyz'", None),
        ({"walk_length": "5"}, "--walk-length: expected metres, got 5", "such as 5m"),
    ],
)
def test_a_refused_value_is_told_with_its_option(
    values: dict[str, object], message: str, hint: str | None
) -> None:
    with pytest.raises(InputError) as refused:
        read_options(Walk, values)
    assert (refused.value.message, refused.value.hint) == (message, hint)
