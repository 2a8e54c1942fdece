"""The flows that `bench.simgrid` gives to both engines: sources, paths and sizes.

A `Case` becomes a `Problem`, and a file of it for the two measured processes. Paths are those of
`rocelab simulate`. Sizes are uniformly random with a fixed seed, so that ends differ: a ring of
equal messages in a fabric without contention ends at one instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

import numpy as np

from rocelab import LabSpec
from rocelab.base.arrays import Floats, Ints, Longs
from rocelab.jobs.placement import Placement
from rocelab.jobs.transport import TransportSpec
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Paths
from rocelab.routes.arrays.paths import paths_of
from rocelab.routes.arrays.routes import Routes
from rocelab.sim.placement import place_ranks
from rocelab.sim.queue_pairs import queue_pairs

LEAST_S, MOST_S = 2, 4
"""The time of a flow alone at the rate of the fastest link: rates are read long before its end."""
_SEED = 7


class Traffic(StrEnum):
    """RING: each rank sends to the next. ALLTOALL: each to every other."""

    RING = "ring"
    ALLTOALL = "AlltoAll"


@dataclass(frozen=True, slots=True)
class Case:
    """Traffic of `ranks` on random NICs. cut: the changed keys of the fabric. to_the_end: also run
    until every flow has ended."""

    lab: str
    traffic: Traffic
    ranks: int
    qps: int
    cut: tuple[tuple[str, int], ...] = ()
    to_the_end: bool = True

    @property
    def family(self) -> str:
        """The common name of cases whose times form one growth curve."""
        cut = "".join(f", {key} {value}" for key, value in self.cut)
        return f"{self.traffic}, {self.lab}{cut}"

    @property
    def name(self) -> str:
        return f"{self.family}, {self.ranks} x {self.qps}"


CUT = (("zones", 2), ("racks", 8), ("atsws", 1))
CASES: tuple[Case, ...] = (
    *(Case("llama3-24k", Traffic.RING, ranks, 16) for ranks in (4, 16, 64, 256, 1024)),
    *(Case("llama3-24k", Traffic.RING, ranks, 16, to_the_end=False) for ranks in (4096, 24_576)),
    *(Case("llama3-24k", Traffic.RING, 256, qps, CUT) for qps in (1, 4, 16, 32)),
    *(Case("zones-1-28", Traffic.ALLTOALL, 28, qps) for qps in (1, 2, 4, 8)),
    Case("zone-1-1125", Traffic.ALLTOALL, 32, 1),
    Case("hpn-small", Traffic.ALLTOALL, 8, 8),
    Case("rail-small", Traffic.ALLTOALL, 16, 4),
    Case("fat-tree-4", Traffic.ALLTOALL, 16, 4),
)


@dataclass(frozen=True, eq=False)
class Problem:
    """size_bytes: of each flow. capacity: bytes/s of each send; both whole numbers."""

    paths: Paths
    size_bytes: Longs
    capacity: Longs

    @property
    def size_bits(self) -> Floats:
        return 8 * self.size_bytes.astype(np.float64)

    @property
    def capacity_bps(self) -> Floats:
        return 8 * self.capacity.astype(np.float64)


def problem_of(case: Case) -> Problem:
    """The flows of a case on its fabric."""
    network = network_of(spec_of(case))
    places = place_ranks(network, case.ranks, Placement.RANDOM, _SEED)
    pairs = pairs_of(case.traffic, case.ranks)
    flows = queue_pairs(network, places, pairs, TransportSpec(qps=case.qps), _SEED).flows
    capacity = np.round(network.capacity_bps / 8).astype(np.int64)
    fastest = int(capacity.max())
    drawn = np.random.default_rng(_SEED).integers(LEAST_S * fastest, MOST_S * fastest, len(flows))
    return Problem(paths_of(network, Routes(network), flows), drawn, capacity)


def spec_of(case: Case) -> LabSpec:
    """The catalog's lab, with the case's changes."""
    spec = load_spec(find_lab(case.lab))
    fabric = spec.fabric.model_copy(update=dict(case.cut))
    return spec.model_copy(update={"fabric": fabric})


def pairs_of(traffic: Traffic, ranks: int) -> Longs:
    """source * ranks + destination of all pairs that send, ascending."""
    every = np.arange(ranks, dtype=np.int64)
    if traffic is Traffic.RING:
        return np.sort(every * ranks + (every + 1) % ranks)
    source, destination = np.divmod(np.arange(ranks**2, dtype=np.int64), ranks)
    pairs: Longs = (source * ranks + destination)[source != destination]
    return pairs


def write_problem(problem: Problem, path: Path) -> None:
    """Write 64-bit integers, for a reader without numpy: the numbers of flows, of sends and of
    entries in all paths, then each path's start and the end, the entries, sizes and capacities."""
    paths = problem.paths
    counts = (len(paths), len(problem.capacity), len(paths.sends))
    with path.open("wb") as file:
        for part in (counts, paths.start, paths.sends, problem.size_bytes, problem.capacity):
            np.asarray(part, np.int64).tofile(file)


def read_problem(path: Path) -> Problem:
    """Read the file of `write_problem`."""
    words = np.fromfile(path, np.int64)
    flows, sends, entries = (int(count) for count in words[:3])
    ends = np.cumsum((3, flows + 1, entries, flows, sends))
    start, entry, size, capacity = (words[a:b] for a, b in pairwise(ends))
    on_sends: Ints = entry.astype(np.int32)
    return Problem(Paths(start, on_sends), size, capacity)
