"""Reads all counters of a lab's health at one moment.

A `Reading` holds the counters of ports, queues, endpoints, tables and sessions so far.
`rocelab.observe.health.sample` computes the difference of two.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from rocelab.agent.live import LiveCounters
from rocelab.base.errors import ExpectationError
from rocelab.dataplane.impairments.maps import ImpairmentCounters
from rocelab.dataplane.pfc.reading import ClassCounters, PauseReader
from rocelab.dataplane.queues.engine import read_engine
from rocelab.dataplane.queues.reading import QueueReader
from rocelab.lab.lab import RunningLab
from rocelab.labfile.queues import QueueEngine
from rocelab.linux import namespaces
from rocelab.linux.counters import Place, PortCounters
from rocelab.observe.health.endpoints import EndpointTracker, split_endpoint
from rocelab.observe.health.health_spec import LOSSLESS_SLIS
from rocelab.observe.health.losses import LossTracker
from rocelab.observe.health.ports import PortReader, PortReading
from rocelab.observe.health.processes import ProcessPoller
from rocelab.observe.health.routes import RouteReader
from rocelab.observe.health.sessions import PolledSessions, SessionReader
from rocelab.planning.fabric import DirectedLink
from rocelab.planning.pauses import PausePort
from rocelab.planning.queues import plan_queues
from rocelab.planning.routes import expected_routes, expected_width
from rocelab.record import LabFiles, not_up
from rocelab.results.health import Sli

QUEUE_SLIS = frozenset({Sli.QUEUE_DROPS, Sli.QUEUE_DEPTH, Sli.CE_RATIO})


@dataclass(frozen=True, slots=True)
class PauseReading:
    """Lossless classes so far, by port and class; `t_ns` is CLOCK_MONOTONIC."""

    t_ns: int
    is_alive: bool
    classes: Mapping[tuple[PausePort, int], ClassCounters]


@dataclass(frozen=True, slots=True)
class Reading:
    """A lab's counters. Ports are (node, interface)."""

    time_ns: int
    """CLOCK_REALTIME before anything was read."""

    ports: Mapping[Place, PortReading]
    queues: PortCounters
    lost: Mapping[DirectedLink, int]
    """Packets that one end of a link sent and the other did not receive, by direction."""

    endpoints: Mapping[str, LiveCounters]
    """By the names of endpoints (`rocelab.observe.health.endpoints`)."""

    routes_incomplete: Mapping[str, int]
    """By switch."""

    sessions: Mapping[str, bool]
    """By link."""

    gaps: tuple[str, ...] = ()
    """A sentence for what could not be read, and for each process that does not work."""

    pauses: PauseReading | None = None
    """None in a lab without lossless classes."""

    monotonic_ns: int | None = None
    """CLOCK_MONOTONIC at `time_ns`; None where `time_ns` is on a clock that nobody sets."""

    def since_ns(self, before: Reading) -> int:
        """The time since another reading, also where the machine's clock was set meanwhile."""
        if self.monotonic_ns is None or before.monotonic_ns is None:
            return self.time_ns - before.time_ns
        return self.monotonic_ns - before.monotonic_ns


