"""Queues of lab and simulator compared: port by port, and marks by the depth that packets found.

A `Queues` has the counts of repeated runs of a job, in the lab or packet by packet; `joined` makes
it of single runs. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import median

import numpy as np

from bench.agreement.significance import LEVEL, Verdict, holm, proportion_p
from rocelab.labfile.queues import EcnSpec
from rocelab.planning.queues import BINS_BELOW, bin_edges_bytes

NEAR = 0.2
"""The largest relative difference of high-water marks that counts as near."""

LEAST_DEEP_BYTES = 5 * 4154
"""Five frames of 4 kB. Of a queue that holds less, NEAR is less than a frame."""


@dataclass(frozen=True, slots=True)
class PortCounts:
    """What a port did, in each run: packets that it marked and dropped; the most bytes that a
    packet found in one of its queues; how often it stopped because its peer paused it."""

    port: str
    marks: tuple[int, ...]
    drops: tuple[int, ...]
    highest_bytes: tuple[int, ...]
    pauses: tuple[int, ...]


COUNTS = tuple(field.name for field in fields(PortCounts) if field.name != "port")


@dataclass(frozen=True, slots=True)
class Queues:
    """All runs of a job. ports: those that did anything. By bin of depth
    (`rocelab.planning.queues.bin_edges_bytes`), of all queues: packets that could be marked, and
    that were; of the lab, of queues to which no packet came that was marked before."""

    ports: tuple[PortCounts, ...]
    markable: tuple[int, ...]
    marked: tuple[int, ...]


def joined(runs: Sequence[Queues]) -> Queues:
    """Runs as one. A port that is not in one of them did nothing in as many runs as that has of its
    other ports, one without any."""
    places = sorted({port.port for run in runs for port in run.ports})
    by_run = [{port.port: port for port in run.ports} for run in runs]
    absent = [(0,) * (len(run.ports[0].marks) if run.ports else 1) for run in runs]

    def counts(place: str, name: str) -> tuple[int, ...]:
        return tuple(
            count
            for run, none in zip(by_run, absent, strict=True)
            for count in (getattr(run[place], name) if place in run else none)
        )

    return Queues(
        tuple(PortCounts(place, *(counts(place, name) for name in COUNTS)) for place in places),
        *(
            tuple(np.sum([getattr(run, name) for run in runs], axis=0).tolist())
            for name in ("markable", "marked")
        ),
    )


@dataclass(frozen=True, slots=True)
class Inside:
    """Ports with a count in any run; of them those where the simulator's median is within the
    extremes of the lab's runs."""

    inside: int
    ports: int


@dataclass(frozen=True, slots=True)
class HighWater:
    """Ports with at least LEAST_DEEP_BYTES in the lab's or the simulator's median; of them those
    where the two differ by NEAR at most. worst: of all, the ratio farthest from 1, simulator over
    lab; None without ports."""

    near: int
    ports: int
    worst: float | None


def inside(lab: Queues, packets: Queues, count: str) -> Inside:
    """Compare one of COUNTS of each port."""
    pairs = [pair for pair in _pairs(lab, packets, count) if any(map(any, pair))]
    within = (min(lab_counts) <= median(theirs) <= max(lab_counts) for lab_counts, theirs in pairs)
    return Inside(sum(within), len(pairs))


def high_water(lab: Queues, packets: Queues) -> HighWater:
    """Compare how deep queues were."""
    medians = [
        (median(lab_counts), median(theirs))
        for lab_counts, theirs in _pairs(lab, packets, "highest_bytes")
    ]
    ratios = [
        theirs / lab_median if lab_median else math.inf
        for lab_median, theirs in medians
        if max(lab_median, theirs) >= LEAST_DEEP_BYTES
    ]
    far = [math.inf if ratio == 0 else abs(math.log(ratio)) for ratio in ratios]
    return HighWater(
        near=sum(abs(ratio - 1) <= NEAR for ratio in ratios),
        ports=len(ratios),
        worst=ratios[far.index(max(far))] if ratios else None,
    )


def _pairs(
    lab: Queues, packets: Queues, count: str
) -> Iterable[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Each port's counts in both; 0 where it did nothing."""
    lab_counts, theirs = (
        {port.port: getattr(port, count) for port in side.ports} for side in (lab, packets)
    )
    for place in sorted(lab_counts | theirs):
        yield lab_counts.get(place, (0,)), theirs.get(place, (0,))


@dataclass(frozen=True, slots=True)
class Marking:
    """Packets that found a depth from `floor_bytes` on, up to the next bin, and those marked. low,
    high: the marking line's probabilities at the bin's ends. p: that the line marks as many,
    corrected for the number of bins. decides: whether half of the least that the line marks, or
    twice the most, were found to differ."""

    floor_bytes: int
    low: float
    high: float
    packets: int
    marked: int
    p: float
    decides: bool

    @property
    def verdict(self) -> Verdict:
        if self.p < LEVEL:
            return Verdict.DIFFERS
        return Verdict.AGREES if self.decides else Verdict.UNDECIDED


def markings(ecn: EcnSpec, buffer_bytes: int, queues: Queues) -> tuple[Marking, ...]:
    """Marks against the marking line, for each bin above kmin that some packet found."""
    floors = (*bin_edges_bytes(ecn.kmin, ecn.kmax, buffer_bytes), math.inf)
    rows = []
    for place in range(BINS_BELOW, len(queues.markable)):
        packets, marked = queues.markable[place], queues.marked[place]
        low, high = (_probability(ecn, depth) for depth in (floors[place], floors[place + 1] - 1))
        if packets:
            rows.append((int(floors[place]), low, high, packets, marked))
    p_values = holm([proportion_p(row[4], row[3], row[1], row[2]) for row in rows])

    def decides(low: float, high: float, packets: int) -> bool:
        others = (math.floor(packets * low / 2), min(packets, math.ceil(2 * packets * high)))
        return any(len(rows) * proportion_p(other, packets, low, high) < LEVEL for other in others)

    return tuple(
        Marking(*row, p, decides(*row[1:4])) for row, p in zip(rows, p_values, strict=True)
    )


def _probability(ecn: EcnSpec, depth_bytes: float) -> float:
    """Of a mark, at a depth above kmin."""
    if depth_bytes > ecn.kmax:
        return 1.0
    return ecn.pmax * (depth_bytes - ecn.kmin) / (ecn.kmax - ecn.kmin)
