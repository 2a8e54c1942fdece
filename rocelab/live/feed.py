"""Watches a lab and publishes what it sees: one sampler and one listener for all clients.

Counters, tables and sessions are read by the health monitor, twice a second; carriers and routes
come from rtnetlink as they change; the times and causes of sessions from bgpd's logs. A port whose
event was lost is corrected by the next sample.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rocelab.base.errors import ExpectationError
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import realtime_ns
from rocelab.linux.closing import Holding
from rocelab.linux.fibwatch import FibAction, FibWatch
from rocelab.linux.linkwatch import LinkWatch
from rocelab.linux.listener import Listener
from rocelab.live.events import (
    CarrierEvent,
    Event,
    NodeEvent,
    NoteEvent,
    RoutesEvent,
    SchemeEvent,
    SessionEvent,
    document,
)
from rocelab.live.history import LoadHistory
from rocelab.live.state import METRICS, Condition, LabState, NodeState, condition
from rocelab.live.stream import Hub
from rocelab.live.ticks import TickReader
from rocelab.live.values import lost_per_s, traffic_of, values_of
from rocelab.observe.health.health_spec import HealthSpec
from rocelab.observe.health.monitor import HealthMonitor, Snapshot
from rocelab.observe.health.reading import Reading
from rocelab.observe.health.sessions import links_by_neighbour
from rocelab.observe.stages import tracing
from rocelab.observe.stages.frrlog import SessionDown, SessionUp
from rocelab.observe.timeline import opened_namespaces
from rocelab.record import LabFiles
from rocelab.results.stages import DetectionCause

INTERVAL = "500ms"
POLL_S = 0.25
MOST_LOG_BYTES = 1 << 20
"""Limits what a bgpd logs between two samples: bgpd's user may write anything."""
MOST_DETAIL = 200
"""Characters of a log's words, which FRR's user writes."""
ROUTES_WITHIN_NS = 100_000_000
"""Changes of one switch's table so soon after its first one are one event."""


class Feed(Holding):
    """Publishes to `hub` within its context."""

    def __init__(self, lab: RunningLab, *, read_only: bool, terminal: bool = False) -> None:
        self.lab = lab
        self.state = LabState(lab.fabric, read_only, terminal, scheme=_scheme_of(lab))
        self.hub = Hub(METRICS, self.state.document)
        self.history = LoadHistory(lab.fabric)
        self.ticks = TickReader(LabFiles(lab.name))
        self.snapshot: Snapshot | None = None
        """The newest one."""
        self._first = threading.Event()
        self._stopping = threading.Event()
        self._before: Reading | None = None
        self._gaps: tuple[str, ...] = ()
        self._ports = threading.Lock()
        """RunningFault while a port's state is compared and published, which two threads do."""
        self._link_of_port = {
            (port.node, port.interface): link.name
            for link in lab.fabric.links
            for port in (link.a, link.b)
        }
        self._logs = SessionLogs(lab)

    def _enter(self, stack: ExitStack) -> None:
        """Return after the first sample. Raises InputError if the lab is not up, OSError if it
        cannot be read."""
        fabric = self.lab.fabric
        nodes = stack.enter_context(opened_namespaces(self.lab, fabric.nodes))
        switches = {node.name: nodes[node.name] for node in fabric.switches}
        links = stack.enter_context(LinkWatch(nodes))
        tables = stack.enter_context(FibWatch(switches))
        self._listen("carriers", links, stack, lambda: self._take_carriers(links))
        self._listen("tables", tables, stack, lambda: self._take_tables(tables))
        spec = HealthSpec.model_validate({"interval": INTERVAL})
        self._monitor = stack.enter_context(
            HealthMonitor(self.lab, spec, asks=True, on_sample=self._take_sample)
        )
        while not self._first.wait(POLL_S):
            self.check()
        stack.callback(self._stopping.set)
        stack.callback(self.hub.close)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the lab to end; whether it has."""
        return self._monitor.wait(timeout_s)

    def check(self) -> None:
        """Raises what ended the monitoring: ExpectationError if the lab went down."""
        if self._monitor.failure is not None:
            raise self._monitor.failure

    def end(self) -> None:
        """Tell every page why there is nothing more to see."""
        name, failure = self.lab.name, self._monitor.failure
        if failure is not None and not isinstance(failure, ExpectationError):
            self.hub.close(f"rocelab live {name} has ended: {failure}")
        self.hub.close(
            f"lab {name} is down: bring it up with `rocelab up {name}`, then open the page that "
            f"`rocelab live {name}` prints"
        )

    def publish(self, event: Event) -> None:
        """Publish an event and change the state by it."""
        self.hub.publish(document(event), lambda: self.state.apply(event))

    def note(self, text: str) -> None:
        """Publish what the reader should know of the view."""
        self.publish(NoteEvent(realtime_ns(), text))

    def _listen(
        self, name: str, watch: Listener, undo: ExitStack, take: Callable[[], None]
    ) -> None:
        def run() -> None:
            lost: set[str] = set()
            try:
                while not self._stopping.is_set():
                    take()
                    for node in sorted(watch.overflowed - lost):
                        self.note(f"{name} of {node}: the kernel's buffer was full, events lost")
                    lost |= watch.overflowed
            except Exception as error:
                self.note(f"{name} have no events any more: {type(error).__name__}: {error}")

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        undo.callback(thread.join)
        undo.callback(self._stopping.set)

    def _take_carriers(self, watch: LinkWatch) -> None:
        for event in watch.events(POLL_S):
            port = event.node, event.interface
            link = self._link_of_port.get(port)
            with self._ports:
                if link is not None and event.carrier == (port in self.state.dark):
                    self.publish(CarrierEvent(event.time_ns, link, *port, event.carrier))

    def _take_tables(self, watch: FibWatch) -> None:
        """Changes that are read together are one event for each switch."""
        gathered: dict[str, RoutesEvent] = {}
        for change in watch.events(POLL_S):
            t_ns, node = change.time_ns, change.node
            event = gathered.get(node)
            if event is None or t_ns - event.t_ns > ROUTES_WITHIN_NS:
                if event is not None:
                    self.publish(event)
                event = RoutesEvent(t_ns, t_ns, node, 0, 0)
            removed = event.removed + (change.action is FibAction.DELETE)
            gathered[node] = RoutesEvent(event.t_ns, t_ns, node, event.changes + 1, removed)
        for event in gathered.values():
            self.publish(event)

    def _take_sample(self, snapshot: Snapshot) -> None:
        reading = snapshot.reading
        with self._ports:
            for correction in self._corrected(reading):
                self.publish(correction)
        changes: list[Event] = [
            *map(self._with_cause, self._logs.changes()),
            *self._changed_nodes(reading),
            *self._changed_scheme(reading),
        ]
        for event in changes:
            self.publish(event)
        if reading.gaps != self._gaps:
            self._gaps = reading.gaps
            self.note("; ".join(reading.gaps) or "everything can be read and works again")
        values = values_of(self.lab.fabric, self._before, snapshot)
        states = {
            node: node_state.state.value
            for node, node_state in self.state.conditions.items()
            if node_state.state is not NodeState.OK
        }
        self.history.add(values, states, self._before, reading)
        traffic = {**traffic_of(self._before, reading), "lost": lost_per_s(values)}
        steps = self.ticks.new_steps()
        self.hub.sample(reading.time_ns, values, traffic, steps.document() if steps else None)
        self._before, self.snapshot = reading, snapshot
        self._first.set()

    def _with_cause(self, event: SessionEvent | NoteEvent) -> SessionEvent | NoteEvent:
        """The event; where FRR names no reason for a session's end, that its link is dark."""
        if not isinstance(event, SessionEvent) or event.up or event.detail:
            return event
        dark = {self._link_of_port[port] for port in self.state.dark}
        return replace(event, cause=DetectionCause.CARRIER.value) if event.link in dark else event

    def _corrected(self, reading: Reading) -> Iterator[CarrierEvent]:
        """Ports whose carrier is another one than the events have said, before the reading."""
        for port, read in reading.ports.items():
            is_dark = port in self.state.dark
            newest_ns = self.state.dark.get(port) or self.state.lit.get(port) or 0
            if read.carrier == is_dark and newest_ns < reading.time_ns:
                link = self._link_of_port[port]
                yield CarrierEvent(reading.time_ns, link, *port, read.carrier)

    def _changed_nodes(self, reading: Reading) -> Iterator[NodeEvent]:
        for node in self.lab.fabric.nodes:
            now = condition(self.lab.fabric, node.name, reading)
            if now is None or now == self.state.conditions.get(node.name, Condition()):
                continue
            yield NodeEvent(
                reading.time_ns,
                node.name,
                now.state.value,
                now.ports_down,
                now.sessions_down,
                now.routes_incomplete,
            )

    def _changed_scheme(self, reading: Reading) -> Iterator[SchemeEvent]:
        scheme = _scheme_of(self.lab)
        if scheme != self.state.scheme:
            yield SchemeEvent(reading.time_ns, scheme)


