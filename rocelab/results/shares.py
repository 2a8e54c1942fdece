"""How senders came to share a port, measured and modelled: the data of plots."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SharedPort:
    """The port that all senders share, in the model; rates of the modelled network.

    `payload_share` is payload over a packet's bytes on the cable.
    """

    node: str
    interface: str
    rate_bps: float
    buffer_bytes: int
    kmin_bytes: int
    kmax_bytes: int
    pmax: float
    feedback_ns: int
    packet_bytes: int
    payload_share: float


@dataclass(frozen=True, slots=True)
class RateCourse:
    """Rates and queue over time.

    `queue_times_ns` are the queue's own; it is empty if not sampled.
    """

    times_ns: tuple[int, ...]
    """Ends of samples."""
    rates_bps: tuple[tuple[float, ...], ...]
    """Payload, a tuple per sender."""
    queue_times_ns: tuple[int, ...]
    queue_bytes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SettledMeans:
    """Means over the settled time."""

    use: float
    """Payload of all senders over the most the port can carry."""
    queue_bytes: float | None


@dataclass(frozen=True, slots=True)
class FairShares:
    """Measured and modelled, all in the modelled network's clock."""

    port: SharedPort
    starts_ns: tuple[int, ...]
    tolerance: float
    window_ns: int
    lab_ns: int | None
    """From the last start until every sender stays within `tolerance` of the mean, None for
    never."""
    model_times_ns: tuple[int | None, ...]
    """The same for each of the model's seeds. The model's course is that of the first seed."""
    lab: RateCourse
    model: RateCourse
    lab_settled: SettledMeans
    model_settled: SettledMeans

    @property
    def model_ns(self) -> float | None:
        """The median of the model's seeds, None if one never became fair."""
        known = [time for time in self.model_times_ns if time is not None]
        return statistics.median(known) if len(known) == len(self.model_times_ns) else None

    @property
    def ratio(self) -> float | None:
        """The lab's time over the model's."""
        model_ns = self.model_ns
        return None if self.lab_ns is None or not model_ns else self.lab_ns / model_ns


WINDOW_NS = 20_000_000
"""The time of the modelled network over which a rate is averaged: about ten swings of DCQCN's
rates. Over 10 ms the model's own fair seeds are often off by more than 10 % for a moment."""
