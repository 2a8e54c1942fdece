"""Probe flows on a running lab during faults: the run behind every convergence figure.

    with FaultedRun(lab, flows, settings, fib, faults) as run:
        run.carry_out(wait)
        measured = run.finish()

`finish` returns the measured `ProbeRun`. Drills carry out a plan of faults; tests inject and
restore faults through `run.injector`; the faults of others are known to a `ChangeWatch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rocelab.base.errors import InputError, MachineError
from rocelab.base.outputs import OutputPlace
from rocelab.faults.base import Timed
from rocelab.faults.changewatch import ChangeWatch
from rocelab.faults.injector import InjectedChange, Injector
from rocelab.faults.record import read_faults
from rocelab.faults.timetable import Prepared, carry_out, events_of, prepare_first
from rocelab.jobs.flow import ProbeStream, resolve_flow
from rocelab.jobs.placement import find_nic
from rocelab.lab import settings as kernel
from rocelab.lab.convergence import convergence_timeout_s
from rocelab.lab.lab import RunningLab
from rocelab.linux.closing import Holding
from rocelab.linux.fibtable import Fib
from rocelab.linux.linkwatch import LinkEvent
from rocelab.observe.health.health_spec import HealthSpec
from rocelab.observe.processes import ProcessWatch
from rocelab.observe.stages.measure import FlowRecovery
from rocelab.observe.timeline import FibTimeline
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles
from rocelab.results import probes as results
from rocelab.results.convergence import FlowConvergence, FlowSamples, MeasurementMethod
from rocelab.results.probes import Event, HashingRun, ProbeRun, Timeline, probe_run
from rocelab.routes.path import Path, walk
from rocelab.runs.effects import late_carriers, late_losses, link_events
from rocelab.runs.fidelity import judged, stolen_cpu_s
from rocelab.runs.observers import EventEffects, Observers
from rocelab.traffic.result import FlowTransmission
from rocelab.traffic.session import TrafficSession
from rocelab.wire.headers import ROCE_PORT


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """How a run is measured."""

    method: MeasurementMethod
    warmup_ns: int
    """Traffic before time 0."""

    event_window_ns: int
    """How long after an event losses count towards it."""

    stages: bool = False
    """Whether every daemon traces."""

    health: HealthSpec | None = None
    """With it the lab's SLIs are watched."""

    evidence: OutputPlace | None = None
    """The folder for bundles."""


