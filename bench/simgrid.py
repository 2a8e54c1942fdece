"""`python -m bench.simgrid`: compares SimGrid with `rocelab.sim.engine`, with the same flows on the
same routes.

Each engine runs each case in a separate process, in turn. It compares the rates at the start and
the ends of all flows, and measures the time of one solve, the time until all flows have ended, and
memory. Writes bench/simgrid.json and bench/simgrid.md. Needs Debian's python3-simgrid.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from bench.simgrid_cases import CASES, Case, problem_of, write_problem
from bench.simgrid_results import Compared, Side, Times, markdown
from bench.written import FOLDER, write
from rocelab import MachineError
from rocelab.base.arrays import Floats
from rocelab.base.interruption import ending
from rocelab.results.environment import cpu_model

SYSTEM_PYTHON = "/usr/bin/python3"
RUNS = 3
SHORT_S = 3.0
"""A case that takes both processes less time is measured RUNS times, a longer one once."""
COMMANDS = {
    Side.SIMGRID: (SYSTEM_PYTHON, "-I", str(FOLDER / "simgrid_flows.py")),
    Side.OURS: (sys.executable, "-m", "bench.simgrid_engine"),
}


@dataclass(frozen=True, eq=False)
class Answer:
    """The results of a process: empty if it did not get that far."""

    times: Times
    rates_bps: Floats
    ends_s: Floats


def main(
    limit_s: Annotated[float, typer.Option(min=1, help="for one process")] = 60.0,
) -> None:
    """Measure all cases."""
    console = Console(stderr=True)
    machine = {
        "simgrid": simgrid_version(),
        "numba": _version("numba"),
        "numpy": _version("numpy"),
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        "cpu_model": cpu_model(),
        "cpu_count": len(os.sched_getaffinity(0)),
        "date": time.strftime("%Y-%m-%d"),
    }
    load = [os.getloadavg()]
    compared = []
    with tempfile.TemporaryDirectory() as folder:
        # The first compiles what is then kept.
        compare(CASES[0], Path(folder), limit_s)
        for number, case in enumerate(CASES, 1):
            console.print(f"{number} of {len(CASES)}: {case.family}, {case.ranks} x {case.qps}")
            compared.append(compare(case, Path(folder), limit_s))
    load.append(os.getloadavg())
    measured = {"machine": machine, "load_average": load, "limit_s": limit_s}
    document = {**measured, "cases": [asdict(case) for case in compared]}
    text = markdown(compared, machine, limit_s)
    write("simgrid", document, text)
    print(text)


def compare(case: Case, folder: Path, limit_s: float) -> Compared:
    """Run both engines on a case, in turn; their answers need only one comparison."""
    problem = problem_of(case)
    path = folder / "problem"
    write_problem(problem, path)
    times: dict[Side, list[Times]] = {side: [] for side in Side}
    begun = time.monotonic()
    while True:
        answers = {side: ask(side, path, limit_s, case.to_the_end) for side in Side}
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
                command, capture_output=True, text=True, timeout=limit_s, cwd=FOLDER.parent
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


if __name__ == "__main__":
    with ending():
        try:
            typer.run(main)
        except MachineError as error:
            Console(stderr=True).print(error)
            sys.exit(3)
