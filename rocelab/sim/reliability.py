"""What failures cost jobs: one event, or weeks of them, in whole simulations of each state that a
fabric is in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rocelab.base.arrays import Bools, Floats
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.labfile.model import LabSpec
from rocelab.results.whatif import Outlook, WhatIf
from rocelab.sim.events.event_spec import EventSpec, RatesSpec, RestartSpec, TimelineSpec
from rocelab.sim.events.expectation import expected_cost
from rocelab.sim.events.longrun import Break, run_through
from rocelab.sim.events.outlook import outlook
from rocelab.sim.events.rates import PRESETS, draw_breaks, drawn_in_words, timeline_of
from rocelab.sim.events.timeline import outage_of, resolve
from rocelab.sim.events.whatif import what_if
from rocelab.sim.options import Options
from rocelab.sim.simulate import Simulation
from rocelab.sim.warnings import losses_in_words, outcome_warnings, setup_warnings

LEAST_EFFECTIVE = 0.1
"""Network failures are drawn for a job that makes progress in at least this share of the time: a
slower job meets none at its end."""


def event_cost(
    spec: LabSpec,
    jobs: Sequence[SimulatedJob],
    event: EventSpec,
    options: Options | None = None,
    progress: ProgressSink = no_progress,
) -> WhatIf:
    """What an event costs each of the jobs that run on a fabric: `rocelab.sim.events.whatif`.

    Raises as `rocelab.sim.simulate.simulate`, and InputError if a job makes no progress even
    without the event.
    """
    simulation = Simulation(spec, jobs, options, progress)
    timeline, states = simulation.options.timeline, _States(simulation)
    cost = what_if(
        simulation.network,
        outage_of(simulation.network, event, timeline.reaction),
        states.times,
        {
            job.name: workload.ranks
            for job, workload in zip(simulation.jobs, simulation.workloads, strict=True)
        },
        simulation.retransmissions,
        timeline.restart,
    )
    lost = losses_in_words(simulation, timeline.model_copy(update={"events": (event,)}))
    return replace(cost, warnings=(*states.warnings, *lost), hosts=simulation.hosts_in_words)


class _States:
    """Iteration times by states of the network, and the warnings of the first, which is whole."""

    def __init__(self, simulation: Simulation) -> None:
        self.warnings: tuple[str, ...] = ()
        self.known: dict[tuple[bytes, bytes], Mapping[str, float]] = {}
        self._simulation = simulation

    def times(self, link_up: Bools, capacity_bps: Floats) -> Mapping[str, float]:
        """As `Simulation.iteration_times`; each state is computed once."""
        key = link_up.tobytes(), capacity_bps.tobytes()
        if key not in self.known:
            outcome = self._simulation.outcome_in(link_up, capacity_bps)
            if not self.known:
                first = outcome_warnings(self._simulation, outcome)
                self.warnings = (*setup_warnings(self._simulation), *first)
            self.known[key] = self._simulation.last_iterations(outcome)
        return self.known[key]


def long_run(
    spec: LabSpec,
    jobs: Sequence[SimulatedJob],
    failures: TimelineSpec | RatesSpec,
    work_s: float,
    options: Options | None = None,
    progress: ProgressSink = no_progress,
    restart: RestartSpec | None = None,
) -> Outlook:
    """Run jobs by iterations through a timeline, or through failures drawn at rates: each runs as
    many iterations as take `work_s` without failures (`rocelab.sim.events.longrun`).

    At rates jobs also break by themselves, and failures of the network are drawn for 1.5 times the
    expected duration. `restart` replaces the timeline's or the preset's. Raises as `event_cost`.
    """
    simulation = Simulation(spec, jobs, options, progress)
    network = simulation.network
    gpus = {
        job.name: workload.ranks
        for job, workload in zip(simulation.jobs, simulation.workloads, strict=True)
    }
    breaks_per_s = dict.fromkeys(gpus, 0.0)
    breaks: dict[str, Iterator[Break]] = {}
    if isinstance(failures, RatesSpec):
        rates = PRESETS[failures.preset]
        source, policy = rates.source, restart or rates.restart
        breaks_per_s = {name: rates.own_breaks_per_s(count) for name, count in gpus.items()}
        slowest = min(expected_cost(rate, policy).effective for rate in breaks_per_s.values())
        timeline = timeline_of(network, failures, 1.5 * work_s / max(slowest, LEAST_EFFECTIVE))
        breaks = {
            name: draw_breaks(rates, count, failures.seed, number)
            for number, (name, count) in enumerate(gpus.items())
        }
    else:
        source, timeline = "a timeline", failures
    timeline = timeline.model_copy(update={"restart": restart or timeline.restart})
    outages = resolve(network, timeline)
    states = _States(simulation)

    def times(link_up: Bools, capacity_bps: Floats) -> Mapping[str, float]:
        product = states.times(link_up, capacity_bps)
        progress(Progress("states", len(states.known), 2 * len(outages) + 1))
        return product

    healthy = times(np.ones(network.links, np.bool_), network.capacity_bps)
    iterations = {
        name: max(1, round(work_s / seconds)) if np.isfinite(seconds) else 1
        for name, seconds in healthy.items()
    }
    histories = run_through(
        network,
        outages,
        times,
        iterations,
        simulation.retransmissions_in(timeline),
        timeline.restart,
        breaks,
    )
    drawn = drawn_in_words(failures.preset, outages) if isinstance(failures, RatesSpec) else ""
    history = outlook(
        spec.name,
        source,
        drawn,
        timeline.restart,
        outages,
        histories,
        gpus,
        iterations,
        breaks_per_s,
    )
    lost = losses_in_words(simulation, timeline)
    return replace(history, warnings=(*states.warnings, *lost), hosts=simulation.hosts_in_words)
