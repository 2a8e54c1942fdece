"""A traffic run on a running lab: agents in the participating servers, started together.

A session runs probe flows, jobs, or both; `stop` returns a `TrafficResult`.

    with TrafficSession(fabric, netns_of, flows) as session:
        session.start()
        ...
        result = session.stop()
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np

from rocelab.agent.agent import clock_offset_ns
from rocelab.agent.channel import ChannelMessage, split
from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.jobs.flow import ProbeStream, resolve_flow
from rocelab.jobs.jobplan import JobPlan
from rocelab.linux.clockwatch import ClockWatch
from rocelab.linux.closing import Holding
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles
from rocelab.traffic.agents import AgentGroup, AgentHandle, AgentPart
from rocelab.traffic.demand import job_demands, probe_demands, published
from rocelab.traffic.jobparts import parts_of, ports_of
from rocelab.traffic.jobresult import read_jobs
from rocelab.traffic.result import (
    SECOND_NS,
    AgentRecord,
    Arrivals,
    FlowTransmission,
    TrafficResult,
    find_problems,
    flow_record,
    read_arrivals,
)
from rocelab.traffic.roce import probe_frame
from rocelab.traffic.standstill import Standstill, patience_ns

START_DELAY_NS = 20_000_000
"""The time from `start` to the first deadline, so that every agent gets its command before."""

QUIET_NS = 200_000_000
"""A run is over when nothing has arrived for this long."""

DRAIN_LIMIT_NS = 10 * SECOND_NS
SETTLE_LIMIT_NS = 60 * SECOND_NS
"""The time limit for acknowledgements of posted sends after a run is stopped."""

PROBE_MODERATION_NS = 5_000_000
"""How long arrivals may wait if there are only probes: the kernel stamps them, and a waking agent
takes CPU time from the routing daemons."""

LIVE_FOLDER = "endpoints"
"""The folder in a lab's folder with a file per agent (`rocelab.agent.live`)."""

FLOW_COLUMNS = 4
PROBE_COLUMNS = 5
PROGRESS_STEP_S = 0.5


@dataclass(frozen=True, slots=True)
class _Outgoing:
    """A flow as its agent needs it."""

    flow: ProbeStream
    ports: list[dict[str, Any]]
    phase_ns: int
    template: bytes


