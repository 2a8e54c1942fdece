"""Runs the flows of `bench.simgrid` in `rocelab.sim.engine`, with timing.

`python -m bench.simgrid_engine PROBLEM FOLDER [solve]`: with the input and output of
`bench/simgrid_flows.py`. Compiled code runs once, on a single flow, before the clock starts.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from bench.campaign.apart import peak_bytes
from bench.maxmin import max_min_rates
from bench.simgrid_cases import Problem, read_problem
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.program import Program
from rocelab.sim.engine.run import run


def all_at_once(problem: Problem) -> Program:
    """One task that transfers every flow's bytes."""
    flows = len(problem.paths)
    return Program(
        after_start=np.zeros(2, np.int64),
        after=np.empty(0, np.int32),
        delay_s=np.zeros(1),
        latency_s=np.zeros(1),
        first_transfer=np.array([0, flows]),
        flow=np.arange(flows, dtype=np.int32),
        size_bits=problem.size_bits,
    )


def main() -> None:
    source, folder, only = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    one = Problem(Paths(np.array([0, 1]), np.zeros(1, np.int32)), np.ones(1, int), np.ones(1, int))
    max_min_rates(one.paths, one.capacity_bps)
    run(all_at_once(one), one.paths, one.capacity_bps)
    times: dict[str, float] = {"before_bytes": peak_bytes()}

    def note(**more: float) -> None:
        times.update(more, peak_bytes=peak_bytes())
        folder.joinpath("times.json").write_text(json.dumps(times))

    problem = read_problem(source)
    capacity_bps = problem.capacity_bps
    begun = time.process_time()
    rates = max_min_rates(problem.paths, capacity_bps)
    solved = time.process_time()
    rates.tofile(folder / "rates")
    note(solve_s=solved - begun)
    if only != ["solve"]:
        begun = time.process_time()
        outcome = run(all_at_once(problem), problem.paths, capacity_bps)
        over = time.process_time()
        outcome.finish_s.tofile(folder / "ends")
        note(to_the_end_s=over - begun)


if __name__ == "__main__":
    main()
