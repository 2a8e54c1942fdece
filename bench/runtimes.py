"""Measures the same fabric on each runtime of this machine: up, down and memory.

Part of `make bench`, and `python -m bench.runtimes` alone. Runtimes take turns, so that all see the
same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from bench.campaign import command
from bench.campaign.document import Document
from bench.campaign.pages import spread
from bench.campaign.study import Measure, Series, Study
from bench.ups import Up, measure_rocelab
from rocelab import Lab, RocelabError
from rocelab.lab.providers import provider_of, runtime_names

LAB = "bench-16x4"
MIB = 2**20
TURNS = 5

COLUMNS: Sequence[tuple[str, Callable[[Up], float], str]] = (
    ("up, s", lambda up: up.up_s, ".2f"),
    ("nodes alone, s", lambda up: up.stages_s["nodes"], ".2f"),
    ("down, s", lambda up: up.down_s, ".2f"),
    ("daemons' PSS, MiB", lambda up: up.daemons_pss_bytes / MIB, ".0f"),
    ("MemAvailable lost, MiB", lambda up: up.machine_lost_bytes / MIB, ".0f"),
    ("CPU of the machine until up, s", lambda up: up.machine_cpu_s, ".1f"),
)


@contextmanager
def _prepared(kinds: Sequence[str]) -> Iterator[Measure]:
    for kind in kinds:
        # The first makes what is kept from one lab to the next, as an image is.
        with suppress(RocelabError):
            measure_rocelab(LAB, kind)
    yield measured


def measured(kind: str) -> dict[str, Any]:
    """A start and stop on a runtime. Raises MachineError where it is not here."""
    provider_of(kind).check(Lab.planned(LAB).fabric)
    return asdict(measure_rocelab(LAB, kind))


def cells(ups: Sequence[Up]) -> list[str]:
    """A value of each column: median and range."""
    return [spread([value(up) for up in ups], form) for _, value, form in COLUMNS]


def figures(document: Document) -> dict[str, Any]:
    """The rows, each with its runtime."""
    rows = [[kind, *cells(Up.of(samples))] for kind, samples in document.measured.items()]
    return {"lab": LAB, "headings": [name for name, *_ in COLUMNS], "rows": rows}


STUDY = Study(
    name="runtimes",
    about=f"{LAB} up and down on every runtime of this machine",
    series=lambda: [Series({str(kind): str(kind) for kind in runtime_names()}, _prepared, TURNS)],
    figures=figures,
)

if __name__ == "__main__":
    command.run(STUDY.name)