class FaultedRun(Holding):
    """Flows of a running lab from `__enter__` to `finish`, and every fault in between.

    `zero_ns` is time 0, CLOCK_REALTIME: counted traffic begins there, after the warm-up. Once it is
    finished, `measured_from_ns` is the instant from which the times of the `ProbeRun` count.
    """

    def __init__(
        self,
        lab: RunningLab,
        flows: Sequence[ProbeStream],
        settings: ProbeSettings,
        fib: FibTimeline,
        faults: Sequence[Timed] = (),
        fabric: Fabric | None = None,
        by_hand: ChangeWatch | None = None,
    ) -> None:
        """Only plans the run. `fib` is already recording the lab's tables; `faults` are for
        `carry_out`; `fabric` has the hash seeds and the scheme of the switches if they are not the
        lab's own; `by_hand` knows the faults of others. Raises InputError if a flow does not fit
        the lab."""
        self._lab = lab
        self._by_hand = by_hand
        self._fabric = fabric or lab.fabric.network()
        self._settings = settings
        self._fib = fib
        self._flows = tuple(flows)
        self._faults = tuple(faults)
        self._prepared: Prepared = {}
        self._session = TrafficSession(
            self._fabric,
            lambda name: lab.node(name).netns,
            flows,
            is_watched=by_hand is not None,
        )
        self._problems: tuple[str, ...] = ()
        self._stolen_s = 0.0
        self._observers = Observers(
            lab, stages=settings.stages, health=settings.health, evidence=settings.evidence
        )
        self._paths: dict[int, Path] = {}
        self._link_events: Sequence[LinkEvent] = ()
        self.injector = Injector(lab)
        self.start_ns = 0
        self.zero_ns = 0
        self.measured_from_ns = 0

    def _enter(self, stack: ExitStack) -> None:
        self._paths = dict(_paths(self._fabric, self._flows, self._fib.read()))
        self._link_events = stack.enter_context(link_events(self._lab))
        stack.enter_context(self._observers)
        stack.enter_context(self._session)
        stack.enter_context(self.injector)
        # Before the traffic, because its CPU time would make senders late.
        self._prepared = prepare_first(self.injector, self._faults)
        self._processes = ProcessWatch(self._lab.network(self._fabric.network_name))
        self._stolen_s = stolen_cpu_s()
        self.start_ns = self._session.start()
        self.zero_ns = self.start_ns + self._settings.warmup_ns

    def carry_out(self, wait: Callable[[int], None]) -> None:
        """Begin and end every fault at its time after time 0; `wait` sleeps until an instant."""
        self._problems += carry_out(self.injector, self._faults, self.zero_ns, wait, self._prepared)

    def wait(self, seconds: float) -> None:
        """Let the flows go on for so long. Raises MachineError as soon as an agent has ended."""
        self._session.wait(seconds)

    def finish(self, hashing: Sequence[HashingRun] = (), problems: Sequence[str] = ()) -> ProbeRun:
        """End the traffic, restore remaining faults, and measure.

        `hashing` and `problems` are added to the result. While a fault of others lasts, tables are
        not awaited. Raises ExpectationError if a fault cannot be undone or the tables are not
        complete again in time, MachineError if flows were hardly sent at all.
        """
        end_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        events = events_of(self._happened(end_ns), self._settings.method.sustained_ns)
        traffic = self._session.stop()
        unsupported = self._processes.figures().problems
        stolen_s = stolen_cpu_s() - self._stolen_s
        self._observers.collect_evidence()
        self.injector.restore_all()
        if not self._stays_broken():
            self._fib.wait_until_whole(convergence_timeout_s(self._fabric))
        fib_end_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        foreign = kernel.problems(self._fabric, self._lab.runtime.files)
        # Watching and tracing end here, so that their figures can be read.
        self._cleanup.close()
        timeline = Timeline(events, self.zero_ns, end_ns, self._settings.event_window_ns)
        self.measured_from_ns = timeline.zero_ns
        samples = {self._named(one.flow): counted_samples(one, timeline) for one in traffic.flows}
        check_sent(samples)
        lost = self._fib.overflowed()
        gaps = (f"not valid because FIB events of {', '.join(lost)} were lost",) if lost else ()
        changes = self._fib.changes(self.start_ns, fib_end_ns)
        run = probe_run(
            samples,
            timeline,
            self._settings.method,
            fib=changes,
            hashing=hashing,
            problems=(
                *problems,
                *traffic.problems,
                *self._problems,
                *self.injector.unseen,
                *gaps,
                *self._observers.problems,
                *unsupported,
                *foreign,
            ),
        )
        felt = partial(self._event_effects, run, timeline)
        run = replace(
            run,
            problems=(*run.problems, *self._late_effects(run, timeline)),
            flows=tuple(
                replace(record, path=self._links_of(flow))
                for flow, record in zip(self._flows, run.flows, strict=True)
            ),
            stages=self._observers.stages(timeline.events, timeline.end_ns, changes, felt),
            health=self._observers.health,
        )
        return judged(run, samples, timeline, traffic, stolen_s)

    def _stays_broken(self) -> bool:
        return self._by_hand is not None and bool(read_faults(LabFiles(self._lab.name)))

    def _happened(self, end_ns: int) -> tuple[InjectedChange, ...]:
        """The changes in the counted time, of others too."""
        of_others = () if self._by_hand is None else self._by_hand.changes()
        return (
            *self.injector.happened(),
            *(change for change in of_others if self.zero_ns <= change.t_ns < end_ns),
        )

    def _late_effects(self, run: ProbeRun, timeline: Timeline) -> tuple[str, ...]:
        """Faults whose first effect does not fit their time stamp."""
        changes, zero_ns = self._happened(timeline.end_ns), timeline.zero_ns
        if not changes:
            return ()
        resolution_ns = run.overall.resolution_ns
        first = min(changes, key=lambda change: change.t_ns)
        measured = {
            flow.id: record.measurement for flow, record in zip(self._flows, run.flows, strict=True)
        }
        return (
            *late_carriers(self._lab.fabric, changes, self._link_events, resolution_ns),
            *late_losses(first, self._known_paths, measured, resolution_ns, zero_ns),
        )

    @property
    def _known_paths(self) -> Mapping[int, Path]:
        """The flows' paths before the first event; where a program steers packets, tables alone do
        not determine them."""
        return {} if self._fabric.spec.scheme.is_steered else self._paths

    def _links_of(self, flow: ProbeStream) -> tuple[str, ...]:
        """The links of a flow's path before the first event; empty if it is not determined."""
        path = self._known_paths.get(flow.id)
        return () if path is None else tuple(hop.link.name for hop in path.hops)

    def _event_effects(self, run: ProbeRun, timeline: Timeline, number: int) -> EventEffects:
        """The effect of an event on the flows, by its index."""
        event = timeline.events[number]
        by_flow = [
            (self._paths[flow.id].nodes, record.measurement.events[number])
            for flow, record in zip(self._flows, run.flows, strict=True)
            if record.measurement.events[number].affected and flow.id in self._paths
        ]
        return EventEffects(
            tuple(FlowRecovery(nodes, _after(event, measured)) for nodes, measured in by_flow),
            max((round(measured.resolution_ns) for _, measured in by_flow), default=None),
        )

    def _named(self, flow: ProbeStream) -> results.Flow:
        ends = resolve_flow(self._fabric, flow)
        return results.Flow(
            name=f"f{flow.id + 1}",
            source=flow.source,
            destination=flow.destination,
            source_ip=ends.source_ip,
            destination_ip=ends.destination_ip,
            source_port=flow.sport,
            destination_port=ROCE_PORT,
        )


