"""Flows of published sizes under Poisson arrivals, as papers on congestion control load a network.

Validates the block `poisson` of a job as a `PoissonSpec` and draws its `FlowList`. The
distributions are in `flow_sizes.json`, with their origin.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from rocelab.base import quantities
from rocelab.base.arrays import Floats, Longs
from rocelab.base.errors import InputError
from rocelab.base.units import SHARE, DurationNs, SharePpm
from rocelab.jobs.flow_list import MOST_FLOWS, FlowList
from rocelab.jobs.transport import MAX_DURATION
from rocelab.jobs.workloads import JobPlace, WorkloadSpec


class FlowSizes(StrEnum):
    """The distributions of flow sizes that the simulator of HPCC publishes
    (alibaba-edu/High-Precision-Congestion-Control, traffic_gen)."""

    WEBSEARCH = "websearch"
    FB_HADOOP = "fb-hadoop"
    ALISTORAGE = "alistorage"


class PoissonSpec(WorkloadSpec):
    """Flows from each NIC to random others, which begin as a Poisson process."""

    title = "flows of published sizes that begin at random"
    place = 5
    is_open_loop = True

    sizes: Annotated[
        FlowSizes, Field(strict=False, description="a published distribution of flow sizes")
    ]
    load: Annotated[
        SharePpm, Field(ge=1, le=10**6, description="payload that NICs send, of their rate")
    ]
    duration: Annotated[
        DurationNs, Field(gt=0, le=MAX_DURATION, description="flows begin within it")
    ]

    @property
    def ranks(self) -> None:
        """As many as NICs are listed or left."""
        return None

    def workload(self, place: JobPlace) -> FlowList:
        return poisson_flows(self, place.nic_bps, place.seed, place.name)


@dataclass(frozen=True, eq=False)
class SizeDistribution:
    """The share of flows of at most size_bytes is share, P points each; linear between them."""

    size_bytes: Floats
    share: Floats

    @property
    def mean_bytes(self) -> float:
        middle = (self.size_bytes[1:] + self.size_bytes[:-1]) / 2
        return float((middle * np.diff(self.share)).sum())

    def at(self, share: Floats) -> Longs:
        """The sizes that these shares of flows do not exceed, at least 1 byte."""
        sizes = np.interp(share, self.share, self.size_bytes).astype(np.int64)
        return np.maximum(sizes, 1)


@cache
def distribution(sizes: FlowSizes) -> SizeDistribution:
    """A published distribution."""
    known = json.loads(Path(__file__).with_name("flow_sizes.json").read_text())
    size_bytes, percent = np.array(known[sizes]["percent_up_to_bytes"], np.float64).T
    return SizeDistribution(size_bytes, percent / 100)


def poisson_flows(spec: PoissonSpec, nic_bps: Floats, seed: int, job: str = "poisson") -> FlowList:
    """The flows that begin within `spec.duration`, in order of time. nic_bps: of each rank's NIC.

    Each NIC sends flows as a Poisson process whose mean payload is `spec.load` of its rate, to
    NICs drawn uniformly from the others. Raises InputError, which begins with the name of the
    `job`, for too few NICs and too few or too many flows.
    """
    ranks = len(nic_bps)
    if ranks < 2:
        raise InputError(f"{job}: flows between {ranks} NICs", hint="it needs two or more")
    rng = np.random.default_rng(seed)
    sizes = distribution(spec.sizes)
    flows_per_s = spec.load / 1e6 * nic_bps / (8 * sizes.mean_bytes)
    duration_s = spec.duration / 1e9
    expected = float(flows_per_s.sum()) * duration_s
    asked = f"{SHARE.written(spec.load)} of {ranks:,} NICs for {quantities.duration(spec.duration)}"
    if expected > MOST_FLOWS:
        raise InputError(
            f"{job}: {asked} are about {expected:,.0f} flows; at most {MOST_FLOWS:,} are simulated",
            hint="take a shorter duration",
        )
    flows = int(rng.poisson(expected))
    if flows == 0:
        raise InputError(
            f"{job}: no flow begins; {asked} are {expected:.2g} flows on average",
            hint="take a longer duration",
        )
    source = np.searchsorted(np.cumsum(flows_per_s), rng.random(flows) * flows_per_s.sum())
    other = rng.integers(ranks - 1, size=flows)
    return FlowList(
        ranks,
        source.astype(np.int32),
        (other + (other >= source)).astype(np.int32),
        sizes.at(rng.random(flows)),
        np.sort(rng.random(flows)) * duration_s,
    )
