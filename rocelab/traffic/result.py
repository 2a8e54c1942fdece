"""The result of a traffic run: every packet sent and received, and whether the run is valid.

Combines the flows and the agents' reports into a frozen `TrafficResult` with one numpy array per
measure and flow, and `problems`, the reasons why this machine did not carry the run as intended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rocelab.base.wording import counted
from rocelab.jobs.flow import ProbeStream
from rocelab.traffic.jobresult import JobResult

Numbers = npt.NDArray[np.int64]
_NONE = np.empty(0, np.int64)

SECOND_NS = 10**9
RATE_ERROR_LIMIT = 0.01
LAG_P99_LIMIT_NS = 5_000_000
LAG_MAX_LIMIT_NS = 50_000_000
"""How late packets may be sent. 24 flows of 1,000 packets/s over four hops on two virtual CPUs: 0.2
to 1.5 ms (99th percentile) and 2 to 22 ms (maximum, when the hypervisor took a CPU for that long);
while a fabric of 270 switches converged on the same machine: 54 and 84 ms."""

CLOCK_JUMP_LIMIT_NS = 50_000


@dataclass(frozen=True, slots=True, eq=False)
class FlowTransmission:
    """One flow's packets. Times are CLOCK_REALTIME ns; every deadline has a sequence number."""

    flow: ProbeStream
    sent_seq: Numbers
    """Packets that the kernel accepted, in sending order."""

    sent_ns: Numbers
    """As `sent_seq`."""

    refused_seq: Numbers
    """Packets that the kernel refused (interface down, queue full)."""

    refused_ns: Numbers
    """As `refused_seq`."""

    received_seq: Numbers
    """Arrivals at the destination, in arrival order."""

    send_ns: Numbers
    """When each arrival was sent."""

    receive_ns: Numbers
    """The kernel's receive time of each arrival."""

    ttl: npt.NDArray[np.uint8]
    """The TTL left of each arrival."""

    intended: int
    """Packets due between start and stop."""

    lag_p99_ns: int
    """How late packets were sent after their deadlines."""

    lag_max_ns: int
    port_moves: int = 0
    """How often the flow moved to another port of its NIC."""

    held_seq: Numbers = field(default_factory=_NONE.copy)
    """Packets that left the sender only some time after `sent_ns`."""

    held_ns: Numbers = field(default_factory=_NONE.copy)
    """How long after at most."""

    @property
    def offered(self) -> int:
        """Packets offered to the kernel, taken or refused."""
        return len(self.sent_seq) + len(self.refused_seq)


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """The costs and errors of one server's agent."""

    server: str
    cpu_s: float
    backlog_ns: int
    """How long arrived frames waited for it after a NIC would have passed them on."""

    socket_drops: int
    send_errors: Mapping[str, int]
    """Refusals by errno name."""

    icrc_errors: int
    """Frames with a wrong ICRC."""

    unexpected: int
    """RoCE frames for no queue pair of the server."""

    drained: bool
    misdated: int = 0
    """Frames that the kernel stamped with a time before the run or to come, seen once a turn."""


@dataclass(frozen=True, slots=True, eq=False)
class TrafficResult:
    """One run. It is a valid measurement only if `problems` is empty."""

    flows: tuple[FlowTransmission, ...]
    agents: tuple[AgentRecord, ...]
    started_ns: int
    stopped_ns: int
    clock_jump_ns: int
    softnet_drops: int
    problems: tuple[str, ...]
    jobs: tuple[JobResult, ...] = ()
    still_ns: int = 0
    """How long nothing had moved when unfinished jobs were given up (`rocelab.traffic.standstill`),
    else 0."""

    @property
    def valid(self) -> bool:
        return not self.problems

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all agents during the run.

        Includes forwarding: the kernel carries a packet across veths within its sender's system
        call.
        """
        return sum(agent.cpu_s for agent in self.agents)


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Everything one agent received, in arrival order, of any flow."""

    flow: npt.NDArray[np.uint32]
    sequence: Numbers
    send_ns: Numbers
    receive_ns: Numbers
    ttl: npt.NDArray[np.uint8]


def read_arrivals(columns: Sequence[bytes]) -> Arrivals:
    """The columns of `rocelab.agent.demux.ProbeLog` as arrays."""
    flow, sequence, send_ns, receive_ns, ttl = columns
    return Arrivals(
        flow=np.frombuffer(flow, np.uint32),
        sequence=np.frombuffer(sequence, np.int64),
        send_ns=np.frombuffer(send_ns, np.int64),
        receive_ns=np.frombuffer(receive_ns, np.int64),
        ttl=np.frombuffer(ttl, np.uint8),
    )


def packets_due(elapsed_ns: int, rate_pps: int) -> int:
    """Deadlines of a flow within `elapsed_ns` of its first, including that one."""
    return 0 if elapsed_ns < 0 else elapsed_ns * rate_pps // SECOND_NS + 1


