"""How long simulated sends, tasks and iterations take, beside what engines work out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rocelab.base.arrays import NONE, Floats
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.jobs.workload import StepTiming, Workload
from rocelab.routes.arrays.network import Network
from rocelab.sim.compile import Compiled
from rocelab.sim.engine.program import Outcome

HOP_LATENCY_NS = 1000
"""The default of a lab without `links.delay`: what ASTRA-sim's published inputs give a network
dimension; a deep-buffer chassis takes more."""
MOST_LATENCIES = 32
"""Different delays of links that the engine of packets takes."""


def latencies_ns(network: Network, given_ns: float | None) -> Floats:
    """The modelled time that its link adds to each send, 2L: `given_ns`, or the link's delay."""
    if given_ns is not None:
        return np.full(network.sends, given_ns, np.float64)
    delay_ns = network.delay_ns
    return np.where(delay_ns == NONE, HOP_LATENCY_NS, delay_ns).astype(np.float64)


def few_latencies_ns(latency_ns: Floats) -> Floats:
    """The latencies as the engine of packets takes them, which has a table of events for each
    distinct time: beyond MOST_LATENCIES they are rounded to as many, evenly spaced."""
    if len(np.unique(latency_ns)) <= MOST_LATENCIES:
        return latency_ns
    lowest, step = float(latency_ns.min()), np.ptp(latency_ns) / (MOST_LATENCIES - 1)
    rounded: Floats = lowest + np.rint((latency_ns - lowest) / step) * step
    return rounded


def fill_bits(compiled: Compiled, workloads: Sequence[Workload]) -> Floats:
    """The bits that fill each task's pipeline of pieces, T, with as much of headers as its
    transfers have."""
    steps = [step for workload in workloads for step in workload.steps]
    bits = np.zeros(compiled.program.tasks)
    bits[compiled.first_task[1:] - 1] = [
        step.sends.fill_bytes if step.sends else 0 for step in steps
    ]
    task = np.repeat(np.arange(len(bits)), np.diff(compiled.program.first_transfer))
    wire_bits = np.bincount(task, compiled.program.size_bits, len(bits))
    payload = np.bincount(task, compiled.payload_bytes, len(bits))
    filled: Floats = bits * wire_bits / np.maximum(payload, 1)
    return filled


def iteration_spans(
    jobs: Sequence[SimulatedJob],
    workloads: Sequence[Workload],
    compiled: Compiled,
    outcome: Outcome,
) -> list[tuple[Floats, Floats]]:
    """When the iterations of each job begin and end: from the end of the one before, or the
    job's start, or the moment for which its steps wait (`StepTiming.BEFORE`)."""
    spans = []
    for number, (job, workload) in enumerate(zip(jobs, workloads, strict=True)):
        (tasks,) = np.nonzero(compiled.job == number)
        step = compiled.step[tasks]
        iteration = np.array([step.iteration for step in workload.steps], np.int64)[step]
        counts = np.array([step.counts for step in workload.steps])[step]
        ends_s = np.zeros(1 + int(iteration.max(initial=-1)))
        within, before = counts == StepTiming.WITHIN, counts == StepTiming.BEFORE
        np.maximum.at(ends_s, iteration[within], outcome.end_s[tasks[within]])
        begins_s = np.concatenate(([job.start / 1e9], ends_s[:-1]))
        begins_s[iteration[before]] = outcome.end_s[tasks[before]]
        spans.append((begins_s, ends_s))
    return spans


def iteration_seconds(
    jobs: Sequence[SimulatedJob], spans: Sequence[tuple[Floats, Floats]]
) -> list[list[float]]:
    """The duration of each job's iterations, inf for those that never ended, without a
    collective's own pause, as in the lab."""
    rows = []
    for job, (begins_s, ends_s) in zip(jobs, spans, strict=True):
        pause_s = 0.0 if job.collective is None else job.collective.compute / 1e9
        pauses_s = np.where(np.arange(len(ends_s)) > 0, pause_s, 0.0)
        with np.errstate(invalid="ignore"):
            times = ends_s - begins_s - pauses_s
        rows.append(np.where(np.isfinite(ends_s), times, np.inf).tolist())
    return rows
