"""Summarises a lab's health over time: per SLI the worst value, when, where, and how often.

Successive samples add up to a frozen `HealthReport` for result documents; names end in their unit
and instants are CLOCK_REALTIME nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rocelab.observe.health.health_spec import DEFINITIONS, LOSSLESS_SLIS, HealthSpec
from rocelab.observe.health.sample import NetworksOf, Sample, one_network
from rocelab.results.health import NetworkSli, PlaceBreach, Sli, SliReport

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

    def see(self, values: Mapping[str, float], time_ns: int) -> None:
        """Take the values of a sample, by place."""
        for where, value in values.items():
            if value > self.worst:
                self.worst, self.worst_where, self.worst_ns = value, where, time_ns

    def miss(self, missed: Mapping[str, float], time_ns: int) -> None:
        """Take the values of a sample that missed the objective, one or more."""
        self.breached_samples += 1
        for where, value in missed.items():
            place = self.places.setdefault(where, _Place())
            place.samples += 1
            place.total += value
            if value > place.worst:
                place.worst, place.worst_ns = value, time_ns


class Account:
    """Adds samples up."""

    def __init__(
        self,
        spec: HealthSpec,
        networks: Sequence[str] = (),
        networks_of: NetworksOf = one_network,
    ) -> None:
        """`networks`: those of a lab with several that are watched; `networks_of`: which of them a
        place belongs to."""
        self._spec = spec
        self._networks_of = networks_of
        self._tallies = {sli: _Tally() for sli in Sli}
        self._by_network = {name: {sli: _Tally() for sli in Sli} for name in networks}
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
        breaches = sample.breaches(self._spec, self._networks_of)
        for sli, values in sample.values.items():
            self._tallies[sli].see(values, sample.time_ns)
            for name, tallies in self._by_network.items():
                tallies[sli].see(self._within(name, sli, values), sample.time_ns)
        for sli, missed in breaches.items():
            self._tallies[sli].miss(missed, sample.time_ns)
            for name, tallies in self._by_network.items():
                if inside := self._within(name, sli, missed):
                    tallies[sli].miss(inside, sample.time_ns)
        return breaches

    def _within(self, network: str, sli: Sli, values: Mapping[str, float]) -> dict[str, float]:
        return {
            where: value
            for where, value in values.items()
            if network in self._networks_of(sli, where)
        }

    def breached_samples(self, sli: Sli, network: str | None = None) -> int:
        """Samples so far in which the SLI missed its objective, in a network or anywhere."""
        tallies = self._tallies if network is None else self._by_network[network]
        return tallies[sli].breached_samples

    def missed(self, network: str) -> tuple[str, ...]:
        """The SLIs that missed their objective so far in a network."""
        tallies = self._by_network[network]
        return tuple(sli.value for sli in Sli if tallies[sli].breached_samples)

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
                PlaceBreach(
                    where,
                    place.samples,
                    place.worst,
                    place.worst_ns,
                    place.total,
                    self._networks_of(sli, where),
                )
                for where, place in worst_first[:MOST_PLACES]
            ),
            networks=tuple(
                NetworkSli(
                    name,
                    self._spec.objective(sli, (name,)),
                    tallies[sli].worst,
                    tallies[sli].worst_where,
                    tallies[sli].breached_samples,
                    len(tallies[sli].places),
                )
                for name, tallies in self._by_network.items()
            ),
            worst_networks=(
                () if tally.worst_where is None else self._networks_of(sli, tally.worst_where)
            ),
        )
