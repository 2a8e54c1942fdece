"""Measures the same fabric on each runtime of this machine: up, down and memory.

Part of `make bench`, and `python -m bench.runtimes` alone. Runtimes take turns, so that all see the
same machine. Writes bench/runtimes.json and bench/runtimes.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.fabrics import Up, measure_rocelab, spread
from bench.written import write
from rocelab import Lab, MachineError
from rocelab.base.interruption import ending
from rocelab.lab.providers import provider_of, runtime_names
from rocelab.observe.environment import read_environment

LAB = "bench-16x4"
MIB = 2**20

COLUMNS: Sequence[tuple[str, Callable[[Up], float], str]] = (
    ("up, s", lambda up: up.up_s, ".2f"),
    ("nodes alone, s", lambda up: up.stages_s["nodes"], ".2f"),
    ("down, s", lambda up: up.down_s, ".2f"),
    ("daemons' PSS, MiB", lambda up: up.daemons_pss_bytes / MIB, ".0f"),
    ("MemAvailable lost, MiB", lambda up: up.machine_lost_bytes / MIB, ".0f"),
    ("CPU of the machine until up, s", lambda up: up.machine_cpu_s, ".1f"),
)


def main(
    runs: Annotated[int, typer.Option(min=1, help="of each runtime, in turn")] = 5,
) -> None:
    """Measure every runtime that is here; say of the others why not."""
    console = Console(stderr=True)
    lacking = _lacking()
    measured: dict[str, list[Up]] = {kind: [] for kind in runtime_names() if kind not in lacking}
    for kind in measured:
        # The first makes what is kept from one lab to the next, as an image is.
        measure_rocelab(LAB, kind)
    for run in range(1, runs + 1):
        for kind, ups in measured.items():
            console.print(f"{LAB} on {kind}: run {run} of {runs}")
            ups.append(measure_rocelab(LAB, kind))
    _write(measured, lacking)
    grid = Table("runtime", *(name for name, *_ in COLUMNS), title=LAB)
    for row in _rows(measured):
        grid.add_row(*row)
    Console().print(grid)


def _lacking() -> dict[str, str]:
    """Why a runtime cannot be measured here."""
    missing, fabric = {}, Lab.planned(LAB).fabric
    for kind in runtime_names():
        try:
            provider_of(kind).check(fabric)
        except MachineError as error:
            missing[kind] = error.message
    return missing


def _rows(measured: Mapping[str, Sequence[Up]]) -> list[list[str]]:
    return [[str(kind), *cells(ups)] for kind, ups in measured.items()]


def cells(ups: Sequence[Up]) -> list[str]:
    """A value of each column: median and range."""
    return [spread([value(up) for up in ups], form) for _, value, form in COLUMNS]


def _write(measured: Mapping[str, Sequence[Up]], lacking: dict[str, str]) -> None:
    environment = asdict(read_environment())
    document = {
        "environment": environment,
        "load_average": os.getloadavg(),
        "lab": LAB,
        "runs": {kind: [asdict(up) for up in ups] for kind, ups in measured.items()},
        "not_measured": lacking,
    }
    count = len(next(iter(measured.values())))
    lines = ["# Runtimes, measured by `make bench`", ""]
    lines += [f"{LAB} on each, n={count} in turn, on {time.strftime('%Y-%m-%d')}:", ""]
    lines += [f"- {key.replace('_', ' ')}: {value}" for key, value in environment.items()]
    lines += ["", "| median (min to max) | " + " | ".join(name for name, *_ in COLUMNS) + " |"]
    lines += ["|---" * (len(COLUMNS) + 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in _rows(measured)]
    lines += ["", *(f"Not measured: {kind}, {why}." for kind, why in lacking.items())]
    write("runtimes", document, "\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    with ending():
        typer.run(main)
