"""Measures what lossless classes (PFC) cost and what they give: the same jobs with and without.

Part of `make bench`, and `python -m bench.lossless` alone. Twelve NICs, five switches with 24
ports, and larger fabrics with as much for the machine to carry. Without PFC as much memory, divided
among the ports, drops what does not fit. Runs of both take turns. Writes bench/lossless.json and
bench/lossless.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

from bench.fabrics import busy_s, spread
from bench.written import write
from rocelab import JobReport, JobSpec, Lab, LabSpec, RunningLab, plan, run_job
from rocelab.agent.nic import WIRE_OVERHEAD_BYTES
from rocelab.base.interruption import ending
from rocelab.jobs.performance import FRAME_OVERHEAD_BYTES
from rocelab.observe.environment import read_environment

SERVER_RATE_BPS = 100e9
MEMORY = "400KB"
"""For each port: pooled by its switch, headroom included, or without PFC a buffer of its own."""

DILATION = 2500
FASTER = (1500, 1000, 750, 500)
"""Further dilations: the machine carries rates that much higher."""

RACKS, SERVERS_PER_RACK = 2, 6
LARGER = (4, 8, 16)
"""Racks of further fabrics, at twice the dilation that gives as many packets a second: agents that
wake for every packet take more of the CPU for each."""

QUIET = {"dcqcn": "off", "ecn": "not-ect"}
ON = "with PFC"
QUEUES: dict[str, dict[str, Any]] = {
    ON: {"pfc": {"xoff": "100KB", "xon_offset": "5KB", "memory": MEMORY}},
    "without": {"buffer": MEMORY},
}


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A job, and the rate of links between switches (servers have 100G)."""

    name: str
    rate: str
    job: dict[str, Any]
    racks: int = RACKS

    @property
    def most_bps(self) -> float:
        """The payload that the NICs of all ranks can send."""
        spec = JobSpec.model_validate(self.job)
        mtu = spec.transport.mtu
        share = mtu / (mtu + FRAME_OVERHEAD_BYTES + WIRE_OVERHEAD_BYTES)
        return spec.ranks * SERVER_RATE_BPS * share


def streams(racks: int) -> Case:
    """Each NIC sends to one other, and no two to the same."""
    senders = racks * SERVERS_PER_RACK
    job = {
        "pattern": "permutation",
        "ranks": senders,
        "duration": "2ms",
        "transport": {**QUIET, "qps": 4},
    }
    return Case(f"{senders} senders at line rate, none paused", "400G", job, racks)


