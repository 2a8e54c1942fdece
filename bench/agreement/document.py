"""The comparison as data: devices' counts and simulated figures of every job on every lab.

Frozen dataclasses that `rocelab.base.documents` writes and reads, and the figures of the table's
rows. Times are those of the modelled network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from typing import Any

import numpy as np

from bench.agreement.queues import Queues, joined
from bench.agreement.significance import Verdict, distribution_p
from rocelab import JobSpec, Pattern
from rocelab.base.documents import Format
from rocelab.base.statistics import Spread, spread
from rocelab.base.units import parse_size_bytes
from rocelab.jobs.performance import PerformanceRow
from rocelab.results.environment import Environment

SCHEMA_VERSION = 3
LIMIT = 0.05
"""The largest relative difference of busbw for agreement."""

RESAMPLED = 10_000

CONTENDED = 1.05
"""A link between switches with this much more load than the busiest NIC delays a job."""


@dataclass(frozen=True, slots=True)
class Loads:
    """Data packets by link and direction. links: their number; equal: those whose counters in the
    lab equal the simulator's; flows_equal: those where it has as many flows as `rocelab predict`
    from the tables of the lab's kernels. packets, simulated: sums over all. differing: the first
    unequal ones."""

    links: int
    equal: int
    flows_equal: int
    packets: int
    simulated: int
    differing: tuple[str, ...]

    @property
    def agree(self) -> bool:
        """Whether every link has the same packets and flows."""
        return self.equal == self.flows_equal == self.links


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a job, in the lab or packet by packet. iteration_ns: the mean of its measured
    iterations: ranks run ahead of each other into the next one, so single iterations are not
    separate. Packets marked and dropped in switches' queues, sent again, CNPs, timeouts: warm-up
    included."""

    iteration_ns: float
    marked: int
    dropped: int
    retransmitted: int
    cnps: int
    timeouts: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median busbw of a simulator over the lab's, and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """Whether it is within LIMIT of 1, by its interval."""
        if self.low >= 1 - LIMIT and self.high <= 1 + LIMIT:
            return Verdict.AGREES
        if self.high < 1 - LIMIT or self.low > 1 + LIMIT:
            return Verdict.DIFFERS
        return Verdict.UNDECIDED


@dataclass(frozen=True, slots=True)
class CellResult:
    """A job on a lab. lab: its valid runs, by machine; with none of them `problems` says why.
    attempts: the number of runs. fluid_ns: the mean of its measured iterations as a fluid.
    bottleneck, least_ns: see `Simulated`. packets: runs of the packet engine with different seeds.
    lab_queues, packets_queues: of these runs; None where they were not counted."""

    name: str
    title: str
    scheme: str
    job: dict[str, Any]
    attempts: int
    problems: tuple[str, ...]
    loads: Loads | None
    lab: tuple[tuple[Run, ...], ...]
    fluid_ns: float
    bottleneck: float
    least_ns: float
    packets: tuple[Run, ...]
    lab_queues: Queues | None = None
    packets_queues: Queues | None = None

    @property
    def label(self) -> str:
        """The job, with its congestion control."""
        dcqcn = self.job["transport"]["dcqcn"]
        return self.title if dcqcn == "off" else f"{self.title}, DCQCN {dcqcn}"

    @property
    def spec(self) -> JobSpec:
        return JobSpec.model_validate(self.job)

    @property
    def is_carried(self) -> bool:
        return any(self.lab)

    def busbw_gbs(self, time_ns: float) -> float:
        """Bus bandwidth of an iteration of this time, GB/s: nccl-tests' factor."""
        size = parse_size_bytes(self.job["size"])
        return PerformanceRow(
            Pattern(self.job["pattern"]), self.job["ranks"], size, time_ns
        ).busbw_gbs

    @property
    def busbw(self) -> Spread:
        """Of the lab's runs, GB/s."""
        return spread([self.busbw_gbs(time_ns) for time_ns in self.lab_ns])

    @property
    def lab_runs(self) -> tuple[Run, ...]:
        """Those of all machines."""
        return tuple(chain.from_iterable(self.lab))

    @property
    def lab_ns(self) -> tuple[float, ...]:
        return tuple(run.iteration_ns for run in self.lab_runs)

    @property
    def packets_ns(self) -> tuple[float, ...]:
        return tuple(run.iteration_ns for run in self.packets)

    @property
    def fluid_ratio(self) -> Ratio:
        return ratio_of_medians(self.lab_ns, (self.fluid_ns,))

    @property
    def packets_ratio(self) -> Ratio:
        return ratio_of_medians(self.lab_ns, self.packets_ns)

    @property
    def lab_verdict(self) -> Verdict:
        """Of the lab beside itself: every second of its runs over the others."""
        if len(self.lab_ns) < 2:
            return Verdict.UNDECIDED
        return ratio_of_medians(self.lab_ns[::2], self.lab_ns[1::2]).verdict

    @property
    def machines_p(self) -> float | None:
        """See `bench.agreement.significance`: of the first machine's times and all others'; None
        where one machine ran it."""
        first = len(next(filter(None, self.lab), ()))
        others = self.lab_ns[first:]
        return distribution_p(self.lab_ns[:first], others) if others else None

    def after(self, earlier: CellResult, machine: int) -> CellResult:
        """With the lab's runs of this job that were made before, on machines of which this is
        number `machine`."""
        counted = [cell.lab_queues for cell in (earlier, self) if cell.lab_queues is not None]
        return replace(
            self,
            attempts=earlier.attempts + self.attempts,
            problems=() if earlier.is_carried else self.problems,
            loads=self.loads or earlier.loads,
            lab=(
                *earlier.lab[:machine],
                tuple(chain.from_iterable((*earlier.lab[machine : machine + 1], *self.lab))),
                *earlier.lab[machine + 1 :],
            ),
            lab_queues=joined(counted) if counted else None,
        )

    @property
    def is_set(self) -> bool:
        """Whether the setting alone decides the time: in both simulators it is the least that the
        busiest link allows, within LIMIT, so that any model of its rate agrees. Where ranks run
        ahead it may be below."""
        times = (self.fluid_ns, *self.packets_ns)
        return all(abs(time_ns / self.least_ns - 1) <= LIMIT for time_ns in times)

    @property
    def is_repeated(self) -> bool:
        """Whether the lab runs it often enough to compare distributions: the setting does not
        decide, or links between switches are contended."""
        return not self.is_set or self.bottleneck > CONTENDED

    @property
    def distribution_p(self) -> float:
        """See `bench.agreement.significance`: of the lab's and the packet engine's times."""
        return distribution_p(self.lab_ns, self.packets_ns)


