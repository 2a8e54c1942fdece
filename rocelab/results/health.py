"""A lab's health over time as data: a frozen `HealthReport` for result documents."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rocelab.base.wording import counted


@dataclass(frozen=True, slots=True)
class PlaceBreach:
    """A place where an objective was missed: in how many samples, and the worst value."""

    where: str
    samples: int
    worst: float
    worst_ns: int
    total: float


@dataclass(frozen=True, slots=True)
class SliReport:
    """An SLI over all samples. `objective` is None if the SLI was off; `worst_where` and `worst_ns`
    are None if every value was zero. `places` are sorted, worst first."""

    sli: str
    unit: str
    objective: float | None
    worst: float
    worst_where: str | None
    worst_ns: int | None
    breached_samples: int
    breached_places: int
    places: tuple[PlaceBreach, ...]

    @property
    def met(self) -> bool:
        return not self.breached_samples


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The health of a lab from `started_ns` to `ended_ns`."""

    lab: str
    started_ns: int
    ended_ns: int
    interval_ns: int
    """How often a sample was due."""

    samples: int
    slis: tuple[SliReport, ...]
    problems: tuple[str, ...]
    """What could not be read, and why monitoring ended early."""

    cpu_s: float
    """The CPU time of the monitoring."""

    evidence: tuple[str, ...] = ()
    """Folders of bundles."""

    unread_samples: int = 0
    """Incomplete samples."""

    longest_interval_ns: int = 0
    """The longest time between two samples: more than `interval_ns` on a busy machine. A change
    that was reverted between two samples was not seen, except in kernel counters."""

    @property
    def sampling(self) -> str:
        """The number and interval of samples in words: `12 samples, up to 1.02 s apart`."""
        samples = counted(self.samples, "sample")
        return f"{samples}, up to {self.longest_interval_ns / 1e9:.2f} s apart"

    @property
    def met(self) -> bool:
        """Whether every objective was met in every sample that could be read."""
        return all(sli.met for sli in self.slis)

    @property
    def is_healthy(self) -> bool:
        """Whether every objective was met and nothing was left unread."""
        return self.met and not self.unread_samples

    def sli(self, sli: Sli) -> SliReport:
        """The report of one SLI."""
        return next(report for report in self.slis if report.sli == sli.value)


class Sli(StrEnum):
    """The indicators (SLIs) measured in every sample."""

    LINK_LOSS = "link_loss"
    LINKS_DOWN = "links_down"
    FLAPS = "flaps"
    QUEUE_DROPS = "queue_drops"
    QUEUE_DEPTH = "queue_depth"
    CE_RATIO = "ce_ratio"
    OUT_OF_SEQUENCE = "out_of_sequence"
    ACK_TIMEOUTS = "ack_timeouts"
    ICRC_ERRORS = "icrc_errors"
    ROUTES_INCOMPLETE = "routes_incomplete"
    SESSIONS_DOWN = "sessions_down"
    PAUSE_SHARE = "pause_share"
    LOSSLESS_DROPS = "lossless_drops"
    WATCHDOG_EVENTS = "watchdog_events"
