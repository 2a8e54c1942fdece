"""The document of a comparison: what ran, and the result of each cell, with enough raw data to
redraw every plot.

`rocelab.drills.compare.figures` derives the runs. A frozen `Comparison` is written as JSON and
reads back into an equal object. docs/documents/ is generated from it.

KPI names follow draft-calabria-bmwg-ai-fabric-training-bench (IETF BMWG), sections 4, 8 and 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rocelab.base.documents import Format
from rocelab.base.statistics import Spread
from rocelab.planning.fabric import Direction
from rocelab.results.environment import Environment
from rocelab.results.job import FlowFigures, JobFidelity, Times, Transport
from rocelab.results.oflab import LabDocument
from rocelab.routes.balance import Polarization, TierBalance

SCHEMA_VERSION = 1


class Status(StrEnum):
    """Whether a cell's figures are valid: measured; invalid if this machine could not carry the
    run; failed if a queue pair did; not run if the scheme or job could not be run."""

    MEASURED = "measured"
    INVALID = "invalid"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What a link between switches carried in one direction: data packets, and all frames relative
    to the link's capacity while the job ran (`utilization`)."""

    link: str
    tier: str
    direction: Direction
    sender: str
    packets: int
    utilization: float


@dataclass(frozen=True, slots=True)
class ComparisonRun:
    """One run of a cell's job. Times are in both clocks, rates of the modelled network."""

    problems: tuple[str, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    iterations: tuple[Times, ...]
    busbw_gbs: tuple[float, ...]
    jct_ratio: tuple[float, ...]
    job_time: Times
    """From the first packet to the last, warm-up included."""
    transport: Transport
    fidelity: JobFidelity
    marked: int
    dropped_packets: int
    links: tuple[LinkUse, ...]
    tiers: tuple[TierBalance, ...]
    """Balance of data packets, beside uniform random hashing of as many flows."""
    polarizations: tuple[Polarization, ...]
    misplaced_packets: int | None
    """How many took another link than predicted; None, and `polarizations` empty, if the scheme's
    paths cannot be predicted."""
    nics: tuple[str, ...] = ()
    """Of each rank, as `server:nic`."""
    flows: tuple[FlowFigures, ...] = ()
    """Of its ranks' queue pairs."""

    @property
    def valid(self) -> bool:
        return not self.why

    @property
    def why(self) -> tuple[str, ...]:
        """Why its figures do not count: problems of the machine, failed queue pairs."""
        return (*self.problems, *self.errors)


@dataclass(frozen=True, slots=True)
class TierFigures:
    """The balance of a tier in one direction: medians over a cell's runs; ratios are None if
    nothing was carried."""

    tier: str
    direction: Direction
    links: int
    mmr: float | None
    jfi: float | None
    cov: float | None
    unused: float
    random_mmr: float | None
    random_mmr_p99: float | None
    random_jfi: float | None
    random_unused: float | None
    max_utilization: float


@dataclass(frozen=True, slots=True)
class CellFigures:
    """The figures of a cell, over the iterations of its valid runs (of all runs if none is valid).

    Rates are packets per second of the modelled network.
    """

    busbw_gbs: Spread
    jct_ratio: Spread
    goodput_share: float
    """BusBW over the rate of a NIC."""
    out_of_order_pps: float
    out_of_order_share: float
    retransmission_pps: float
    retransmitted: float
    ecn_marking_share: float
    marked: float
    dropped_packets: float
    tiers: tuple[TierFigures, ...]
    polarizations: tuple[Polarization, ...]
    """Of each pair of tiers, in the first run."""
    misplaced_packets: int | None


@dataclass(frozen=True, slots=True)
class CellResult:
    """A cell and its result; `reason` says why it has no plain measurement."""

    scheme: dict[str, Any]
    qps: int
    placement: str
    job: dict[str, Any]
    status: Status
    reason: str | None
    figures: CellFigures | None
    runs: tuple[ComparisonRun, ...]

    @property
    def kind(self) -> str:
        """The scheme's name."""
        return str(self.scheme["kind"])


@dataclass(frozen=True)
class Comparison(LabDocument):
    """The result of a comparison. `lab` is its spec in full, as JSON values; `command` reproduces
    it."""

    schema_version: int
    command: str
    lab: dict[str, Any]
    environment: Environment
    dilation: float
    nic_rate_bps: int
    repeats: int
    notes: tuple[str, ...]
    cells: tuple[CellResult, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The schemes, in the order in which they ran."""
        return tuple(dict.fromkeys(cell.kind for cell in self.cells))

    @property
    def placements(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.placement for cell in self.cells))

    @property
    def qps(self) -> tuple[int, ...]:
        return tuple(sorted({cell.qps for cell in self.cells}))


_FORMAT = Format(
    Comparison,
    SCHEMA_VERSION,
    "a comparison",
    "give the result.json that `rocelab compare` wrote",
)


def from_json(text: str) -> Comparison:
    """The comparison that `rocelab.base.documents.to_json` wrote. Raises InputError for anything
    else."""
    return _FORMAT.read(text)
