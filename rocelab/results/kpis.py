"""The KPIs of drills, by name, and their values.

They come from a `ProbeRun`, or from the `JobReport` of each concurrent job and, if the phase was
modelled, its `FairShares`. The result has a value for each applicable KPI, None if not measured; a
KPI that does not apply (a stream has no busbw) is missing. Nothing is measured here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from rocelab.base.doors import Door
from rocelab.base.quantities import Unit, formatted
from rocelab.results.job import JobReport
from rocelab.results.kpi import JOINED, UNITS, Figures, Kpi, KpiValue, PhaseJob, Quantity
from rocelab.results.probes import ProbeRun
from rocelab.results.programs import ProgramsRun
from rocelab.results.shares import FairShares

NAME = re.compile("[a-z][a-z0-9]*(_[a-z0-9]+)*")


class _Kpis(dict[str, Kpi]):
    """KPIs by name. Of one whose package is not installed, in an older result, only the name is
    known."""

    def __missing__(self, name: str) -> Kpi:
        return Kpi(name, Quantity.UNKNOWN, name, "of a package that is not installed here")


KPIS = _Kpis()
"""Every KPI by its name, in the order in which they are shown: ours, then those of others."""


def _registered(_: str, value: object) -> tuple[Kpi, ...]:
    kpis = value if isinstance(value, tuple) else (value,)
    for kpi in kpis:
        if not isinstance(kpi, Kpi):
            raise TypeError(f"expected a Kpi or a tuple of them, got {type(kpi).__name__}")
        if NAME.fullmatch(kpi.name) is None:
            raise ValueError(f"{kpi.name!r} is no name such as lost_packets")
        if kpi.name in KPIS:
            raise ValueError(f"there is a KPI {kpi.name} already")
    KPIS.update({kpi.name: kpi for kpi in kpis})
    return kpis


KPI_DOOR = Door("rocelab.kpis", "KPI", _registered)
KPI_DOOR.all()


def kpis_of(names: Iterable[str]) -> tuple[Kpi, ...]:
    """The KPIs of these names, each once, in the order in which they are shown."""
    wanted = dict.fromkeys(names)
    known = (kpi for name, kpi in KPIS.items() if name in wanted)
    return (*known, *(KPIS[name] for name in wanted if name not in KPIS))


def probe_figures(run: ProbeRun) -> Figures:
    """The KPIs of a run of probes."""
    return {
        kpi.name: kpi.of_probes(run)
        for kpi in KPIS.values()
        if kpi.of_probes is not None and kpi.applies_to_run(run)
    }


def program_figures(run: ProgramsRun) -> Figures:
    """The KPIs of a run of programs."""
    return {
        kpi.name: kpi.of_programs(run)
        for kpi in KPIS.values()
        if kpi.of_programs is not None and kpi.applies_to_programs(run)
    }


def job_figures(
    reports: Sequence[JobReport],
    *,
    has_model: bool = False,
    fair: FairShares | None = None,
    diagnoses: Sequence[str | None] = (),
) -> tuple[Figures, ...]:
    """The KPIs of each job of a phase. Counts of devices cover all jobs of a network and are the
    same for each. `diagnoses`: as in `JobsRun`."""
    classes: dict[str | None, set[int]] = defaultdict(set)
    receivers: dict[str | None, set[str]] = defaultdict(set)
    for report in reports:
        classes[report.network_name].add(report.data_class)
        receivers[report.network_name] |= {
            rank.nic for rank in report.ranks if rank.delivered_bytes
        }
    jobs = [
        PhaseJob(
            report,
            has_model,
            fair,
            frozenset(classes[report.network_name]),
            frozenset(receivers[report.network_name]),
            diagnosis,
        )
        for report, diagnosis in zip_longest(reports, diagnoses)
    ]
    return tuple(
        {
            kpi.name: kpi.of_job(job)
            for kpi in KPIS.values()
            if kpi.of_job is not None and kpi.applies(job)
        }
        for job in jobs
    )


def phase_figures(jobs: Sequence[Figures]) -> tuple[Figures, ...]:
    """The figures that a phase's expectations are compared with, one set per job: the counts summed
    and the findings joined over all jobs, and every other applicable figure of the job, measured or
    not."""
    rows: list[dict[str, KpiValue]] = [{} for _ in jobs]
    for kpi in kpis_of(name for figures in jobs for name in figures):
        values = [figures[kpi.name] for figures in jobs if kpi.name in figures]
        if kpi.summed and values:
            values = [sum(value for value in values if isinstance(value, int | float))]
        elif kpi.quantity is Quantity.FINDING and values:
            values = [None if None in values else JOINED.join(map(str, values))]
        for place, figures in enumerate(rows if values else ()):
            figures[kpi.name] = values[min(place, len(values) - 1)]
    return tuple(rows)


NOT_MEASURED = "not measured"
"""The text of a KPI that was not measured."""


def format_kpi(kpi: str, value: KpiValue, resolution_ns: float = 0.0) -> str:
    """`value` as text in the unit of `kpi`; `not measured` for None. A time not above
    `resolution_ns` is shown as below it."""
    if value is None:
        return NOT_MEASURED
    if isinstance(value, str):
        return value
    quantity = KPIS[kpi].quantity
    if quantity is Quantity.TRUTH:
        return "yes" if value else "no"
    if quantity is Quantity.UNKNOWN:
        return f"{value:g} (unit unknown)"
    is_time = quantity is Quantity.DURATION
    return formatted(value, Unit(UNITS[quantity]), resolution_ns if is_time else 0.0)
