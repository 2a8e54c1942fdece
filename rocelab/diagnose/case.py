"""A job's report, prepared for the search for causes.

A `Case`, from a `JobReport`, its fabric and the paths of its flows, has the job's times, the server
of each rank, the flows over each link, and the shares of excess on critical paths.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rocelab.diagnose.critical import CriticalSend, SendTiming
from rocelab.diagnose.paths import FlowPaths
from rocelab.jobs.job import JobSpec
from rocelab.planning.fabric import DirectedLink, Fabric
from rocelab.planning.queues import class_of_dscp
from rocelab.results.job import FlowFigures, HostStall, JobReport, QueueFigures, Times
from rocelab.results.lossless import PauseSpan, TracedPause, traced

Span = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """The facts about a job. `paths` is None if paths cannot be predicted."""

    report: JobReport
    timing: SendTiming
    paths: Sequence[FlowPaths] | None

    @property
    def job(self) -> JobSpec:
        job = self.report.spec
        assert isinstance(job, JobSpec)
        return job

    @property
    def fabric(self) -> Fabric:
        return self.report.fabric

    @property
    def network(self) -> str | None:
        """The name of the job's network, in a lab with several."""
        return self.report.network_name

    def times(self, lab_ns: float) -> Times:
        """A time of the lab in both clocks."""
        return Times(float(lab_ns), float(lab_ns) / self.report.clock.dilation)

    @cached_property
    def server_of(self) -> tuple[str, ...]:
        """The server of each rank."""
        return tuple(rank.nic.partition(":")[0] for rank in self.report.ranks)

    @cached_property
    def spans(self) -> Mapping[str, tuple[Span, ...]]:
        """When each server stood still while no other did: its own pauses. The machine under the
        lab causes stalls that two share."""
        by_server: dict[str, list[HostStall]] = {name: [] for name in dict.fromkeys(self.server_of)}
        for stall in self.report.stalls:
            by_server[stall.server].append(stall)
        return {
            server: tuple(
                (stall.began_ns, stall.began_ns + stall.length_ns)
                for stall in stalls
                if not any(
                    _is_shared(stall, other)
                    for name, others in by_server.items()
                    if name != server
                    for other in others
                )
            )
            for server, stalls in by_server.items()
        }

    @cached_property
    def flows_of(self) -> Mapping[tuple[int, int], tuple[int, ...]]:
        """The indexes in the report of the flows between each pair of ranks."""
        flows: dict[tuple[int, int], tuple[int, ...]] = {}
        for place, flow in enumerate(self.report.flows):
            pair = flow.rank, flow.peer
            flows[pair] = (*flows.get(pair, ()), place)
        return flows

    @cached_property
    def pauses(self) -> tuple[TracedPause, ...]:
        """The pauses (PFC) of the class of the job's data, with where each began."""
        lossless, queues = self.report.lossless, self.fabric.spec.queues
        if lossless is None or queues.pfc is None:
            return ()
        traffic_class = class_of_dscp(queues.dscp)[self.job.transport.dscp]
        spans = [span for span in lossless.spans if span.traffic_class == traffic_class]
        return traced(spans, lossless.servers)

    @cached_property
    def ports_of(self) -> Mapping[tuple[int, int], frozenset[tuple[str, str]]]:
        """The ports that send the data of each pair of ranks, as node and interface."""
        paths = self.paths or ()
        return {
            pair: frozenset(
                (link.sender, link.port.interface) for place in places for link in paths[place].data
            )
            for pair, places in self.flows_of.items()
            if paths
        }

    def crosses(self, pair: tuple[int, int], pause: PauseSpan) -> bool:
        """Whether data of a pair of ranks crosses the port that a pause stopped; if paths are
        unknown, whether this is at either end of its way."""
        if self.paths is None:
            ends = self.server_of[pair[0]], self.server_of[pair[1]]
            return pause.node == ends[0] or pause.peer == ends[1]
        return (pause.node, pause.interface) in self.ports_of.get(pair, ())

    @cached_property
    def crossing(self) -> Mapping[DirectedLink, tuple[FlowFigures, ...]]:
        """The flows whose data crosses each link; empty if paths are unknown."""
        by_link: dict[DirectedLink, list[FlowFigures]] = {}
        for flow, path in zip(self.report.flows, self.paths or (), strict=False):
            for link in path.data:
                by_link.setdefault(link, []).append(flow)
        return {link: tuple(flows) for link, flows in by_link.items()}

    def longest_pause_ns(self, pair: tuple[int, int]) -> int:
        """The longest pause of a port that data of a pair of ranks crosses."""
        return max(
            (
                pause.span.length_ns(self.report.fidelity.elapsed_ns)
                for pause in self.pauses
                if self.crosses(pair, pause.span)
            ),
            default=0,
        )

    def dropped_at(self, link: DirectedLink) -> int:
        """Packets that were lost before a link or at its far end, and counted there: by its queues,
        a watchdog, and a lossless class without room."""
        lossless = () if self.report.lossless is None else self.report.lossless.ports
        near, far = (
            [
                figures
                for figures in lossless
                if (figures.node, figures.interface) == (port.node, port.interface)
            ]
            for port in (link.port, link.far)
        )
        return (
            sum(queue.dropped_packets for queue in self.queues_at(link))
            + sum(figures.discarded_packets for figures in near)
            + sum(figures.dropped_packets for figures in far)
        )

    def queues_at(self, link: DirectedLink) -> tuple[QueueFigures, ...]:
        """The active queues before a link; none if a server sends."""
        return tuple(
            queue
            for queue in self.report.queues
            if (queue.node, queue.interface) == (link.sender, link.port.interface)
        )

    def stalled_ns(self, server: str, begin_ns: int, end_ns: int) -> int:
        """How long a server stood still during a time."""
        return sum(
            max(0, min(end_ns, end) - max(begin_ns, begin)) for begin, end in self.spans[server]
        )

    def host_part(self, critical: CriticalSend) -> dict[str, int]:
        """How long the servers at a transfer's ends stood still during its excess, in ns."""
        send = self.timing.schedule.sends[critical.send]
        parts: dict[str, int] = {}
        left = critical.excess_ns
        for server in dict.fromkeys(
            (self.server_of[send.source], self.server_of[send.destination])
        ):
            parts[server] = min(left, self.stalled_ns(server, critical.ready_ns, critical.ended_ns))
            left -= parts[server]
        return parts

    def excess_of_flows(self, flows: Collection[FlowFigures]) -> tuple[int, tuple[int, ...]]:
        """The excess on critical paths of sends that some of these flows carried, in ns and without
        the servers' pauses, and its iterations."""
        pairs = {(flow.rank, flow.peer) for flow in flows}
        total, iterations = 0, set()
        for path in self.timing.paths:
            for critical in path:
                send = self.timing.schedule.sends[critical.send]
                if (send.source, send.destination) in pairs:
                    part = critical.excess_ns - sum(self.host_part(critical).values())
                    total += part
                    if part > 0:
                        iterations.add(critical.iteration)
        return total, tuple(sorted(iterations))


def _is_shared(one: HostStall, other: HostStall) -> bool:
    """Whether the other server stood still as well during most of `one`."""
    begin = max(one.began_ns, other.began_ns)
    end = min(one.began_ns + one.length_ns, other.began_ns + other.length_ns)
    return 2 * (end - begin) > one.length_ns
