"""Simulates jobs that are in several networks of a lab: each network by itself, as nothing that one
sends meets the other's.

`simulations` makes a `Simulation` of each network, with its jobs and the events of its links;
`simulate_networks` runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rocelab.base.errors import SpecError
from rocelab.base.progress import ProgressSink, no_progress
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import SimulatedJob, collective_job
from rocelab.labfile.model import LabSpec
from rocelab.results.simulation import SimulationReport
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.network import Network
from rocelab.sim.events.event_spec import TimelineSpec
from rocelab.sim.events.timeline import resolve
from rocelab.sim.options import Options
from rocelab.sim.simulate import Simulation


def simulations(
    spec: LabSpec,
    jobs: Sequence[SimulatedJob],
    options: Options | None = None,
    progress: ProgressSink = no_progress,
) -> dict[str | None, Simulation]:
    """A simulation of each network that jobs are in, by its name in the order of the jobs; of a lab
    with one network that one. Raises as `Simulation` does, and SpecError for an event whose target
    no such network has."""
    options = options or Options()
    named: dict[int, str | None] = {}
    for job in jobs:
        named.setdefault(id(spec.network(job.network)), job.network)
    if len(named) < 2:
        return {None: Simulation(spec, jobs, options, progress)}
    of_network = {
        name: [job for job in jobs if id(spec.network(job.network)) == part]
        for part, name in named.items()
    }
    timelines = _by_network(
        {name: network_of(spec.network(name)) for name in of_network}, options.timeline
    )
    return {
        _name(spec, name): Simulation(
            spec, listed, replace(options, timeline=timelines[name]), progress
        )
        for name, listed in of_network.items()
    }


def simulate_networks(
    spec: LabSpec,
    jobs: Sequence[SimulatedJob | JobSpec],
    options: Options | None = None,
    progress: ProgressSink = no_progress,
) -> dict[str | None, SimulationReport]:
    """The report of each network that jobs are in, as `rocelab.sim.simulate.simulate` has it."""
    simulated = [collective_job(job) if isinstance(job, JobSpec) else job for job in jobs]
    made = simulations(spec, simulated, options, progress)
    return {name: simulation.report() for name, simulation in made.items()}


def _name(spec: LabSpec, name: str | None) -> str | None:
    """The name of a job's network, also where the job leaves it out."""
    place = getattr(spec.network(name), "place", None)
    return name if place is None else place.network


def _by_network(
    networks: dict[str | None, Network], timeline: TimelineSpec
) -> dict[str | None, TimelineSpec]:
    """The timeline of each network: with those events whose targets it has."""
    events: dict[str | None, list[int]] = {name: [] for name in networks}
    for number, event in enumerate(timeline.events):
        alone = timeline.model_copy(update={"events": (event,)})
        unknown: SpecError | None = None
        for name, network in networks.items():
            try:
                resolve(network, alone)
            except SpecError as error:
                unknown = unknown or error
            else:
                events[name].append(number)
        if unknown is not None and not any(number in of for of in events.values()):
            raise unknown
    return {
        name: timeline.model_copy(
            update={"events": tuple(timeline.events[number] for number in numbers)}
        )
        for name, numbers in events.items()
    }
