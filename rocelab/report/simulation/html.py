"""Renders a `SimulationReport` as one self-contained HTML page; the output is deterministic."""

from __future__ import annotations

import json

from rocelab.base.templates import template
from rocelab.base.units import format_duration, format_rate, format_size
from rocelab.report.html import inline
from rocelab.report.job_terminal import value_text
from rocelab.report.replay.page import data, script, style, tables_script
from rocelab.report.simulation import plots
from rocelab.report.simulation.recorded import recorded, which_flows
from rocelab.results.simulation import SimulationReport

LISTED_FLOWS = 20

NAMED_LINKS = 8


def render_html(report: SimulationReport) -> str:
    """The page."""
    drawn = {
        "heat": plots.heat,
        "timeline": plots.timeline,
        "finishing": plots.finishing,
        "rates": plots.rates,
        "jobs": plots.jobs,
        "slowdown": plots.slowdown,
    }
    recording = recorded(report)
    return template("report/simulation.html.j2").render(
        style=style(),
        script=tables_script() if recording is None else script(),
        recording="" if recording is None else data(recording.document()),
        dilation=1,
        report=report,
        tiers={(tier.tier, tier.direction): tier for tier in report.tiers},
        plots={name: inline(name, draw, report) for name, draw in drawn.items()},
        duration=format_duration,
        rate=format_rate,
        size=format_size,
        value=value_text,
        flows_are=which_flows(report, len(report.slowest)),
        replayed=0 if recording is None else len(recording.runs[0].flows),
        listed=LISTED_FLOWS,
        named=NAMED_LINKS,
        lab_json=json.dumps(report.lab, indent=1),
        job_json=[json.dumps(job.job, indent=1) for job in report.jobs],
    )
