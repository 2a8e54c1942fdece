"""The KPIs of training steps and of the checkpoints beside them."""

from __future__ import annotations

from rocelab.results.kpi import Better, Kpi, PhaseJob, Quantity


def _trains(job: PhaseJob) -> bool:
    return bool(job.report.job.get("training"))


def _writes(job: PhaseJob) -> bool:
    return bool(job.report.job.get("checkpoint"))


def _longest_ns(job: PhaseJob) -> float | None:
    return max((times.modelled_ns for times in job.report.iterations), default=None)


STORAGE_KPIS = (
    Kpi(
        "step_time",
        Quantity.DURATION,
        "Time of a training step",
        "of the modelled network, median of the measured steps",
        better=Better.LOWER,
        of_job=lambda job: job.headline("iteration_time"),
        applies=_trains,
    ),
    Kpi(
        "step_time_max",
        Quantity.DURATION,
        "Longest training step",
        "of the modelled network",
        better=Better.LOWER,
        of_job=_longest_ns,
        applies=_trains,
    ),
    Kpi(
        "checkpoint_time",
        Quantity.DURATION,
        "Time of a checkpoint",
        "until storage has all of it, of the modelled network, median",
        better=Better.LOWER,
        of_job=lambda job: job.headline("iteration_time"),
        applies=_writes,
    ),
)
