"""`python -m bench ns3`: the packet engine beside ns-3, with the same flows on the same paths.

Each engine runs each case in a process of its own: when every sender had its last ACK, CPU time and
memory. Needs Debian's libns3-dev and g++.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bench.campaign.apart import apart, cpu_s, peak_bytes
from bench.campaign.document import Document
from bench.campaign.study import BENCH, Measure, Series, Study
from bench.ns3.cases import CASES, Case, inputs, simulation
from bench.ns3.problem import Answer, problem_of, read_answer, write_problem
from rocelab import MachineError
from rocelab.base.arrays import Floats
from rocelab.base.progress import no_progress
from rocelab.results.engines import Engine
from rocelab.sim.ahead import compile_ahead
from rocelab.sim.figures import simulation_environment
from rocelab.sim.packets.run import run_packets
from rocelab.sim.packets.wiring import PS

SOURCE = BENCH / "ns3" / "flows.cc"
HEADER = "ns3/point-to-point-module.h"
PACKAGE = "libns3-dev"
LIBRARIES = ("-lns3-point-to-point", "-lns3-network", "-lns3-core")
ALIKE_S = 1e-9
"""Completion times that differ by less are the same: both round to ps, in their own ways."""

FIGURES = ("mean", "p50", "p99", "max")
OURS, NS3 = "packet engine", "ns-3"

Row = dict[str, Any]


def compile_program(folder: Path) -> Path:
    """The program of flows.cc. Raises MachineError without a compiler or ns-3's libraries."""
    hint = f"apt install g++ {PACKAGE}"
    if shutil.which("g++") is None:
        raise MachineError("there is no g++", hint)
    common = ("g++", "-std=c++17", "-O2")
    asked = f"#include <{HEADER}>\n"
    only_asked = (*common, "-E", "-x", "c++", "-", "-o", "/dev/null")
    if subprocess.run(only_asked, input=asked, text=True, capture_output=True).returncode:
        raise MachineError("ns-3's headers are not installed", hint)
    program = folder / "flows"
    command = (*common, "-o", str(program), str(SOURCE), *LIBRARIES)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise MachineError(f"flows.cc does not compile: {done.stderr[-1000:]}", hint)
    return program


def ns3_version() -> str:
    """The version of Debian's package. Raises MachineError if it is not installed."""
    command = ("dpkg-query", "-W", "-f", "${Version}", PACKAGE)
    try:
        asked = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        asked = None
    if asked is None or asked.returncode or not asked.stdout:
        raise MachineError(f"{PACKAGE} is not installed", f"apt install g++ {PACKAGE}")
    return asked.stdout


def run_ns3(program: Path, problem: Path, seed: int = 1) -> Answer:
    """What ns-3 makes of a written problem. seed: of sprayed packets."""
    command = (str(program), str(problem), str(seed))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return read_answer(done.stdout)


def run_ours(name: str, problem: str, seed: int) -> Row:
    """A case in this process, twice: with the engine loaded from its cache, and the loop alone. It
    is also written as a problem."""
    case = next(case for case in CASES if case.name == name)
    taken = inputs(case, simulation(case, seed))
    of_both = problem_of(*taken)
    write_problem(of_both, Path(problem))
    compile_ahead(Engine.PACKETS, no_progress)
    run_packets(*taken)
    process_s, peak = cpu_s(), peak_bytes()
    ran = run_packets(*taken)
    if ran.drops.sum() or ran.lost or ran.retransmitted.sum():
        raise ValueError("packets were dropped or sent again, which ns-3 does not here")
    return {
        "start_s": (of_both.flows[:, 0] / PS).tolist(),
        "end_s": ran.finish_s.tolist(),
        "transmissions": ran.packet_hops,
        "run_s": cpu_s() - process_s,
        "cpu_s": process_s,
        "peak_bytes": peak,
    }


def measured(case: Case, program: Path) -> Row:
    """A row: both engines in turn, once for each draw."""
    took: dict[str, list[Floats]] = {OURS: [], NS3: []}
    costs: dict[str, list[Row]] = {OURS: [], NS3: []}
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder) / "problem"
        for seed in range(1, 1 + case.draws):
            row = apart(run_ours, case.name, str(problem), seed)
            start_s = np.array(row.pop("start_s"))
            took[OURS].append(np.array(row.pop("end_s")) - start_s)
            answer = asdict(run_ns3(program, problem, seed))
            took[NS3].append(answer.pop("end_s") - start_s)
            costs[OURS].append(row)
            costs[NS3].append(answer)
    one, other = (np.concatenate(took[side]) for side in (OURS, NS3))
    return {
        **asdict(case),
        "hosts": case.hosts,
        "draws": case.draws,
        "flows": len(took[OURS][0]),
        "sides": {side: {**figures_of(np.array(took[side])), **costs[side][0]} for side in took},
        "worst": None if case.spray else float(np.abs(one / other - 1).max()),
        "same": None if case.spray else int((np.abs(one - other) < ALIKE_S).sum()),
    }


def figures_of(seconds: Floats) -> Row:
    """Completion times, draws x flows, in figures, each the mean of those of all draws, and its
    standard error if there are several."""
    quantiles = np.quantile(seconds, [0.5, 0.99], axis=1)
    of_draws = np.array([seconds.mean(axis=1), *quantiles, seconds.max(axis=1)])
    figures: Row = dict(zip(FIGURES, of_draws.mean(axis=1).tolist(), strict=True))
    draws = len(seconds)
    if draws > 1:
        errors = of_draws.std(axis=1, ddof=1) / math.sqrt(draws)
        figures["errors"] = dict(zip(FIGURES, errors.tolist(), strict=True))
    return figures


@contextmanager
def _prepared(_: Sequence[str]) -> Iterator[Measure]:
    with tempfile.TemporaryDirectory() as name:
        program = compile_program(Path(name))
        yield lambda case: measured(case, program)


def environment() -> Row:
    """The machine with both engines. Raises MachineError without ns-3."""
    return {
        **asdict(simulation_environment()),
        "ns3": ns3_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def page_figures(document: Document) -> Row:
    """How far figures are apart at most."""
    rows = document.firsts

    def off(names: Sequence[str]) -> float:
        pairs = (row["sides"] for row in rows if not row["spray"])
        return max(
            (abs(pair[OURS][name] / pair[NS3][name] - 1) for pair in pairs for name in names),
            default=0.0,
        )

    sprayed = [row["sides"] for row in rows if row["spray"]]
    return {
        "names": FIGURES,
        "sides": (OURS, NS3),
        "off": off(FIGURES),
        "off_mean": off(["mean"]),
        "varied": [row for row in rows if row["varied"]],
        "off_sprayed": max(
            (abs(pair[OURS]["mean"] / pair[NS3]["mean"] - 1) for pair in sprayed), default=0.0
        ),
        "errors_sprayed": max((errors_apart(pair) for pair in sprayed), default=0.0),
    }


def errors_apart(pair: Mapping[str, Row]) -> float:
    """The most standard errors by which a figure of both engines differs."""
    one, other = pair[OURS], pair[NS3]
    apart_by = [
        abs(one[name] - other[name]) / math.hypot(one["errors"][name], other["errors"][name])
        for name in FIGURES
    ]
    return float(max(apart_by))


STUDY = Study(
    name="ns3",
    about="the packet engine beside ns-3: permutation, incast and spray on the same paths",
    series=lambda: [Series({case.name: case for case in CASES}, _prepared)],
    figures=page_figures,
    environment=environment,
)
