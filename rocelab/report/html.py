"""Renders a drill's result as one self-contained HTML page: no external scripts, fonts, styles or
images. Tables and figures need no script; with one, the page also replays the runs.

The output is deterministic. Plots of DCQCN over its model are also written as SVG files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ParamSpec

from markupsafe import Markup

from rocelab.base.extras import MissingExtraError
from rocelab.base.templates import template
from rocelab.base.units import format_duration
from rocelab.report import plots
from rocelab.report.jobs import plots as job_plots
from rocelab.report.jobs import view as of_jobs
from rocelab.report.plots import svg
from rocelab.report.probes import view as of_probes
from rocelab.report.repeats import RepeatTable, repeat_tables
from rocelab.report.replay.page import data, script, style, tables_script
from rocelab.report.replay.recording import recording
from rocelab.report.stages import COLUMNS, resolution_text, stage_rows, waterfall
from rocelab.report.view import VerdictRow, figure_rows, health_rows, representative, verdict_rows
from rocelab.results import job
from rocelab.results.drill import UNSCALED, DrillResult, JobsRun, PhaseSummary
from rocelab.results.probes import ProbeRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = ParamSpec("Drawn")
EVIDENCE = "evidence"
MAX_ROWS = 200
"""Flows in the table: those that lost most."""

CARDS = (
    "full_convergence",
    "first_route_convergence",
    "loss_derived_convergence",
    "lost_packets",
    "affected_flows",
    "uplink_mmr",
)


def render_html(result: DrillResult) -> str:
    """The page. Plots and tables of a phase show the run of `representative`; a phase without a
    valid run says why and shows no figures."""
    repeats = repeat_tables(result)
    verdicts = verdict_rows(result, repeats)
    probes = [phase.probes for phase in result.phases if phase.probes is not None]
    of_lab = of_jobs.limits(lossless=bool(result.lab["queues"].get("pfc")))
    limits = (of_probes.LIMITS if probes else ()) + (of_lab if result.has_jobs else ())
    unscaled = (UNSCALED if probes else ()) + (job.UNSCALED if result.has_jobs else ())
    recorded = recording(result)
    return template("report/report.html.j2").render(
        result=result,
        style=style(),
        script=tables_script() if recorded is None else script(),
        recording="" if recorded is None else data(recorded.document()),
        dilation=result.dilation,
        contents=contents,
        summary=_summary(result, repeats),
        lines=[line for of_phase in repeats for line in of_phase.lines],
        verdicts=verdicts,
        several=any(row.phase for row in verdicts),
        phases=[
            _phase(f"p{number}", result, phase, of_phase, verdicts)
            for number, (phase, of_phase) in enumerate(zip(result.phases, repeats, strict=True), 1)
        ],
        jobs=result.has_jobs,
        limits=limits,
        scaled=[figure for of_phase in probes for figure in of_phase.clocks.scaled],
        unscaled=tuple(dict.fromkeys(unscaled)),
        duration=format_duration,
        quantity=_quantity,
        drill_json=json.dumps(result.drill, indent=1),
        lab_json=json.dumps(result.lab, indent=1),
    )


def drawings(result: DrillResult) -> Iterator[tuple[str, str]]:
    """For each modelled phase the file PHASE.svg: its name and content. None without matplotlib."""
    if find_spec("matplotlib") is None:
        return
    for phase in result.phases:
        chosen = representative(result, phase.name)
        fair = None if chosen is None else chosen[1].fair_shares
        if fair is not None:
            yield f"{phase.name}.svg", svg(job_plots.fair_shares_plot(fair), phase.name)


def _summary(result: DrillResult, repeats: list[RepeatTable]) -> str:
    """`3 valid repeats`, with several phases also their number."""
    if len(repeats) == 1:
        return repeats[0].summary
    many = len(result.repeats)
    return f"{many} repeat{'s' * (many != 1)} of {len(repeats)} phases"


def contents(page: str) -> list[tuple[str, Markup]]:
    """The anchor and the title of each section of a page."""
    found = re.findall(r'<h2 id="([^"]+)">([^<]+)</h2>', page)
    return [(anchor, Markup(title)) for anchor, title in found]  # noqa: S704


def _phase(
    anchor: str,
    result: DrillResult,
    phase: PhaseSummary,
    repeats: RepeatTable,
    verdicts: list[VerdictRow],
) -> dict[str, Any]:
    """The template's data of one phase; `anchor` begins the ids of its sections."""
    shown: dict[str, Any] = {
        "id": anchor,
        "where": result.where(phase.name),
        "valid": phase.valid_runs,
        "repeats": repeats,
        "number": None,
        "method": None if phase.probes is None else phase.probes.method,
    }
    chosen = representative(result, phase.name)
    if chosen is None:
        return shown
    number, run = chosen
    shown["number"] = number
    measured = run.measured
    if isinstance(measured, ProbeRun):
        resolutions = [run.resolution_ns for run in result.runs_of(phase.name) if run.valid]
        rows = figure_rows(phase.figures[0], phase.valid_runs, max(resolutions))
        missed = {
            row.kpi: row.said for row in verdicts if row.phase == shown["where"] and not row.passed
        }
        return {
            **shown,
            "figures": rows,
            "cards": [row for name in CARDS for row in rows if row.name == name],
            "missed": missed,
            **_watched(measured, phase.name),
            **_of_probes(measured, phase.name),
        }
    return {
        **shown,
        "errors": run.errors,
        **_watched(measured, phase.name),
        **_of_jobs(phase, measured),
    }