class HealthReader:
    """Reads a lab repeatedly; a context manager. It keeps the lab's namespaces open."""

    def __init__(self, lab: RunningLab, *, asks: bool = False) -> None:
        """`asks`: whether daemons are asked too, which takes their time. Raises InputError if the
        lab is not up."""
        self._lab = lab
        self._asks = asks
        self._fabric = lab.fabric
        self._files = LabFiles(lab.name)
        self._ports: dict[str, PortReader] = {}
        self._routes: dict[str, RouteReader] = {}
        self._carrier: dict[str, tuple[bool, ...]] = {}
        self._cleanup = ExitStack()
        self.endpoints = EndpointTracker(self._files, lab.whole.fabric)

    def __enter__(self) -> Self:
        """Raises InputError if the lab is not up, OSError if it cannot be read."""
        if not self._lab.is_running:
            raise not_up(self._lab.name)
        with ExitStack() as undo:
            netns_of = {node.name: self._files.netns_of(node.name) for node in self._fabric.nodes}
            descriptors = undo.enter_context(namespaces.opened(netns_of))
            self._first = self._fabric.nodes[0].name
            self._inode = os.fstat(descriptors[self._first]).st_ino
            keep = undo.enter_context(ExitStack())
            keep.callback(self._close_sockets)
            keep.callback(self.endpoints.close)
            self._expected = expected_routes(self._fabric)
            self._named = {
                name: {
                    port.index: port.interface
                    for port in (link.port(name) for link in self._fabric.links_of[name])
                }
                for name in descriptors
            }
            namespaces.inside_each(descriptors, self._open)
            networks = self._fabric.networks
            self.plans = tuple(map(plan_queues, networks))
            engines = [read_engine(LabFiles.of(network)) for network in networks]
            self._queues = [
                keep.enter_context(QueueReader(network))
                for network, engine in zip(networks, engines, strict=True)
                if engine is not QueueEngine.OFF
            ]
            self._pauses = [
                keep.enter_context(PauseReader(network))
                for network, plan in zip(networks, self.plans, strict=True)
                if plan.lossless_classes and plan.ports
            ]
            self._impairments = self._lab.impairments
            self._losses = LossTracker(self._fabric, queues_in_clsact=QueueEngine.BPF in engines)
            self._sessions: SessionReader | PolledSessions = (
                SessionReader(self._fabric)
                if self._fabric.observed is None
                else PolledSessions(
                    self._fabric,
                    {
                        node.name: self._lab.node(node.name)
                        for node in self._fabric.switches
                        if "bgpd" in self._lab.daemons_of(node.name)
                    },
                )
            )
            self._processes = keep.enter_context(ProcessPoller(self._lab)) if self._asks else None
            self._cleanup = keep.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _open(self, node: str) -> None:
        self._ports[node] = PortReader(self._named[node])
        if self._fabric.node(node).is_switch:
            expected = {
                prefix: expected_width(self._fabric, links)
                for prefix, links in self._expected[node].items()
            }
            self._routes[node] = RouteReader(expected)

    def _close_sockets(self) -> None:
        for port in self._ports.values():
            port.close()
        for route in self._routes.values():
            route.close()

    @property
    def unmeasured(self) -> frozenset[Sli]:
        """The SLIs that this lab has no counters for."""
        queues = frozenset() if self._queues else QUEUE_SLIS
        return queues if self._pauses else queues | LOSSLESS_SLIS

    def read(self, *, is_last: bool = False) -> Reading:
        """All counters now; at the last reading daemons have time to answer. Raises
        ExpectationError if the lab went down meanwhile."""
        self._check_up()
        time_ns, monotonic_ns = time.clock_gettime_ns(time.CLOCK_REALTIME), time.monotonic_ns()
        gaps: list[str] = []
        ports: dict[Place, PortReading] = {}
        incomplete: dict[str, int] = {}
        for node, reader in self._ports.items():
            try:
                states = reader.read()
                carrier = tuple(port.carrier for port in states.values())
                if node in self._routes:
                    changed = self._carrier.get(node) != carrier
                    incomplete[node] = self._routes[node].incomplete(changed)
                self._carrier[node] = carrier
            except OSError as error:
                gaps.append(f"could not read {node}: {error}")
                continue
            for interface, port in states.items():
                ports[node, interface] = port
        queues = {
            port: counters
            for reader in self._queues
            for port, counters in reader.counters().items()
        }
        pauses = self._lossless()
        if pauses is not None and not pauses.is_alive:
            gaps.append("lossless classes: the PFC process does not run")
        if self._processes is not None:
            gaps += self._processes.problems(fresh=is_last)
        sessions = self._sessions.established()
        lost = self._losses.update(ports, queues, self._on_wire())
        self.endpoints.update()
        return Reading(
            time_ns=time_ns,
            ports=ports,
            queues=queues,
            lost=lost,
            endpoints={
                name: counters
                for name, counters in self.endpoints.totals().items()
                if self._is_watched(name)
            },
            routes_incomplete=incomplete,
            sessions=sessions,
            gaps=tuple(dict.fromkeys((*gaps, *self._sessions.gaps))),
            pauses=pauses,
            monotonic_ns=monotonic_ns,
        )

    def _is_watched(self, endpoint: str) -> bool:
        """Whether a server's run sends in the network that is watched, if it is one of several."""
        name = self._fabric.network_name
        return name is None or name in split_endpoint(endpoint)[1]

    def _lossless(self) -> PauseReading | None:
        if not self._pauses:
            return None
        now_ns = time.monotonic_ns()
        classes = {
            place: counters
            for reader in self._pauses
            for place, counters in reader.counters(now_ns).items()
        }
        return PauseReading(now_ns, all(reader.is_alive() for reader in self._pauses), classes)

    def _check_up(self) -> None:
        """An open socket would keep a lab's links after its `down`, so the reader must close it."""
        try:
            is_up = self._files.netns_of(self._first).stat().st_ino == self._inode
        except OSError:
            is_up = False
        if not is_up:
            raise ExpectationError(f"lab {self._lab.name} went down while it was watched")

    def _on_wire(self) -> Mapping[DirectedLink, ImpairmentCounters]:
        """The counters of impaired cables; empty while a fault is being set or cleared."""
        try:
            counters = self._impairments.counters()
        except OSError:
            return {}
        links = self._fabric.link_by_name
        return {link: counted for link, counted in counters.items() if link.name in links}
