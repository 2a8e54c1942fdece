"""What a lab's health was over a while, as data: a frozen `HealthReport` for result documents."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class PlaceBreach:
    """A place where an objective was missed: in how many samples, and the worst of them."""

    where: str
    samples: int
    worst: float
    worst_ns: int
    total: float


@dataclass(frozen=True, slots=True)
class SliReport:
    """An SLI over all samples. `objective` is None where none was judged; `worst_where` and
    `worst_ns` are None where every value was zero. `places` are the worst first."""

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
    """The health of a lab from `started_ns` to `ended_ns`.

    `samples` were due every `interval_ns`; on a busy machine they are up to `longest_interval_ns`
    apart, and what came and went between two of them was not seen, except what the kernel counts.
    `problems` says what could not be read, and why watching ended early; `unread_samples` are those
    that lack something; `cpu_s` is what watching cost; `evidence` are folders of bundles.
    """

    lab: str
    started_ns: int
    ended_ns: int
    interval_ns: int
    samples: int
    slis: tuple[SliReport, ...]
    problems: tuple[str, ...]
    cpu_s: float
    evidence: tuple[str, ...] = ()
    unread_samples: int = 0
    longest_interval_ns: int = 0

    @property
    def sampling(self) -> str:
        """How often the lab was looked at, in words: `12 samples, up to 1.02 s apart`."""
        return f"{self.samples} samples, up to {self.longest_interval_ns / 1e9:.2f} s apart"

    @property
    def met(self) -> bool:
        """Whether every objective was met in every sample, as far as the lab could be read."""
        return all(each.met for each in self.slis)

    @property
    def is_healthy(self) -> bool:
        """Whether every objective was met and nothing was left unread."""
        return self.met and not self.unread_samples

    def sli(self, sli: Sli) -> SliReport:
        """What became of one SLI."""
        return next(each for each in self.slis if each.sli == sli.value)


class Sli(StrEnum):
    """What is measured in every sample."""

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
