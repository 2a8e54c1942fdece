"""The packet engine's speed: what the document says is what was measured."""

from __future__ import annotations

import json
from pathlib import Path

from bench.packet_engine import markdown

FOLDER = Path(__file__).parents[3] / "bench"


def test_the_page_is_that_of_the_measurement() -> None:
    measured = json.loads((FOLDER / "packet_engine.json").read_text())
    page = (FOLDER / "packet_engine.md").read_text()
    assert page == markdown(measured["rows"], measured["machine"])
