"""The documents of an event's cost (`WhatIf`) and of months of events (`Outlook`)."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.base.quantities import Unit, change, count, formatted
from rocelab.base.wording import counted
from rocelab.report.document import (
    Block,
    Column,
    Document,
    Items,
    Note,
    Row,
    Section,
    Table,
    columns,
    without_zeros,
)
from rocelab.report.simulation.costs import gpu_hours, outlook_answer, what_if_answer
from rocelab.results.whatif import JobCost, JobOutlook, Outlook, WhatIf


def what_if_document(cost: WhatIf) -> Document:
    """The event, when routing reacts and why, and each job's cost, the highest first."""
    lasts = "permanently" if cost.lasts_s is None else f"for {_time(cost.lasts_s)}"
    reacts = "at once"
    if cost.reaction_s != 0:
        reacts = "never" if cost.reaction_s is None else f"after {_time(cost.reaction_s)}"
    over = f" in {_time(cost.over_s)}" if cost.lasts_s is None else ""
    title = f"Cost for each job{over}, modelled"
    jobs = Table(
        "",
        (
            Column("job"),
            Column("GPUs", Unit.COUNT),
            Column("iteration", Unit.SECONDS),
            Column("during failure", Unit.FIGURE),
            *columns(Unit.SECONDS, "stall", "restart", "slowed", "extra"),
            Column("lost", Unit.FIGURE),
        ),
        tuple(map(_row, sorted(cost.jobs, key=lambda job: -job.gpu_hours))),
        foot=("all", *[""] * 7, gpu_hours(cost.gpu_hours)) if len(cost.jobs) > 1 else (),
    )
    return Document(
        f"What if: {cost.event}, {cost.hosts}",
        (*_chance_blocks(cost.jobs), *_left_out(cost)),
        kind=f"rocelab whatif on lab `{cost.lab}`",
        card=what_if_answer(cost),
        answer=(
            Items(
                (
                    f"lab {cost.lab}: {cost.event} ({counted(cost.links, 'link')}) {lasts}",
                    f"routing moves {reacts} ({cost.reaction})",
                    *_patience(cost),
                )
            ),
            Section(title, (without_zeros(jobs),)),
        ),
    )


def _left_out(cost: WhatIf) -> tuple[Section, ...]:
    return (Section("Left out", (Items(cost.leaves_out),), page_only=True),)


def outlook_document(outlook: Outlook) -> Document:
    """The failures and each job's history."""
    keys = ("checkpoint_every_s", "checkpoint_takes_s", "restart_takes_s")
    every_s, takes_s, restart_s = (outlook.restart[key] for key in keys)
    notes = (
        f"lab {outlook.lab}: {counted(len(outlook.events), 'failure')}, from {outlook.source}",
        *([f"drawn: {outlook.drawn}"] if outlook.drawn else []),
        f"a checkpoint every {_time(every_s)} takes {_time(takes_s)}, a restart {_time(restart_s)}",
    )
    jobs = Table(
        "",
        (
            Column("job"),
            *columns(Unit.COUNT, "GPUs", "iterations"),
            *columns(Unit.SECONDS, "took", "with no failure", "stalled", "slowed"),
            Column("restarts", Unit.FIGURE),
            *columns(Unit.SECONDS, "restarting", "work lost"),
            *columns(Unit.SHARE, "effective", "by formula"),
        ),
        tuple(
            (
                job.job,
                job.gpus,
                job.iterations,
                "never ends" if job.jct_s is None else job.jct_s,
                job.healthy_s,
                job.stalled_s,
                job.slowed_s,
                _restarts(job),
                job.restarting_s,
                job.lost_work_s,
                job.effective,
                job.expected,
            )
            for job in outlook.jobs
        ),
    )
    failures = Section("Failures", (Items(outlook.events),), page_only=True)
    return Document(
        f"Failures of {outlook.lab}, {outlook.hosts}",
        (*_chance_blocks(outlook.jobs), failures),
        kind=f"rocelab longrun on lab `{outlook.lab}`",
        card=outlook_answer(outlook),
        answer=(Items(notes), Section("Jobs, modelled", (without_zeros(jobs),))),
    )


def _chance_blocks(jobs: Sequence[JobCost | JobOutlook]) -> list[Block]:
    lucky = [job.job for job in jobs if job.lucky]
    if not lucky:
        return []
    return [
        Note(
            f"{', '.join(lucky)}: shorter iterations during a failure are chance, due to one hash "
            "seed or to another job that waits, and do not count as a gain; try --hashing with "
            "other seeds"
        )
    ]


def _restarts(job: JobOutlook) -> str:
    causes = ", ".join(f"{cause} {count(times)}" for cause, times in sorted(job.breaks.items()))
    return f"{count(job.restarts)} ({causes})" if causes else count(job.restarts)


def _patience(cost: WhatIf) -> list[str]:
    policies: dict[tuple[float, int], list[str]] = {}
    for job in cost.jobs:
        policies.setdefault((job.ack_timeout_s, job.retries), []).append(job.job)
    return [
        "queue pairs "
        + (f"of {', '.join(jobs)} " if len(policies) > 1 else "")
        + f"retry every {_time(timeout_s)}, {counted(retries, 'time')}"
        for (timeout_s, retries), jobs in policies.items()
    ]


def _row(job: JobCost) -> Row:
    during = "never ends"
    if job.during_s is not None:
        during = f"{_time(job.during_s)} ({change(job.during_s / job.before_s - 1)})"
    return (
        job.job,
        job.gpus,
        job.before_s,
        during,
        job.stall_s,
        job.restart_s + job.lost_work_s if job.restarted else "no",
        job.slowed_s,
        job.extra_s,
        gpu_hours(job.gpu_hours),
    )


def _time(seconds: float) -> str:
    return formatted(seconds, Unit.SECONDS)
