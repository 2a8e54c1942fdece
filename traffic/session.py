"""A traffic run on a running lab: an agent in every server that takes part, started together.

In: a fabric, where each server's namespace is, and flows. Out: a `TrafficResult`. Agents live
exactly as long as the session: they end with it, with the process, and with the thread that opened
it (the kernel's parent-death signal follows that thread), whatever ends those.

    with TrafficSession(fabric, netns_of, flows) as session:
        session.start()
        ...
        result = session.stop()
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from types import TracebackType
from typing import IO, Self

import numpy as np

import traffic
from labs.errors import InputError, MachineError
from labs.plan.fabric import Fabric
from traffic.agent import clock_offset_ns
from traffic.channel import Channel, ChannelClosedError, Message, join, split
from traffic.flow import Flow, resolve_flow
from traffic.result import (
    SECOND_NS,
    AgentRecord,
    Arrivals,
    FlowRecord,
    TrafficResult,
    find_problems,
    flow_record,
    read_arrivals,
)
from traffic.roce import probe_frame

START_DELAY_NS = 20_000_000
"""From `start` to the first deadline, so that every agent has its command before."""

QUIET_NS = 200_000_000
"""A run is over once no probe has arrived for this long (ten times the ring's hand-over time)."""

DRAIN_LIMIT_NS = 10 * SECOND_NS
REPLY_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class _Outgoing:
    """A flow as its agent needs it."""

    flow: Flow
    interface: str
    phase_ns: int
    template: bytes


class _AgentProcess:
    """One agent: the process, its channel and what it wrote to standard error."""

    def __init__(self, server: str, outgoing: Sequence[_Outgoing]) -> None:
        self.server = server
        self.outgoing = outgoing
        self.startup_cpu_s = 0.0
        self._stderr = _scratch_file()
        ours, theirs = socket.socketpair()
        ours.settimeout(REPLY_TIMEOUT_S)
        self._channel = Channel(ours)
        with theirs:
            # Without `site`: an agent needs this package and the standard library only.
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-m", "traffic.agent", str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env={**os.environ, "PYTHONPATH": str(Path(traffic.__path__[0]).parent)},
                process_group=0,
            )

    def close(self) -> None:
        self._channel.close()
        self._process.kill()
        self._process.wait()
        self._stderr.close()

    def send(self, fields: dict[str, object], payload: bytes = b"") -> None:
        try:
            self._channel.send(fields, payload)
        except ChannelClosedError as error:
            raise self._ended() from error

    def receive(self) -> Message:
        try:
            return self._channel.receive()
        except ChannelClosedError as error:
            raise self._ended() from error
        except TimeoutError as error:
            raise MachineError(
                f"the traffic agent of {self.server} has not answered for {REPLY_TIMEOUT_S:.0f} s",
                hint="the machine may be short of CPU or memory",
            ) from error

    def _ended(self) -> MachineError:
        status = self._process.wait()
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"exit status {status}"
        return MachineError(
            f"the traffic agent of {self.server} ended: {reason}",
            hint="is the lab up, and no other traffic session running on it?",
        )