def _watched(run: ProbeRun | JobsRun, name: str) -> dict[str, Any]:
    """The template's data of what was traced and watched in the switches."""
    return {
        "stages": [
            (
                one.event,
                stage_rows(one),
                resolution_text(one.resolution),
                inline(f"{name}-stages{number}", waterfall, one),
            )
            for number, one in enumerate(run.stages)
            if one.switches
        ],
        "stage_columns": COLUMNS,
        "health": None if run.health is None else health_rows(run.health),
        "sampling": "" if run.health is None else run.health.sampling,
        "evidence": [] if run.health is None else list(map(evidence_link, run.health.evidence)),
    }


def evidence_link(folder: str) -> tuple[str, str]:
    """The link to a bundle from the page, which is beside the folder `evidence`, and its name; no
    target for a folder elsewhere."""
    parts = PurePath(folder).parts
    if EVIDENCE not in parts:
        return "", folder
    inside = PurePath(*parts[len(parts) - 1 - parts[::-1].index(EVIDENCE) :])
    return f"{inside}/", str(inside)


def _of_probes(run: ProbeRun, name: str) -> dict[str, Any]:
    rows = of_probes.flow_rows(run)
    return {
        "events": of_probes.event_rows(run),
        "flows": rows[:MAX_ROWS],
        "left_out": len(rows) - MAX_ROWS,
        "untouched": len(of_probes.untouched(run)),
        "flow_count": len(run.flows),
        "overall": run.overall,
        "fib": of_probes.fib_rows(run),
        "plans": [of_probes.plan_title(plan) for plan in of_probes.by_plan(run.hashing)],
        "tiers": of_probes.tier_rows(run.hashing),
        "polarizations": of_probes.polarization_rows(run.hashing),
        "loss_plot": inline(f"{name}-loss", plots.loss_timeline, run),
        "fib_plot": inline(f"{name}-fib", plots.fib_timeline, run),
        "loads_plot": inline(f"{name}-loads", plots.link_loads, run.hashing),
    }


def _of_jobs(phase: PhaseSummary, run: JobsRun) -> dict[str, Any]:
    fair, devices, many = run.fair_shares, run.reports[0], len(run.reports)
    return {
        "jobs": [
            {
                "name": of_jobs.job_name(phase.name, place, many),
                "text": of_jobs.job_text(report.job),
                "figures": figure_rows(figures, phase.valid_runs),
                "progress_plot": ""
                if fair is not None
                else inline(f"{phase.name}-{place}-progress", job_plots.progress_plot, report),
            }
            for place, (figures, report) in enumerate(
                zip(phase.figures, run.reports, strict=True), 1
            )
        ],
        "events": [
            (number, event.title, format_duration(event.t_ns))
            for number, event in enumerate(devices.events, 1)
        ],
        "checks": of_jobs.check_rows(devices),
        "links": of_jobs.link_rows(devices),
        "queues": of_jobs.queue_rows(devices),
        "fair": fair,
        "shares": [] if fair is None else of_jobs.share_rows(fair),
        "fair_plot": ""
        if fair is None
        else inline(f"{phase.name}-fair", job_plots.fair_shares_plot, fair),
        "loads_plot": inline(f"{phase.name}-loads", job_plots.link_loads_plot, devices),
        "lossless": of_jobs.lossless_text(devices),
        "pauses": of_jobs.pause_rows(devices),
        "propagation": of_jobs.propagation_rows(devices),
        "pauses_plot": inline(f"{phase.name}-pauses", job_plots.pauses_plot, devices),
    }


def inline(
    name: str, draw: Callable[Drawn, Figure | None], *drawn: Drawn.args, **options: Drawn.kwargs
) -> Markup:
    """What `draw` draws as SVG for a page, empty for None; `name` makes its ids unique. Without
    matplotlib a line that says what is missing."""
    try:
        figure = draw(*drawn, **options)
    except MissingExtraError as error:
        return Markup('<p class="note">not drawn: {}: {}</p>').format(error.message, error.hint)
    # Matplotlib escapes the text it draws; names from a result cannot become markup.
    return Markup("" if figure is None else svg(figure, name))  # noqa: S704


def _quantity(value: float, unit: str) -> str:
    return format_duration(value) if unit == "ns" else f"{value:,.0f} packets/s"
