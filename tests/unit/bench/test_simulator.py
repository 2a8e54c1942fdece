"""The simulator's speed: what the documents say is what was measured."""

from __future__ import annotations

import json
from pathlib import Path

from bench.simulator import markdown

ROOT = Path(__file__).parents[3]
MEASURED = json.loads((ROOT / "bench" / "simulator.json").read_text())
WORDS = {4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}


def test_the_page_is_that_of_the_measurement() -> None:
    page = (ROOT / "bench" / "simulator.md").read_text()
    assert page == markdown(MEASURED["growth"], MEASURED["small"], MEASURED["machine"])


def test_how_much_slower_numpy_is_said_to_be_was_measured() -> None:
    small = MEASURED["small"]
    solve, whole = (
        WORDS[round(small[f"numpy_{what}_s"] / small[f"numba_{what}_s"])]
        for what in ("solve", "rough")
    )
    said = " ".join((ROOT / "docs" / "simulate.md").read_text().split())
    assert (
        f"at {small['transfers']:,} transfers a solve is about {solve} times slower and a whole "
        f"run about {whole} times (`bench/simulator.md`)"
    ) in said