def _after(event: Event, convergence: FlowConvergence) -> int | None:
    taken_ns = convergence.convergence_ns
    return None if taken_ns is None else event.t_ns + taken_ns


def _paths(
    fabric: Fabric, flows: Sequence[ProbeStream], fibs: Mapping[str, Fib]
) -> Iterator[tuple[int, Path]]:
    """The path of each flow by these tables; flows that cannot be predicted are omitted."""
    for flow in flows:
        source = find_nic(fabric, flow.source, flow.source_nic)
        destination = find_nic(fabric, flow.destination, flow.destination_nic)
        try:
            path = walk(
                fabric,
                fibs.__getitem__,
                source,
                destination,
                flow.sport,
                leaves_by=flow.leaves_by,
                destination_qp=flow.dest_qp,
            )
        except InputError:
            continue
        yield flow.id, path


def counted_samples(record: FlowTransmission, timeline: Timeline) -> FlowSamples:
    """The packets offered in the counted time, and their arrivals.

    A packet that a dead port refused was offered load (RFC 6412 section 3.5.3): it is lost, and its
    flow is cut off.
    """
    offered_ns = np.concatenate((record.sent_ns, record.refused_ns))
    offered_seq = np.concatenate((record.sent_seq, record.refused_seq))
    order = np.argsort(offered_seq)
    offered_ns, offered_seq = offered_ns[order], offered_seq[order]
    held_ns = np.zeros(len(offered_seq), np.int64)
    held_ns[np.searchsorted(offered_seq, record.held_seq)] = record.held_ns
    counted = (offered_ns >= timeline.start_ns) & (offered_ns < timeline.end_ns)
    received = (record.send_ns >= timeline.start_ns) & (record.send_ns < timeline.end_ns)
    return FlowSamples(
        sent_seq=offered_seq[counted],
        sent_ns=offered_ns[counted],
        received_seq=record.received_seq[received],
        receive_ns=record.receive_ns[received],
        held_ns=held_ns[counted],
    )


def check_sent(samples: Mapping[results.Flow, FlowSamples]) -> None:
    """Raises MachineError if a flow has too few packets to have a rate: then there are no figures,
    not even of an invalid run."""
    poor = [flow for flow, one in samples.items() if len(np.unique(one.sent_ns)) < 2]
    if poor:
        raise MachineError(
            f"{len(poor)} of {len(samples)} flows sent fewer than two packets: this machine is too "
            "slow, or too busy, for the drill's traffic",
            "use a copy of the drill with a lower traffic.rate_pps or fewer traffic.flows",
        )
