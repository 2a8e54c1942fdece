"""Collectives beside published times: what is counted, and that cheap figures are found again."""

from __future__ import annotations

import pytest

from bench.validation.collectives import TABLES, published, table_rows, tallies


@pytest.mark.parametrize("name", ["h100", "trees", "kv-400"])
def test_cheap_tables_of_the_page_are_found_again(name: str) -> None:
    (rows,) = published().measured[name]
    assert [row["ours_us"] for row in table_rows(name)] == pytest.approx(
        [row["ours_us"] for row in rows]
    )


def test_only_predicted_figures_count_and_fits_count_apart() -> None:
    points = published().measured
    counts = {row["name"]: row for row in tallies(points)}
    assert "simai" not in counts
    fitted = [name for name in points if TABLES.get(name, {}).get("fits")]
    assert counts["p5"]["predicted"] == len(TABLES["p5"]["sizes"]) // 2
    assert {"p5", "p4de", "trees"} == set(fitted)
    whole = counts["**hosts fitted to other figures**"]
    assert whole["predicted"] == sum(counts[name]["predicted"] for name in (*fitted, "deep-ep"))
    assert whole["off"] == 0
