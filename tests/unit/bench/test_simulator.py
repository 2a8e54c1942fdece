"""The simulator's speed: what the documents say is what was measured."""

from __future__ import annotations

import json
from pathlib import Path

from bench.simulator import markdown

ROOT = Path(__file__).parents[3]
MEASURED = json.loads((ROOT / "bench" / "simulator.json").read_text())


def test_the_page_is_that_of_the_measurement() -> None:
    page = (ROOT / "bench" / "simulator.md").read_text()
    assert page == markdown(MEASURED["growth"], MEASURED["small"], MEASURED["machine"])
