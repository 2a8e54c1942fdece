"""The document of a traffic job: what ran, where, its result and whether it is valid.

`rocelab.runs.jobfigures` derives the figures. A frozen `JobReport` is written as JSON and reads
back into an equal object. docs/documents/ is generated from it.

Times are in both clocks. Bandwidths are those of the modelled network; bytes and packets are the
same in both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rocelab.base.documents import Format, misfit, read_text
from rocelab.base.doors import of_gone
from rocelab.base.errors import PackageGoneError
from rocelab.base.statistics import Spread
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import KINDS, LabJob, SimulatedJob
from rocelab.jobs.served import Served
from rocelab.planning.fabric import DirectedLink, Direction
from rocelab.planning.queues import class_of_dscp
from rocelab.results.environment import Environment
from rocelab.results.flowtimes import FlowTimes, SlowdownBySize, StepTimes
from rocelab.results.impact import Impact
from rocelab.results.lossless import Lossless
from rocelab.results.oflab import LabDocument
from rocelab.results.probes import Disturbance, Event
from rocelab.results.stages import Stages
from rocelab.results.tcp import TcpFigures
from rocelab.routes.balance import TierBalance

SCHEMA_VERSION = 2

SETTLED_NS = 5 * 10**9
"""So long after a repair, BGP's sessions are back, and what flows lose has another cause."""

UNSCALED = (
    "the CPU time that agents and the kernel need per packet: it is in round trips, and in nothing "
    "else while the machine keeps up",
    "BGP and BFD timers, which run at the values in the lab's file",
    "packet sizes, queue depths and ECN thresholds, which are bytes and not time",
)


@dataclass(frozen=True, slots=True)
class Times:
    """A time in the lab's clock and in the modelled network's, in nanoseconds."""

    lab_ns: float
    modelled_ns: float


@dataclass(frozen=True, slots=True)
class Clock:
    """The lab's dilation and in words what it does not scale."""

    dilation: float
    unscaled: tuple[str, ...] = UNSCALED


@dataclass(frozen=True, slots=True)
class Headline:
    """A figure with its spread over what `of` says: iterations, slices of time or senders.

    `lab` is the same in the lab's clock, None for a figure without a clock.
    """

    name: str
    title: str
    unit: str
    of: str
    modelled: Spread
    lab: Spread | None


@dataclass(frozen=True, slots=True)
class RankFigures:
    """A rank and its NIC."""

    rank: int
    nic: str
    """As `server:nic`."""
    waiting: Times | None
    """How long in an iteration (the median) it had no transfer of its own under way; None for
    streams and failed jobs."""
    posted_bytes: int
    acked_bytes: int
    delivered_bytes: int


@dataclass(frozen=True, slots=True)
class Transport:
    """Counters of all queue pairs, warm-up included."""

    queue_pairs: int
    data_packets: int
    """Sent, `retransmitted` among them."""
    retransmitted: int
    posted_bytes: int
    acked_bytes: int
    delivered_bytes: int
    timeouts: int
    naks_sent: int
    naks_received: int
    out_of_order: int
    """At receivers."""
    duplicates: int
    """At receivers."""
    ce: int
    """Data packets that came with a congestion mark."""
    cnps_sent: int
    cnps_received: int
    refused: int
    """Packets of all kinds that a NIC did not accept."""
    icrc_errors: int
    unexpected: int
    port_moves: int = 0
    """How often a queue pair moved to the other port of its NIC."""
    reordered: int | None = None
    """Packets that came after a later one; None unless the transport takes packets out of order."""
    reordered_share: float | None = None
    """Of all packets received."""
    reorder_extent: int | None = None
    """By how many packets at most."""


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """The time from the departure of a packet that requested an acknowledgement to the reading of
    that one."""

    samples: int
    p50: Times
    p99: Times
    maximum: Times


