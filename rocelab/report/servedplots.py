"""The plot of what requests feel: how many have their first token, and their tokens, by a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rocelab.base.quantities import Unit, axis_unit, tick
from rocelab.jobs.served import Carried, Served
from rocelab.report.palette import CATEGORIES, GRID, MEASURED, MUTED
from rocelab.report.plots import add_key, name_axis, panels, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 10
"""Times that differ by so much are on a logarithmic axis."""

_COLOURS = {
    Carried.CARRIED: MEASURED,
    Carried.ALONE: CATEGORIES[1],
    Carried.NONE: CATEGORIES[3],
}


@styled
def served_plot(served: Served) -> Figure | None:
    """The distributions of TTFT and ITL with each network, and their objectives, dotted. None if no
    request is answered."""
    if not served.by(Carried.CARRIED).answered:
        return None
    figure, (axes,) = panels(1, 2, 2.8)
    curves = [(by.network, by.ttft_ns, by.itl_ns) for by in served.by_network]
    _draw(
        axes[0],
        "time to first token",
        [(network, ttft) for network, ttft, _ in curves],
        served.ttft_objective_ns,
    )
    _draw(
        axes[1],
        "time between tokens",
        [(network, itl) for network, _, itl in curves],
        served.itl_objective_ns,
    )
    add_key(figure, *axes[0].get_legend_handles_labels())
    return figure


def _draw(
    axis: Axes,
    title: str,
    curves: Sequence[tuple[Carried, Sequence[float | None]]],
    objective_ns: float | None,
) -> None:
    # What it was is drawn last, above the others.
    curves = [*curves[1:], *curves[:1]]
    known = [[time for time in times if time is not None] for _, times in curves]
    most_ns = max((max(times) for times in known if times), default=1.0)
    least_ns = min((min(times) for times in known if times), default=1.0)
    scale, unit = axis_unit(most_ns, Unit.NS)
    for (network, whole), times in zip(curves, known, strict=True):
        shares = np.linspace(0, 1, len(whole))[: len(times)]
        axis.step(
            np.array(times) / scale,
            shares,
            where="post",
            color=_COLOURS[network],
            linewidth=1.4,
            label=f"network: {network}",
        )
    if 0 < WIDE * least_ns < most_ns:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(lambda value, _: tick(value))
        axis.xaxis.set_minor_formatter(lambda _value, _: "")
    if objective_ns is not None and objective_ns <= 2 * most_ns:
        axis.axvline(objective_ns / scale, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    axis.set_ylim(0, 1.02)
    name_axis(axis.xaxis, title, unit)
    name_axis(axis.yaxis, "share of requests")
    axis.grid(color=GRID, linewidth=0.6)
