"""The flows with which the engine `links` is compared."""

from __future__ import annotations

from bench.links_engine import Cell, flows_of


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