def ratio_of_medians(lab_ns: Sequence[float], simulated_ns: Sequence[float]) -> Ratio:
    """The ratio of median bandwidths, simulator over lab, with its 95 % bootstrap interval (Efron
    and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13): percentiles of the ratio
    when both sets of runs are drawn again with replacement. The same for the same times."""
    draws = np.random.default_rng(1)
    lab, simulated = (
        np.median(draws.choice(np.asarray(times), (RESAMPLED, len(times))), axis=1)
        for times in (lab_ns, simulated_ns)
    )
    low, high = np.percentile(lab / simulated, (2.5, 97.5))
    return Ratio(float(np.median(lab_ns) / np.median(simulated_ns)), float(low), float(high))


@dataclass(frozen=True, slots=True)
class LabResult:
    """The jobs of a lab. machines: that ran it, each as it was first. failed: why the measurement
    ended early, None if it did not."""

    schema_version: int
    name: str
    lab: dict[str, Any]
    machines: tuple[Environment, ...]
    load_average: tuple[float, float, float]
    nics: int
    dilation: float
    cells: tuple[CellResult, ...]
    took_s: float
    failed: str | None

    def after(self, earlier: LabResult) -> LabResult:
        """This one machine's result with the runs of its jobs that were made before, if by the same
        software."""
        (system,) = self.machines
        machines = earlier.machines
        if any(_software(system) != _software(machine) for machine in machines):
            return self
        known = [_machine(machine) for machine in machines]
        if _machine(system) not in known:
            known, machines = [*known, _machine(system)], (*machines, system)
        place = known.index(_machine(system))
        before = {(cell.name, cell.scheme): cell for cell in earlier.cells}

        def cell_after(cell: CellResult) -> CellResult:
            result = before.pop((cell.name, cell.scheme), None)
            if result is None or result.spec != cell.spec:
                result = replace(
                    cell, attempts=0, lab=((),) * len(earlier.machines), lab_queues=None
                )
            return cell.after(result, place)

        cells = tuple(map(cell_after, self.cells))
        return replace(
            self,
            machines=machines,
            # A campaign that failed has not come to these.
            cells=cells if self.failed is None else (*cells, *before.values()),
            took_s=earlier.took_s + self.took_s,
        )

    @property
    def half(self) -> int:
        """0 or 1, by the name's hash: whoever fits a model to labs of half 0 scores it on half
        1."""
        return sha256(self.name.encode()).digest()[0] % 2


def _software(environment: Environment) -> tuple[str, str]:
    return environment.tool_version, environment.frr_version


def _machine(environment: Environment) -> tuple[str, str, int]:
    return environment.kernel, environment.cpu_model, environment.cpu_count


@dataclass(frozen=True, slots=True)
class Agreement:
    """All labs, in the catalog's order; not_run: the omitted ones, with the reasons."""

    schema_version: int
    command: str
    labs: tuple[LabResult, ...]
    not_run: dict[str, str]

    @property
    def carried(self) -> tuple[tuple[LabResult, CellResult], ...]:
        """The jobs that the machine carried, each with its lab."""
        return tuple((lab, cell) for lab in self.labs for cell in lab.cells if cell.is_carried)


LAB = Format(LabResult, SCHEMA_VERSION, "a compared lab", "remove it to run it again")
AGREEMENT = Format(
    Agreement,
    SCHEMA_VERSION,
    "a comparison of lab and simulator",
    "give the agreement.json that `python -m bench.agreement` wrote",
)
