"""Watches the TCP connections of jobs while they run, and makes their figures."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic

import numpy as np

from rocelab.base.quantities import share
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.tcp import RTO_MIN_NS
from rocelab.lab.lab import RunningLab
from rocelab.linux.closing import Holding
from rocelab.programs.connections import STALL_NS, ConnectionWatch
from rocelab.programs.run import BUSY_SHARE, address_names, busy_seconds
from rocelab.results.job import RoundTrips
from rocelab.results.programs import TcpConnection
from rocelab.results.tcp import TcpFigures
from rocelab.runs.jobfigures import times
from rocelab.traffic.jobresult import JobResult

STALL_TRIPS = 4
"""Round trips without an acknowledgement that make a stall: a dilated lab's are long."""

HELD_LIMIT = 0.01
"""The most of a run, as a share, for which this machine may hold an agent of a server."""


@dataclass(frozen=True, slots=True)
class TcpSeen:
    """The TCP connections of all jobs of a run, from their senders."""

    connections: tuple[TcpConnection, ...]
    rtts_us: dict[tuple[str, int], tuple[int, ...]]
    """Smoothed round trips at the samples, by the address and port that the receiver listens to."""
    longest_interval_ns: int
    cpu_share: float
    """How busy this machine's CPUs were."""
    lost_events: bool

    def problems(self, jobs: Sequence[JobResult], elapsed_s: float) -> tuple[str, ...]:
        """Why the run is no measurement of TCP."""
        problems = []
        held_s = {
            stall.server: float(stall.length_ns.sum()) / 1e9
            for job in jobs
            if job.connections
            for stall in job.stalls
        }
        server = max(held_s, key=lambda name: held_s[name], default="")
        if server and held_s[server] > HELD_LIMIT * elapsed_s:
            problems.append(
                f"not valid because this machine let {server} neither read nor write for "
                f"{held_s[server] * 1e3:,.0f} of {elapsed_s * 1e3:,.0f} ms; send less, or slow the "
                "lab's clock down: `--dilation` of `rocelab up`, or of `rocelab drill run`"
            )
        if self.lost_events:
            problems.append(
                "not valid because more connections ended than could be read: retransmissions of "
                "some are missing"
            )
        return tuple(problems)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What readers of the figures have to know."""
        if self.cpu_share <= BUSY_SHARE:
            return ()
        return (
            f"this machine's CPUs were busy for {share(self.cpu_share)} of the time: what forwards "
            "TCP's segments waited for them too",
        )


class TcpWatch(Holding):
    """Samples the connections of the servers of jobs within a context; nothing without jobs of
    TCP."""

    def __init__(self, lab: RunningLab, plans: Sequence[JobPlan]) -> None:
        self._lab = lab
        self._plans = [plan for plan in plans if plan.tcp_paths]
        self._over = threading.Event()
        self._failure: OSError | None = None

    def _enter(self, stack: ExitStack) -> None:
        if not self._plans:
            return
        servers = dict.fromkeys(place.server for plan in self._plans for place in plan.places)
        netns = [self._lab.node(server).netns for server in servers]
        names = address_names(self._lab.fabric)
        self._watch = stack.enter_context(ConnectionWatch(netns, names, STALL_TRIPS))
        self._busy_s = busy_seconds()
        self._began_s = monotonic()
        self._thread = threading.Thread(target=self._run, name="tcp", daemon=True)
        self._thread.start()
        stack.callback(self._stop)

    def read(self, zero_ns: int) -> TcpSeen | None:
        """What was seen, from `zero_ns` of CLOCK_REALTIME on; None without jobs of TCP. Call it
        after the jobs. Raises OSError if the kernel did not tell."""
        if not self._plans:
            return None
        self._stop()
        if self._failure is not None:
            raise self._failure
        self._watch.sample()
        paths = [path for plan in self._plans for path in plan.tcp_paths]
        ports = {path.port for path in paths}
        lasted_s = monotonic() - self._began_s
        cpu_s = busy_seconds() - self._busy_s
        return TcpSeen(
            tuple(
                one
                for one in self._watch.connections(zero_ns)
                # An end that listens sends acknowledgements of sends alone.
                if one.destination_port in ports and one.source_port not in ports
            ),
            {
                far: self._watch.rtts_us(*far)
                for far in {(path.destination_ip, path.port) for path in paths}
            },
            self._watch.longest_interval_ns,
            min(1.0, cpu_s / lasted_s / (os.cpu_count() or 1)),
            self._watch.lost_events,
        )

    def _stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._watch.due_in_s):
            try:
                self._watch.sample()
            except OSError as error:
                self._failure = error
                return


def tcp_figures(job: JobResult, seen: TcpSeen | None) -> TcpFigures | None:
    """What the kernel did for a job; None of one of RoCEv2."""
    clock = job.plan.tcp_clock
    if clock is None or seen is None:
        return None
    listening = {(str(job.plan.places[path.peer]), path.port) for path in job.plan.tcp_paths}
    return TcpFigures(
        congestion_control=clock.congestion_control.value,
        rto_min_ns=clock.rto_min_ns if job.rto_is_scaled else RTO_MIN_NS,
        rto_is_scaled=job.rto_is_scaled,
        clock=clock.words(is_settable=job.rto_is_scaled),
        connections=tuple(
            one for one in seen.connections if (one.destination, one.destination_port) in listening
        ),
        stall_bin_ns=STALL_NS,
        least_trips=STALL_TRIPS,
        longest_interval_ns=seen.longest_interval_ns,
    )


def tcp_round_trips(job: JobResult, seen: TcpSeen | None) -> RoundTrips | None:
    """Smoothed round trips of a job's connections at all samples; None of a job of RoCEv2, or
    without samples."""
    listening = {(path.destination_ip, path.port) for path in job.plan.tcp_paths}
    if seen is None or not listening:
        return None
    every = np.array([rtt for far in listening for rtt in seen.rtts_us[far]], np.float64)
    if not len(every):
        return None
    p50, p99 = np.percentile(every, (50, 99))
    dilation = job.plan.dilation
    return RoundTrips(
        samples=len(every),
        p50=times(float(p50) * 1000, dilation),
        p99=times(float(p99) * 1000, dilation),
        maximum=times(float(every.max()) * 1000, dilation),
    )