@dataclass(frozen=True, slots=True)
class OtherTraffic:
    """What of a queue's packets was not RoCEv2: packets by protocol, which entered the queue; of
    the queue's other counts those that are theirs."""

    tcp: int
    udp: int
    icmp: int
    rest: int
    bytes: int
    marked: int
    ce_out: int
    dropped_packets: int
    dropped_bytes: int
    held_max_bytes: int
    """In the queue at once, at most."""
    crowded_out: int
    """RoCEv2 packets that would not have been dropped, had no others been in the port."""

    @property
    def packets(self) -> int:
        return self.tcp + self.udp + self.icmp + self.rest


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """What a switch port's queue of one traffic class did in this run; unused ones are left out.

    None or empty: the lab's queues cannot count it.
    """

    node: str
    interface: str
    traffic_class: int
    packets: int
    bytes: int
    marked: int
    """Marked here."""
    dropped_packets: int
    ce_out: int | None
    """Left with a mark, set here or before."""
    depth_max_bytes: int | None
    """On arrival."""
    depth_mean_bytes: float | None
    """On arrival."""
    packets_by_depth: tuple[int, ...] = ()
    """By bin of depth on arrival, 8 below kmin, 16 from there to kmax and 8 above."""
    marked_by_depth: tuple[int, ...] = ()
    """By bin of depth on arrival, 8 below kmin, 16 from there to kmax and 8 above."""
    others: OtherTraffic | None = None
    """What of all these was not RoCEv2; None if nothing was."""

    @property
    def roce_packets(self) -> int:
        """Packets of RoCEv2; all, where the lab's queues cannot tell them apart."""
        return self.packets - (0 if self.others is None else self.others.packets)

    @property
    def roce_dropped(self) -> int:
        """Dropped packets of RoCEv2, as `roce_packets`."""
        return self.dropped_packets - (0 if self.others is None else self.others.dropped_packets)

    @property
    def roce_marked(self) -> int:
        """Packets of RoCEv2 that were marked here, as `roce_packets`."""
        return self.marked - (0 if self.others is None else self.others.marked)

    @property
    def roce_ce_out(self) -> int | None:
        """Packets of RoCEv2 that left with a mark; None if the lab's queues cannot count them."""
        others = 0 if self.others is None else self.others.ce_out
        return None if self.ce_out is None else self.ce_out - others


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """What a link carried from `sender` on."""

    link: str
    tier: str
    direction: Direction
    sender: str
    packets: int
    """RoCEv2 packets that came in at the far end."""
    bytes: int
    """Of all frames that left, routing's included."""
    share: float | None
    """Of the packets of its tier in this direction, None if the tier carried none."""


@dataclass(frozen=True, slots=True)
class SenderGoodput:
    """Payload of a rank acknowledged in each step of time, bit/s of the modelled network."""

    rank: int
    rate_bps: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Goodput:
    """Goodput over time, from the start of the job in equal steps."""

    step: Times
    senders: tuple[SenderGoodput, ...]


@dataclass(frozen=True, slots=True)
class Fairness:
    """Rates of the senders of streams in the second half of the time when all of them send."""

    start: Times
    end: Times
    rate_bps: dict[int, float]
    jfi: float | None
    """Jain's index."""
    ratio: float | None
    """The fastest over the slowest, None if one sent nothing."""


@dataclass(frozen=True, slots=True)
class CountCheck:
    """Two counts of the same thing that must agree, summed over `places`; `differing` names the
    first places where they differ."""

    name: str
    left: str
    left_count: int
    right: str
    right_count: int
    places: int
    differing: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        return not self.differing


@dataclass(frozen=True, slots=True)
class JobFidelity:
    """How well this machine carried the run, in the lab's clock."""

    lost_share: float
    """The share of its sending time in which the worst port idled only because of the machine."""
    late_p99_ns: int
    """How late packets left the worst port."""
    late_max_ns: int
    """How late packets left the worst port."""
    agents_cpu_s: float
    """CPU time of the endpoints, with the kernel's forwarding."""
    elapsed_s: float
    stolen_s: float
    """CPU time that the hypervisor kept."""
    clock_jump_ns: int
    softnet_drops: int
    backlog_share: float | None = None
    """The share of the run in which packets that had arrived waited for the worst server, after a
    NIC's interrupt moderation; the answers that others waited for came later by as much."""

    @property
    def elapsed_ns(self) -> int:
        return round(self.elapsed_s * 10**9)


