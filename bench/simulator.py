"""`python -m bench.simulator`: the speed of the simulator's engine, and its growth with size.

Each row is a ring over all NICs of a fabric like llama3-24k with another number of racks, with
random placement, 16 queue pairs per connection and E-ECMP, in a separate process, so that its
memory can be measured. Sizes are equal, as in the collective, or uniformly random from half to one
and a half of that (uneven), where hardly any two transfers end together.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, ParamSpec, TypeVar

import numpy as np

from bench.campaign import command
from bench.campaign.apart import apart, cpu_s, peak_bytes
from bench.campaign.document import Document
from bench.campaign.study import Series, Study
from bench.maxmin import max_min_rates
from rocelab import Pattern
from rocelab.base.arrays import Floats
from rocelab.base.progress import no_progress
from rocelab.jobs.merged_sends import sends_of
from rocelab.jobs.placement import Placement
from rocelab.jobs.transport import TransportSpec
from rocelab.jobs.workload import Step, Workload
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.schemes.scheme_spec import scheme_of
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Paths
from rocelab.routes.arrays.paths import paths_of
from rocelab.routes.arrays.routes import Routes
from rocelab.sim.compile import PlacedJob, compile_jobs
from rocelab.sim.engine.program import Program
from rocelab.sim.engine.proof import prove
from rocelab.sim.engine.run import drive, run
from rocelab.sim.figures import simulation_environment
from rocelab.sim.placement import place_ranks

GROWTH = (64, 192, 512, 1024)
"""Racks in each of 8 zones: 8,192 to 131,072 GPUs."""
SMALL = 4
SOLVES = 7
SIZE_BYTES = 2**30
EPS = 0.01

Row = dict[str, Any]


Given = ParamSpec("Given")
Result = TypeVar("Result")


def _timed(
    work: Callable[Given, Result], *args: Given.args, **named: Given.kwargs
) -> tuple[float, Result]:
    begin = time.perf_counter()
    result = work(*args, **named)
    return time.perf_counter() - begin, result


def ring(racks: int) -> tuple[Program, Paths, Floats]:
    """A ring AllReduce over all NICs of 8 zones of `racks` racks."""
    spec = load_spec(find_lab("llama3-24k"))
    fabric = spec.fabric.model_copy(update={"racks": racks})
    network = network_of(spec.model_copy(update={"fabric": fabric}))
    ranks = network.nics
    sends = sends_of(Pattern.ALLREDUCE, ranks, SIZE_BYTES)
    job = PlacedJob(
        Workload(ranks, (Step("ring", sends=sends),)),
        place_ranks(network, ranks, Placement.RANDOM, seed=1),
        TransportSpec(qps=16),
    )
    compiled = compile_jobs(network, [job])
    paths = paths_of(network, Routes(network), compiled.flows, scheme=scheme_of("e-ecmp"))
    return compiled.program, paths, network.capacity_bps


def uneven(program: Program) -> Program:
    """The same transfers with random sizes from half to one and a half of their own."""
    factor = np.random.default_rng(1).uniform(0.5, 1.5, program.transfers)
    return replace(program, size_bits=program.size_bits * factor)


def measure_growth(racks: int) -> Row:
    """One size: a solve, the collective, and the same with uneven sizes."""
    make_s, (program, paths, capacity) = _timed(ring, racks)
    first_s, rates = _timed(max_min_rates, paths, capacity)
    proof = prove(paths, capacity, rates)
    solves = [_timed(max_min_rates, paths, capacity)[0] for _ in range(SOLVES)]
    row: Row = {
        "gpus": racks * 8 * 16,
        "transfers": program.transfers,
        "sends": len(capacity),
        "entries": len(paths.sends),
        "make_s": make_s,
        "first_call_s": first_s,
        "solve_s": solves,
        "widest_gap": proof.widest_gap,
    }
    for eps in (EPS, 0.0):
        row[f"even_{eps}_s"], outcome = _timed(run, program, paths, capacity, eps=eps)
        row[f"even_{eps}_solves"] = outcome.solves
    row["rss_bytes"] = peak_bytes()
    if racks <= GROWTH[1]:
        seconds, outcome = _timed(run, uneven(program), paths, capacity, eps=EPS)
        row |= {"uneven_s": seconds, "uneven_solves": outcome.solves}
    return row


def measure_small(racks: int) -> Row:
    """One small size, even and uneven: updates of affected flows against updates of all."""
    from rocelab.sim.engine.incremental import Incremental

    even, paths, capacity = ring(racks)
    # Loads what is compiled: both engines then run as often.
    max_min_rates(paths, capacity)
    drive(Incremental(even, paths, capacity, 0.0), even.transfers, (), False, no_progress)
    row: Row = {"gpus": racks * 8 * 16, "transfers": even.transfers}
    for name, program in (("even", even), ("uneven", uneven(even))):
        for everything in (False, True):
            engine = Incremental(program, paths, capacity, 0.0, everything=everything)
            seconds, outcome = _timed(drive, engine, program.transfers, (), False, no_progress)
            key = f"{name}_{'everything' if everything else 'touched'}"
            row |= {f"{key}_s": seconds, f"{key}_solves": outcome.solves}
            row[f"{key}_end_s"] = float(outcome.end_s.max())
    row["rough_s"], rough = _timed(run, uneven(even), paths, capacity, eps=EPS)
    row["rough_end_s"] = float(rough.end_s.max())
    row["solve_s"], _ = _timed(max_min_rates, paths, capacity)
    return row


def measure_cold(racks: int) -> Row:
    """The same small program in a process for which nothing is compiled, in seconds of CPU, of its
    children too."""
    begin_s = cpu_s()
    program, paths, capacity = ring(racks)
    made_s = cpu_s()
    run(program, paths, capacity, eps=0.0)
    return {"make_s": made_s - begin_s, "first_s": cpu_s() - made_s}


def measured(point: tuple[str, int]) -> Row:
    """A point, in a process of its own."""
    kind, racks = point
    if kind != "cold":
        return dict(apart(measure_small if kind == "small" else measure_growth, racks))
    with tempfile.TemporaryDirectory() as cache:
        return dict(apart(measure_cold, racks, environment={"NUMBA_CACHE_DIR": cache}))


def figures(document: Document) -> dict[str, Any]:
    """The tables' rows."""
    points = {name: samples[0] for name, samples in document.measured.items()}
    small, cold = (points.pop(name, None) for name in ("small", "cold"))
    return {"growth": list(points.values()), "small": small, "cold": cold, "solves": SOLVES}


def environment() -> dict[str, Any]:
    """The machine, with the numpy that solves."""
    return {**asdict(simulation_environment()), "numpy": np.__version__}


STUDY = Study(
    name="simulator",
    about="the speed of the fluid engine, up to 131,072 GPUs",
    series=lambda: [
        Series.alone(
            {
                **{f"{racks * 8 * 16} GPUs": ("growth", racks) for racks in GROWTH},
                "small": ("small", SMALL),
                "cold": ("cold", SMALL),
            },
            measured,
        )
    ],
    figures=figures,
    environment=environment,
)

if __name__ == "__main__":
    command.run(STUDY.name)
