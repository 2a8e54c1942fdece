"""What watches a lab's switches during a run: the stages of its events and its SLIs, as asked for.

The figures are complete after the context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from rocelab.base.outputs import OutputPlace
from rocelab.lab.lab import RunningLab
from rocelab.labfile.stacks import DEFAULT_STACK
from rocelab.linux.closing import Holding
from rocelab.observe.health.health_spec import HealthSpec
from rocelab.observe.health.monitor import HealthMonitor
from rocelab.observe.stages.measure import FlowRecovery, stages_of
from rocelab.observe.stages.recorder import StageRecorder
from rocelab.planning.fabric import Fabric
from rocelab.results.convergence import Window
from rocelab.results.health import HealthReport
from rocelab.results.probes import Event, FibChange
from rocelab.results.stages import SCHEMA_VERSION, Stages
from rocelab.routing.stack import stack_for


@dataclass(frozen=True, slots=True)
class EventEffects:
    """The effect of an event on flows: when each recovered, and with which resolution that is
    known."""

    recoveries: tuple[FlowRecovery, ...] = ()
    interval_ns: int | None = None


def can_trace(fabric: Fabric) -> bool:
    """Whether stages can be traced: every switch runs FRR with BGP as rocelab renders it."""
    is_rendered = fabric.spec.routing.is_rendered and not fabric.is_adopted
    return is_rendered and stack_for(fabric).name == DEFAULT_STACK


class Observers(Holding):
    """Watches within its context. With `stages` every daemon traces; with `health` the SLIs are
    watched, and `evidence` is the folder for bundles."""

    def __init__(
        self,
        lab: RunningLab,
        *,
        stages: bool,
        health: HealthSpec | None,
        evidence: OutputPlace | None,
    ) -> None:
        self._recorder = StageRecorder(lab) if stages else None
        self._monitor = None
        if health is not None:
            self._monitor = HealthMonitor(lab, health, evidence=evidence, evidence_later=True)

    def _enter(self, stack: ExitStack) -> None:
        if self._recorder is not None:
            stack.enter_context(self._recorder)
        if self._monitor is not None:
            stack.enter_context(self._monitor)

    def collect_evidence(self) -> None:
        """Captures and the daemons' tables take CPU time: call it when the measurement is over."""
        if self._monitor is not None:
            self._monitor.collect_evidence()

    @property
    def health(self) -> HealthReport | None:
        """The SLIs; None if they are not watched."""
        return None if self._monitor is None else self._monitor.report

    @property
    def problems(self) -> tuple[str, ...]:
        """Why stages may be missing or late, if anything."""
        return () if self._recorder is None else self._recorder.problems()

    def stages(
        self,
        events: Sequence[Event],
        end_ns: int,
        changes: Sequence[FibChange],
        felt: Callable[[int], EventEffects] = lambda number: EventEffects(),
    ) -> tuple[Stages, ...]:
        """The stages of each event; none if they are not traced. All instants are in one clock;
        `end_ns` is the end of the run; `felt` takes the event's index."""
        if self._recorder is None:
            return ()
        ends_ns = [*(event.t_ns for event in events), end_ns][1:]
        stages = []
        for number, (event, until_ns) in enumerate(zip(events, ends_ns, strict=True)):
            of_flows, window = felt(number), Window(event.t_ns, until_ns)
            records, recoveries = self._recorder.records, of_flows.recoveries
            switches = stages_of(event.t_ns, window, records, changes, recoveries)
            resolution = self._recorder.resolution(of_flows.interval_ns)
            stages.append(Stages(SCHEMA_VERSION, event.title, resolution, switches))
        return tuple(stages)
