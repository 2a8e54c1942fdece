"""Prints the cost of an event (`WhatIf`), or of months of events (`Outlook`), on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from rocelab.base.units import format_duration
from rocelab.base.wording import counted
from rocelab.labfile.base import SECOND
from rocelab.report.console import table
from rocelab.results.whatif import JobCost, JobOutlook, Outlook, WhatIf


def print_what_if(found: WhatIf, console: Console) -> None:
    """Print the event, when routing reacts and why, and each job's cost, the highest first."""
    lasts = "permanently" if found.lasts_s is None else f"for {_time(found.lasts_s)}"
    reacts = "at once"
    if found.reaction_s != 0:
        reacts = "never" if found.reaction_s is None else f"after {_time(found.reaction_s)}"
    lines = (
        f"lab {found.lab}: {found.event} ({counted(found.links, 'link')}) {lasts}",
        f"routing moves {reacts} ({found.reaction})",
        *_patience(found),
    )
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    shown = table(
        f"Cost for each job{_over(found)}",
        (
            "job",
            "GPUs",
            "iteration",
            "during failure",
            "stall",
            "restart",
            "slowed",
            "extra",
            "GPU-h",
        ),
    )
    for job in sorted(found.jobs, key=lambda job: -job.gpu_hours):
        shown.add_row(*_row(job))
    if len(found.jobs) > 1:
        shown.add_section()
        shown.add_row("all", *[""] * 7, f"{found.gpu_hours:,.1f}")
    console.print()
    console.print(shown)
    _print_luck(found.jobs, console)


def print_outlook(found: Outlook, console: Console) -> None:
    """Print the failures and each job's history."""
    count = len(found.events)
    every_s, takes_s, restart_s = (
        found.restart[key] for key in ("checkpoint_every", "checkpoint_takes", "restart_takes")
    )
    lines = [
        f"lab {found.lab}: {counted(count, 'failure')}, from {found.source}",
        *([f"drawn: {found.drawn}"] if found.drawn else []),
        f"a checkpoint every {_time(every_s)} takes {_time(takes_s)}, a restart {_time(restart_s)}",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    shown = table(
        "Jobs",
        (
            "job",
            "GPUs",
            "iterations",
            "took",
            "with no failure",
            "stalled",
            "slowed",
            "restarts",
            "restarting",
            "work lost",
            "effective",
            "by formula",
        ),
    )
    for job in found.jobs:
        shown.add_row(
            job.job,
            f"{job.gpus:,}",
            f"{job.iterations:,}",
            "never ends" if job.jct_s is None else _time(job.jct_s),
            _time(job.healthy_s),
            _time(job.stalled_s),
            _time(job.slowed_s),
            _restarts(job),
            _time(job.restarting_s),
            _time(job.lost_work_s),
            f"{job.effective:.2%}",
            f"{job.expected:.2%}",
        )
    console.print()
    console.print(shown)
    _print_luck(found.jobs, console)


def _print_luck(jobs: Sequence[JobCost | JobOutlook], console: Console) -> None:
    if lucky := [job.job for job in jobs if job.lucky]:
        console.print(
            f"{', '.join(lucky)}: shorter iterations during a failure are chance, due to one "
            f"hash seed or to another job that waits, and do not count as a gain; try --hashing "
            f"with "
            "other seeds",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _restarts(job: JobOutlook) -> str:
    causes = ", ".join(f"{cause} {count:,}" for cause, count in sorted(job.breaks.items()))
    return f"{job.restarts:,} ({causes})" if causes else f"{job.restarts:,}"


def _patience(found: WhatIf) -> list[str]:
    policies: dict[tuple[float, int], list[str]] = {}
    for job in found.jobs:
        policies.setdefault((job.ack_timeout_s, job.retries), []).append(job.job)
    return [
        "queue pairs "
        + (f"of {', '.join(jobs)} " if len(policies) > 1 else "")
        + f"retry every {_time(timeout_s)}, {retries} times"
        for (timeout_s, retries), jobs in policies.items()
    ]


def _over(found: WhatIf) -> str:
    return f" in {_time(found.over_s)}" if found.lasts_s is None else ""


def _row(job: JobCost) -> tuple[str, ...]:
    meanwhile = "never ends"
    if job.during_s is not None:
        meanwhile = f"{_time(job.during_s)} ({job.during_s / job.before_s - 1:+.1%})"
    return (
        job.job,
        f"{job.gpus:,}",
        _time(job.before_s),
        meanwhile,
        _time(job.stall_s),
        _time(job.restart_s + job.lost_work_s) if job.restarted else "no",
        _time(job.slowed_s),
        _time(job.extra_s),
        f"{job.gpu_hours:,.1f}",
    )


def _time(seconds: float) -> str:
    minutes = 60.0
    hours = seconds / minutes / minutes
    if hours >= 48:
        return f"{hours / 24:,.1f} d"
    if hours >= 1:
        return f"{hours:.3g} h"
    return f"{seconds / minutes:.3g} min" if seconds >= 2 * minutes else _short(seconds)


def _short(seconds: float) -> str:
    return "0" if seconds == 0 else format_duration(seconds * SECOND)