STREAMS = streams(RACKS)
ALLTOALL = Case(
    "AlltoAll of 12 ranks, 20 MB, three times",
    "100G",
    {
        "pattern": "alltoall",
        "ranks": 12,
        "size": "20MB",
        "iterations": 2,
        "warmup_iterations": 1,
        "transport": {**QUIET, "qps": 4},
    },
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: `problems` say why it is not valid. goodput: of the rate of the NICs that sent, None
    of a collective. packets_per_s: data packets in the lab's clock. cpu_us: of the whole machine
    for one of them. late_p50_us, late_p99_us: of pauses, None without any."""

    problems: tuple[str, ...]
    goodput: float | None
    jct_ratio: float | None
    packets_per_s: float
    cpu_us: float
    retransmitted: int
    pauses: int | None
    late_p50_us: float | None
    late_p99_us: float | None


def main(
    runs: Annotated[int, typer.Option(min=1, help="of the streams, with and without in turn")] = 10,
    few: Annotated[
        int, typer.Option(min=1, help="of the AlltoAll, which takes longer, and at lower dilations")
    ] = 3,
) -> None:
    """Measure both jobs, then the streams at lower dilations, on larger fabrics and beside other
    load."""
    console = Console(stderr=True)
    by_case: dict[str, list[Measured]] = {}
    cases = {STREAMS: runs, ALLTOALL: few}
    for case, count in cases.items():
        with ExitStack() as labs:
            both = {kind: labs.enter_context(_up(case, kind, DILATION)) for kind in QUEUES}
            for run in range(1, count + 1):
                for kind, lab in both.items():
                    console.print(f"{case.name}, {kind}: run {run} of {count}")
                    by_case.setdefault(f"{case.name}, {kind}", []).append(measure(lab, case))
    for dilation in FASTER:
        name = f"{STREAMS.name}, {ON}, dilation {dilation}"
        with _up(STREAMS, ON, dilation) as lab:
            console.print(name)
            by_case[name] = [measure(lab, STREAMS) for _ in range(few)]
    for racks in LARGER:
        case, dilation = streams(racks), 2 * DILATION * racks // RACKS
        name = f"{case.name}, {ON}, dilation {dilation}"
        with _up(case, ON, dilation) as lab:
            console.print(name)
            by_case[name] = [measure(lab, case) for _ in range(few)]
    for case, count in cases.items():
        name = f"{case.name}, {ON}, beside a busy process for each CPU"
        with _up(case, ON, DILATION) as lab, _busy():
            console.print(name)
            by_case[name] = [measure(lab, case) for _ in range(count)]
    _write(by_case)


def spec_of(case: Case, kind: str, dilation: int = DILATION) -> LabSpec:
    """The lab of a case, with or without lossless classes."""
    spec = {
        "name": f"bench-{'pfc' if kind == ON else 'drop'}",
        "fabric": {
            "kind": "clos",
            "racks": case.racks,
            "spines": 3,
            "servers_per_rack": SERVERS_PER_RACK,
        },
        "links": {"rate": case.rate, "server_rate": "100G"},
        "dilation": dilation,
        # Marks would slow senders down: none here.
        "queues": {"ecn": {"kmin": "40MB", "kmax": "60MB"}, **QUEUES[kind]},
    }
    return LabSpec.model_validate(spec)


@contextmanager
def _up(case: Case, kind: str, dilation: int) -> Iterator[RunningLab]:
    with Lab(plan(spec_of(case, kind, dilation))).brought_up() as lab:
        yield lab


@contextmanager
def _busy() -> Iterator[None]:
    loop = [sys.executable, "-c", "while True: pass"]
    with ExitStack() as ended:
        for _ in range(os.cpu_count() or 1):
            process = ended.enter_context(subprocess.Popen(loop))
            ended.callback(process.kill)
        yield


def measure(lab: RunningLab, case: Case) -> Measured:
    """Run a case's job once."""
    before_s = busy_s()
    report = run_job(lab, JobSpec.model_validate(case.job))
    packets, payload_bps = report.transport.data_packets, _median(report, "goodput")
    lossless = report.lossless
    pauses = None if lossless is None else lossless.transitions
    return Measured(
        problems=report.problems,
        goodput=None if payload_bps is None else payload_bps / case.most_bps,
        jct_ratio=_median(report, "jct_ratio"),
        packets_per_s=packets / report.fidelity.elapsed_s,
        cpu_us=(busy_s() - before_s) * 1e6 / packets,
        retransmitted=report.transport.retransmitted,
        pauses=pauses,
        late_p50_us=_us(None if lossless is None else lossless.late_p50_ns),
        late_p99_us=_us(None if lossless is None else lossless.late_p99_ns),
    )


def _median(report: JobReport, name: str) -> float | None:
    try:
        return report.headline(name).modelled.median
    except KeyError:
        return None


def _us(time_ns: float | None) -> float | None:
    return None if time_ns is None else time_ns / 1000


COLUMNS: Sequence[tuple[str, Callable[[Sequence[Measured]], str]]] = (
    ("valid", lambda runs: f"{_valid(runs)} of {len(runs)}"),
    ("goodput of line rate", lambda runs: _cell(runs, "goodput", ".1%")),
    ("JCT ratio", lambda runs: _cell(runs, "jct_ratio", ".2f")),
    ("data packets/s", lambda runs: _cell(runs, "packets_per_s", ",.0f")),
    ("CPU of the machine a packet, us", lambda runs: _cell(runs, "cpu_us", ".0f")),
    ("sent again", lambda runs: _cell(runs, "retransmitted", ",.0f")),
    ("pauses", lambda runs: _cell(runs, "pauses", ",.0f")),
    ("late p50, us", lambda runs: _cell(runs, "late_p50_us", ",.0f")),
    ("late p99, us", lambda runs: _cell(runs, "late_p99_us", ",.0f")),
)


def _valid(runs: Sequence[Measured]) -> int:
    return sum(not run.problems for run in runs)


def _cell(runs: Sequence[Measured], name: str, form: str) -> str:
    values = [getattr(run, name) for run in runs]
    known = [value for value in values if value is not None]
    return spread(known, form) if known else ""


def _write(by_case: dict[str, list[Measured]]) -> None:
    environment = asdict(read_environment())
    document = {
        "environment": environment,
        "load_average": os.getloadavg(),
        "runs": {name: [asdict(run) for run in runs] for name, runs in by_case.items()},
    }
    lines = ["# Lossless classes, measured by `make bench`", ""]
    lines += [f"Measured {time.strftime('%Y-%m-%d')} on:", ""]
    lines += [f"- {key.replace('_', ' ')}: {value}" for key, value in environment.items() if value]
    lines += ["", f"Dilation {DILATION} where no other is said. Median (min to max) of all runs:"]
    lines += ["", "| | " + " | ".join(name for name, _ in COLUMNS) + " |"]
    lines += ["|---" * (len(COLUMNS) + 1) + "|"]
    for name, runs in by_case.items():
        lines.append("| " + " | ".join([name, *(cell(runs) for _, cell in COLUMNS)]) + " |")
    write("lossless", document, "\n".join(lines) + "\n")


if __name__ == "__main__":
    with ending():
        typer.run(main)
