"""`make bench-endpoints`: packets per second of an agent, compared with other senders, and its
pacing.

Uses two labs that differ only in the queues of their switch ports, each with a path of three
switches from server to server. All senders take turns, round after round, so that they see the same
machine; then an agent paces probe flows. Writes bench/endpoints.json and bench/endpoints.md.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from bench.endpoints_results import (
    CONDITIONS,
    Condition,
    Measured,
    markdown,
    write_results,
)
from bench.pacing import Pacing, pacing
from bench.senders import NEEDED, Sender
from bench.throughput import (
    DESTINATION,
    PAYLOAD_BYTES,
    SOURCE,
    Throughput,
    measure_agent,
    measure_sender,
    steering,
)
from rocelab import Lab, LabSpec, RunningLab, plan
from rocelab.base.interruption import ending
from rocelab.jobs.flow import FIRST_QP, ProbeStream
from rocelab.jobs.sport import FIRST_SPORT
from rocelab.observe.environment import read_environment
from rocelab.traffic.session import TrafficSession

DILATION = 10
"""A link of 400G is 40 Gb/s here: more than the machine can fill."""

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


def main(
    rounds: Annotated[int, typer.Option(min=1, help="times that every sender has its turn")] = 3,
) -> None:
    """Measure all senders and the pacing of probes; write bench/endpoints.{json,md}."""
    console = Console(stderr=True)
    measured: list[Measured] = []
    paced: dict[bool, list[Pacing]] = {True: [], False: []}
    environment, load_before = read_environment(), os.getloadavg()
    with ExitStack() as stack:
        labs = {
            queues: stack.enter_context(lab_of(queues).brought_up()) for queues in (True, False)
        }
        for round_ in range(1, rounds + 1):
            for condition in CONDITIONS:
                console.print(f"round {round_} of {rounds}, {condition.label}")
                measured += _measure_all(labs[condition.queues], condition)
            for queues, lab in labs.items():
                paced[queues].append(_measure_pacing(lab))
    write_results(environment, (load_before, os.getloadavg()), rounds, measured, paced)
    print(markdown(measured, paced))


def _measure_all(lab: RunningLab, condition: Condition) -> list[Measured]:
    steered = condition.steered
    ways: Mapping[str, Callable[[], Throughput]] = {
        **{
            sender.value: partial(measure_sender, lab, sender, steered=steered) for sender in Sender
        },
        **{
            f"agent, {count} QP": partial(measure_agent, lab, count, steered=steered)
            for count in QUEUE_PAIRS
        },
    }
    taken = []
    with steering(lab) if steered else nullcontext():
        for name, measure in ways.items():
            program = NEEDED.get(Sender(name)) if name in list(Sender) else None
            if program is not None and shutil.which(program) is None:
                taken.append(Measured(name, condition, None, f"{program} is not installed"))
            else:
                taken.append(Measured(name, condition, measure()))
    return taken


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


if __name__ == "__main__":
    with ending():
        typer.run(main)
