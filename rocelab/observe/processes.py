"""Judges whether the processes that a lab's packets depend on did their work during a run.

They are the routing daemons, the scheme's controller and those that hold packets, on cables and
for faults. The
one that pauses is judged by what it did (`rocelab.results.lossless`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from rocelab.base import quantities
from rocelab.base.wording import counted
from rocelab.dataplane.controller.rounds import read_rounds
from rocelab.dataplane.impairments.delayline import VERY_LATE, Lateness
from rocelab.dataplane.impairments.program import IMPAIRMENTS
from rocelab.dataplane.steering.controller import ControllerFiles
from rocelab.dataplane.steering.scheme import lacks_controller, read_scheme
from rocelab.faults.base import SwitchFaultSpec
from rocelab.faults.daemons import idle_daemons
from rocelab.faults.record import read_faults
from rocelab.lab.lab import RunningLab
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.observe.cables import CableWatch
from rocelab.record import LabFiles

NO_CONTROLLER = "not valid because the controller of the scheme had ended or was stopped"
CONTROLLER_STALL_LIMIT_S = 1.0
"""The most that a round of a controller may come late."""


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """What a lab's processes did during a run."""

    problems: tuple[str, ...] = ()
    """Why it is no measurement."""
    warnings: tuple[str, ...] = ()
    """What of latency was the machine's."""
    late_on_cables: int = 0
    """Packets that left a cable late."""


class ProcessWatch:
    """Watches a lab's processes from when it is made."""

    def __init__(self, lab: RunningLab) -> None:
        self._lab, self._files = lab, lab.runtime.files
        self._cables = CableWatch(lab.fabric)
        self._delayed = lab.impairments.lateness()
        self._scheme = read_scheme(self._files)
        self._began_unix_s = _now_unix_s()

    def figures(self) -> ProcessFigures:
        """What happened since."""
        problems = (
            *_scheme_problems(self._scheme, read_scheme(self._files)),
            *_controller_problems(self._files, self._began_unix_s, _now_unix_s()),
            *_daemon_problems(self._lab),
            *_delay_problems(self._lab, self._delayed),
        )
        cables = self._cables.figures()
        if cables is None:
            return ProcessFigures(problems)
        return ProcessFigures(
            (*cables.problems(), *problems), cables.warnings(), cables.lateness.late
        )


def _scheme_problems(before: SchemeSpec, after: SchemeSpec) -> Iterator[str]:
    if after != before:
        yield (
            f"not valid because the lab's scheme was changed from {before.kind} to {after.kind} "
            "during the run"
        )


def _controller_problems(
    files: LabFiles, began_unix_s: float, ended_unix_s: float
) -> Iterator[str]:
    if lacks_controller(files):
        yield NO_CONTROLLER
        return
    period_s = read_scheme(files).controller_period_s
    if period_s is None:
        return
    rounds = [
        entry
        for entry in read_rounds(ControllerFiles(files).rounds)
        if entry.finished_unix_s > began_unix_s
    ]
    took_s = max((entry.finished_unix_s - entry.started_unix_s for entry in rounds), default=0.0)
    ends = (began_unix_s, *(entry.finished_unix_s for entry in rounds), ended_unix_s)
    gap_s = max(later - earlier for earlier, later in pairwise(ends))
    if gap_s > period_s + took_s + CONTROLLER_STALL_LIMIT_S:
        yield (
            f"not valid because the controller of the scheme finished no round for {gap_s:.1f} s "
            f"(its period is {period_s:g} s)"
        )


def _daemon_problems(lab: RunningLab) -> Iterator[str]:
    """Daemons that do not run or are stopped, but for switches that a fault has broken."""
    specs = [fault.spec for fault in read_faults(lab.runtime.files)]
    faulted = {spec.switch for spec in specs if isinstance(spec, SwitchFaultSpec)}
    for switch in lab.fabric.switches:
        if switch.name not in faulted:
            for problem in idle_daemons(lab, switch.name):
                yield f"not valid because {problem}"


def _delay_problems(lab: RunningLab, before: Lateness) -> Iterator[str]:
    """Packets of delay faults that came by the machine's fault as late as they did, or not."""
    for switch in lab.impairments.broken():
        yield (
            f"not valid because the process that delays packets at {switch} for a fault had ended "
            "or was stopped"
        )
    if count := lab.impairments.lateness().very_late - before.very_late:
        limit = quantities.duration(VERY_LATE * IMPAIRMENTS.least_ns)
        yield (
            f"not valid because {counted(count, 'packet')} that a fault delays left {limit} "
            f"late or later, and more than {VERY_LATE} times the delay: the process that delays "
            "them stalled"
        )


def _now_unix_s() -> float:
    return time.clock_gettime(time.CLOCK_REALTIME)
