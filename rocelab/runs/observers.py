"""What watches a lab's switches during a run: the stages of its events and its SLIs, as asked for.

The figures are complete after the context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from rocelab.base.outputs import Place
from rocelab.lab.lab import RunningLab
from rocelab.linux.closing import Holding
from rocelab.observe.health.monitor import HealthMonitor
from rocelab.observe.health.spec import HealthSpec
from rocelab.observe.stages.event import Felt, stages_of_events
from rocelab.observe.stages.recorder import StageRecorder
from rocelab.results.health import HealthReport
from rocelab.results.probes import Event, FibChange
from rocelab.results.stages import Stages


class Observers(Holding):
    """Watches within its context. With `stages` every daemon traces; with `health` the SLIs are
    watched, and `evidence` is the folder for bundles."""

    def __init__(
        self, lab: RunningLab, *, stages: bool, health: HealthSpec | None, evidence: Place | None
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
        felt: Callable[[int], Felt] = lambda number: Felt(),
    ) -> tuple[Stages, ...]:
        """The stages of each event (`stages_of_events`); none if they are not traced."""
        if self._recorder is None:
            return ()
        return stages_of_events(events, end_ns, self._recorder, changes, felt)
