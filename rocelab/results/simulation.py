"""The document of a simulation: what was simulated, how, its result and what it leaves out.

`rocelab.sim.figures` derives the figures. A frozen `SimulationReport` is written as JSON and reads
back into an equal object. Keys shared with a job's document (`headlines`, `tiers`, `lab`,
`environment`) mean the same here; docs/documents/ is generated from the classes. All times are
those of the modelled network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocelab.base.documents import Format
from rocelab.hosts.model import TIMELESS
from rocelab.jobs.served import Served
from rocelab.planning.fabric import Direction
from rocelab.results.engines import Engine, PortModel
from rocelab.results.environment import Environment
from rocelab.results.flowtimes import FlowTimes, SlowdownBySize, StepTimes, TimePart
from rocelab.results.job import Headline
from rocelab.results.oflab import LabDocument
from rocelab.routes.balance import Balance, TierBalance

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Method:
    """How it was computed."""

    eps: float
    """Completions within this share of the longest remaining time were taken together, 0 for
    none."""
    backend: str
    """What compiled the engine, numba; older documents may have an engine of numpy alone."""
    proven: bool
    """Every solve proved itself max-min fair."""
    model: str
    flows: int
    transfers: int
    tasks: int
    solves: int
    latency_ns: float
    """What a link adds to a send; the median, if links differ."""
    leaves_out: tuple[str, ...]
    """In words, what the engine leaves out."""
    engine: Engine = Engine.FLUID
    ports: PortModel | None = None
    """Of an engine with packets."""
    seed: int | None = None
    """Of an engine with packets."""
    hosts: str = TIMELESS
    """In words, what hosts were taken for."""
    latencies_ns: tuple[float, float] | None = None
    """The least and the most that a link adds to a send, None if all add the same."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The resources that the simulation used."""

    seconds: dict[str, float]
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """A part of what a job keeps in the memory of the GPU that keeps most."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One job."""

    name: str
    job: dict[str, Any]
    """In full."""
    ranks: int
    nics: tuple[str, ...]
    """Up to 4,096."""
    ordered: bool
    """Sends went in the schedule's own order, one step each; otherwise all that one rank sends
    another in a step went at once, but in an AlltoAll(v) one after the other."""
    cut_leaves: int
    """The hops of a ring over its ranks that lead to another leaf and to another zone."""
    cut_zones: int
    """The hops of a ring over its ranks that lead to another leaf and to another zone."""
    payload_bytes: int
    headlines: tuple[Headline, ...]
    iterations_ns: tuple[float | None, ...]
    """None if the job never ended."""
    roofline_ns: float
    """The least time of an iteration on average: its busiest NIC at its rate, headers included, or
    of jobs that compute their longest chain of steps."""
    end_ns: float | None
    steps: tuple[StepTimes, ...]
    """Of the last iteration."""
    slowdown: SlowdownBySize | None = None
    """None if no flow was over, or the job is merged."""
    merged: bool = False
    """Some transfers are many sends of a lab, which wait for each other."""
    parts: tuple[TimePart, ...] = ()
    """Of a job of a large model."""
    memory: tuple[MemoryUse, ...] = ()
    """Of a job of a large model."""
    basis: tuple[str, ...] = ()
    """What the figures of a job of a large model rest on, each predicted or assumed."""
    served: Served | None = None
    """Of a job that serves requests."""

    def headline(self, name: str) -> Headline:
        """The headline of that name. Raises KeyError if there is none."""
        for headline in self.headlines:
            if headline.name == name:
                return headline
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class TierUse:
    """A tier of links between switches in one direction, link by link in the fabric's order.

    Utilisation is bytes over the link's capacity until the last job's end.
    """

    tier: str
    direction: Direction
    nodes: tuple[str, ...]
    """The lower node of each group of parallel links."""
    width: int
    """Links of each group, or of the largest; `bytes` and `flows` have the first group's first."""
    rate_bps: float
    bytes: tuple[int, ...]
    """What each link carried on the wire."""
    flows: tuple[float, ...]
    """How many took it, in fractions if switches divide flows."""
    balance: Balance
    """Over the links that some switch offers to a flow of the jobs."""
    utilisation_mean: float
    """Over the links that some switch offers to a flow of the jobs."""
    utilisation_max: float
    widths: tuple[int, ...] = ()
    """Links of each group, where groups differ."""


@dataclass(frozen=True, slots=True)
class BusyLink:
    """One of the links between switches with the highest load."""

    link: str
    sender: str
    bytes: int
    flows: float
    of_mean: float
    """Over the mean of its tier in that direction, by which links are ranked."""


@dataclass(frozen=True, slots=True)
class RateOverTime:
    """The sum of all transfers' rates on the wire from each time on; with packets and links each
    has its mean rate, if it ends."""

    time_ns: tuple[float, ...]
    rate_bps: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FlowOutcome:
    """All that one end of a queue pair sent, in `transfers`, one after the other."""

    job: str
    source: str
    """NICs."""
    destination: str
    """NICs."""
    source_port: int
    dest_qp: int
    payload_bytes: int
    transfers: int
    start_ns: float | None
    """When the first began and the last was over."""
    over_ns: float | None
    """When the first began and the last was over."""
    longest_ns: float | None
    """Of the one that took longest (`FlowTimes`). None for never."""
    slowdown: float | None
    """Of the one that took longest (`FlowTimes`). None for never."""
    links: tuple[str, ...]
    """Of its path while all links are up, or of all its ways where switches divide it; empty
    without a path."""


