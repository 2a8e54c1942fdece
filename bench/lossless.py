"""Measures what lossless classes (PFC) cost and what they give: the same jobs with and without.

Part of `make bench`, and `python -m bench.lossless` alone. Twelve NICs, five switches with 24
ports, and larger fabrics with as much for the machine to carry. Without PFC as much memory, divided
among the ports, drops what does not fit. Runs of both take turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from bench.campaign import command
from bench.campaign.document import Document
from bench.campaign.guard import busy_s
from bench.campaign.pages import spread
from bench.campaign.study import Measure, Series, Study
from rocelab import JobReport, JobSpec, Lab, LabSpec, RunningLab, plan, run_job
from rocelab.agent.nic import WIRE_OVERHEAD_BYTES
from rocelab.base import quantities
from rocelab.jobs.performance import FRAME_OVERHEAD_BYTES

SERVER_RATE_BPS = 100e9
MEMORY = "400KB"
"""For each port: pooled by its switch, headroom included, or without PFC a buffer of its own."""

TURNS, FEW_TURNS = 10, 3
"""Of the streams; of the AlltoAll, which takes longer, and at lower dilations."""

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
        "in_flight": 1,
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


@dataclass(frozen=True, slots=True)
class Setting:
    """A case with or without PFC, at a dilation."""

    case: Case
    kind: str
    dilation: int = DILATION


def series() -> list[Series]:
    """Both jobs with and without PFC in turn; then the streams at lower dilations, on larger
    fabrics, and both jobs beside other load."""
    cases = {STREAMS: TURNS, ALLTOALL: FEW_TURNS}
    both = [
        Series({f"{case.name}, {kind}": Setting(case, kind) for kind in QUEUES}, _labs, turns)
        for case, turns in cases.items()
    ]
    further = [Setting(STREAMS, ON, dilation) for dilation in FASTER]
    further += [Setting(streams(racks), ON, 2 * DILATION * racks // RACKS) for racks in LARGER]
    alone = [
        Series({f"{one.case.name}, {ON}, dilation {one.dilation}": one}, _labs, FEW_TURNS)
        for one in further
    ]
    busy = [
        Series(
            {f"{case.name}, {ON}, beside a busy process for each CPU": Setting(case, ON)},
            _labs_beside_load,
            turns,
        )
        for case, turns in cases.items()
    ]
    return [*both, *alone, *busy]


@contextmanager
def _labs(_: Sequence[str]) -> Iterator[Measure]:
    """Labs stay up from their first turn to the last one."""
    with ExitStack() as labs:
        up = cache(lambda setting: labs.enter_context(_up(setting)))
        yield lambda setting: asdict(measure(up(setting), setting.case))


@contextmanager
def _labs_beside_load(names: Sequence[str]) -> Iterator[Measure]:
    with _labs(names) as measured:

        def beside(setting: Setting) -> Any:  # noqa: ANN401
            with _busy():
                return measured(setting)

        yield beside


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
def _up(setting: Setting) -> Iterator[RunningLab]:
    with Lab(plan(spec_of(setting.case, setting.kind, setting.dilation))).brought_up() as lab:
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
    packets, payload_gbs = report.roce.data_packets, _median(report, "goodput")
    most_gbs = case.most_bps / quantities.BPS_PER_GBS
    lossless = report.lossless
    pauses = None if lossless is None else lossless.transitions
    return Measured(
        problems=report.problems,
        goodput=None if payload_gbs is None else payload_gbs / most_gbs,
        jct_ratio=_median(report, "jct_ratio"),
        packets_per_s=packets / report.fidelity.elapsed_s,
        cpu_us=(busy_s() - before_s) * 1e6 / packets,
        retransmitted=report.roce.retransmitted,
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


COLUMNS: Sequence[tuple[str, str, str]] = (
    ("goodput of line rate", "goodput", ".1%"),
    ("JCT ratio", "jct_ratio", ".2f"),
    ("data packets/s", "packets_per_s", ",.0f"),
    ("CPU of the machine a packet, us", "cpu_us", ".0f"),
    ("sent again", "retransmitted", ",.0f"),
    ("pauses", "pauses", ",.0f"),
    ("late p50, us", "late_p50_us", ",.0f"),
    ("late p99, us", "late_p99_us", ",.0f"),
)


def figures(document: Document) -> dict[str, Any]:
    """The rows, each with its name."""
    return {
        "dilation": DILATION,
        "headings": ["valid", *(name for name, *_ in COLUMNS)],
        "rows": [[name, *_cells(samples)] for name, samples in document.measured.items()],
    }


def _cells(samples: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    valid = sum(not sample["problems"] for sample in samples)
    yield f"{valid} of {len(samples)}"
    for _, key, form in COLUMNS:
        known = [sample[key] for sample in samples if sample[key] is not None]
        yield spread(known, form) if known else ""


STUDY = Study(
    name="lossless",
    about="what lossless classes (PFC) cost and what they give",
    series=series,
    figures=figures,
)

if __name__ == "__main__":
    command.run(STUDY.name)
