"""The colours of plots, by what they mean: one colour has one meaning on a page.

LOST, the red of plots, is for lost packets alone; the red of texts and of the picture of a fabric
(in `live/page/shared.css`, as all colours of texts) is for what gets no packets through. A verdict
that is bad has the ink of texts and a sign. What only has to be told apart (senders, schemes, lines
of a sweep) has the colours of `CATEGORIES`, which mean nothing else.
"""

from __future__ import annotations

import re

INK, MUTED, GRID, PAPER = "#1c2530", "#6b7785", "#e4e8ec", "#ffffff"
EVENT = INK
MODEL = INK
MEASURED, EXTREMES = "#1f6fb2", "#cfd8f0"
"""What was measured, or carried; and from its least to its greatest."""

DELIVERED, LOST = "#b9d3e6", "#c8102e"
PAUSED = "#a0522d"

UNDETECTED, DECIDING, HOLDING = "#d9dee3", "#c9b3e0", "#8a5fb0"
INSTALLING, WRITING = "#e9a35b", "#9c5a12"
"""The stages of a reconvergence."""

LATENCY, BOUND, EXCESS = "#9aa5b1", "#7fb2dd", "#d9822b"
"""The parts of a simulated iteration: latency, its bytes at their lower bound, what is longer."""

STALLED, RESTARTING, REDONE, SLOWED = "#4a4038", "#7a6fc0", "#b0803a", "#6cb2b0"
"""The parts of the time that a job loses to failures."""

CATEGORIES = (
    "#27408b",
    "#1f9e97",
    "#d0569a",
    "#b58900",
    "#7a5c3e",
    "#7f9c1e",
    "#566573",
    "#8e4a6b",
)

DARK = {
    INK: "#e7edf2",
    MUTED: "#9fadb9",
    GRID: "#2d3842",
    PAPER: "#182028",
    MEASURED: "#6bb1f0",
    EXTREMES: "#3a4a78",
    DELIVERED: "#34506a",
    LOST: "#ff6b63",
    PAUSED: "#e0956c",
    UNDETECTED: "#43515e",
    DECIDING: "#6d5291",
    HOLDING: "#bb93e6",
    INSTALLING: "#c98335",
    WRITING: "#f0c48a",
    LATENCY: "#8a97a4",
    BOUND: "#3f78ab",
    EXCESS: "#f0a63c",
    STALLED: "#c9bfb5",
    RESTARTING: "#a79bf0",
    REDONE: "#d9a860",
    SLOWED: "#4fa5a2",
    **dict(
        zip(
            CATEGORIES,
            (
                "#8fa6f5",
                "#4fd0ca",
                "#f08cc4",
                "#e3bd3f",
                "#c79a6b",
                "#bcd95a",
                "#aab7c4",
                "#d59ab8",
            ),
            strict=True,
        )
    ),
}
"""Colours of a dark page, by those of a light one."""

_COLOUR = re.compile("|".join(DARK))


def themed(drawing: str) -> str:
    """An SVG whose colours follow those of its page, by the variables of `page_colours`."""
    return _COLOUR.sub(lambda match: f"var(--plot-{match[0][1:]}, {match[0]})", drawing)


def page_colours() -> str:
    """The variables of a dark page."""
    return " ".join(f"--plot-{light[1:]}: {dark};" for light, dark in DARK.items())
