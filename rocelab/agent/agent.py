"""The process in a server that runs all its NICs, queue pairs and probe flows in one loop.

It enters the server's namespace, opens its sockets, and then repeats: read and answer arrived
frames, send due ones, sleep until the next deadline. `rocelab.traffic.session` sends it its part of
a run; it returns what it sent and received, and how punctual this machine let it be.

`python -m rocelab.agent.agent CHANNEL:ERRORS ...` forks an agent for each of these descriptors, its
control channel and the file for its standard error, so that only one process pays for the start of
an interpreter. It ends them all, and waits for them, at the end of its standard input.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from time import CLOCK_REALTIME, clock_gettime_ns, monotonic_ns
from typing import Any

from rocelab.agent.channel import Channel, ChannelClosedError, join, split
from rocelab.agent.demux import Demux
from rocelab.agent.endpoint import Endpoint
from rocelab.agent.live import LiveFile
from rocelab.agent.nic import NEVER_NS, SECOND_NS, AgentNic, FrameOutlet
from rocelab.agent.pausewatch import PausedPort, PauseFrameWatch
from rocelab.agent.prober import ProbeFlow, Prober
from rocelab.agent.steps import STALL_NS, Backlog
from rocelab.base.family import Family
from rocelab.linux.carrier import CarrierWatch
from rocelab.linux.lag import Lag, LagPort
from rocelab.linux.priority import run_first, set_timer_slack
from rocelab.linux.ring import open_ring, open_sink

PATIENCE = 16
"""Turns of the loop without a pause before it reads the control channel."""

MISDATED_NS = 100_000_000
"""A frame that arrived so long before this process began, or is yet to arrive, has the time of
another clock than this process reads."""

_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1


class Agent:
    """The loop over one server's ring, NICs, queue pairs, probe flows and control channel."""

    def __init__(self, channel: Channel) -> None:
        """Opens everything in the namespace that the setup message names. Raises OSError."""
        self._channel = channel
        setup = channel.receive()
        fields, parts = setup.fields, split(setup.fields["sizes"], setup.payload)
        _enter(fields["netns"])
        family = Family(fields["family"])
        self._sink = open_sink(family)
        self._moderation_ns = fields["moderation_ns"]
        outlets: dict[str, FrameOutlet] = {}

        def outlet(interface: str) -> FrameOutlet:
            if interface not in outlets:
                outlets[interface] = FrameOutlet(interface)
            return outlets[interface]

        probes = fields["probes"]
        flows = [
            _probe_flow(probe, template, outlet)
            for probe, template in zip(probes, parts, strict=False)
        ]
        self._prober = Prober([flow for flow, _ in flows])
        self._endpoint = Endpoint(fields, parts[len(probes) :], outlet, self._channel.send)
        self._outlets = outlets
        self._nics: list[Lag[FrameOutlet] | Lag[AgentNic]] = [
            *(nic for _, nic in flows),
            *self._endpoint.nics,
        ]
        self._carrier = CarrierWatch()
        self._pauses = _pause_watch(fields["nics"], self._endpoint.nics)
        self._check_carrier()
        self._ring = open_ring(fields["frame_bytes"], family)
        self._demux = Demux(
            self._ring,
            family,
            self._endpoint.queue_pairs,
            self._endpoint.on_message,
            self._endpoint.on_acknowledged,
        )
        self._live = LiveFile(
            fields["live"],
            list(self._endpoint.queue_pairs.values()),
            self._prober.flows,
            self._demux,
            self._endpoint.tcp,
            is_watched=fields["is_watched"],
        )
        self._backlog = Backlog()
        self._opened_ns = monotonic_ns()
        self._misdated = 0
        self._woke_ns = 0
        self._clock_offset_ns = 0
        self._settling = False
        self._due_ns = NEVER_NS
        self._turned_ns = 0

    def run(self) -> None:
        """Serve until the results are sent. Raises ChannelClosedError, OSError."""
        startup_cpu_s = _cpu_s()
        self._channel.send({"ready": True})
        turns = 0
        while True:
            _, next_ns = self._turn()
            if self._settling and self._endpoint.idle:
                self._settling = False
                self._channel.send({"settled": True})
            turns += 1
            if next_ns <= monotonic_ns() and turns < PATIENCE:
                continue
            turns = 0
            if not self._pause(next_ns):
                continue
            command = self._channel.receive().fields
            match command["do"]:
                case "start":
                    self._start(command["at_ns"])
                case "stop":
                    self._prober.stop()
                    self._endpoint.stop()
                    self._channel.send({"stopped_ns": monotonic_ns()})
                    self._settling = True
                case "finish":
                    drained = self._await_quiet(command["quiet_ns"], command["limit_ns"])
                    self._live.write(monotonic_ns())
                    self._report(drained, _cpu_s() - startup_cpu_s)
                    return

    def _check_carrier(self) -> None:
        for interface, present in self._carrier.read().items():
            for nic in self._nics:
                nic.carrier(interface, present)

    def _start(self, at_ns: int) -> None:
        run_first()
        self._clock_offset_ns = clock_offset_ns()
        self._backlog.start(monotonic_ns())
        self._prober.start(at_ns, self._clock_offset_ns)
        self._endpoint.start(at_ns)

    def _turn(self) -> tuple[int, int]:
        """Read arrived frames, send due ones; return how many arrived and the next deadline."""
        now_ns = monotonic_ns()
        arrived_ns = self._arrived_ns()
        # Anything that waited longer would have been seen in the previous turn.
        if now_ns - self._turned_ns >= STALL_NS:
            waiting_since_ns = max(self._turned_ns, min(self._due_ns, arrived_ns))
            self._endpoint.stalls.note(now_ns, waiting_since_ns)
        self._turned_ns = now_ns
        arrived = self._demux.drain(now_ns)
        pauses_ns = NEVER_NS if self._pauses is None else self._pauses.turn(now_ns)
        probe_ns = self._prober.send()
        now_ns = monotonic_ns()
        self._backlog.note(arrived_ns + self._moderation_ns, now_ns)
        if now_ns >= self._live.due_ns:
            self._live.turn(now_ns)
        next_ns = self._endpoint.turn(now_ns)
        if next_ns > now_ns:
            # As a NIC gathers packets before a bus transfer: waking up costs more than sending.
            next_ns = max(next_ns, self._woke_ns + self._moderation_ns)
        self._due_ns = min(probe_ns, next_ns)
        return arrived, min(self._due_ns, self._live.due_ns, pauses_ns)

    def _arrived_ns(self) -> int:
        """When the first frame that waits for this process arrived, NEVER_NS if none waits."""
        realtime_ns = self._ring.waiting_since_ns()
        if realtime_ns is None:
            return NEVER_NS
        arrived_ns = realtime_ns - self._clock_offset_ns
        if self._clock_offset_ns and not (
            self._opened_ns - MISDATED_NS <= arrived_ns <= monotonic_ns() + MISDATED_NS
        ):
            self._misdated += 1
        return arrived_ns

    def _pause(self, next_ns: int) -> bool:
        """Sleep until the next deadline, arrival, link event or command; return whether it is a
        command.

        Arrivals do not wake it within `moderation_ns` of the last time, like a NIC's interrupt
        moderation.
        """
        now_ns = monotonic_ns()
        deaf_until_ns = min(next_ns, self._woke_ns + self._moderation_ns)
        awaited = [self._channel.fileno(), self._carrier.fileno()]
        if self._pauses is not None:
            awaited.append(self._pauses.fileno())
        ready, _, _ = select.select(awaited, (), (), max(0, deaf_until_ns - now_ns) / SECOND_NS)
        if not ready and next_ns > deaf_until_ns:
            now_ns = monotonic_ns()
            timeout = None if next_ns == NEVER_NS else max(0, next_ns - now_ns) / SECOND_NS
            arrivals = (self._ring.fileno(), self._endpoint.tcp.fileno())
            ready, _, _ = select.select((*awaited, *arrivals), (), (), timeout)
        self._woke_ns = monotonic_ns()
        if self._carrier.fileno() in ready:
            self._check_carrier()
        return self._channel.fileno() in ready

    def _await_quiet(self, quiet_ns: int, limit_ns: int) -> bool:
        """Continue until nothing arrived for `quiet_ns`; False if `limit_ns` passed before that."""
        now_ns = quiet_since_ns = monotonic_ns()
        end_ns = now_ns + limit_ns
        while now_ns < end_ns:
            arrived, next_ns = self._turn()
            now_ns = monotonic_ns()
            if arrived:
                quiet_since_ns = now_ns
            elif now_ns - quiet_since_ns >= quiet_ns:
                return True
            if next_ns > now_ns:
                limit = min(next_ns, quiet_since_ns + quiet_ns, end_ns)
                select.select((self._ring,), (), (), max(0, limit - now_ns) / SECOND_NS)
        return False

    def _report(self, drained: bool, cpu_s: float) -> None:
        flows = self._prober.flows
        sent = [
            part.tobytes()
            for flow in flows
            for part in (flow.sent_ns, flow.refused, flow.held, flow.held_ns)
        ]
        fields, columns = self._endpoint.report()
        sizes, payload = join([*sent, *self._demux.probes.columns(), *columns])
        errors: dict[str, int] = {}
        for outlet in self._outlets.values():
            for name, count in outlet.errors.items():
                errors[name] = errors.get(name, 0) + count
        fields |= {
            "send_errors": errors,
            "drained": drained,
            "cpu_s": cpu_s,
            "backlog_ns": self._backlog.total_ns,
            "socket_drops": self._ring.drops(),
            "icrc_errors": self._demux.icrc_errors,
            "unexpected": self._demux.unexpected,
            "misdated": self._misdated,
            "clock_offset_ns": self._clock_offset_ns,
            "probe_port_moves": [flow.port_moves for flow in flows],
            "sizes": sizes,
        }
        self._channel.send(fields, payload)


