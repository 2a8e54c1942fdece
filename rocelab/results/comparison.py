"""The document of a comparison: what ran, what came of each cell, raw enough to be drawn again.

In: runs that `rocelab.drills.compare.figures` derived. Out: a frozen `Comparison`, as JSON that
reads back into the same object. docs/documents.md is made from it.

KPI names follow draft-calabria-bmwg-ai-fabric-training-bench (IETF BMWG), sections 4, 8 and 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rocelab.documents import Format
from rocelab.forwarding.balance import Polarization, TierBalance
from rocelab.plan.fabric import Direction
from rocelab.results.environment import Environment
from rocelab.results.job import Fidelity, Times, Transport
from rocelab.statistics import Spread

SCHEMA_VERSION = 1


class Status(StrEnum):
    """Whether a cell's figures are to be believed: measured; invalid where this machine could not
    carry it; failed where a queue pair did; not run where a scheme or job could not be."""

    MEASURED = "measured"
    INVALID = "invalid"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What a link between switches carried in one direction: data packets, and all frames over
    what the link could have carried while the job ran (`utilization`)."""

    link: str
    tier: str
    direction: Direction
    sender: str
    packets: int
    utilization: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a cell's job. Times are in both clocks, rates of the modelled network.

    job_time: from the first packet to the last, warm-up included. tiers: balance of data packets,
    beside uniform random hashing of as many flows. misplaced_packets: how many took another link
    than predicted; None, and `polarizations` empty, where the scheme's paths can not be predicted.
    """

    problems: tuple[str, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    iterations: tuple[Times, ...]
    busbw_gbs: tuple[float, ...]
    jct_ratio: tuple[float, ...]
    job_time: Times
    transport: Transport
    fidelity: Fidelity
    marked: int
    dropped_packets: int
    links: tuple[LinkUse, ...]
    tiers: tuple[TierBalance, ...]
    polarizations: tuple[Polarization, ...]
    misplaced_packets: int | None

    @property
    def valid(self) -> bool:
        return not self.why

    @property
    def why(self) -> tuple[str, ...]:
        """Why its figures do not count: what the machine did not carry, queue pairs that failed."""
        return (*self.problems, *self.errors)


@dataclass(frozen=True, slots=True)
class TierFigures:
    """The balance of a tier in one direction: medians over a cell's runs; ratios are None where
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
    """What a cell comes to, over the iterations of its valid runs (of all where none is valid).

    Rates are packets per second of the modelled network. goodput_share: BusBW over the rate of a
    NIC. polarizations: of each pair of tiers, in the first run.
    """

    busbw_gbs: Spread
    jct_ratio: Spread
    goodput_share: float
    out_of_order_pps: float
    out_of_order_share: float
    retransmission_pps: float
    retransmitted: float
    ecn_marking_share: float
    marked: float
    dropped_packets: float
    tiers: tuple[TierFigures, ...]
    polarizations: tuple[Polarization, ...]
    misplaced_packets: int | None


@dataclass(frozen=True, slots=True)
class CellResult:
    """A cell and what came of it; `reason` says why it is not simply measured."""

    scheme: dict[str, Any]
    qps: int
    placement: str
    job: dict[str, Any]
    status: Status
    reason: str | None
    figures: CellFigures | None
    runs: tuple[Run, ...]

    @property
    def kind(self) -> str:
        """The scheme's name."""
        return str(self.scheme["kind"])


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything a comparison found out. `lab` is its spec in full, as JSON values; `command` what
    reproduces it."""

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
    """The comparison that `rocelab.documents.to_json` wrote. Raises InputError on anything else."""
    return _FORMAT.read(text)
