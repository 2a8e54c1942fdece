"""Summarises a lab's health over time: per SLI the worst value, when, where, and how often.

Successive samples add up to a frozen `HealthReport` for result documents; names end in their unit
and instants are CLOCK_REALTIME nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rocelab.observe.health.health_spec import DEFINITIONS, LOSSLESS_SLIS, HealthSpec
from rocelab.observe.health.sample import Sample
from rocelab.results.health import PlaceBreach, Sli, SliReport

MOST_PLACES = 32
"""Places named per SLI; `breached_places` counts all."""


@dataclass(slots=True)
class _Place:
    samples: int = 0
    worst: float = 0.0
    worst_ns: int = 0
    total: float = 0.0


@dataclass(slots=True)
class _Tally:
    worst: float = 0.0
    worst_where: str | None = None
    worst_ns: int | None = None
    breached_samples: int = 0
    places: dict[str, _Place] = field(default_factory=dict)


class Account:
    """Adds samples up."""

    def __init__(self, spec: HealthSpec) -> None:
        self._spec = spec
        self._tallies = {sli: _Tally() for sli in Sli}
        self._problems: dict[str, None] = {}
        self._unmeasured: frozenset[Sli] = frozenset()
        self.samples = 0
        self.unread_samples = 0
        self.longest_interval_ns = 0

    def add(self, sample: Sample) -> dict[Sli, dict[str, float]]:
        """Count a sample. Returns its values that missed their objective."""
        self.samples += 1
        self.unread_samples += bool(sample.gaps)
        self.longest_interval_ns = max(self.longest_interval_ns, sample.span_ns)
        self._problems.update(dict.fromkeys(sample.gaps))
        for sli, values in sample.values.items():
            tally = self._tallies[sli]
            for where, value in values.items():
                if value > tally.worst:
                    tally.worst, tally.worst_where = value, where
                    tally.worst_ns = sample.time_ns
        breaches = sample.breaches(self._spec)
        for sli, missed in breaches.items():
            tally = self._tallies[sli]
            tally.breached_samples += 1
            for where, value in missed.items():
                place = tally.places.setdefault(where, _Place())
                place.samples += 1
                place.total += value
                if value > place.worst:
                    place.worst, place.worst_ns = value, sample.time_ns
        return breaches

    def breached_samples(self, sli: Sli) -> int:
        """Samples so far in which the SLI missed its objective."""
        return self._tallies[sli].breached_samples

    def leave_out(self, slis: frozenset[Sli]) -> None:
        """Report nothing of SLIs that the lab has no counters for, and say so unless they are of
        classes that it does not have."""
        self._unmeasured = slis
        missing = slis - LOSSLESS_SLIS
        if missing:
            names = ", ".join(sli.value for sli in Sli if sli in missing)
            self.note(f"no {names}: ports have no queues here that count them")

    def note(self, problem: str) -> None:
        """Note a problem of the monitoring itself, once."""
        self._problems[problem] = None

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._problems)

    def slis(self) -> tuple[SliReport, ...]:
        """Every SLI that is measured, in the order of `Sli`."""
        return tuple(
            self._sli_report(sli, tally)
            for sli, tally in self._tallies.items()
            if sli not in self._unmeasured
        )

    def _sli_report(self, sli: Sli, tally: _Tally) -> SliReport:
        worst_first = sorted(tally.places.items(), key=lambda item: (-item[1].worst, item[0]))
        return SliReport(
            sli=sli.value,
            unit=DEFINITIONS[sli].unit,
            objective=self._spec.objective(sli),
            worst=tally.worst,
            worst_where=tally.worst_where,
            worst_ns=tally.worst_ns,
            breached_samples=tally.breached_samples,
            breached_places=len(tally.places),
            places=tuple(
                PlaceBreach(where, place.samples, place.worst, place.worst_ns, place.total)
                for where, place in worst_first[:MOST_PLACES]
            ),
        )