def _probe_flow(
    probe: Mapping[str, Any], template: bytes, outlet: Callable[[str], FrameOutlet]
) -> tuple[ProbeFlow, Lag[FrameOutlet]]:
    """A flow, and the NIC that sends it."""
    nic = Lag(
        [
            LagPort(port["interface"], outlet(port["interface"]), bytes.fromhex(port["macs"]))
            for port in probe["ports"]
        ]
    )
    home = probe["leaves_by"]
    flow = ProbeFlow(nic.ports[home].way, template, probe["rate_pps"], probe["phase_ns"])
    nic.add(flow, home)
    return flow, nic


def _pause_watch(
    fields: Sequence[Sequence[Mapping[str, Any]]], nics: Sequence[Lag[AgentNic]]
) -> PauseFrameWatch | None:
    """What obeys pauses at the ports of NICs; None where no class is lossless."""
    ports = {
        port.interface: PausedPort(port.way, *port_fields["obeys"])
        for nic_fields, nic in zip(fields, nics, strict=True)
        for port_fields, port in zip(nic_fields, nic.ports, strict=True)
        if port_fields["obeys"] is not None
    }
    return PauseFrameWatch(ports) if ports else None


def clock_offset_ns() -> int:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC, from the fastest of a few readings."""
    tries = []
    for _ in range(16):
        before = monotonic_ns()
        realtime = clock_gettime_ns(CLOCK_REALTIME)
        after = monotonic_ns()
        tries.append((after - before, realtime - (before + after) // 2))
    return min(tries)[1]


def _enter(netns: str) -> None:
    """Move this process into the namespace at that path. Raises OSError.

    Not shared with the kernel package, whose libraries would slow an agent's start.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}", netns)
    finally:
        os.close(descriptor)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _end_with(parent: int) -> None:
    """Have the kernel end this process when `parent` does, and end now if it already has."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _serve(channel: int) -> None:
    set_timer_slack()
    try:
        Agent(Channel(socket.socket(fileno=channel))).run()
    except ChannelClosedError:
        sys.exit(1)


def main() -> None:
    gc.disable()  # nothing here makes reference cycles, and a collection would delay packets
    parent, agents = os.getpid(), []
    waiting = [tuple(map(int, argument.split(":"))) for argument in sys.argv[1:]]
    while waiting:
        channel, errors = waiting.pop()
        os.dup2(errors, sys.stderr.fileno())
        agent = os.fork()
        if not agent:
            _end_with(parent)
            # The end of an agent is seen once nobody else has its channel.
            for descriptor in chain.from_iterable(waiting):
                os.close(descriptor)
            _serve(channel)
            return
        agents.append(agent)
        os.close(channel)
        os.close(errors)
    sys.stdin.buffer.read()
    for agent in agents:
        os.kill(agent, signal.SIGKILL)
    for agent in agents:
        os.waitpid(agent, 0)


if __name__ == "__main__":
    main()
