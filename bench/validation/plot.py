"""The plots of the validation.

SVG text by file name, with the same bytes for the same data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.validation.document import Validation
from bench.validation.engineering import FAILED
from bench.validation.history import PHASES
from bench.validation.hpn import JOB_GPUS
from bench.validation.hpn import QPS as HPN_QPS
from bench.validation.scaling import QPS, UPLINKS
from rocelab.report.palette import CATEGORIES, GRID, INK, MUTED
from rocelab.report.plots import figure_of, styled, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACEMENTS = {"churn": "first fit after churn", "scatter": "scattered"}
LINES = {
    "lp 1": "TE, LP",
    "cspf 1": "TE, CSPF",
    "e-ecmp 32": "E-ECMP, 32 QPs",
    "lp before": "TE before its round",
}


def plots(validation: Validation) -> dict[str, str]:
    """All plots, by file name."""
    return {
        "validation-queue-pairs.svg": _queue_pairs(validation),
        "validation-te.svg": _failures(validation),
        "validation-history.svg": _history(validation),
        "validation-hpn.svg": _planes(validation),
    }


@styled
def _queue_pairs(validation: Validation) -> str:
    figure = figure_of(10, 2.8)
    axes = figure.subplots(1, len(PLACEMENTS), sharey=True)
    for axis, (placement, title) in zip(axes, PLACEMENTS.items(), strict=True):
        for (ratio, _), colour in zip(UPLINKS.items(), CATEGORIES, strict=False):
            keys = [f"qp/64/{placement}/{ratio}/{qps}/mean" for qps in QPS]
            _band(axis, validation, keys, colour, f"uplinks {ratio}")
        axis.set_xticks(range(len(QPS)), [str(qps) for qps in QPS])
        axis.axhline(1.4, color=MUTED, linewidth=0.6, linestyle="--")
        axis.set_title(title)
        axis.set_xlabel("QPs (dashed: published mean at 4)")
    axes[0].set_ylabel("completion / roofline, mean job")
    axes[0].legend(frameon=False)
    return svg(figure, "queue-pairs")


@styled
def _failures(validation: Validation) -> str:
    figure = figure_of(11, 5)
    axes = figure.subplots(len(PLACEMENTS), len(UPLINKS), sharex=True, sharey=True)
    for row, (placement, title) in zip(axes, PLACEMENTS.items(), strict=True):
        for axis, ratio in zip(row, UPLINKS, strict=True):
            for (scheme, label), colour in zip(LINES.items(), CATEGORIES, strict=False):
                failed = [
                    n for n in FAILED if f"te/{placement}/{ratio}/{n}/{scheme}" in validation.values
                ]
                keys = [f"te/{placement}/{ratio}/{n}/{scheme}" for n in failed]
                _band(axis, validation, keys, colour, label, [FAILED.index(n) for n in failed])
            axis.set_title(f"{title}, uplinks {ratio}")
            axis.set_xticks(range(len(FAILED)), [str(n) for n in FAILED])
        row[0].set_ylabel("part of roofline")
    for axis in axes[-1]:
        axis.set_xlabel("failed uplinks in a quarter of the racks")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), frameon=False, ncols=4, loc="outside upper right"
    )
    return svg(figure, "te")


@styled
def _history(validation: Validation) -> str:
    figure = figure_of(10, 3.6)
    axes = figure.subplots(1, len(PLACEMENTS), sharey=True)
    for axis, (placement, title) in zip(axes, PLACEMENTS.items(), strict=True):
        for place, name in enumerate(PHASES):
            values = sorted(validation[f"phase/{placement}/{name}"])
            # Sorted from left to right: a line is the distribution of its jobs.
            across = [place + 0.7 * ((n + 0.5) / len(values) - 0.5) for n in range(len(values))]
            axis.plot(across, values, "-", linewidth=1.6, color=CATEGORIES[0])
            middle = validation.median(f"phase/{placement}/{name}")
            axis.hlines(middle, place - 0.38, place + 0.38, colors=INK, linewidth=1)
        axis.set_xticks(
            range(len(PHASES)), [phase.title for phase in PHASES.values()], rotation=35, ha="right"
        )
        axis.set_title(title)
        axis.grid(visible=True, axis="y", color=GRID, linewidth=0.5)
    axes[0].set_ylabel("AllReduce bandwidth / roofline, every job")
    return svg(figure, "history")


@styled
def _planes(validation: Validation) -> str:
    figure = figure_of(6.5, 3)
    axis = figure.subplots()
    axis.axhspan(0.501, 0.637, color=GRID, zorder=0)
    for gpus, colour in zip(JOB_GPUS, CATEGORIES, strict=False):
        keys = [f"planes/shared/{gpus}/{qps}" for qps in HPN_QPS]
        _band(axis, validation, keys, colour, f"{gpus} GPUs")
    axis.set_xticks(range(len(HPN_QPS)), [str(qps) for qps in HPN_QPS])
    axis.set_xlabel("QPs (band: published)")
    axis.set_ylabel("gain of two planes")
    axis.legend(frameon=False)
    return svg(figure, "planes")


def _band(
    axis: Axes,
    validation: Validation,
    keys: Sequence[str],
    colour: str,
    label: str,
    places: Sequence[int] | None = None,
) -> None:
    """Medians as a line, extremes as a band around it."""
    at = list(range(len(keys))) if places is None else list(places)
    spreads = [validation.spread(key) for key in keys]
    axis.plot(at, [one.median for one in spreads], "o-", markersize=3, color=colour, label=label)
    low, high = [one.minimum for one in spreads], [one.maximum for one in spreads]
    axis.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.grid(visible=True, axis="y", color=GRID, linewidth=0.5)
