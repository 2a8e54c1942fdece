"""Renders a comparison as one self-contained HTML page: no external scripts, fonts, styles or
images.

The output is deterministic and follows the BMWG draft's reporting format
(`rocelab.report.compare.view`).
"""

from __future__ import annotations

import json

from rocelab.base.templates import template
from rocelab.report.compare import plots
from rocelab.report.compare.recorded import recorded
from rocelab.report.compare.view import (
    anomalies,
    blocks,
    busbw_rows,
    flags_used,
    jct_rows,
    limits,
    name_of,
    polarization_rows,
    repeatability,
    run_rows,
)
from rocelab.report.html import inline
from rocelab.report.replay.page import data, script, shared_style, style, tables_script
from rocelab.results.comparison import Comparison


def render_html(found: Comparison) -> str:
    """The page."""
    job = found.cells[0].job
    recording = recorded(found)
    return template("report/compare.html.j2").render(
        style=shared_style() if recording is None else style(),
        script=tables_script() if recording is None else script(),
        recording="" if recording is None else data(recording.document()),
        result=found,
        job=job,
        transport=job["transport"],
        schemes=[name_of(kind) for kind in found.kinds],
        settings=[(name_of(kind), _settings(found, kind)) for kind in found.kinds],
        blocks=blocks(found),
        busbw=busbw_rows(found),
        jct=jct_rows(found),
        polarizations=polarization_rows(found),
        anomalies=anomalies(found),
        runs=run_rows(found),
        repeatability=repeatability(found),
        starred=flags_used(found.cells),
        limits=limits(found),
        lines_plot=inline("lines", plots.by_queue_pairs, found),
        jfi_plot=inline("jfi", plots.fairness_bars, found),
        maps=[
            (placement, inline(f"map-{placement}", plots.load_map, found, placement))
            for placement in found.placements
        ],
        lab_json=json.dumps(found.lab, indent=1),
        job_json=json.dumps(job, indent=1),
    )


def _settings(found: Comparison, kind: str) -> str:
    scheme = next(cell.scheme for cell in found.cells if cell.kind == kind)
    own = [f"{key} {value}" for key, value in scheme.items() if key != "kind"]
    return ", ".join(own) or "-"
