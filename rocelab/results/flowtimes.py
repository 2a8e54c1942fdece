"""When flows and steps of a job were over: times, slowdowns by size, and parts of an iteration.

A simulation's document and a job's have them alike; times are those of the modelled network. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Floats, Longs

BINS = 20
"""Parts of the distribution of sizes: those of HPCC's analysis (analysis/fct_analysis.py)."""

LEAST_OF_BIN = 100
"""Flows of a bin: with fewer the p99 is between the two highest."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When a step of the last iteration began to send and was over, None for never."""

    name: str
    start_ns: float | None
    end_ns: float | None


@dataclass(frozen=True, slots=True)
class TimePart:
    """A part of the last iteration of a job of a large model."""

    name: str
    """`computation`, `pipeline bubble`, or what the longest chain of steps waits for: the traffic
    of TP, CP, PP, DP or EP, of the KV cache, or of checkpoints."""
    time_ns: float
    share: float
    """Of the iteration; the parts add up to it."""


@dataclass(frozen=True, slots=True)
class SizeBin:
    """Flows of about one size, and quantiles of their slowdowns (`FlowTimes`), interpolated."""

    largest_bytes: int
    """Payload of the largest; the bin before has those of its own largest."""
    flows: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class SlowdownBySize:
    """The slowdown of a job's flows, of those that were over."""

    bins: tuple[SizeBin, ...]
    """From small to large, twentieths of the flows, or parts of about 100 if flows are few; those
    of one size are in one bin."""
    quantiles: tuple[float, ...]
    """Of all flows: 0, 1, 2, ... 100% are not above."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of a figure over transfers."""

    mean: float
    p50: float
    p99: float
    maximum: float


@dataclass(frozen=True, slots=True)
class FlowTimes:
    """Flow completion times: of the transfers of queue pairs that were over."""

    transfers: int
    time_ns: Distribution
    """From the beginning of a transfer's step until the transfer is over: with packets, until its
    sender has the last ACK; else until its last byte has left, plus the latency of its step."""
    slowdown: Distribution
    """That time over the least one: the transfer's bytes on the wire at the lowest rate of its
    path, and the latency of its links."""


def times_of_flows(took_ns: Floats, slowdown: Floats) -> FlowTimes:
    """The distributions over flows, one or more, that were over."""
    return FlowTimes(len(took_ns), _distribution(took_ns), _distribution(slowdown))


def slowdown_by_size(size_bytes: Longs, slowdown: Floats) -> SlowdownBySize | None:
    """The slowdown of flows with these sizes; inf for those that were never over."""
    done = np.isfinite(slowdown)
    size_bytes, slowdown = size_bytes[done], slowdown[done]
    if not len(size_bytes):
        return None
    parts = max(1, min(BINS, len(size_bytes) // LEAST_OF_BIN))
    ends = np.unique(
        np.quantile(size_bytes, np.arange(1, parts + 1) / parts, method="inverted_cdf")
    )
    number = np.searchsorted(ends, size_bytes)
    bins = []
    for index, end in enumerate(ends.tolist()):
        values = slowdown[number == index]
        p50, p95, p99 = np.quantile(values, [0.5, 0.95, 0.99]).tolist()
        bins.append(SizeBin(end, len(values), p50, p95, p99))
    return SlowdownBySize(
        tuple(bins), tuple(np.quantile(slowdown, np.linspace(0, 1, 101)).tolist())
    )


def _distribution(values: Floats) -> Distribution:
    p50, p99, maximum = np.quantile(values, [0.5, 0.99, 1.0]).tolist()
    return Distribution(float(values.mean()), p50, p99, maximum)