def flow_record(
    flow: ProbeStream,
    *,
    offered_ns: Numbers,
    refused_seq: Numbers,
    first_ns: int,
    stopped_ns: int,
    arrivals: Arrivals,
    port_moves: int = 0,
    held: tuple[Numbers, Numbers] | None = None,
) -> FlowTransmission:
    """One flow's record; `offered_ns[n]` is the time stamp in packet n, which is due n intervals
    after `first_ns`. `held` are numbers of packets and the durations of their sending.

    All times are CLOCK_REALTIME nanoseconds.
    """
    sequence = np.arange(len(offered_ns), dtype=np.int64)
    lag_ns = offered_ns - first_ns - sequence * SECOND_NS // flow.rate_pps
    sent = np.ones(len(offered_ns), dtype=bool)
    sent[refused_seq] = False
    mine = arrivals.flow == flow.id
    return FlowTransmission(
        flow=flow,
        sent_seq=sequence[sent],
        sent_ns=offered_ns[sent],
        refused_seq=refused_seq,
        refused_ns=offered_ns[refused_seq],
        received_seq=arrivals.sequence[mine],
        send_ns=arrivals.send_ns[mine],
        receive_ns=arrivals.receive_ns[mine],
        ttl=arrivals.ttl[mine],
        intended=packets_due(stopped_ns - first_ns, flow.rate_pps),
        lag_p99_ns=int(np.percentile(lag_ns, 99)) if len(lag_ns) else 0,
        lag_max_ns=int(lag_ns.max(initial=0)),
        port_moves=port_moves,
        held_seq=_NONE if held is None else held[0],
        held_ns=_NONE if held is None else held[1],
    )


def find_problems(
    flows: Sequence[FlowTransmission],
    agents: Sequence[AgentRecord],
    clock_jump_ns: int,
    softnet_drops: int,
    *,
    clock_was_set: bool = False,
) -> tuple[str, ...]:
    """Why a run is not valid: one sentence per kind of problem, with its worst case.

    `clock_jump_ns` is from the run's start to its end: a clock that was set and reset shows only in
    `clock_was_set`.

    A packet refused because an interface was down is the effect of a fault, no problem; one refused
    because a queue or buffer was full is load that was never offered.
    """
    return tuple(
        f"not valid because {reason}"
        for reason in (
            *_rate_problems(flows),
            *_lag_problems(flows),
            *_agent_problems(agents),
            *_machine_problems(clock_jump_ns, softnet_drops, clock_was_set),
        )
    )


def _rate_problems(flows: Sequence[FlowTransmission]) -> Iterable[str]:
    # One packet may be due at the moment when the sender stops.
    short = [f for f in flows if f.offered + 1 < f.intended * (1 - RATE_ERROR_LIMIT)]
    if short:
        worst = min(short, key=lambda f: f.offered / f.intended)
        yield (
            f"{len(short)} of {len(flows)} flows were sent more than {RATE_ERROR_LIMIT:.0%} too "
            f"slowly (flow {worst.flow.id} of {worst.flow.source}: {worst.offered:,} of "
            f"{worst.intended:,} packets); fewer flows or a lower rate would fit"
        )


def _lag_problems(flows: Sequence[FlowTransmission]) -> Iterable[str]:
    for what, limit_ns, lags_ns in (
        ("99th percentile", LAG_P99_LIMIT_NS, [f.lag_p99_ns for f in flows]),
        ("maximum", LAG_MAX_LIMIT_NS, [f.lag_max_ns for f in flows]),
    ):
        worst_ns = max(lags_ns, default=0)
        if worst_ns > limit_ns:
            flow = flows[lags_ns.index(worst_ns)].flow
            yield (
                f"packets of flow {flow.id} left {flow.source} {worst_ns / 1e6:.1f} ms late "
                f"({what}; the limit is {limit_ns / 1e6:g} ms)"
            )


def _agent_problems(agents: Sequence[AgentRecord]) -> Iterable[str]:
    for agent in agents:
        if agent.socket_drops:
            dropped = counted(agent.socket_drops, "packet")
            yield f"{agent.server}'s receiver had no room for {dropped}"
        full = agent.send_errors.get("ENOBUFS", 0) + agent.send_errors.get("EAGAIN", 0)
        if full:
            yield f"{agent.server}'s kernel had no room for {counted(full, 'packet')} to send"
        if agent.misdated:
            yield (
                f"the kernel stamps packets for {agent.server} with another time than the clock "
                "that this process reads: it was set during the run, or is another clock (faketime)"
            )
        if not agent.drained:
            yield f"packets were still arriving at {agent.server} when it stopped waiting for them"


def _machine_problems(clock_jump_ns: int, softnet_drops: int, clock_was_set: bool) -> Iterable[str]:
    if softnet_drops:
        yield f"the kernel's receive backlog had no room for {counted(softnet_drops, 'packet')}"
    if abs(clock_jump_ns) > CLOCK_JUMP_LIMIT_NS:
        yield f"the machine's clock jumped by {clock_jump_ns / 1e6:.3f} ms"
    elif clock_was_set:
        yield "the machine's clock was set during the run, and set back"
