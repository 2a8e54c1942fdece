"""`make bench-endpoints`: packets per second of an agent, compared with other senders, and its
pacing.

Uses two labs that differ only in the queues of their switch ports, each with a path of three
switches from server to server. All senders take turns, round after round, so that they see the same
machine; then an agent paces probe flows.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from bench.campaign import command
from bench.campaign.document import Document
from bench.campaign.study import Measure, Series, Study
from bench.pacing import Pacing, pacing
from bench.senders import NEEDED, Sender
from bench.throughput import (
    DESTINATION,
    IN_FLIGHT,
    MEASURED_S,
    PAYLOAD_BYTES,
    SOURCE,
    Throughput,
    measure_agent,
    measure_sender,
    steering,
)
from rocelab import Lab, LabSpec, MachineError, RunningLab, plan
from rocelab.jobs.flow import FIRST_QP, ProbeStream
from rocelab.jobs.sport import FIRST_SPORT
from rocelab.traffic.session import TrafficSession

DILATION = 10
"""A link of 400G is 40 Gb/s here: more than the machine can fill."""

TURNS = 3
QUEUE_PAIRS = (1, 8)
PACED_FLOWS = 50
PACED_RATE_PPS = 1000
PACED_S = 10.0


def lab_of(queues: bool) -> Lab:
    """Two racks of one server under one spine; ports with or without queues."""
    return Lab(
        plan(
            LabSpec.model_validate(
                {
                    "name": "bench-queues" if queues else "bench-bare",
                    "fabric": {"kind": "clos", "racks": 2, "spines": 1, "servers_per_rack": 1},
                    "dilation": DILATION,
                    "queues": {"engine": "bpf" if queues else "off"},
                }
            )
        )
    )


@dataclass(frozen=True, slots=True)
class Condition:
    """What is varied besides the sender."""

    queues: bool
    steered: bool

    @property
    def label(self) -> str:
        queues = "port queues" if self.queues else "no port queues"
        return f"{queues}, steered to a second CPU" if self.steered else queues


CONDITIONS = tuple(
    Condition(queues, steered) for queues in (True, False) for steered in (False, True)
)


@dataclass(frozen=True, slots=True)
class Point:
    """A way of sending under a condition; without one, an agent's pacing of probes."""

    condition: Condition
    way: Sender | int | None
    """A sender, or an agent's number of queue pairs."""

    @property
    def name(self) -> str:
        match self.way:
            case None:
                return f"{self.condition.label}: pacing"
            case Sender():
                return f"{self.condition.label}: {self.way}"
            case count:
                return f"{self.condition.label}: agent, {count} QP"


WAYS: tuple[Sender | int, ...] = (*Sender, *QUEUE_PAIRS)
PACINGS = tuple(Point(Condition(queues, steered=False), None) for queues in (True, False))
POINTS = (*(Point(condition, way) for condition in CONDITIONS for way in WAYS), *PACINGS)


@contextmanager
def _labs(_: Sequence[str]) -> Iterator[Measure]:
    with ExitStack() as stack:
        labs = {
            queues: stack.enter_context(lab_of(queues).brought_up()) for queues in (True, False)
        }
        yield lambda point: asdict(_measured(labs[point.condition.queues], point))


def _measured(lab: RunningLab, point: Point) -> Throughput | Pacing:
    """A turn of a point. Raises MachineError where the sender's program is not installed."""
    if point.way is None:
        return _measure_pacing(lab)
    steered = point.condition.steered
    with steering(lab) if steered else nullcontext():
        if not isinstance(point.way, Sender):
            return measure_agent(lab, point.way, steered=steered)
        program = NEEDED.get(point.way)
        if program is not None and shutil.which(program) is None:
            raise MachineError(f"{program} is not installed")
        return measure_sender(lab, point.way, steered=steered)


def paced_flows() -> list[ProbeStream]:
    """Flows from one agent, each with its own source port and queue pair."""
    return [
        ProbeStream(
            id=index,
            source=SOURCE,
            source_nic=1,
            destination=DESTINATION,
            destination_nic=1,
            sport=FIRST_SPORT + index,
            dest_qp=FIRST_QP + index,
            rate_pps=PACED_RATE_PPS,
            payload_bytes=PAYLOAD_BYTES,
        )
        for index in range(PACED_FLOWS)
    ]


def _measure_pacing(lab: RunningLab) -> Pacing:
    netns_of = {name: lab.node(name).netns for name in (SOURCE, DESTINATION)}
    with TrafficSession(lab.fabric, netns_of.__getitem__, paced_flows()) as session:
        session.start()
        time.sleep(PACED_S)
        return pacing(session.stop())


TARGET_PER_S = 100_000
RATE_ERROR_TARGET = 0.01
KERNEL_PATH = (Sender.UDP_LOOP_IN_C, Sender.FRAME_LOOP_IN_C)
"""Senders that show the kernel's path alone: the faster one counts."""


def rates(document: Document, condition: Condition) -> dict[Sender | int, float]:
    """Packets per second of each way that was measured, by medians."""
    measured = {way: document.samples(Point(condition, way).name) for way in WAYS}
    return {
        way: statistics.median(sample["packets_per_s"] for sample in samples)
        for way, samples in measured.items()
        if samples
    }


def kernel_rate(document: Document, condition: Condition) -> float | None:
    """Packets per second of the faster C loop; None if neither ran."""
    medians = rates(document, condition)
    return max((medians[way] for way in KERNEL_PATH if way in medians), default=None)


def table(document: Document, condition: Condition) -> dict[str, Any]:
    """What the page says of a condition: the samples of each sender or why there are none, the
    median rates of agents, the kernel's, and what went wrong."""
    points = [Point(condition, way) for way in WAYS]
    samples = {point.way: document.samples(point.name) for point in points}
    medians = rates(document, condition)
    return {
        "samples": samples,
        "missing": {point.way: document.missing.get(point.name, "") for point in points},
        "agents": {count: medians[count] for count in QUEUE_PAIRS if count in medians},
        "kernel": kernel_rate(document, condition),
        "troubles": sorted(
            {one["trouble"] for many in samples.values() for one in many if one["trouble"]}
        ),
    }


def figures(document: Document) -> dict[str, Any]:
    """A table of each condition, and the pacing with and without queues."""
    pacing = [document.samples(point.name) for point in PACINGS]
    runs = list(chain.from_iterable(pacing))
    return {
        "tables": {one.label: table(document, one) for one in CONDITIONS},
        "target": TARGET_PER_S,
        "turns": max(map(len, document.measured.values())),
        "payload": PAYLOAD_BYTES,
        "seconds": MEASURED_S,
        "in_flight": IN_FLIGHT,
        "pacing": pacing,
        "worst": max((one["worst_rate_error"] for one in runs), default=0.0),
        "rate_error_target": RATE_ERROR_TARGET,
        "problems": sorted({problem for one in runs for problem in one["problems"]}),
    }


STUDY = Study(
    name="endpoints",
    about="packets per second of an agent beside other senders, and its pacing",
    series=lambda: [Series({point.name: point for point in POINTS}, _labs, TURNS)],
    figures=figures,
)

if __name__ == "__main__":
    command.run(STUDY.name)