@dataclass(frozen=True, slots=True)
class StepRecords:
    """When things happened in the last iterations, in ns of the lab since the job's start.

    A row per iteration from `first` on; negative for never.
    """

    first: int
    """Its number; 0 is the first, warm-up included."""
    began_ns: tuple[tuple[int, ...], ...]
    """With a column per rank."""
    ended_ns: tuple[tuple[int, ...], ...]
    """With a column per rank."""
    posted_ns: tuple[tuple[int, ...], ...]
    """With a column per send: all predecessors of the send were over, and it was posted to its
    queue pairs."""
    arrived_ns: tuple[tuple[int, ...], ...]
    """With a column per send: the receiver took its last byte."""
    acked_ns: tuple[tuple[int, ...], ...]
    """With a column per send."""


@dataclass(frozen=True, slots=True)
class WorkloadFigures:
    """What a job of a file of jobs has that is no collective."""

    steps: tuple[StepTimes, ...] = ()
    """Those of the last iteration that send, in order, from the iteration's begin; a step is over
    when the last of its sends has arrived and is acknowledged. Empty for flows that begin at given
    times."""
    flow_times: FlowTimes | None = None
    """Of flows that begin at given times: from then until the sender has the last ACK. None for
    other jobs, and if the job failed."""
    slowdown: SlowdownBySize | None = None
    """Of the same flows, by their sizes."""
    served: Served | None = None
    """What requests felt, of a job that serves some."""


@dataclass(frozen=True, slots=True)
class HostStall:
    """A server had packets to receive or send and did neither for 10 ms of the lab or more, in ns
    of the lab since the job's start."""

    server: str
    began_ns: int
    length_ns: int


@dataclass(frozen=True, slots=True)
class FlowFigures:
    """The data of one queue pair in one direction, warm-up included."""

    rank: int
    peer: int
    sport: int
    dest_qp: int
    port: int
    """Of the sender's NIC."""
    acks_sport: int
    """Source port and QP of the acknowledgements."""
    acks_qp: int
    """Source port and QP of the acknowledgements."""
    acks_port: int
    """The port of the receiver's NIC that they leave by."""
    bytes: int
    packets: int
    """Sent, `retransmitted` among them, in `messages`; some may still wait in a port that is paused
    when the job ends."""
    messages: int
    retransmitted: int
    naks: int
    """At the sender."""
    timeouts: int
    """At the sender."""
    cnps: int
    """At the sender."""
    out_of_order: int
    """At the receiver."""
    duplicates: int
    """At the receiver."""
    ce: int
    """At the receiver."""
    rtt_p50_ns: float | None
    """At the sender."""
    rtt_p99_ns: float | None
    """At the sender."""
    links: tuple[str, ...] = ()
    """Its path, by the kernels' tables before the job; empty under a scheme that does not decide
    it."""


@dataclass(frozen=True, slots=True)
class FlowOutage:
    """A flow waited for an acknowledgement that it had requested, and sent packets again or waited
    for longer than `resolution_ns`; in ns of the lab since the job's start."""

    flow: int
    """Its place in `flows`, from 0."""
    began_ns: int
    """The acknowledgement before came, or it was requested."""
    ended_ns: int | None
    """None: it had not come by the end."""
    resolution_ns: int
    """A shorter wait may be mostly that of an undisturbed flow: twice the round trip that 1%
    exceed, at least 10 ms, and how late a packet left at most."""
    retransmitted: int
    """Packets of the flow sent again from then to its next outage, or to the end."""

    @property
    def out_ns(self) -> int | None:
        """How long it was out; None if it did not return."""
        return None if self.ended_ns is None else self.ended_ns - self.began_ns


