"""What an event or months of events cost, and the job that pays most."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rocelab.base.quantities import Unit, axis_unit, formatted, share
from rocelab.base.wording import counted
from rocelab.report.answers.clauses import sentence
from rocelab.report.document import Answer, Card, Figure
from rocelab.report.palette import GRID, REDONE, RESTARTING, SLOWED, STALLED
from rocelab.report.plots import add_key, figure_of, name_axis, styled
from rocelab.results.whatif import JobCost, JobOutlook, Outlook, WhatIf

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

S = 10**9
MOST_JOBS = 20

_PARTS = (
    ("stalled", STALLED),
    ("restarting", RESTARTING),
    ("work done again", REDONE),
    ("slowed", SLOWED),
)
"""The parts of the time that a job loses, in the order of `_lost`."""


def what_if_answer(cost: WhatIf) -> Answer:
    """The answer of one event."""
    worst = max(cost.jobs, key=lambda job: job.gpu_hours)
    restarted = sum(job.restarted for job in cost.jobs)
    restarts = f"{restarted} of {counted(len(cost.jobs), 'job')} restart"
    text = sentence(
        f"{cost.hosts}: {cost.event}: {_most_expensive(cost, worst)}",
        _slower(worst),
        restarts if restarted else "no job restarts",
    )
    figures = (
        Card("Lost by all jobs", gpu_hours(cost.gpu_hours)),
        Card("Longest stall", _time(max(job.stall_s for job in cost.jobs))),
        Card("Jobs that restart", f"{restarted} of {len(cost.jobs)}"),
        Card("Links affected", f"{cost.links:,}"),
    )
    return Answer(text, figures, Figure("answer", partial(cost_plot, cost)))


def _most_expensive(cost: WhatIf, job: JobCost) -> str:
    if not job.extra_s:
        return "no job loses time"
    who = f"{job.job} loses most," if len(cost.jobs) > 1 else f"{job.job} loses"
    return f"{who} {_time(job.extra_s)} or {gpu_hours(job.gpu_hours)}"


def _slower(job: JobCost) -> str:
    if job.during_s is None:
        return "it makes no progress during the failure"
    if job.during_s <= job.before_s:
        return ""
    return f"its iterations take {share(job.during_s / job.before_s - 1)} longer during the failure"


def outlook_answer(outlook: Outlook) -> Answer:
    """The answer of months of events."""
    worst = min(outlook.jobs, key=lambda job: job.effective)
    failures = counted(len(outlook.events), "failure") if outlook.events else "no failure"
    text = sentence(f"{outlook.hosts}: {failures}: {_outcome(outlook, worst)}", _main_cost(worst))
    figures = (
        Card("Least effective job", share(worst.effective), worst.job),
        Card("Took", "never ends" if worst.jct_s is None else _time(worst.jct_s), worst.job),
        Card("Restarts", f"{worst.restarts:,}", worst.job),
        Card("Stalled", _time(worst.stalled_s), worst.job),
    )
    return Answer(text, figures, Figure("answer", partial(outlook_plot, outlook)))


def _outcome(outlook: Outlook, job: JobOutlook) -> str:
    if job.jct_s is None:
        return f"{job.job} never ends"
    who = f"{job.job}, the least effective job," if len(outlook.jobs) > 1 else job.job
    took, healthy = _time(job.jct_s), _time(job.healthy_s)
    instead = "" if took == healthy else f" instead of {healthy}"
    return f"{who} takes {took}{instead}, {share(job.effective)} of it work"


def _main_cost(job: JobOutlook) -> str:
    """`most of the rest is restarting, 3.2 h`; empty if nothing was lost. Checkpoints are a part of
    it that failures do not cost."""
    parts = dict(zip((name for name, _ in _PARTS), _lost(job), strict=True))
    rest_s = sum(parts.values())
    if job.jct_s is not None:
        checkpoints_s = max(0.0, job.jct_s * (1 - job.effective) - rest_s)
        parts["checkpoints"] = checkpoints_s
        rest_s += checkpoints_s
    name = max(parts, key=lambda part: parts[part])
    if not parts[name]:
        return ""
    most = "most" if parts[name] > rest_s / 2 else "the largest part"
    return f"{most} of the rest is {name}, {_time(parts[name])}"


def _lost(job: JobOutlook) -> tuple[float, ...]:
    return (job.stalled_s, job.restarting_s, job.lost_work_s, job.slowed_s)


def cost_plot(cost: WhatIf) -> Drawing | None:
    """A bar per job of the time that it loses, the dearest first; None if none loses any."""
    jobs = sorted(cost.jobs, key=lambda job: -job.extra_s)[:MOST_JOBS]
    rows = [(job.job, (job.stall_s, job.restart_s, job.lost_work_s, job.slowed_s)) for job in jobs]
    return _bars(rows, _PARTS, "time lost by a job")


def outlook_plot(outlook: Outlook) -> Drawing | None:
    """A bar per job of the time that it loses, the least effective first; None if none loses
    any."""
    jobs = sorted(outlook.jobs, key=lambda job: job.effective)[:MOST_JOBS]
    return _bars([(job.job, _lost(job)) for job in jobs], _PARTS, "time lost by a job")


@styled
def _bars(
    rows: Sequence[tuple[str, Sequence[float]]], parts: Sequence[tuple[str, str]], title: str
) -> Drawing | None:
    """Stacked bars, in seconds."""
    most = max((sum(times) for _, times in rows), default=0.0)
    if not most:
        return None
    figure = figure_of(11, 1.1 + 0.3 * len(rows))
    axis = figure.subplots()
    scale, unit = axis_unit(most * S, Unit.NS)
    for row, (_, times) in enumerate(rows):
        left = 0.0
        for seconds, (_, colour) in zip(times, parts, strict=True):
            if seconds:
                axis.barh(row, seconds * S / scale, left=left, color=colour, height=0.6)
            left += seconds * S / scale
    for place, (name, colour) in enumerate(parts):
        if any(times[place] for _, times in rows):
            axis.plot([], [], color=colour, linewidth=7, label=name)
    axis.set_yticks(range(len(rows)), [name for name, _ in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.set_xlim(left=0)
    name_axis(axis.xaxis, title, unit)
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    add_key(figure)
    return figure


def gpu_hours(hours: float) -> str:
    """`36.8 GPU-h`, `0 GPU-h`."""
    return f"{hours:,.1f} GPU-h" if hours else "0 GPU-h"


def _time(seconds: float) -> str:
    return formatted(seconds, Unit.SECONDS)