def _scheme_of(lab: RunningLab) -> Mapping[str, object]:
    return lab.steering.read_scheme().model_dump(mode="json")


class SessionLogs:
    """Follows the logs of the bgpd of a lab that rocelab planned: those of others may be
    anywhere."""

    def __init__(self, lab: RunningLab) -> None:
        self._lab = lab
        self._link_of = links_by_neighbour(lab.fabric)
        self._daemons: tuple[tracing.Daemon, ...] = ()
        self._sizes: Mapping[Path, int] = {}
        self._last: frozenset[SessionUp | SessionDown] = frozenset()
        if not lab.fabric.is_adopted:
            running = tracing.running_daemons(lab)
            self._daemons = tuple(daemon for daemon in running if daemon.name == "bgpd")
            self._sizes = tracing.log_sizes(self._daemons)

    def changes(self) -> Iterator[SessionEvent | NoteEvent]:
        """What the logs have had since the last call, in order of time."""
        before = self._sizes
        self._sizes = tracing.log_sizes(self._daemons)
        grown = [
            daemon for daemon in self._daemons if self._sizes[daemon.log] != before[daemon.log]
        ]
        for daemon in grown:
            skipped = self._sizes[daemon.log] - before[daemon.log] - MOST_LOG_BYTES
            if skipped > 0:
                text = f"{daemon.node}: {skipped:,} bytes of bgpd's log were too many to read"
                yield NoteEvent(realtime_ns(), text)
        # A log that grew after its size was read has lines that the next call reads again.
        last, events = self._last, []
        for event in tracing.logged_since(grown, before, MOST_LOG_BYTES):
            if isinstance(event, SessionUp | SessionDown):
                events.append(event)
        self._last = frozenset(events)
        for event in events:
            if event not in last:
                yield self._event(event)

    def _event(self, event: SessionUp | SessionDown) -> SessionEvent:
        link = self._link_of.get((event.node, event.neighbour))
        peer = None if link is None else link.far(event.node).node
        name = None if link is None else link.name
        place = event.time_ns, name, event.node, event.neighbour[:MOST_DETAIL], peer
        if isinstance(event, SessionDown):
            return SessionEvent(*place, False, event.cause.value, event.detail[:MOST_DETAIL])
        return SessionEvent(*place, True, DetectionCause.SESSION_UP.value, "")
