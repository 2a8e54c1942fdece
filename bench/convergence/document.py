"""The table of convergence times as data: every failure measured, cell by cell.

Frozen dataclasses that `rocelab.base.documents` writes and reads, and the figures of the table's
rows. Times are nanoseconds of the lab's clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rocelab.base import quantities
from rocelab.base.documents import Format
from rocelab.results.convergence import MeasurementMethod
from rocelab.results.environment import Environment
from rocelab.results.impact import Impact
from rocelab.results.probes import ProbeRun
from rocelab.results.stages import SwitchStages

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Figures:
    """The effect of one change of the lab on the flows, in the terms of RFC 6412 as in
    `rocelab.results.convergence.EventConvergence`; None if a flow did not recover, or none was
    affected. The vectors are of the flows that lost packets, `flows` their names."""

    restored: bool
    lost: int
    full_ns: int | None
    first_route_ns: int | None
    loss_derived_ns: float | None
    loss_of_connectivity_ns: int | None
    flows: tuple[str, ...]
    flow_convergence_ns: tuple[int | None, ...]
    flow_loss_derived_ns: tuple[float | None, ...]
    flow_lost: tuple[int, ...]

    @property
    def convergence_ns(self) -> int | None:
        """Full Convergence Time (RFC 6412 section 3.6.1), 0 if no packet was lost; None if a flow
        did not recover."""
        return self.full_ns if self.flows else 0


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure and its repair; both are in `failure` if they were too close to distinguish.

    `waited_ns` is the random wait before it in a healthy lab. `decisive` is the switch whose change
    let the last flow recover, if FRR was traced.
    """

    waited_ns: int
    failure: Figures
    repair: Figures | None
    decisive: SwitchStages | None = None


@dataclass(frozen=True, slots=True)
class CellResult:
    """The measurement of one cell.

    failures: those of valid runs, the source of the table. traced: further ones with traced stages,
    separate because tracing takes time. rejected: the number of failures in invalid runs; reasons:
    why. crossing: how many of the flows cross the failed part; their names come first. failed: why
    the measurement ended early, None if it did not.
    """

    schema_version: int
    name: str
    environment: Environment
    load_average: tuple[float, float, float]
    lab: dict[str, Any]
    method: MeasurementMethod
    subject: str
    flows: int
    crossing: int
    rate_pps: int
    wanted: int
    failures: tuple[Failure, ...]
    traced: tuple[Failure, ...]
    rejected: int
    reasons: tuple[str, ...]
    took_s: float
    failed: str | None

    @property
    def is_whole(self) -> bool:
        return self.failed is None and len(self.failures) >= self.wanted

    @property
    def summary(self) -> Summary | None:
        """Its row; None without failures."""
        return summarise([one.failure for one in self.failures]) if self.failures else None

    @property
    def machine(self) -> tuple[str, str, int, int]:
        """What cells that compare have in common."""
        here = self.environment
        return here.kernel, here.cpu_model, here.cpu_count, here.memory_bytes


@dataclass(frozen=True, slots=True)
class LinkFailureTest:
    """Repetitions of a job with a link failure in the middle. `impacts` and `retransmitted` packets
    are of the valid runs; `rejected` counts the others."""

    schema_version: int
    drill: str
    dilation: float
    environment: Environment
    impacts: tuple[Impact, ...]
    retransmitted: tuple[int, ...]
    rejected: int


@dataclass(frozen=True, slots=True)
class ConvergenceTable:
    """All cells, in the order of the plan, and the cost of a failed link for a job.

    releases: cells that were measured with one FRR right after the other, with all releases each.
    """

    schema_version: int
    command: str
    cells: tuple[CellResult, ...]
    job: LinkFailureTest | None = None
    releases: tuple[CellResult, ...] = ()


CELL = Format(
    CellResult, SCHEMA_VERSION, "a cell of the convergence table", "remove it to measure it again"
)
JOB = Format(
    LinkFailureTest, SCHEMA_VERSION, "a link-failure test", "remove it to measure it again"
)
TABLE = Format(
    ConvergenceTable,
    SCHEMA_VERSION,
    "a convergence table",
    "give the convergence-table.json that `make convergence-table` wrote",
)


@dataclass(frozen=True, slots=True)
class Summary:
    """A row of the table. Times are None if no failure was measured; `unrestored` failures,
    after which a flow did not recover, are in `n` and in no time."""

    n: int
    unrestored: int
    median_ns: int | None
    p95_ns: int | None
    max_ns: int | None
    lost_median: int
    lost_max: int
    touched_median: int
    touched_max: int

    def time(self, time_ns: int | None) -> str:
        """One of its times as text, with how many failures have none."""
        if time_ns is None:
            return "never"
        text = quantities.duration(time_ns) if time_ns else "0"
        return f"{text} ({self.unrestored} never)" if self.unrestored else text


def percentile(values: Sequence[int], share: float) -> int:
    """The smallest of `values` that at least `share` of them do not exceed (nearest rank).

    Raises ValueError if there are none, or `share` is not in (0, 1].
    """
    if not values or not 0 < share <= 1:
        raise ValueError("a percentile needs values, and a share in (0, 1]")
    return sorted(values)[math.ceil(share * len(values)) - 1]


def summarise(figures: Sequence[Figures]) -> Summary:
    """The row of failures, or of repairs. Raises ValueError if there are none."""
    times = [ns for one in figures if (ns := one.convergence_ns) is not None]
    lost = [one.lost for one in figures]
    touched = [len(one.flows) for one in figures]
    return Summary(
        n=len(figures),
        unrestored=len(figures) - len(times),
        median_ns=percentile(times, 0.5) if times else None,
        p95_ns=percentile(times, 0.95) if times else None,
        max_ns=max(times, default=None),
        lost_median=percentile(lost, 0.5),
        lost_max=max(lost),
        touched_median=percentile(touched, 0.5),
        touched_max=max(touched),
    )


def figures_of(repeat: ProbeRun, index: int) -> Figures:
    """The figures of the event at `index` of a measured run."""
    whole = repeat.events[index].convergence
    touched = [
        (record.flow.name, record.measurement.events[index])
        for record in repeat.flows
        if record.measurement.events[index].affected
    ]
    return Figures(
        restored=whole.restored,
        lost=whole.lost,
        full_ns=whole.full_convergence_ns,
        first_route_ns=whole.first_route_convergence_ns,
        loss_derived_ns=whole.loss_derived_ns,
        loss_of_connectivity_ns=whole.loss_of_connectivity_ns,
        flows=tuple(name for name, _ in touched),
        flow_convergence_ns=tuple(one.convergence_ns for _, one in touched),
        flow_loss_derived_ns=tuple(one.loss_derived_ns for _, one in touched),
        flow_lost=tuple(one.lost for _, one in touched),
    )


def decisive(
    stages: Sequence[SwitchStages], figures: Figures, resolution_ns: int
) -> SwitchStages | None:
    """The switch whose FIB changed last before the last flow recovered; None if no flow was
    affected or no switch's change explains it."""
    if figures.full_ns is None:
        return None
    limit_ns = figures.full_ns + resolution_ns
    in_time = [one for one in stages if one.kernel_ns is not None and one.kernel_ns <= limit_ns]
    return max(in_time, key=lambda one: one.kernel_ns or 0, default=None)
