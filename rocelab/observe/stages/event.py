"""The stages of every event of a run.

Combines the records of the switches with the flows that each event affected to `Stages`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rocelab.observe.stages.measure import FlowRecovery, stages_of
from rocelab.observe.stages.recorder import StageRecorder
from rocelab.results.convergence import Window
from rocelab.results.probes import Event, FibChange
from rocelab.results.stages import SCHEMA_VERSION, Stages


@dataclass(frozen=True, slots=True)
class Felt:
    """The effect of an event on flows: when each recovered, and with which resolution that is
    known."""

    recoveries: tuple[FlowRecovery, ...] = ()
    interval_ns: int | None = None


def stages_of_events(
    events: Sequence[Event],
    end_ns: int,
    recorder: StageRecorder,
    changes: Sequence[FibChange],
    felt: Callable[[int], Felt] = lambda number: Felt(),
) -> tuple[Stages, ...]:
    """The stages of each event. All instants are in one clock; `end_ns` is the end of the run;
    `felt` takes the event's index."""
    ends_ns = [event.t_ns for event in events[1:]] + [end_ns]
    found = []
    for number, (event, until_ns) in enumerate(zip(events, ends_ns, strict=True)):
        of_flows = felt(number)
        window = Window(event.t_ns, until_ns)
        switches = stages_of(event.t_ns, window, recorder.records, changes, of_flows.recoveries)
        resolution = recorder.resolution(of_flows.interval_ns)
        found.append(Stages(SCHEMA_VERSION, event.title, resolution, switches))
    return tuple(found)
