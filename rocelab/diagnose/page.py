"""The picture of a diagnosis: the lateness of every rank in every step of every iteration.

Draws it in the style of `rocelab.report.plots` as SVG or PNG. Lightness shows the values, so that
it is readable in grey.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from rocelab.base import quantities
from rocelab.diagnose.case import Case
from rocelab.diagnose.critical import lateness
from rocelab.diagnose.document import top_ns
from rocelab.report.palette import INK, MUTED
from rocelab.report.plots import figure_of, styled
from rocelab.results.diagnosis import Cause, Diagnosis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MS = 10**6
MOST_ITERATIONS = 8


def drawn(diagnosis: Diagnosis, case: Case, extension: str) -> bytes:
    """The map as the content of a file with this extension, .svg or .png."""
    content = io.BytesIO()
    lateness_map(diagnosis, case).savefig(content, dpi=150, format=extension.removeprefix("."))
    return content.getvalue()


@styled
def lateness_map(diagnosis: Diagnosis, case: Case) -> Figure:
    """Ranks by steps, with iterations side by side; only the last ones if there are many."""
    timed, ranks = case.timing, case.job.ranks
    rows = list(range(len(timed.took)))
    if len(rows) > MOST_ITERATIONS:
        last = rows[-MOST_ITERATIONS:]
        row = diagnosis.shown - timed.first
        rows = last if row in last else [row, *last[1:]]
    tables = [lateness(timed, ranks, row) / MS for row in rows]
    whole = np.concatenate(tables, axis=1)
    steps = tables[0].shape[1]
    figure = figure_of(11, 1.5 + 0.22 * ranks)
    axis = figure.subplots()
    image = axis.imshow(
        whole,
        aspect="auto",
        interpolation="nearest",
        cmap="magma_r",
        vmin=0,
        vmax=top_ns(case) / MS,
    )
    axis.set_yticks(
        range(ranks), [f"rank {rank} {server}" for rank, server in enumerate(case.server_of)]
    )
    axis.set_xticks(
        [steps * (place + 0.5) - 0.5 for place in range(len(rows))],
        [f"iteration {timed.first + row}\n{timed.took[row] / MS:,.0f} ms" for row in rows],
    )
    axis.tick_params(length=0, labelsize=7)
    for place in range(1, len(rows)):
        axis.axvline(steps * place - 0.5, color=MUTED, linewidth=0.6)
    figure.colorbar(image, ax=axis, pad=0.01, label="late, ms of the lab")
    verdict = diagnosis.verdict
    title = "no cause found: the job's plan explains its time"
    if verdict.cause is Cause.INVALID:
        title = "the run exceeded its limits, so there is no verdict on the network"
    elif verdict.cause is not Cause.NONE:
        title = f"{verdict.cause}: {verdict.subject} ({quantities.duration(verdict.excess.lab_ns)})"
    axis.set_title(
        f"{title}\nhow late what a rank was sent arrived, by step ({steps} per iteration)",
        color=INK,
    )
    return figure
