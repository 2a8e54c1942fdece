"""The error of the engine `links`: what the document says is what was measured."""

from __future__ import annotations

import json
from pathlib import Path

from bench.links_engine import Cell, flows_of, markdown

FOLDER = Path(__file__).parents[3] / "bench"


def test_the_page_is_that_of_the_measurement() -> None:
    measured = json.loads((FOLDER / "links_engine.json").read_text())
    page = (FOLDER / "links_engine.md").read_text()
    assert page == markdown(measured["rows"], measured["machine"])


def test_patterns_have_the_destinations_that_they_are_named_for() -> None:
    cells = {
        pattern: flows_of(Cell(1024, "alistorage", "30%", pattern, "off", "100us"))
        for pattern in ("uniform", "skewed", "bursts")
    }
    to_even = {name: (flows.destination % 2 == 0).mean() for name, flows in cells.items()}
    assert abs(to_even["uniform"] - 0.5) < 0.02
    assert abs(to_even["skewed"] - 0.75) < 0.02
    assert all((flows.source != flows.destination).all() for flows in cells.values())
    bursts = cells["bursts"]
    assert len(set(bursts.start_s[:16])) == 1 and len(set(bursts.destination[:16])) <= 2
