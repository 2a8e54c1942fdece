"""What a simulation takes for granted of servers, and of rings in the steps of models, as warnings.

`rocelab.sim.warnings` has the other rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocelab.base.quantities import whole_share
from rocelab.base.wording import listed
from rocelab.jobs.gpus import GPUS
from rocelab.sim.rings import MOST_ERROR, most_error

if TYPE_CHECKING:
    from rocelab.sim.simulate import Simulation


def other_gpus(simulation: Simulation) -> Iterator[str]:
    """Jobs that compute on other GPUs than their servers have."""
    model = simulation.host_model
    if model is None:
        return
    named = set(re.findall("[a-z0-9]+", f"{model.name} {model.title}".lower())) & GPUS.keys()
    for job in simulation.jobs:
        gpu = getattr(job.workload, "gpu", None)
        if gpu is not None and named and gpu not in named:
            yield (
                f"{job.name}: it computes on {gpu}, and servers {model.name} have "
                f"{listed(sorted(named), 'and')}: NVLink, NICs and latencies are those of the "
                "servers; a host_model of your own can have other values"
            )


def rings_of_steps(simulation: Simulation) -> Iterator[str]:
    """Jobs of several kinds of steps, some of whose merged rings may be off even alone."""
    compiled = simulation.compiled
    for number, job in enumerate(simulation.jobs):
        if job.collective is not None or simulation.workloads[number].ordered:
            continue
        steps = {
            step.name: index
            for index, step in reversed(list(enumerate(simulation.workloads[number].steps)))
            if step.sends is not None and step.sends.tokens
        }
        errors = {
            name: most_error(
                simulation.program,
                simulation.flows,
                simulation.whole_paths,
                simulation.capacity_bps,
                (compiled.job == number) & (compiled.step == index),
            )
            for name, index in steps.items()
        }
        name = max(errors, key=errors.__getitem__, default="")
        if name and errors[name] > MOST_ERROR:
            yield (
                f"{job.name}: rings of its steps are merged, not simulated send by send: those of "
                f'"{name}" take up to {whole_share(errors[name])} more or less time, as their '
                "chunks wait for latency and for links alike"
            )
