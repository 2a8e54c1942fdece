"""`make bench`: the start time and cost of three fabrics, compared with FRR's plain use of memory
and with Mininet; then each runtime (bench/runtimes.py) and lossless classes (bench/lossless.py).

(a) 16 RTSWs x 4 CTSWs, in turn so that all see the same machine; (b) the full AI zone of 252 x 18
once, with Mininet's wiring and stopping only; (c) 128 leaves of rails x 32 spines once, without
Mininet. Writes bench/results.json and bench/results.md, which state the machine.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench import lossless, runtimes
from bench.fabrics import Up, measure_mininet, measure_rocelab, spread
from bench.written import write
from rocelab.base.interruption import ending
from rocelab.observe.environment import read_environment
from rocelab.routing.frr.kind import FrrMemory

SMALL, ZONE = "bench-16x4", "zone-252x18"
RAIL = str(Path(__file__).with_name("rail-160.yaml"))
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


def main(
    pairs: Annotated[int, typer.Option(min=1, help="runs of (a), all three in turn")] = 5,
    zone: Annotated[bool, typer.Option(help="also (b) and (c): minutes, and 14 GB")] = True,
    others: Annotated[bool, typer.Option(help="also runtimes and lossless classes")] = True,
) -> None:
    """Measure the fabrics and write bench/results.json and bench/results.md."""
    console = Console(stderr=True)
    measured: dict[str, dict[str, list[Up]]] = {SMALL: {tool: [] for tool in TOOLS}}
    for pair in range(1, pairs + 1):
        console.print(f"{SMALL}: run {pair} of {pairs}")
        for tool, up in rocelab_both(SMALL):
            measured[SMALL][tool].append(up)
        measured[SMALL]["mininet"].append(measure_mininet(SMALL, with_daemons=True))
    if zone:
        for lab in (ZONE, RAIL):
            console.print(f"{Path(lab).stem}: rocelab, lean and plain")
            measured[lab] = {tool: [up] for tool, up in rocelab_both(lab)}
        console.print(f"{ZONE}: Mininet, wiring only")
        measured[ZONE]["mininet"] = [measure_mininet(ZONE, with_daemons=False)]
    write_results({Path(lab).stem: by_tool for lab, by_tool in measured.items()})
    for lab, by_tool in measured.items():
        Console().print(table(Path(lab).stem, by_tool))
    if others:
        runtimes.main(pairs)
        lossless.main()


def rocelab_both(lab: str) -> Iterator[tuple[str, Up]]:
    """The lab with each use of memory, one after the other."""
    yield "rocelab", measure_rocelab(lab)
    yield PLAIN, measure_rocelab(lab, frr_memory=FrrMemory.PLAIN)


def write_results(measured: dict[str, dict[str, list[Up]]]) -> None:
    """results.json with every run, results.md with medians and the machine."""
    environment = asdict(read_environment())
    runs = {
        lab: {tool: [asdict(up) for up in ups] for tool, ups in by_tool.items()}
        for lab, by_tool in measured.items()
    }
    document = {"environment": environment, "load_average": os.getloadavg(), "runs": runs}
    lines = ["# Results of `make bench`", "", f"Measured {time.strftime('%Y-%m-%d')} on:", ""]
    lines += [f"- {key.replace('_', ' ')}: {value}" for key, value in environment.items()]
    for lab, by_tool in measured.items():
        lines += ["", f"## {lab}", "", f"| {' | '.join(HEADINGS)} |"]
        lines += ["|---" * len(HEADINGS) + "|"]
        lines += ["| " + " | ".join(cells) + " |" for cells in rows(by_tool)]
        counts = ", ".join(f"{tool} n={len(ups)}" for tool, ups in by_tool.items())
        lines += ["", f"{counts}."]
    write("results", document, "\n".join(lines) + "\n")


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


def table(lab: str, by_tool: dict[str, list[Up]]) -> Table:
    """The same rows for a terminal."""
    grid = Table("", *HEADINGS[1:], title=lab)
    for cells in rows(by_tool):
        grid.add_row(*cells)
    return grid


if __name__ == "__main__":
    with ending():
        typer.run(main)
