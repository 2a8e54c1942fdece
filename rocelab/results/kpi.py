"""What a KPI is: its meaning, unit, better direction, and how it is read from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rocelab.results.job import JobReport
from rocelab.results.probes import ProbeRun
from rocelab.results.programs import ProgramsRun
from rocelab.results.shares import FairShares

KpiValue = int | float | bool | str | None
Figures = Mapping[str, KpiValue]
"""The KPIs of one run by name, without those that do not apply."""


JOINED = "; "
"""Between the findings on several jobs."""


class Quantity(StrEnum):
    """The quantity of a KPI: durations are nanoseconds, counts whole numbers, sizes bytes,
    bandwidths GB/s (10^9 bytes), findings text. That of a KPI which is not registered is
    unknown."""

    DURATION = "duration"
    COUNT = "count"
    SIZE = "size"
    BANDWIDTH = "bandwidth"
    RATIO = "ratio"
    TRUTH = "truth"
    FINDING = "finding"
    UNKNOWN = "unknown"


UNITS = {
    Quantity.DURATION: "ns",
    Quantity.COUNT: "count",
    Quantity.SIZE: "bytes",
    Quantity.BANDWIDTH: "GB/s",
    Quantity.RATIO: "ratio",
    Quantity.TRUTH: "truth",
    Quantity.FINDING: "text",
    Quantity.UNKNOWN: "unknown",
}
"""How documents name the unit of a KPI; a truth is 0 or 1 in figures."""


class PhaseKind(StrEnum):
    """What a phase runs."""

    PROBES = "probes"
    JOBS = "jobs"
    PROGRAMS = "programs"


class Better(StrEnum):
    """Which way a figure improves."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class PhaseJob:
    """A job of a phase, the input of its figures. `has_model`: whether the phase has a model;
    `fair`: what it says, None if it could not be compared."""

    report: JobReport
    has_model: bool
    fair: FairShares | None
    data_classes: frozenset[int]
    """The traffic classes of the data of all jobs of the phase in the job's network."""
    receivers: frozenset[str]
    """The NICs that receive data in any of these."""
    diagnosis: str | None = None
    """What `rocelab diagnose` finds, empty if nothing could be said; None if it was not asked."""

    def headline(self, name: str) -> float | None:
        """The median of a headline; None if the job has none of that name."""
        medians = (
            headline.modelled.median for headline in self.report.headlines if headline.name == name
        )
        return next(medians, None)

    def packets_of(self, traffic_class: int) -> int:
        """Packets that entered queues of a traffic class."""
        queues = self.report.queues
        return sum(queue.packets for queue in queues if queue.traffic_class == traffic_class)


def _always(_: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Kpi:
    """A figure that a drill reports and for which a drill file may state an expectation."""

    name: str
    quantity: Quantity
    title: str
    meaning: str
    better: Better | None = None
    """None if neither direction is."""
    of_probes: Callable[[ProbeRun], KpiValue] | None = None
    """How it is read from a run of probes or a job, None if it has none; `applies_to_run` and
    `applies` say to which runs and jobs it applies."""
    applies_to_run: Callable[[ProbeRun], bool] = _always
    of_job: Callable[[PhaseJob], KpiValue] | None = None
    """How it is read from a run of probes or a job, None if it has none; `applies_to_run` and
    `applies` say to which runs and jobs it applies."""
    applies: Callable[[PhaseJob], bool] = _always
    of_programs: Callable[[ProgramsRun], KpiValue] | None = None
    """How it is read from a run of programs, None if it has none."""
    applies_to_programs: Callable[[ProgramsRun], bool] = _always
    summed: bool = False
    """Endpoints count it, and a phase's value is the sum over its jobs; that of findings has the
    finding of each job."""

    @property
    def kinds(self) -> tuple[PhaseKind, ...]:
        """The kinds of phases that have it."""
        readers = {
            PhaseKind.PROBES: self.of_probes,
            PhaseKind.JOBS: self.of_job,
            PhaseKind.PROGRAMS: self.of_programs,
        }
        return tuple(kind for kind, reader in readers.items() if reader is not None)

    def is_of(self, kind: PhaseKind) -> bool:
        """Whether phases of a kind have it."""
        return kind in self.kinds


def attribute(path: str) -> Callable[[PhaseJob], KpiValue]:
    """Reads a dotted attribute of a job; None if a part of the path is None."""

    def read(job: PhaseJob) -> KpiValue:
        part: Any = job
        for name in path.split("."):
            part = None if part is None else getattr(part, name)
        value: KpiValue = part
        return value

    return read
