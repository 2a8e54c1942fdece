"""What the pages of convergence times print: tables by fault class, and releases of FRR.

Every number comes from the document and the plan; the pages are templates.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from bench.campaign.pages import filled
from bench.convergence.document import (
    CellResult,
    ConvergenceTable,
    Failure,
    LinkFailureTest,
    Summary,
    percentile,
    summarise,
)
from bench.convergence.plan import PLAN, Cell, FaultClass, Site
from rocelab.base import quantities
from rocelab.report.stages import CAUSES

PLOT = "convergence-table.svg"
DOCUMENT = "convergence-table.json"
PAGE, RELEASES_PAGE = "convergence-table.md", "frr-releases.md"
PLACES = [(fault, site) for fault, sites in PLAN for site in sites]


def pages(table: ConvergenceTable, missing: Sequence[str]) -> dict[str, str]:
    """The pages by file name; `missing` are the cells of the plan that were not measured."""
    return {PAGE: page(table, missing), RELEASES_PAGE: releases_page(table.releases)}


def page(table: ConvergenceTable, missing: Sequence[str]) -> str:
    """The page of one release; `missing` are the cells of the plan that were not measured."""
    by_name = {cell.name: cell for cell in table.cells}
    classes = {fault: _cells(fault, sites, by_name) for fault, sites in PLAN}
    traced = {
        fault.title: _stages(list(chain.from_iterable(cell.traced for _, cell in cells)))
        for fault, cells in classes.items()
    }
    figures = {
        "table": table,
        "duration": quantities.duration,
        "measured": [cell for cell in table.cells if cell.failures],
        "sections": [(fault, cells) for fault, cells in classes.items() if cells],
        "stage_rows": [(title, row) for title, row in traced.items() if row is not None],
        "repairs": list(_repairs(by_name)),
        "job": _job(table.job),
        "troubles": list(_troubles(table, missing)),
    }
    return filled("convergence-table", figures)


def _cells(
    fault: FaultClass, sites: Sequence[Site], by_name: Mapping[str, CellResult]
) -> list[tuple[Site, CellResult]]:
    """The cells of a class that are there, each with its site."""
    names = {site: Cell(fault, site).name for site in sites}
    return [(site, by_name[name]) for site, name in names.items() if name in by_name]


def releases_page(cells: Sequence[CellResult]) -> str:
    """The page of releases of FRR that were measured in turn."""
    rows = [
        (fault, site, cell)
        for fault, site in PLACES
        for cell in cells
        if cell.name == Cell(fault, site).name
    ]
    traced = [(*row, _stages(row[2].traced)) for row in rows]
    stage_rows = [row for row in traced if row[3] is not None]
    return filled("frr-releases", {"cells": cells, "rows": rows, "stage_rows": stage_rows})


@dataclass(frozen=True, slots=True)
class StageRow:
    """Traced failures: how many, what noticed most of them, and medians of when it was noticed,
    when best path, zebra and kernel had the change, and when all flows had recovered."""

    failures: int
    by: str
    times: tuple[str, ...]


def _stages(traced: Sequence[Failure]) -> StageRow | None:
    known = [(one.decisive, one.failure.full_ns) for one in traced if one.decisive is not None]
    if not known:
        return None
    causes = [switch.detected_by for switch, _ in known if switch.detected_by is not None]
    times = (
        [switch.detected_ns for switch, _ in known],
        [switch.best_path_ns for switch, _ in known],
        [switch.zebra_ns for switch, _ in known],
        [switch.kernel_ns for switch, _ in known],
        [full_ns for _, full_ns in known],
    )
    by = CAUSES[statistics.mode(causes)] if causes else "-"
    return StageRow(len(known), by, tuple(map(_median, times)))


def _median(times_ns: Sequence[int | None]) -> str:
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    return quantities.duration(percentile(known, 0.5)) if known else "-"


def _repairs(
    by_name: Mapping[str, CellResult],
) -> Iterator[tuple[FaultClass, Site, int, Summary]]:
    """Of each place the repairs that lost packets, and all of them."""
    for fault, site in PLACES:
        cell = by_name.get(Cell(fault, site).name)
        repairs = [] if cell is None else [one.repair for one in cell.failures if one.repair]
        if repairs:
            yield fault, site, sum(bool(one.lost) for one in repairs), summarise(repairs)


def _job(job: LinkFailureTest | None) -> dict[str, Any] | None:
    if job is None or not job.impacts:
        return None
    overheads = [impact.overhead for impact in job.impacts]
    return {
        "overheads": overheads,
        "p95": sorted(overheads)[math.ceil(0.95 * len(overheads)) - 1],
        "steady_ns": percentile([round(impact.steady_ns) for impact in job.impacts], 0.5),
        "within": sum(impact.failed_ns <= impact.steady_p99_ns for impact in job.impacts),
    }


def _troubles(table: ConvergenceTable, missing: Sequence[str]) -> Iterator[str]:
    named = [
        *((cell.name, cell) for cell in table.cells),
        *((f"{cell.name} (FRR {cell.environment.frr_version})", cell) for cell in table.releases),
    ]
    for name, cell in named:
        if cell.failed is not None:
            yield f"{name} failed: {' '.join(cell.failed.split())}"
    for name, cell in named:
        if cell.rejected:
            yield f"{name}: {cell.rejected} failures measured again: {'; '.join(cell.reasons)}"
    if missing:
        yield f"not measured yet: {', '.join(missing)}"