@dataclass(frozen=True, slots=True)
class PortQueue:
    """The queues of a switch port."""

    port: str
    """`ctsw2:rtsw1`, the switch and its interface."""
    highest_bytes: int
    """The most that a packet found in its class, in frames without FCS, without the one under way,
    as in a lab."""
    marks: int
    drops: int


@dataclass(frozen=True, slots=True)
class LinkPauses:
    """A lossless class on a link in one direction."""

    port: str
    """`ctsw2:rtsw1`, which sends, and stops when `peer` at the other end asks."""
    peer: str
    traffic_class: int
    transitions: int
    """How often it stopped."""
    paused_ns: float
    """In all and at once."""
    longest_ns: float
    """In all and at once."""
    is_paused: bool
    """At the end still."""
    held_max_bytes: int
    """Of what the peer held for this link, in all and in its headroom; of a NIC what its receive
    buffer held."""
    headroom_max_bytes: int
    """Of what the peer held for this link, in all and in its headroom; of a NIC what its receive
    buffer held."""
    dropped_packets: int
    """No room for them at the peer; of a NIC those of all classes, with its first."""
    discarded_packets: int
    """By the watchdog of `port`, which fired `watchdog` times."""
    watchdog: int


@dataclass(frozen=True, slots=True)
class LosslessLinks:
    """Lossless classes (PFC, IEEE 802.1Qbb)."""

    classes: tuple[int, ...]
    """Those in use. The sums are of all links and classes."""
    transitions: int
    paused_ns: float
    dropped_packets: int
    discarded_packets: int
    watchdog: int
    links: tuple[LinkPauses, ...]
    """Those that were stopped or lost packets, up to 1,024, the longest stopped first."""
    deadlock: tuple[str, ...]
    """Nodes of which each waits for the next, and the last for the first."""


@dataclass(frozen=True, slots=True)
class PacketCounts:
    """What packets did."""

    data_packets: int
    """Sent, with those sent again."""
    acks: int
    """With NAKs, as sent."""
    packet_hops: int
    """Transmissions of packets of all kinds."""
    marks: int
    """By switch ports."""
    drops: int
    """By switch ports."""
    marked: int
    """Data packets that a receiver got with a mark."""
    cnps: int
    naks: int
    """Those that reached their senders."""
    retransmitted: int
    timeouts: int
    """Of ACKs."""
    failed_queue_pairs: int
    """Gave up after `retries` in a row."""
    queues: tuple[PortQueue, ...]
    """The highest ones, up to 1,024."""
    lossless: LosslessLinks | None = None
    """None if the lab has no lossless classes or no packet was in them."""
    out_of_order: int = 0
    """Data packets that came before an earlier one."""
    lost: int = 0
    """By failures: packets of all kinds that were on links that carried nothing, at their ports, or
    without a route."""


@dataclass(frozen=True, slots=True)
class SimulatedEvent:
    """A failure, drain or return, and when routing had reacted."""

    what: str
    start_ns: float
    routed_ns: float | None
    end_ns: float | None
    links: tuple[str, ...] = ()
    """Up to 1,024 that it affects."""


@dataclass(frozen=True)
class SimulationReport(LabDocument):
    """The result of a simulation."""

    schema_version: int
    lab: dict[str, Any]
    """The spec in full, as JSON values."""
    environment: Environment
    method: Method
    cost: Cost
    warnings: tuple[str, ...]
    jobs: tuple[JobOutcome, ...]
    tiers: tuple[TierBalance, ...]
    """The balance of flows per link beside random hashing, over the links that a switch can choose
    for some flow."""
    uses: tuple[TierUse, ...]
    """The load of links."""
    worst: tuple[BusyLink, ...]
    """The links with the highest load for their tier."""
    finish_ns: tuple[float, ...]
    """When a hundredth, two hundredths, ... all of the transfers were over, latency included."""
    rate: RateOverTime
    events: tuple[SimulatedEvent, ...] = ()
    flow_times: FlowTimes | None = None
    """Of jobs that are not merged; None if none of their transfers was over."""
    packets: PacketCounts | None = None
    """Of the engine that has packets."""
    slowest: tuple[FlowOutcome, ...] = ()
    """The flows with the longest transfers, up to 500, or as many as have 20,000 links together."""

    @property
    def without_times(self) -> str:
        """Whose flows have no times of their own and why; empty for none."""
        names = ", ".join(job.name for job in self.jobs if job.merged)
        if not names:
            return ""
        return f"No times of flows of {names}: each is many sends, merged, which wait for others."


_FORMAT = Format(
    SimulationReport,
    SCHEMA_VERSION,
    "a simulation's document",
    "give the result.json that `rocelab simulate --out` wrote",
)


def from_json(text: str) -> SimulationReport:
    """The report that `rocelab.base.documents.to_json` wrote. Raises InputError for anything
    else."""
    return _FORMAT.read(text)
