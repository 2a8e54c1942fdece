"""The plan of the comparison: the catalog's labs that this machine carries, and the jobs on each.

Each lab has `Cell`s to run. Labs are slowed down until the machine carries them with a margin, and
messages are so long that a run lasts seconds. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from bench.agreement.document import CONTENDED
from bench.agreement.simulated import Simulated, simulate_job
from rocelab import Fabric, InputError, JobSpec, LabSpec, plan
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.jobs.load import estimate
from rocelab.labfile.catalog import LABS, find_lab, shipped_names
from rocelab.labfile.load import load_spec
from rocelab.labfile.queues import QueuesSpec
from rocelab.labfile.schemes.scheme_spec import SchemeSpec, scheme_of

CPUS = 2
CPU_SHARE = 0.25
"""The share of two CPUs that a job may need: half of the load that is carried without loss of time,
because ranks that wait for each other add up their losses."""

ITERATIONS, WARMUP = 2, 1
ITERATION_S = 0.8
"""About how long an iteration takes in the lab's clock."""

LEAST_PART, MOST_PART = 2**17, 2**20
"""Bytes of a ring's chunk, or that one rank sends another in an AlltoAll. At least 32 packets: the
time for which agents collect arrivals is then a few hundredths of a step."""

MOST_RANKS = 16
"""With more NICs two CPUs would carry so little traffic of each that a run takes minutes."""

_LOSSLESS = "pauses are compared on lossless, lossless-marked and two-leaves-lossless"
NOT_RUN = {
    "deadlock": _LOSSLESS,
    "deadlock-watchdog": _LOSSLESS,
    "fat-tree-48": "too large to run here: 2,880 switches",
    "four-ports-lossless": _LOSSLESS,
    "hpn-pod": "too large to run here: 368 switches with 17,280 routes each",
    "llama3-24k": "too large to run here: 1,692 switches",
    "lossless-headroom": _LOSSLESS,
    "lossless-incast": _LOSSLESS,
    "lossless-watchdog": _LOSSLESS,
    "meta-32k": "too large to run here: 2,178 switches",
    "rail-superpod": "1,024 NICs: two CPUs would carry some ten packets/s of each",
    "zone-252x18": "252 NICs under 270 switches: 13 GB, and minutes to converge",
    "zone-256x32": "too large to run here: 288 switches with 8,192 BGP sessions",
    "zones-28-24k": "too large to run here: 1,733 switches",
}
"""Omitted labs of the catalog, with the reasons."""

SCHEMES: Sequence[SchemeSpec] = (
    scheme_of("e-ecmp"),
    scheme_of("path-pinning"),
)
"""Schemes whose paths depend only on tables and flows, run on one lab; ecmp runs on all."""

SCHEMED = "zone-1-1"

QUEUED: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "two-leaves-early-marks": ("two-leaves", {"ecn": {"kmin": "100KB", "kmax": "400KB"}}),
    "two-leaves-small-buffers": (
        "two-leaves",
        {"ecn": {"kmin": "50KB", "kmax": "200KB"}, "buffer": "250KB"},
    ),
}
"""Labs whose other `queues` mark and drop thousands of packets, and the lab of the catalog."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A job on any lab: all its NICs take part, or MOST_RANKS of them. least_part: bytes of its
    chunks at least."""

    name: str
    title: str
    pattern: str
    placement: str
    qps: int
    dcqcn: str = "off"
    ack_timeout: str = "1ms"
    least_part: int = LEAST_PART

    def job(self, ranks: int, part_bytes: int) -> JobSpec:
        """The job with `ranks` ranks and chunks of `part_bytes`."""
        return JobSpec.model_validate(
            {
                "pattern": self.pattern,
                **({"in_flight": 1} if self.pattern == "alltoall" else {}),
                "ranks": ranks,
                "size": f"{ranks * part_bytes}B",
                "iterations": ITERATIONS,
                "warmup_iterations": WARMUP,
                "placement": self.placement,
                "transport": {
                    "qps": self.qps,
                    "strategy": "split" if self.qps > 1 else "round-robin",
                    "dcqcn": self.dcqcn,
                    "ack_timeout": self.ack_timeout,
                },
            }
        )


SHAPES = (
    Shape("ring", "AllReduce, ring, leaf by leaf", "allreduce", "topology-aware", 1),
    Shape("ring-across", "AllReduce, ring, leaf to leaf", "allreduce", "fragmented", 4),
    Shape("alltoall", "AlltoAll", "alltoall", "contiguous", 1),
    Shape("alltoall-4", "AlltoAll", "alltoall", "contiguous", 4),
)
INCAST = Shape("incast", "incast", "incast", "contiguous", 4)
"""For labs with one leaf, where no ring goes from leaf to leaf."""

