"""The result of a drill of jobs as one HTML page that stands alone: no scripts, fonts, styles or
images from anywhere else.

In: a `JobDrillResult`. Out: HTML text, the same bytes for the same result; and the plots that lay
DCQCN over its model as SVG files.
"""

from __future__ import annotations

import json
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rocelab.data import shipped
from rocelab.files import replace_file
from rocelab.report.html import inline
from rocelab.report.phases.view import (
    LIMITS,
    check_rows,
    figure_rows,
    job_name,
    job_text,
    link_rows,
    queue_rows,
    representative,
    share_rows,
    verdict_rows,
)
from rocelab.report.repeats import RepeatTable, phase_tables
from rocelab.results.job import UNSCALED
from rocelab.results.phases import JobDrillResult, PhaseSummary
from rocelab.units import format_duration


def render_job_html(result: JobDrillResult) -> str:
    """The page. Plots and tables of a phase are of the run that `representative` names; a phase
    without a valid run says why and shows no figures."""
    environment = Environment(
        loader=FileSystemLoader(shipped("templates") / "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    repeats = phase_tables(result)
    return environment.get_template("phases.html.j2").render(
        result=result,
        lines=[line for of_phase in repeats for line in of_phase.lines],
        verdicts=verdict_rows(result, repeats),
        phases=[
            _phase(result, phase, of_phase)
            for phase, of_phase in zip(result.phases, repeats, strict=True)
        ],
        limits=LIMITS,
        unscaled=UNSCALED,
        duration=format_duration,
        drill_json=json.dumps(result.drill, indent=1),
        lab_json=json.dumps(result.lab, indent=1),
    )


def write_job_report(result: JobDrillResult, folder: Path) -> None:
    """Write report.html and, of each phase that was modelled, PHASE.svg into `folder`.

    Raises OSError where that is not possible.
    """
    from rocelab.report.phases import plots
    from rocelab.report.plots import svg

    replace_file(folder / "report.html", render_job_html(result))
    for phase in result.phases:
        chosen = representative(result, phase.name)
        if chosen is not None and chosen[1].fair_shares is not None:
            drawing = svg(plots.fair_shares_plot(chosen[1].fair_shares), phase.name)
            replace_file(folder / f"{phase.name}.svg", drawing)


def _phase(result: JobDrillResult, phase: PhaseSummary, repeats: RepeatTable) -> dict[str, object]:
    """What the template shows of one phase."""
    # Here and not above: a program that only reads results does not wait for matplotlib.
    from rocelab.report.phases import plots

    shown: dict[str, object] = {
        "name": phase.name,
        "passed": phase.passed,
        "valid": phase.valid_runs,
        "repeats": repeats,
        "run": None,
    }
    chosen = representative(result, phase.name)
    if chosen is None:
        return shown
    number, run = chosen
    fair, devices = run.fair_shares, run.reports[0]
    return {
        **shown,
        "run": number,
        "jobs": [
            {
                "name": job_name(phase.name, place, len(phase.jobs)),
                "text": job_text(report.job),
                "figures": figure_rows(job, phase.valid_runs),
                "rates_plot": inline(
                    plots.rates_plot(report) if fair is None else None,
                    f"{phase.name}-{place}-rates",
                ),
            }
            for place, (job, report) in enumerate(zip(phase.jobs, run.reports, strict=True), 1)
        ],
        "errors": run.errors,
        "checks": check_rows(devices),
        "links": link_rows(devices),
        "queues": queue_rows(devices),
        "fair": fair,
        "shares": [] if fair is None else share_rows(fair),
        "fair_plot": inline(
            None if fair is None else plots.fair_shares_plot(fair), f"{phase.name}-fair"
        ),
        "loads_plot": inline(plots.link_loads_plot(devices), f"{phase.name}-loads"),
    }
