"""The titles and units of the figures of a sweep."""

from __future__ import annotations

from collections.abc import Mapping

from rocelab.base.quantities import Unit

TITLES: Mapping[str, tuple[str, Unit]] = {
    "iteration_time": ("iteration", Unit.NS),
    "algbw": ("algbw", Unit.GB_PER_S),
    "busbw": ("busbw", Unit.GB_PER_S),
    "jct_ratio": ("JCT ratio", Unit.RATIO),
    "latency": ("latency", Unit.NS),
    "slowdown_p50": ("slowdown, p50", Unit.RATIO),
    "slowdown_p99": ("slowdown, p99", Unit.RATIO),
    "ttft_p50": ("TTFT, p50", Unit.NS),
    "ttft_p99": ("TTFT, p99", Unit.NS),
    "itl_p99": ("ITL, p99", Unit.NS),
    "request_goodput": ("goodput, % of requests", Unit.RATIO),
    "retransmitted": ("sent again", Unit.COUNT),
    "highest_queue": ("highest queue", Unit.BYTES),
    "paused": ("all pauses", Unit.NS),
    "marks": ("marks", Unit.COUNT),
    "drops": ("drops", Unit.COUNT),
    "wall_s": ("took", Unit.SECONDS),
    "peak_memory_bytes": ("memory", Unit.MEMORY),
}
"""Title and unit of the figures of simulations; other figures keep their name."""


def title_of(name: str) -> str:
    """The title of a figure."""
    if name.startswith("mmr."):
        return f"MMR of flows, {name.removeprefix('mmr.').replace('.', ' ')}"
    return TITLES.get(name, (name, Unit.RATIO))[0]


def unit_of(name: str) -> Unit:
    """The unit of a figure."""
    return TITLES.get(name, (name, Unit.RATIO))[1]
