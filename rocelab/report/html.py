"""A drill's result as one HTML page that stands alone: no scripts, fonts, styles or images from
anywhere else.

In: a `DrillResult`. Out: HTML text, the same bytes for the same result.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rocelab.data import shipped
from rocelab.files import replace_file
from rocelab.report.repeats import repeat_table
from rocelab.report.view import (
    LIMITS,
    event_title,
    fib_rows,
    flow_rows,
    health_rows,
    kpi_rows,
    plan_title,
    polarization_rows,
    representative,
    tier_rows,
    untouched,
)
from rocelab.report.view import by_plan as plans
from rocelab.results.drill import DrillResult, Repeat
from rocelab.results.expectations import KPIS
from rocelab.units import format_duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CARDS = (
    "full_convergence",
    "first_route_convergence",
    "loss_derived_convergence",
    "lost_packets",
    "affected_flows",
    "uplink_mmr",
)


def render_html(result: DrillResult) -> str:
    """The page. Plots and per-flow tables are of the repeat nearest the median of full
    convergence; without a valid repeat the page says why and shows no figures."""
    environment = Environment(
        loader=FileSystemLoader(shipped("templates") / "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rows = kpi_rows(result)
    chosen = representative(result)
    repeats = repeat_table(result)
    return environment.get_template("report.html.j2").render(
        result=result,
        kpis=rows,
        cards=[row for name in CARDS for row in rows if row.name == name],
        verdicts=[
            (
                KPIS[one.kpi].title,
                one.expectation,
                one.shown(),
                one.passed,
                repeats.verdict(one),
            )
            for one in result.verdicts
        ],
        missed={one.kpi: repeats.verdict(one) for one in result.verdicts if not one.passed},
        repeats=repeats,
        number=chosen[0] if chosen else None,
        detail=_detail(chosen[1]) if chosen else None,
        limits=LIMITS,
        duration=format_duration,
        quantity=_quantity,
        drill_json=json.dumps(result.drill, indent=1),
        lab_json=json.dumps(result.lab, indent=1),
    )


def write_report(result: DrillResult, path: Path) -> None:
    """Write the page to `path`. Raises OSError where that is not possible."""
    replace_file(path, render_html(result))


def _detail(repeat: Repeat) -> dict[str, object]:
    """What the template shows of one repeat."""
    # Here and not above: a program that only reads results does not wait for matplotlib.
    from rocelab.report import plots
    from rocelab.report.stages import COLUMNS, resolution_text, stage_rows, waterfall

    return {
        "events": [
            (event_title(record.event), record.event.t_ns, record.convergence)
            for record in repeat.events
        ],
        "flows": flow_rows(repeat),
        "untouched": len(untouched(repeat)),
        "flow_count": len(repeat.flows),
        "overall": repeat.overall,
        "stages": [
            (
                one.event,
                stage_rows(one),
                resolution_text(one.resolution),
                inline(waterfall(one), f"stages{number}"),
            )
            for number, one in enumerate(repeat.stages)
            if one.switches
        ],
        "stage_columns": COLUMNS,
        "health": None if repeat.health is None else health_rows(repeat.health),
        "samples": 0 if repeat.health is None else repeat.health.samples,
        "evidence": () if repeat.health is None else repeat.health.evidence,
        "fib": fib_rows(repeat),
        "plans": [plan_title(run) for run in plans(repeat.hashing)],
        "tiers": tier_rows(repeat.hashing),
        "polarizations": polarization_rows(repeat.hashing),
        "loss_plot": inline(plots.loss_timeline(repeat), "loss"),
        "throughput_plot": inline(plots.throughput(repeat), "throughput"),
        "fib_plot": inline(plots.fib_timeline(repeat), "fib"),
        "loads_plot": inline(plots.link_loads(repeat.hashing), "loads"),
    }


def inline(figure: Figure | None, name: str) -> Markup:
    """The figure as SVG to put into a page, nothing for None; `name` tells its ids apart."""
    from rocelab.report.plots import svg

    # Matplotlib escapes the text it draws; names from a result can not become markup.
    return Markup("" if figure is None else svg(figure, name))  # noqa: S704


def _quantity(value: float, unit: str) -> str:
    return format_duration(value) if unit == "ns" else f"{value:,.6g} packets/s"