class TrafficSession(Holding):
    """Flows and jobs on a running fabric. `netns_of` gives the path of a server's namespace."""

    def __init__(
        self,
        fabric: Fabric,
        netns_of: Callable[[str], Path],
        flows: Sequence[ProbeStream] = (),
        jobs: Sequence[JobPlan] = (),
        *,
        is_watched: bool = False,
    ) -> None:
        """Only plans the run; several `jobs` run at once and were planned together (`plan_jobs`).
        With `is_watched` agents publish counts 10 ms apart (`rocelab.agent.ticks`), which takes
        time of theirs.

        Raises InputError if a flow does not fit the fabric, ValueError if two jobs share a queue
        pair.
        """
        if not flows and not jobs:
            raise InputError("a traffic session has no flows", hint="give it one or more")
        if len({flow.id for flow in flows}) != len(flows):
            raise InputError("two flows have the same id", hint="number them apart")
        numbers = [end.number for job in jobs for end in job.ends]
        if len(set(numbers)) != len(numbers):
            raise ValueError("two jobs have the same queue pairs: plan them together")
        self._flows = tuple(flows)
        self._jobs = tuple(jobs)
        self._outgoing = _plan(fabric, self._flows)
        files = LabFiles(fabric.name)
        self._live = files.root / LIVE_FOLDER if files.root.is_dir() else None
        parts = _parts(fabric.family, self._outgoing, self._jobs, netns_of, self._live, is_watched)
        self._group = AgentGroup(parts)
        self._publication = published(files, (*probe_demands(fabric, flows), *job_demands(jobs)))
        self._start_ns = 0
        self._clock_offset_ns = 0
        self._clock: ClockWatch | None = None
        self._softnet_drops = 0
        self._failed = False
        self._still_ns = 0

    def _enter(self, stack: ExitStack) -> None:
        """Start every agent and wait until it is ready. Raises MachineError if one fails."""
        stack.callback(self._remove_live)
        self._clock = stack.enter_context(ClockWatch())
        stack.enter_context(self._group)
        stack.enter_context(self._publication)

    def start(self) -> int:
        """Start everything; return the first deadline in CLOCK_REALTIME ns. Raises MachineError."""
        self._clock_offset_ns = clock_offset_ns()
        self._softnet_drops = softnet_drops()
        self._start_ns = monotonic_ns() + START_DELAY_NS
        self._group.send_to_all({"do": "start", "at_ns": self._start_ns})
        return self._start_ns + self._clock_offset_ns

    def wait(self, seconds: float) -> None:
        """Let probes go on for so long. Raises MachineError as soon as an agent has ended."""
        deque(self._group.messages(seconds), maxlen=0)  # of probes there are none

    def wait_for_jobs(self, progress: ProgressSink = no_progress, calm_ns: int = 0) -> None:
        """Wait until every job has finished its iterations or duration, a queue pair has failed, or
        nothing has moved for longer than the jobs wait by themselves (`standstill`). In the first
        `calm_ns` of the run nothing need move.

        Raises MachineError if an agent has ended, ValueError if there is no job.
        """
        if not self._jobs:
            raise ValueError("the session has no job")
        end_ns = self._start_ns + max(job.duration_ns for job in self._jobs)
        total = sum(job.iterations * job.ranks for job in self._jobs)
        done = 0
        still = Standstill(self._live, patience_ns(self._jobs), self._start_ns + calm_ns)
        while not self._failed:
            left_ns = max(0, end_ns - monotonic_ns())
            progress(self._progress(done, total, left_ns))
            if done == total and not left_ns:
                return
            if done < total and (still_ns := still.lasts_ns()):
                self._still_ns = still_ns
                return
            wait_s = min(left_ns / SECOND_NS, PROGRESS_STEP_S) if done == total else PROGRESS_STEP_S
            for _, message in self._group.messages(wait_s):
                if "error" in message.fields:
                    self._failed = True
                    break
                done += 1
                progress(self._progress(done, total, left_ns))
                if done == total:
                    break

    def _progress(self, done: int, total: int, left_ns: int) -> Progress:
        """Iterations of all jobs or, if all are streams, tenths of a second of the lab."""
        if total:
            iterations = sum(job.iterations for job in self._jobs)
            return Progress("iterations", done * iterations // total, iterations)
        steps = max(1, max(job.duration_ns for job in self._jobs) * 10 // SECOND_NS)
        return Progress("streams", steps - min(steps, left_ns * 10 // SECOND_NS), steps)

    def stop(self, paused: Collection[str] = ()) -> TrafficResult:
        """Stop posting, wait until all is acknowledged and nothing arrives, and collect the
        results.

        Unfinished work of servers that were `paused` on purpose is no problem of the machine.
        Raises MachineError.
        """
        agents = self._group.agents
        self._group.send_to_all({"do": "stop"})
        stopped_ns = {
            agent.server: agent.answer("stopped_ns").fields["stopped_ns"] for agent in agents
        }
        if not self._still_ns:
            self._settle()
        self._group.send_to_all({"do": "finish", "quiet_ns": QUIET_NS, "limit_ns": DRAIN_LIMIT_NS})
        reports = {agent.server: agent.answer("sizes") for agent in agents}
        clock_jump_ns = clock_offset_ns() - self._clock_offset_ns
        dropped = softnet_drops() - self._softnet_drops
        flows, job_columns = self._flow_records(reports, stopped_ns)
        records = tuple(_agent_record(agent, reports[agent.server]) for agent in agents)
        fields = {server: report.fields for server, report in reports.items()}
        jobs = read_jobs(self._jobs, fields, job_columns, self._start_ns, paused)
        assert self._clock is not None
        problems = find_problems(
            flows, records, clock_jump_ns, dropped, clock_was_set=self._clock.was_set
        )
        return TrafficResult(
            flows=flows,
            agents=records,
            started_ns=self._start_ns + self._clock_offset_ns,
            stopped_ns=max(stopped_ns.values()) + self._clock_offset_ns,
            clock_jump_ns=clock_jump_ns,
            softnet_drops=dropped,
            problems=problems + tuple(problem for job in jobs for problem in job.problems),
            jobs=jobs,
            still_ns=self._still_ns,
        )

    def _remove_live(self) -> None:
        """Remove the agents' live counters after they have ended."""
        if self._live is not None:
            for agent in self._group.agents:
                (self._live / agent.server).unlink(missing_ok=True)

    def _settle(self) -> None:
        """Keep every agent answering the others until none waits for an answer."""
        unsettled = {agent.server for agent in self._group.agents}
        end_ns = monotonic_ns() + SETTLE_LIMIT_NS
        while unsettled and (left_ns := end_ns - monotonic_ns()) > 0:
            for agent, message in self._group.messages(left_ns / SECOND_NS):
                if "settled" in message.fields:
                    unsettled.remove(agent.server)
                if not unsettled:
                    break

    def _flow_records(
        self, reports: Mapping[str, ChannelMessage], stopped_ns: Mapping[str, int]
    ) -> tuple[tuple[FlowTransmission, ...], dict[str, list[bytes]]]:
        """The record of every flow, and the columns of each report that belong to jobs."""
        sent: dict[str, list[bytes]] = {}
        arrivals: dict[str, Arrivals] = {}
        rest: dict[str, list[bytes]] = {}
        for server, report in reports.items():
            parts = split(report.fields["sizes"], report.payload)
            size = FLOW_COLUMNS * len(self._outgoing.get(server, ()))
            sent[server] = parts[:size]
            arrivals[server] = read_arrivals(parts[size : size + PROBE_COLUMNS])
            rest[server] = parts[size + PROBE_COLUMNS :]
        records = {}
        for server, outgoing in self._outgoing.items():
            offset_ns = reports[server].fields["clock_offset_ns"]
            for index, item in enumerate(outgoing):
                columns = sent[server][FLOW_COLUMNS * index : FLOW_COLUMNS * (index + 1)]
                offered, refused, held, held_ns = (
                    np.frombuffer(column, np.int64) for column in columns
                )
                records[item.flow.id] = flow_record(
                    item.flow,
                    offered_ns=offered,
                    refused_seq=refused,
                    held=(held, held_ns),
                    first_ns=self._start_ns + item.phase_ns + offset_ns,
                    stopped_ns=stopped_ns[server] + offset_ns,
                    arrivals=arrivals[item.flow.destination],
                    port_moves=reports[server].fields["probe_port_moves"][index],
                )
        return tuple(records[flow.id] for flow in self._flows), rest


def softnet_drops() -> int:
    """Packets dropped because the CPUs' receive backlogs were full, since boot.

    The second column of /proc/net/softnet_stat (Linux net/core/net-procfs.c), of all CPUs; every
    packet that crosses a veth passes such a backlog.
    """
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines)


def _plan(fabric: Fabric, flows: Sequence[ProbeStream]) -> dict[str, list[_Outgoing]]:
    """The flows to send, for each server that sends or receives.

    Servers' start times are evenly staggered. The flows of a server start together, so that its
    agent wakes once for a packet of each: waking up costs more CPU than sending.
    """
    outgoing: dict[str, list[_Outgoing]] = {}
    place = {server: n for n, server in enumerate(dict.fromkeys(flow.source for flow in flows))}
    for flow in flows:
        ends = resolve_flow(fabric, flow)
        template = probe_frame(
            ends,
            sport=flow.sport,
            dest_qp=flow.dest_qp,
            flow=flow.id,
            payload_bytes=flow.payload_bytes,
        )
        nic = fabric.nics(flow.source)[flow.source_nic - 1]
        phase_ns = SECOND_NS // flow.rate_pps * place[flow.source] // len(place)
        outgoing.setdefault(flow.source, []).append(
            _Outgoing(flow, ports_of(fabric, nic), phase_ns, template)
        )
        outgoing.setdefault(flow.destination, [])
    return outgoing


def _agent_record(agent: AgentHandle, report: ChannelMessage) -> AgentRecord:
    fields = report.fields
    return AgentRecord(
        server=agent.server,
        cpu_s=fields["cpu_s"],
        backlog_ns=fields["backlog_ns"],
        socket_drops=fields["socket_drops"],
        send_errors=fields["send_errors"],
        icrc_errors=fields["icrc_errors"],
        unexpected=fields["unexpected"],
        drained=fields["drained"],
        misdated=fields["misdated"],
    )


def _parts(
    family: Family,
    outgoing: Mapping[str, Sequence[_Outgoing]],
    jobs: Sequence[JobPlan],
    netns_of: Callable[[str], Path],
    live: Path | None,
    is_watched: bool,
) -> dict[str, AgentPart]:
    """Each server's setup message: its probes, then its part of the jobs."""
    of_jobs = parts_of(jobs)
    # A server must have room for the longest frame of any other.
    longest = max((len(probe.template) for probe in chain(*outgoing.values())), default=0)
    parts = {}
    for server in dict.fromkeys((*outgoing, *of_jobs)):
        part = of_jobs.get(server, NO_JOB)
        probes = outgoing.get(server, ())
        fields = {
            **part.fields,
            "netns": str(netns_of(server)),
            "family": family,
            "live": None if live is None else str(live / server),
            "is_watched": is_watched,
            "frame_bytes": max(part.fields["frame_bytes"], longest),
            "probes": [
                {
                    "ports": probe.ports,
                    "leaves_by": probe.flow.leaves_by,
                    "rate_pps": probe.flow.rate_pps,
                    "phase_ns": probe.phase_ns,
                }
                for probe in probes
            ],
        }
        parts[server] = AgentPart(fields, (*(probe.template for probe in probes), *part.frames))
    return parts


NO_JOB = AgentPart(
    {
        "frame_bytes": 0,
        "moderation_ns": PROBE_MODERATION_NS,
        "sample_ns": 0,
        "nics": [],
        "local_bps": 0.0,
        "is_mesh": False,
        "kinds": [],
        "queue_pairs": [],
        "ranks": [],
        "tcp": {"kinds": []},
    },
    (),
)
"""The part of a server that only sends probes."""
