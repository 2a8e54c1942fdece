"""`python -m bench.simulator`: the speed of the simulator's engine, and its growth with size.

Each row is a ring over all NICs of a fabric like llama3-24k with another number of racks, with
random placement, 16 queue pairs per connection and E-ECMP, in a separate process, so that its
memory can be measured. Sizes are equal, as in the collective, or uniformly random from half to one
and a half of that (uneven), where hardly any two transfers end together. Writes
bench/simulator.json and bench/simulator.md.
"""

from __future__ import annotations

import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, ParamSpec, TypeVar

import numpy as np
import typer
from rich.console import Console

from bench.maxmin import max_min_rates
from bench.written import write
from rocelab import Pattern
from rocelab.base.arrays import Floats
from rocelab.base.interruption import ending
from rocelab.base.progress import no_progress
from rocelab.jobs.merged_sends import sends_of
from rocelab.jobs.placement import Placement
from rocelab.jobs.transport import TransportSpec
from rocelab.jobs.workload import Step, Workload
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.schemes.scheme_spec import scheme_of
from rocelab.results.environment import cpu_model
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Paths
from rocelab.routes.arrays.paths import paths_of
from rocelab.routes.arrays.routes import Routes
from rocelab.sim.compile import PlacedJob, compile_jobs
from rocelab.sim.engine.program import Program
from rocelab.sim.engine.proof import prove
from rocelab.sim.engine.run import drive, run
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
    row["rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if racks <= GROWTH[1]:
        seconds, outcome = _timed(run, uneven(program), paths, capacity, eps=EPS)
        row |= {"uneven_s": seconds, "uneven_solves": outcome.solves}
    return row


def measure_small(racks: int) -> Row:
    """One small size, even and uneven: updates of affected flows against updates of all."""
    from rocelab.sim.engine.incremental import Incremental

    even, paths, capacity = ring(racks)
    max_min_rates(paths, capacity)
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


def _in_process(what: str, racks: int) -> Row:
    argv = [sys.executable, "-m", "bench.simulator", "--only", what, "--racks", str(racks)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    row: Row = json.loads(done.stdout)
    return row


def markdown(growth: list[Row], small: Row, machine: str) -> str:
    """Both tables and the machine."""
    lines = [
        "# Results of `python -m bench.simulator`",
        "",
        f"On {machine}, one thread.",
        "",
        "A solve is one call of `max_min_rates`: paths in, rates out, lists of flows by send made "
        f"in it; least and median of {SOLVES}. The collective is the whole program, from arrays "
        "to the end of the last transfer. Memory is the process's peak, with fabric and paths.",
        "",
        "| GPUs | transfers | links, directed | fabric and paths, s | solve, ms | collective, "
        "eps 1 %, s | exact, s | solves | memory, MB | uneven sizes, eps 1 %, s | solves |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in growth:
        least, middle = (1e3 * one(row["solve_s"]) for one in (min, statistics.median))
        last = [f"{row['uneven_s']:.2f}", str(row["uneven_solves"])] if "uneven_s" in row else []
        cells = [
            f"{row['gpus']:,}",
            f"{row['transfers']:,}",
            f"{row['sends']:,}",
            f"{row['make_s']:.1f}",
            f"{least:.0f} ({middle:.0f})",
            f"{row['even_0.01_s']:.2f}",
            f"{row['even_0.0_s']:.2f}",
            str(row["even_0.0_solves"]),
            f"{row['rss_bytes'] / 1e6:.0f}",
            *(last or ["", ""]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        f"## Solving what an event touches: {small['gpus']:,} GPUs, {small['transfers']:,} "
        "transfers, exact",
        "",
        "| sizes | touched, s | everything, s | ratio | solves | solves of everything |",
        "|---|---|---|---|---|---|",
    ]
    for name in ("even", "uneven"):
        touched, everything = small[f"{name}_touched_s"], small[f"{name}_everything_s"]
        lines.append(
            f"| {name} | {touched:.3f} | {everything:.3f} | {everything / touched:.1f} | "
            f"{small[f'{name}_touched_solves']:,} | {small[f'{name}_everything_solves']:,} |"
        )
    error = small["rough_end_s"] / small["uneven_touched_end_s"] - 1
    lines += [
        "",
        f"Uneven sizes with eps 1 %: {small['rough_s']:.3f} s, last end {error:+.3%} off. One "
        f"solve: {1e3 * small['solve_s']:.1f} ms.",
    ]
    return "\n".join(lines) + "\n"


def main(
    only: Annotated[str, typer.Option(hidden=True)] = "",
    racks: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Measure, print and write results."""
    if only:
        row = measure_small(racks) if only == "small" else measure_growth(racks)
        print(json.dumps(row))
        return
    growth = [_in_process("growth", racks) for racks in GROWTH]
    small = _in_process("small", SMALL)
    machine = f"{cpu_model()}, Python {platform.python_version()}, numpy {np.__version__}"
    document = {"machine": machine, "growth": growth, "small": small}
    text = markdown(growth, small, machine)
    write("simulator", document, text)
    Console().print(text, markup=False)


if __name__ == "__main__":
    with ending():
        typer.run(main)