@dataclass(frozen=True)
class JobReport(LabDocument):
    """The result of a job. It is a valid measurement only if `problems` and `disturbed` are
    empty."""

    schema_version: int
    job: dict[str, Any]
    """The specs in full, as JSON values."""
    lab: dict[str, Any]
    """The specs in full, as JSON values."""
    environment: Environment
    clock: Clock
    warnings: tuple[str, ...]
    problems: tuple[str, ...]
    """Why the run is invalid."""
    errors: tuple[str, ...]
    """Queue pairs that failed; the job then ended, and has no headlines."""
    fidelity: JobFidelity
    headlines: tuple[Headline, ...]
    """Time of an iteration, algbw, busbw and JCT ratio; for streams goodput of all and of a
    sender."""
    iterations: tuple[Times, ...]
    """The measured ones."""
    roofline: Times | None
    """The least time of an iteration: the bytes of the busiest NIC, with all headers and Ethernet's
    preamble, FCS and gap, at its rate; no latency, no waiting, no links between switches."""
    completion: Times | None
    """Of all measured iterations, pauses included."""
    ranks: tuple[RankFigures, ...]
    transport: Transport | None
    """None of a job of TCP, which has `tcp`."""
    round_trips: RoundTrips | None
    """Of TCP, the kernel's smoothed ones (RFC 6298) at samples of its connections. Of RoCEv2 they
    include the queues, and the time for which agents batch arrivals (1 us x dilation, 50 us
    to 1 ms of the lab)."""
    queue_engine: str
    queues: tuple[QueueFigures, ...]
    links: tuple[LinkFigures, ...]
    tiers: tuple[TierBalance, ...]
    goodput: Goodput
    fairness: Fairness | None
    accounting: tuple[CountCheck, ...]
    """Counts of devices beside those of endpoints."""
    flows: tuple[FlowFigures, ...] = ()
    """Per queue pair and direction with data."""
    steps: StepRecords | None = None
    """Of the last iterations, up to 32,768 sends; None for streams, for failed jobs, and if one
    iteration has more sends than are kept."""
    stalls: tuple[HostStall, ...] = ()
    """Of 10 ms of the lab or more."""
    events: tuple[Event, ...] = ()
    """Faults and repairs meanwhile, `t_ns` in ns of the lab since the start of the jobs; nothing is
    merged, and a fault repaired only after the jobs has no end here."""
    impact: Impact | None = None
    """The cost of the first fault; None for streams, without a fault, with fewer than five measured
    iterations before it, and if the job failed or was over by then."""
    lossless: Lossless | None = None
    """What classes with PFC did; None in a lab without."""
    resolution: Times | None = None
    """The error bound of an iteration's time against the arrival of its last message on the wire:
    how late a packet left at most, the longest round trip, and the share of the longest iteration
    that a NIC may lose to this machine in a valid run; None without iterations."""
    disturbed: tuple[Disturbance, ...] = ()
    """The faults by hand of a run that allows them: its figures are those of a lab that was broken
    meanwhile."""
    outages: tuple[FlowOutage, ...] = ()
    """Of flows, in order of time; of each flow at most 64, with retransmissions first, then the
    longest."""
    stages: tuple[Stages, ...] = ()
    """Of each event, where faults by hand are allowed and every switch runs FRR."""
    workload: WorkloadFigures | None = None
    """None for a collective and for streams."""
    hosts: str = ""
    """What a host model makes agents wait for, and what it leaves to them; empty without one: hosts
    are agents, which take their own time."""
    tcp: TcpFigures | None = None
    """None of a job of RoCEv2."""

    @property
    def valid(self) -> bool:
        return not self.problems and not self.disturbed

    @property
    def roce(self) -> Transport:
        """The counters of queue pairs. Raises ValueError for a job of TCP, which has none."""
        if self.transport is None:
            raise ValueError("a job of TCP has no queue pairs")
        return self.transport

    def event_of(self, outage: FlowOutage) -> Event | None:
        """The event at which a flow was cut off: the first during its outage, or else the last
        before, unless only faults ended then, longer than SETTLED_NS ago; None if there is none."""
        ended_ns = math.inf if outage.ended_ns is None else outage.ended_ns
        during = [event for event in self.events if outage.began_ns <= event.t_ns < ended_ns]
        if during:
            return during[0]
        before = [event for event in self.events if event.t_ns < outage.began_ns]
        last = before[-1] if before else None
        if last is None or (last.change == "end" and outage.began_ns - last.t_ns > SETTLED_NS):
            return None
        return last

    @property
    def title(self) -> str:
        """What the job is, in one word or two: its pattern, or its kind and name."""
        if "pattern" in self.job:
            return str(self.job["pattern"])
        kind = next((kind for kind in KINDS if kind in self.job), "")
        return f"{kind} {self.job['name']}".strip()

    @property
    def is_collective(self) -> bool:
        """Whether it repeats a collective, and is no streams and no workload."""
        return "pattern" in self.job and "size" in self.job

    @property
    def is_open_loop(self) -> bool:
        """Whether it is flows that begin at given times."""
        return self.workload is not None and self.workload.flow_times is not None

    @property
    def warmup_iterations(self) -> int:
        """The repetitions that are not measured."""
        return int(self.job.get("warmup_iterations", 0))

    @cached_property
    def spec(self) -> LabJob:
        """Raises ValueError if this version does not know such a job."""
        try:
            if "pattern" in self.job:
                return JobSpec.model_validate(self.job)
            return SimulatedJob.model_validate(self.job)
        except ValidationError as error:
            if missing := of_gone(self.environment.plugins):
                message = f"its job is unknown here: {misfit(error)}{missing}"
                raise PackageGoneError(message, "install that package again") from error
            raise

    @property
    def network_name(self) -> str | None:
        """The network that the job ran in, of a lab with several: `lab` is its spec."""
        place: Mapping[str, Any] | None = self.lab.get("place")
        return None if place is None else place["network"]

    def is_in(self, network: str) -> bool:
        """Whether the job ran in a network of that name."""
        return self.network_name == network

    @property
    def data_class(self) -> int:
        """The traffic class of the job's data in its lab."""
        return class_of_dscp(self.lab_spec.queues.dscp)[self.spec.transport.dscp]

    @property
    def iteration_spans_ns(self) -> tuple[tuple[int, int], ...]:
        """When each measured iteration began and ended, in ns of the lab since the start of the
        jobs, as far as `steps` has their ends."""
        if self.steps is None:
            return ()
        first = self.steps.first - self.warmup_iterations
        ends = {first + place: max(ended) for place, ended in enumerate(self.steps.ended_ns)}
        return tuple(
            (ends[place] - round(took.lab_ns), ends[place])
            for place, took in enumerate(self.iterations)
            if place in ends
        )

    @cached_property
    def figures_by_link(self) -> dict[DirectedLink, LinkFigures]:
        """`links` by the fabric's own. Raises as `fabric`."""
        by_name = self.fabric.link_by_name
        return {DirectedLink(by_name[link.link], link.sender): link for link in self.links}

    def headline(self, name: str) -> Headline:
        """The headline of that name. Raises KeyError if there is none."""
        for headline in self.headlines:
            if headline.name == name:
                return headline
        raise KeyError(name)


_FORMAT = Format(
    JobReport,
    SCHEMA_VERSION,
    "a job's document",
    "give the result.json that `rocelab traffic` wrote; `rocelab diagnose --phase NAME` takes a "
    "job of a drill's",
)


def from_json(text: str) -> JobReport:
    """The report that `rocelab.base.documents.to_json` wrote. Raises InputError for anything
    else."""
    return _FORMAT.read(text)


def read_job_report(path: Path) -> JobReport:
    """The report in a `result.json` of `rocelab traffic`. Raises InputError for anything else."""
    return from_json(read_text(path, hint="give the result.json that `rocelab traffic` wrote"))