class TrafficSession:
    """Flows on a running fabric. `netns_of` gives the path of a server's namespace."""

    def __init__(
        self, fabric: Fabric, netns_of: Callable[[str], Path], flows: Sequence[Flow]
    ) -> None:
        """Plans only. Raises InputError where a flow does not fit the fabric."""
        if not flows:
            raise InputError("a traffic session has no flows", hint="give it one or more")
        if len({flow.id for flow in flows}) != len(flows):
            raise InputError("two flows have the same id", hint="number them apart")
        self._netns_of = netns_of
        self._flows = tuple(flows)
        self._outgoing = _plan(fabric, self._flows)
        self._agents: list[_AgentProcess] = []
        self._cleanup = ExitStack()
        self._start_ns = 0
        self._clock_offset_ns = 0
        self._softnet_drops = 0

    def __enter__(self) -> Self:
        """Start and arm every agent. Raises MachineError where one can not."""
        with ExitStack() as undo:
            for server, outgoing in self._outgoing.items():
                agent = _AgentProcess(server, outgoing)
                undo.callback(agent.close)
                self._agents.append(agent)
            for agent in self._agents:
                sizes, templates = join([item.template for item in agent.outgoing])
                flows = [
                    {
                        "interface": item.interface,
                        "rate_pps": item.flow.rate_pps,
                        "phase_ns": item.phase_ns,
                    }
                    for item in agent.outgoing
                ]
                netns = str(self._netns_of(agent.server))
                agent.send({"netns": netns, "flows": flows, "sizes": sizes}, templates)
            for agent in self._agents:
                agent.startup_cpu_s = agent.receive().fields["startup_cpu_s"]
            self._cleanup = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cleanup.close()

    def start(self) -> int:
        """Start all flows; the first deadline in CLOCK_REALTIME ns. Raises MachineError."""
        self._clock_offset_ns = clock_offset_ns()
        self._softnet_drops = softnet_drops()
        self._start_ns = monotonic_ns() + START_DELAY_NS
        for agent in self._agents:
            agent.send({"do": "start", "at_ns": self._start_ns})
        return self._start_ns + self._clock_offset_ns

    def stop(self) -> TrafficResult:
        """Stop sending, wait until nothing arrives any more, and collect. Raises MachineError."""
        for agent in self._agents:
            agent.send({"do": "stop"})
        stopped_ns = {agent.server: agent.receive().fields["stopped_ns"] for agent in self._agents}
        for agent in self._agents:
            agent.send({"do": "finish", "quiet_ns": QUIET_NS, "limit_ns": DRAIN_LIMIT_NS})
        reports = {agent.server: agent.receive() for agent in self._agents}
        clock_jump_ns = clock_offset_ns() - self._clock_offset_ns
        dropped = softnet_drops() - self._softnet_drops
        flows = self._flow_records(reports, stopped_ns)
        agents = tuple(_agent_record(agent, reports[agent.server]) for agent in self._agents)
        return TrafficResult(
            flows=flows,
            agents=agents,
            started_ns=self._start_ns + self._clock_offset_ns,
            stopped_ns=max(stopped_ns.values()) + self._clock_offset_ns,
            clock_jump_ns=clock_jump_ns,
            softnet_drops=dropped,
            problems=find_problems(flows, agents, clock_jump_ns, dropped),
        )

    def _flow_records(
        self, reports: dict[str, Message], stopped_ns: dict[str, int]
    ) -> tuple[FlowRecord, ...]:
        parts = {
            server: split(report.fields["sizes"], report.payload)
            for server, report in reports.items()
        }
        arrivals: dict[str, Arrivals] = {
            agent.server: read_arrivals(parts[agent.server][2 * len(agent.outgoing) :])
            for agent in self._agents
        }
        records = {}
        for agent in self._agents:
            offset_ns = reports[agent.server].fields["clock_offset_ns"]
            for index, item in enumerate(agent.outgoing):
                offered, refused = parts[agent.server][2 * index : 2 * index + 2]
                records[item.flow.id] = flow_record(
                    item.flow,
                    offered_ns=np.frombuffer(offered, np.int64),
                    refused_seq=np.frombuffer(refused, np.int64),
                    first_ns=self._start_ns + item.phase_ns + offset_ns,
                    stopped_ns=stopped_ns[agent.server] + offset_ns,
                    arrivals=arrivals[item.flow.destination],
                )
        return tuple(records[flow.id] for flow in self._flows)


def _scratch_file() -> IO[bytes]:
    """A file without a name: it can not fill up like a pipe and block the agent."""
    return os.fdopen(os.memfd_create("agent-stderr"), "w+b")


def softnet_drops() -> int:
    """Packets that the machine's CPUs had no room for in their receive backlogs, since boot.

    The second column of /proc/net/softnet_stat (Linux net/core/net-procfs.c), of all CPUs; every
    packet that crosses a veth passes such a backlog.
    """
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines)


def _plan(fabric: Fabric, flows: Sequence[Flow]) -> dict[str, list[_Outgoing]]:
    """What each server that sends or receives has to send.

    Servers start evenly staggered. The flows of one start together, so that its agent wakes once
    for a packet of each: waking costs more CPU than sending.
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
        phase_ns = SECOND_NS // flow.rate_pps * place[flow.source] // len(place)
        outgoing.setdefault(flow.source, []).append(
            _Outgoing(flow, ends.interface, phase_ns, template)
        )
        outgoing.setdefault(flow.destination, [])
    return outgoing


def _agent_record(agent: _AgentProcess, report: Message) -> AgentRecord:
    errors: dict[str, int] = {}
    for flow in report.fields["flows"]:
        for name, count in flow["errors"].items():
            errors[name] = errors.get(name, 0) + count
    return AgentRecord(
        server=agent.server,
        startup_cpu_s=agent.startup_cpu_s,
        cpu_s=report.fields["cpu_s"],
        socket_drops=report.fields["socket_drops"],
        send_errors=errors,
        drained=report.fields["drained"],
    )
