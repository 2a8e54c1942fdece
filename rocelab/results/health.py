"""A lab's health over time as data: a frozen `HealthReport` for result documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rocelab.base.wording import counted


def placed(where: str, networks: Sequence[str]) -> str:
    """A place with its networks, which the name of a server's endpoints has already."""
    return f"{where} ({', '.join(networks)})" if networks and " in " not in where else where


@dataclass(frozen=True, slots=True)
class PlaceBreach:
    """A place where an objective was missed: in how many samples, and the worst value."""

    where: str
    samples: int
    worst: float
    worst_ns: int
    total: float
    networks: tuple[str, ...] = ()
    """Those that the place belongs to, in a lab with several: of a server's values, those in which
    its run sent."""


@dataclass(frozen=True, slots=True)
class NetworkSli:
    """An SLI in one network of a lab with several, over all samples."""

    network: str
    objective: float | None
    worst: float
    worst_where: str | None
    breached_samples: int
    breached_places: int


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
    networks: tuple[NetworkSli, ...] = ()
    """The same of each network of a lab with several."""
    worst_networks: tuple[str, ...] = ()
    """Those of `worst_where`."""

    @property
    def met(self) -> bool:
        return not self.breached_samples

    @property
    def worst_place(self) -> str | None:
        """The place of the worst value, with its network in a lab with several."""
        return None if self.worst_where is None else placed(self.worst_where, self.worst_networks)

    def objective_text(self, text: Callable[[float], str]) -> str | None:
        """The objective, and those of networks that have another; `text` writes one."""
        other = {of.network: of.objective for of in self.networks if of.objective != self.objective}
        common = None if self.objective is None else text(self.objective)
        if not other:
            return common
        others = (
            f"{name} {'off' if value is None else text(value)}" for name, value in other.items()
        )
        return ", ".join((common or "off", *others))


@dataclass(frozen=True, slots=True)
class NetworkHealth:
    """A network of a lab with several: what it has, what was missing in the last sample, and what
    its ports counted over all samples."""

    network: str
    switches: int
    links: int
    links_down: int
    sessions: int
    sessions_down: int
    sent_packets: int
    """By all its ports: a packet that crosses three links counts three times."""

    sent_bytes: int
    lost_packets: int
    """On its links."""

    queue_drops: int
    missed: tuple[str, ...]
    """The SLIs that missed their objective."""


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

    networks: tuple[NetworkHealth, ...] = ()
    """Each network of a lab with several that was watched."""

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
