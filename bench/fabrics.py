"""`python -m bench fabrics`: the start time and cost of three fabrics, beside FRR's plain use of
memory and Mininet.

(a) 16 RTSWs x 4 CTSWs, in turn so that all see the same machine; (b) the full AI zone of 252 x 18
once, with Mininet's wiring and stopping only; (c) 128 leaves of rails x 32 spines once, without
Mininet.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from bench.campaign.document import Document
from bench.campaign.pages import spread
from bench.campaign.study import BENCH, Series, Study
from bench.ups import Up, measure_mininet, measure_rocelab
from rocelab.routing.frr.kind import FrrMemory

SMALL, ZONE = "bench-16x4", "zone-252x18"
RAIL = str(BENCH / "rail-160.yaml")
TURNS = 5
PLAIN = "rocelab, FRR plain"
TOOLS = ("rocelab", PLAIN, "mininet")
GIB = 2**30
HEADINGS = ("median (min to max)", *TOOLS[:2], "ratio", "Mininet", "ratio")
Row = tuple[str, Callable[[Up], float], str]

ROWS: Sequence[Row] = (
    ("up, s", lambda up: up.up_s, ".2f"),
    ("  wiring alone, s", lambda up: up.wiring_s, ".3f"),
    ("  daemons started, s", lambda up: up.stages_s.get("daemons", 0.0), ".2f"),
    ("  then until converged, s", lambda up: up.stages_s.get("convergence", 0.0), ".2f"),
    ("down, s", lambda up: up.down_s, ".2f"),
    ("daemons' PSS, GiB", lambda up: up.daemons_pss_bytes / GIB, ".2f"),
    ("  of a switch, MB", lambda up: up.daemons_pss_bytes / 1e6 / up.switches, ".1f"),
    ("MemAvailable lost, GiB", lambda up: up.machine_lost_bytes / GIB, ".2f"),
    ("CPU of the machine until up, s", lambda up: up.machine_cpu_s, ".1f"),
)


def tools(lab: str, *, wiring_only: bool = False) -> dict[str, Callable[[], Up]]:
    """How a lab is brought up with each tool."""
    return {
        "rocelab": partial(measure_rocelab, lab),
        PLAIN: partial(measure_rocelab, lab, frr_memory=FrrMemory.PLAIN),
        "mininet": partial(measure_mininet, lab, with_daemons=not wiring_only),
    }


def series() -> list[Series]:
    """(a), then (b) and (c)."""
    zone, rail = tools(ZONE, wiring_only=True), tools(RAIL)
    del rail["mininet"]
    return [
        _series(SMALL, tools(SMALL), TURNS),
        _series(ZONE, zone),
        _series(Path(RAIL).stem, rail),
    ]


def _series(lab: str, ways: Mapping[str, Callable[[], Up]], turns: int = 1) -> Series:
    points = {f"{lab} {tool}": way for tool, way in ways.items()}
    return Series.alone(points, lambda way: asdict(way()), turns)


def rows(by_tool: dict[str, list[Up]]) -> list[list[str]]:
    """A row per figure: its name, rocelab's median and range, and each other's with its ratio to
    rocelab's."""
    rows = []
    for name, value, form in ROWS:
        times = [value(up) for up in by_tool["rocelab"]]
        row = [name.replace("  ", "- "), spread(times, form)]
        for tool in TOOLS[1:]:
            ups = by_tool.get(tool, [])
            theirs = [value(up) for up in ups]
            measured = any(theirs) and (name.strip() != "up, s" or _has_daemons(ups))
            ratio = statistics.median(theirs) / statistics.median(times) if measured else None
            row += [spread(theirs, form) if measured else "not measured"]
            row += [f"{ratio:.1f}" if ratio else ""]
        rows.append(row)
    return rows


def _has_daemons(ups: list[Up]) -> bool:
    return all("daemons" in up.stages_s for up in ups)


def figures(document: Document) -> dict[str, Any]:
    """The table of each lab that was measured, and how often each tool was."""
    labs: dict[str, dict[str, list[Up]]] = {}
    for name, samples in document.measured.items():
        lab, _, tool = name.partition(" ")
        labs.setdefault(lab, {})[tool] = Up.of(samples)
    tables = {lab: rows(by_tool) for lab, by_tool in labs.items() if "rocelab" in by_tool}
    counts = {lab: {tool: len(ups) for tool, ups in labs[lab].items()} for lab in tables}
    return {"headings": HEADINGS, "tables": tables, "counts": counts}


STUDY = Study(
    name="fabrics",
    about="three fabrics up and down, beside FRR's plain use of memory and Mininet",
    series=series,
    figures=figures,
    page="results",
)