WITH_DCQCN = Shape("alltoall-4-dcqcn", "AlltoAll", "alltoall", "contiguous", 4, "sigcomm15")
"""A repetition of the AlltoAll if links between switches limit it."""

ACROSS, ON_SCHEMES = SHAPES[1], SHAPES[3]
ON_QUEUES = tuple(
    replace(shape, ack_timeout="50us")
    for shape in (
        ACROSS,
        ON_SCHEMES,
        replace(ACROSS, name="ring-across-dcqcn", qps=16, dcqcn="sigcomm15"),
        replace(WITH_DCQCN, name="alltoall-16-dcqcn", qps=16),
        replace(ACROSS, name="ring-across-64-dcqcn", qps=64, dcqcn="sigcomm15", least_part=2**18),
    )
)
"""Jobs on labs of QUEUED, whose links between switches are contended. The last one has more than a
thousand timeouts in a run where buffers are small."""

ON_LOSSLESS = (ACROSS, ON_SCHEMES, INCAST)
"""Jobs on labs with PFC, whose ports pause."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A job on a lab under a scheme, with its simulation."""

    lab: str
    shape: Shape
    spec: LabSpec
    job: JobSpec
    simulated: Simulated

    @property
    def is_contended(self) -> bool:
        """Whether links between switches delay it, according to the simulator."""
        return self.simulated.bottleneck > CONTENDED

    @property
    def lab_s(self) -> float:
        """The approximate time of sending in the lab's clock."""
        mean_ns = sum(self.simulated.iteration_ns) / ITERATIONS
        return (ITERATIONS + WARMUP) * mean_ns * self.spec.dilation / 1e9


def chosen_labs(pattern: str = "*") -> tuple[str, ...]:
    """The labs that are run and whose name fits `pattern`, as a shell's glob.

    Raises InputError if there is none.
    """
    labs = [name for name in shipped_names(LABS) if name not in NOT_RUN]
    labs += QUEUED
    names = tuple(name for name in labs if fnmatchcase(name, pattern))
    if not names:
        raise InputError(f"no lab fits {pattern}", hint=f"labs are {', '.join(labs)}")
    return names


def lab_spec(name: str) -> LabSpec:
    """A lab, slowed down until jobs take CPU_SHARE of two CPUs."""
    catalog_name, queues = QUEUED.get(name, (name, {}))
    spec = load_spec(find_lab(catalog_name))
    if queues:
        spec = spec.model_copy(update={"queues": QueuesSpec.model_validate(queues)})
    fabric = plan(spec)
    most = max(
        estimate(plan_jobs(fabric, [shape.job(_ranks(fabric), MOST_PART)]), CPUS).cpu_share
        for shape in _shapes(name, fabric)
    )
    if most <= CPU_SHARE:
        return spec
    return spec.model_copy(update={"dilation": _rounded(spec.dilation * most / CPU_SHARE)})


def cells_of(name: str) -> tuple[Cell, ...]:
    """The cells of a lab, in order, grouped by scheme."""
    spec = lab_spec(name)
    cells = [_cell(name, spec, shape) for shape in _shapes(name, plan(spec))]
    if any(cell.shape is ON_SCHEMES and cell.is_contended for cell in cells):
        cells.append(_cell(name, spec, WITH_DCQCN))
    if name == SCHEMED:
        for scheme in SCHEMES:
            schemed = spec.model_copy(update={"scheme": scheme})
            cells.append(_cell(name, schemed, ON_SCHEMES))
    return tuple(cells)


def _cell(name: str, spec: LabSpec, shape: Shape) -> Cell:
    """A cell with the longest messages, in powers of two, that keep an iteration within
    ITERATION_S."""
    ranks = _ranks(plan(spec))
    part = MOST_PART
    while True:
        cell = Cell(
            name,
            shape,
            spec,
            job := shape.job(ranks, part),
            simulate_job(spec, job),
        )
        if part == shape.least_part or cell.lab_s <= ITERATION_S * (ITERATIONS + WARMUP):
            return cell
        part //= 2


def _shapes(name: str, fabric: Fabric) -> tuple[Shape, ...]:
    if name in QUEUED:
        return ON_QUEUES
    if fabric.spec.queues.pfc is not None:
        return ON_LOSSLESS
    leaves = {
        link.far(server.name).node
        for server in fabric.servers
        for nic in fabric.nics(server.name)
        for link in nic.links
    }
    return (
        (*(shape for shape in SHAPES if shape is not ACROSS), INCAST)
        if len(leaves) == 1
        else SHAPES
    )


def _ranks(fabric: Fabric) -> int:
    return min(MOST_RANKS, sum(len(fabric.nics(server.name)) for server in fabric.servers))


def _rounded(value: float) -> float:
    """The least number of two digits that is not below `value`."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / step) * step
