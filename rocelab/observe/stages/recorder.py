"""Records the data for the stages of a reconvergence while a lab changes.

`Records` hold every switch's link events and FRR's log, with how late events were read. FRR traces
only from `__enter__` to `__exit__`. FIB changes come from a `FibTimeline`, which must run at the
same time.

    with StageRecorder(lab) as recorder:
        ...
    stages_of(event_ns, window, recorder.records, timeline.changes(...), recoveries)
"""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from rocelab.lab.lab import RunningLab
from rocelab.linux.closing import Holding
from rocelab.linux.linkwatch import LinkEvent, LinkWatch
from rocelab.linux.priority import run_first
from rocelab.observe.stages import tracing
from rocelab.observe.stages.delay import DelayProbe
from rocelab.observe.stages.measure import StageRecords
from rocelab.observe.timeline import SWITCH_INTERVAL_S, opened_namespaces
from rocelab.results.stages import LOG_STAMP_NS, ReadDelay, Resolution

POLL_S = 0.25
PROBE = ""
"""Stands for the delay probe among the watched namespaces: no node has this name."""


class StageRecorder(Holding):
    """Traces and records from `__enter__` to `__exit__`; the figures are available after it."""

    def __init__(self, lab: RunningLab) -> None:
        self._lab = lab
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._record, name="links", daemon=True)
        self._links: list[LinkEvent] = []
        self._probed_ns: list[int] = []
        self._failure: BaseException | None = None
        self._watch: LinkWatch | None = None
        self._silent: tuple[str, ...] = ()
        self.records = StageRecords((), ())
        self.read_delay: ReadDelay | None = None

    def _enter(self, stack: ExitStack) -> None:
        """Return when every daemon traces. Raises OSError if the lab is not up."""
        stack.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        namespaces = stack.enter_context(opened_namespaces(self._lab, self._lab.fabric.switches))
        probe = DelayProbe()
        stack.callback(probe.close)
        watched = {**namespaces, PROBE: probe.descriptor}
        self._watch = stack.enter_context(LinkWatch(watched))
        daemons = tracing.running_daemons(self._lab)
        sizes = tracing.log_sizes(daemons)
        stack.callback(self._conclude, daemons, sizes, probe)
        stack.callback(self._stop)
        self._thread.start()
        stack.callback(probe.stop)
        stack.callback(self._untrace, daemons)
        self._silent = tracing.set_tracing(daemons, on=True)
        probe.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cleanup.close()
        if error is None and self._failure is not None:
            raise self._failure

    def problems(self) -> tuple[str, ...]:
        """Why stages may be missing or late, if anything."""
        lost = sorted(self._watch.overflowed - {PROBE}) if self._watch is not None else []
        return (
            *(f"link events of {node} were lost" for node in lost),
            *(f"{daemon} did not answer, so it did not trace" for daemon in self._silent),
        )

    def resolution(self, packet_interval_ns: int | None) -> Resolution:
        """The resolution of the stages. `packet_interval_ns` is that of the flows across the failed
        link, None without any."""
        return Resolution(LOG_STAMP_NS, self.read_delay, packet_interval_ns)

    def _record(self) -> None:
        assert self._watch is not None
        run_first()
        try:
            while not self._stopping.is_set():
                for event in self._watch.events(POLL_S):
                    if event.node == PROBE:
                        self._probed_ns.append(event.time_ns)
                    else:
                        self._links.append(event)
        except BaseException as error:
            self._failure = error

    def _untrace(self, daemons: tuple[tracing.Daemon, ...]) -> None:
        self._silent += tracing.set_tracing(daemons, on=False)

    def _stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _conclude(
        self, daemons: tuple[tracing.Daemon, ...], sizes: dict[Path, int], probe: DelayProbe
    ) -> None:
        self.records = StageRecords(tuple(self._links), tracing.logged_since(daemons, sizes))
        self.read_delay = probe.delay(self._probed_ns)
