"""Quantities: exact, round-tripping, and nothing else accepted."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.units import (
    DURATION,
    RATE,
    SIZE,
    UnitScale,
    parse_duration_ns,
    parse_rate_bps,
    parse_size_bytes,
)

QUANTITIES = st.sampled_from([RATE, SIZE, DURATION])


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("400G", 400 * 10**9),
        ("25Gbps", 25 * 10**9),
        ("2.3G", 2_300_000_000),
        ("100 Mbit/s", 10**8),
        ("400", 400),
    ],
)
def test_a_rate_is_decimal_bits_per_second(text: str, rate_bps: int) -> None:
    assert parse_rate_bps(text) == rate_bps


@pytest.mark.parametrize(
    ("text", "size"), [("800KB", 800_000), ("64KiB", 65_536), ("1.5MiB", 1_572_864), ("0B", 0)]
)
def test_a_size_is_decimal_or_binary_bytes(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "duration_ns"), [("50ms", 50_000_000), ("2.3us", 2_300), ("1m", 60 * 10**9)]
)
def test_a_duration_is_nanoseconds(text: str, duration_ns: int) -> None:
    assert parse_duration_ns(text) == duration_ns


@pytest.mark.parametrize(
    "text",
    ["", "400g", "G", "-4G", "4e9", "4 G b", "\u0661G", " 400G", "400G\n", "400GB", "0x4G"],
)
def test_text_that_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a rate such as 400G"):
        parse_rate_bps(text)


@pytest.mark.parametrize("value", [9, 9.0, True, None, ["9s"]])
def test_a_value_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 50ms"):
        parse_duration_ns(value)


def test_part_of_a_base_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="whole number of nanoseconds"):
        parse_duration_ns("0.5ns")


@given(QUANTITIES, st.integers(0, 10**15 - 1))
def test_what_is_written_is_read_back_exactly(quantity: UnitScale, value: int) -> None:
    assert quantity.parse(quantity.written(value)) == value


@given(QUANTITIES, st.integers(0, 10**6), st.integers(0, 10**9 - 1), st.data())
def test_reading_a_fraction_is_exact(
    quantity: UnitScale, whole: int, billionths: int, data: st.DataObject
) -> None:
    unit = data.draw(st.sampled_from(sorted(quantity.units)))
    value, part_of_a_unit = divmod((whole * 10**9 + billionths) * quantity.units[unit], 10**9)
    text = f"{whole}.{billionths:09}{unit}"
    if part_of_a_unit:
        with pytest.raises(ValueError, match="whole number"):
            quantity.parse(text)
    else:
        assert quantity.parse(text) == value


@given(QUANTITIES, st.text(alphabet="0123456789. kKMGTBibpsmun/t-", max_size=12))
def test_the_schema_pattern_accepts_what_is_read(quantity: UnitScale, text: str) -> None:
    try:
        quantity.parse(text)
        accepted = True
    except ValueError as error:
        accepted = "whole number" in str(error)
    assert (re.search(quantity.pattern, text) is not None) == accepted
