"""`python -m bench.simgrid`: compares SimGrid with `rocelab.sim.engine`, with the same flows on the
same routes.

Each engine runs each case in a separate process, in turn. It compares the rates at the start and
the ends of all flows, and measures the time of one solve, the time until all flows have ended, and
memory. Needs Debian's python3-simgrid.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from bench.campaign import command
from bench.campaign.document import Document
from bench.campaign.study import BENCH, Measure, Series, Study
from bench.simgrid_cases import CASES, Case, problem_of, write_problem
from bench.simgrid_results import (
    TARGET,
    Compared,
    Side,
    Times,
    digits_spread,
    growths,
    three_digits,
    worst_difference,
)
from rocelab import MachineError
from rocelab.base.arrays import Floats
from rocelab.results.environment import cpu_model

SYSTEM_PYTHON = "/usr/bin/python3"
RUNS = 3
LIMIT_S = 60.0
"""For one process."""
SHORT_S = 3.0
"""A case that takes both processes less time is measured RUNS times, a longer one once."""
COMMANDS = {
    Side.SIMGRID: (SYSTEM_PYTHON, "-I", str(BENCH / "simgrid_flows.py")),
    Side.OURS: (sys.executable, "-m", "bench.simgrid_engine"),
}


@dataclass(frozen=True, eq=False)
class Answer:
    """The results of a process: empty if it did not get that far."""

    times: Times
    rates_bps: Floats
    ends_s: Floats


def compare(case: Case, folder: Path) -> Compared:
    """Run both engines on a case, in turn; their answers need only one comparison."""
    problem = problem_of(case)
    path = folder / "problem"
    write_problem(problem, path)
    times: dict[Side, list[Times]] = {side: [] for side in Side}
    begun = time.monotonic()
    while True:
        answers = {side: ask(side, path, LIMIT_S, case.to_the_end) for side in Side}
        for side, answer in answers.items():
            times[side].append(answer.times)
        runs = len(times[Side.OURS])
        if runs == RUNS or time.monotonic() - begun > SHORT_S * runs:
            break
    one, other = answers[Side.SIMGRID], answers[Side.OURS]
    return Compared(
        case=case,
        subflows=len(problem.paths),
        distinct_rates=distinct(other.rates_bps),
        rates_differ=widest_difference(one.rates_bps, other.rates_bps),
        ends_differ=widest_difference(one.ends_s, other.ends_s),
        times=times,
    )


def ask(side: Side, problem: Path, limit_s: float, to_the_end: bool) -> Answer:
    """Start a process on a written problem and wait for it, up to a limit.

    Raises RuntimeError with its last output if it fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [*COMMANDS[side], str(problem), name, *([] if to_the_end else ["solve"])]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit_s, cwd=BENCH.parent
            )
        except subprocess.TimeoutExpired:
            pass
        else:
            if done.returncode:
                raise RuntimeError(f"{side}: {done.stderr[-2000:]}")
        noted = folder / "times.json"
        times = Times(**json.loads(noted.read_text())) if noted.exists() else Times()
        nothing = np.empty(0)
        return Answer(
            times,
            nothing if times.solve_s is None else np.fromfile(folder / "rates"),
            nothing if times.to_the_end_s is None else np.fromfile(folder / "ends"),
        )


def widest_difference(one: Floats, other: Floats) -> float | None:
    """The largest difference of two answers, relative; None if one is missing."""
    if not len(one) or not len(other):
        return None
    return float(np.max(np.abs(one / other - 1)))


def distinct(rates: Floats) -> int:
    """The number of rates that differ by more than 1e-9, relative."""
    ascending = np.sort(rates)
    return int(np.count_nonzero(np.diff(ascending) > 1e-9 * ascending[1:]) + min(len(rates), 1))


def simgrid_version() -> str:
    """The version of SimGrid. Raises MachineError if the system's Python does not have it."""
    code = "import simgrid; print(simgrid.simgrid_version)"
    try:
        asked = subprocess.run([SYSTEM_PYTHON, "-I", "-c", code], capture_output=True, text=True)
    except FileNotFoundError:
        raise MachineError(f"there is no {SYSTEM_PYTHON}", "SimGrid is Debian's") from None
    if asked.returncode:
        raise MachineError("SimGrid is not installed", "apt install python3-simgrid")
    return asked.stdout.split()[-1]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


@contextmanager
def _prepared(_: Sequence[str]) -> Iterator[Measure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The first compiles what is then kept.
        compare(CASES[0], folder)
        yield lambda case: asdict(compare(case, folder))


def environment() -> dict[str, Any]:
    """The machine with both engines. Raises MachineError without SimGrid."""
    return {
        "simgrid": simgrid_version(),
        "numba": _version("numba"),
        "numpy": _version("numpy"),
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        "cpu_model": cpu_model(),
        "cpu_count": len(os.sched_getaffinity(0)),
        "date": time.strftime("%Y-%m-%d"),
    }


def figures(document: Document) -> dict[str, Any]:
    """What the tables print of each case."""
    compared = TypeAdapter(list[Compared]).validate_python(document.firsts)
    return {
        "compared": compared,
        "sides": list(Side),
        "limit_s": LIMIT_S,
        "growths": growths(compared),
        "worst": worst_difference(compared),
        "target": TARGET,
        "digits": lambda value: "" if value is None else three_digits(value),
        "digits_spread": digits_spread,
    }


STUDY = Study(
    name="simgrid",
    about="SimGrid beside this engine, with the same flows on the same routes",
    series=lambda: [Series({case.name: case for case in CASES}, _prepared)],
    figures=figures,
    environment=environment,
)

if __name__ == "__main__":
    command.run(STUDY.name)
