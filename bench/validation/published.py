"""A row of the page of collectives: a published time, ours, and how they compare."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

WITHIN, OFF = 0.15, 2.0
"""A figure is met within the first; it is off by the second, or that times too small."""


def row(label: str, published_us: float, ours_ns: float, *, is_fitted: bool = False) -> Row:
    """A figure, and whether a constant was fitted on it."""
    ratio = ours_ns / 1e3 / published_us
    return {
        "label": label,
        "published_us": published_us,
        "ours_us": ours_ns / 1e3,
        "ratio": ratio,
        "kind": "what a constant was fitted on" if is_fitted else "predicted",
        "met": bool(1 / (1 + WITHIN) <= ratio <= 1 + WITHIN),
        "off": bool(not 1 / OFF < ratio < OFF),
    }
