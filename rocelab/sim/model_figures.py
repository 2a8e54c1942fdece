"""The figures of a job of a large model: where its time goes, its latencies, and its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rocelab.jobs.served import Served
from rocelab.jobs.timeparts import time_parts
from rocelab.jobs.workload import Workload
from rocelab.jobs.workloads import WorkloadRate
from rocelab.results.flowtimes import TimePart
from rocelab.results.simulation import MemoryUse
from rocelab.sim.engine.program import Outcome

if TYPE_CHECKING:
    from rocelab.sim.simulate import Simulation

NS = 1e9


def step_ends_s(simulation: Simulation, outcome: Outcome, number: int) -> list[float]:
    """When each step of a job (`Simulation.stepped`) was over, inf for never."""
    first = sum(len(earlier.steps) for earlier in simulation.workloads[:number])
    last = first + len(simulation.workloads[number].steps)
    tasks = simulation.compiled.first_task[first + 1 : last + 1] - 1
    ends_s: list[float] = outcome.end_s[tasks].tolist()
    in_order = simulation.in_order.get(number)
    if in_order is None:
        return ends_s
    sends_s = np.array(ends_s)[in_order.ordered.step_of]
    begins_s, _ = simulation.iteration_spans(outcome)[number]
    of_steps: list[float] = []
    for begin_s, row_s in zip(begins_s.tolist(), sends_s, strict=False):
        row_ns = (row_s - begin_s) * NS
        of_steps += (in_order.made.step_times(row_ns, row_ns)[1] / NS + begin_s).tolist()
    return of_steps


def parts_of(simulation: Simulation, outcome: Outcome, number: int) -> tuple[TimePart, ...]:
    """The parts of a job's last iteration; none for a collective, a list of flows, or a job that
    never ends."""
    job, workload = simulation.jobs[number], simulation.stepped[number]
    ends_s = step_ends_s(simulation, outcome, number)
    if job.workload is None or not _has_dimensions(workload) or np.isinf(ends_s).any():
        return ()
    place = simulation.place(number, simulation.places[number])
    begin_s = job.start / NS
    parts = time_parts(
        workload.steps,
        ends_s,
        workload.steps[-1].iteration,
        job.workload.computed_s(place),
        begin_s,
    )
    whole_s = sum(parts.values())
    return tuple(TimePart(name, seconds * NS, seconds / whole_s) for name, seconds in parts.items())


def _has_dimensions(workload: Workload) -> bool:
    return any(step.dimension is not None or step.inside for step in workload.steps)


def memory_of(simulation: Simulation, number: int) -> tuple[MemoryUse, ...]:
    """What a job keeps in a GPU's memory; none where it does not say."""
    workload = simulation.jobs[number].workload
    if workload is None:
        return ()
    return tuple(MemoryUse(part.name, round(part.bytes)) for part in workload.kept_memory())


def latencies_of(
    simulation: Simulation, outcome: Outcome, number: int, seconds: Sequence[float]
) -> list[WorkloadRate]:
    """A job's own figures of when its steps were over."""
    job, workload = simulation.jobs[number], simulation.stepped[number]
    if job.workload is None or np.isinf(seconds).any():
        return []
    begins_s, _ = simulation.iteration_spans(outcome)[number]
    ends: list[Mapping[str, float]] = []
    ends_s = step_ends_s(simulation, outcome, number)
    for iteration, begin_s in enumerate(begins_s.tolist()):
        ends.append(
            {
                step.name: end_s - begin_s
                for step, end_s in zip(workload.steps, ends_s, strict=True)
                if step.iteration == iteration
            }
        )
    return job.workload.latencies(ends)


def served_of(simulation: Simulation, outcome: Outcome, number: int) -> Served | None:
    """What the requests of a job feel; None for a job without any."""
    job = simulation.jobs[number]
    if job.workload is None or not job.is_open_loop:
        return None
    over_s = np.array(step_ends_s(simulation, outcome, number)) - job.start / NS
    return job.workload.served(simulation.place(number, simulation.places[number]), over_s)
