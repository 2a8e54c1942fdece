"""The document of a simulation: what was simulated, how, its result and what it leaves out.

`rocelab.sim.figures` derives the figures. A frozen `SimulationReport` is written as JSON and reads
back into an equal object. Keys shared with a job's document (`headlines`, `tiers`, `lab`,
`environment`) mean the same here; docs/documents/ is generated from the classes. All times are
those of the modelled network.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rocelab.base.documents import Format
from rocelab.planning.fabric import Direction
from rocelab.results.environment import Environment
from rocelab.results.job import Headline
from rocelab.results.oflab import LabDocument
from rocelab.routes.balance import Balance, TierBalance

SCHEMA_VERSION = 1


class Engine(StrEnum):
    """FLUID: rates are max-min fair. PACKETS: packet by packet. LINKS: packet by packet, each link
    alone."""

    FLUID = "fluid"
    PACKETS = "packets"
    LINKS = "links"


class PortModel(StrEnum):
    """When a packet leaves a port of the packet engine: LAB: as a lab's ports do, when its first
    bit does, and a port that was idle is ahead of its rate by a frame or by 200 us of the lab's
    clock, whichever is more; hosts wake as a lab's, too (`rocelab.sim.packets.hosts`).
    STORE_AND_FORWARD: when its last bit does. CUT_THROUGH: behind its header, unless the next port
    is faster."""

    STORE_AND_FORWARD = "store-and-forward"
    CUT_THROUGH = "cut-through"
    LAB = "lab"


_HOSTS = (
    "hosts: no PCIe, GPU or launch delays, and no time between a receive and the send that needs "
    "it other than the latency given"
)
LEAVES_OUT = {
    Engine.FLUID: (
        "queues: rates are max-min fair at every instant, as if congestion control were perfect; "
        "the cost of ECN marks, DCQCN's ramps, PFC pauses, drops and retransmissions is not "
        "included",
        "packets: a flow is a fluid; its headers are counted, the order of packets is not",
        _HOSTS,
    ),
    Engine.PACKETS: (
        "pause frames: a pause takes effect after its time, whatever else the link carries, and "
        "lasts until the port that asked for it is below XON; lossy classes share no memory",
        "routes: a packet keeps the way on which it left its NIC, also where routes change before "
        "it arrives",
        f"{_HOSTS} and, with the ports of a lab, the time until its hosts wake",
    ),
    Engine.LINKS: (
        "other links: each is simulated alone, with the packets that the links before let through. "
        "Its marks and drops act on what comes from the link before, not on the NIC: they do not "
        "relieve other links, and hold back also what is under way in queues",
        "ways back: acknowledgements and CNPs meet no other packets",
        "windows that a path does not fill: unless `ack_every` is 16 and `window` a multiple of it "
        "they let flows end up to 45% sooner or later",
        _HOSTS,
    ),
}
"""What each engine leaves out, in words."""


@dataclass(frozen=True, slots=True)
class Method:
    """How it was computed. eps: completions within this share of the longest remaining time were
    taken together, 0 for none. backend: what compiled the engine, numba; older documents may have
    an engine of numpy alone. proven: every solve proved itself max-min fair. leaves_out: in
    words, what the engine leaves out. ports, seed: of an engine with packets."""

    eps: float
    backend: str
    proven: bool
    model: str
    flows: int
    transfers: int
    tasks: int
    solves: int
    latency_ns: float
    leaves_out: tuple[str, ...]
    engine: Engine = Engine.FLUID
    ports: PortModel | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """The resources that the simulation used."""

    seconds: dict[str, float]
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When a step of the last iteration began to send and was over, None for never."""

    name: str
    start_ns: float | None
    end_ns: float | None


@dataclass(frozen=True, slots=True)
class SizeBin:
    """Flows of about one size, and quantiles of their slowdowns (`FlowTimes`), interpolated.
    largest_bytes: payload of the largest; the bin before has those of its own largest."""

    largest_bytes: int
    flows: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class SlowdownBySize:
    """The slowdown of a job's flows, of those that were over.

    bins: from small to large, twentieths of the flows, or parts of about 100 if flows are few;
    those of one size are in one bin. quantiles: of all flows: 0, 1, 2, ... 100% are not above.
    """

    bins: tuple[SizeBin, ...]
    quantiles: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One job.

    job: in full. nics: up to 4,096. ordered: sends went in the schedule's own order, one step each;
    otherwise all that one rank sends another in a step went at once, but in an AlltoAll(v) one
    after the other. cut_leaves, cut_zones: the hops of a ring over its ranks that lead to another
    leaf and to another zone. iterations_ns: None if the job never ended. roofline_ns: the least
    time of an iteration on average: its busiest NIC at its rate, headers included, or of jobs that
    compute their longest chain of steps. steps: of the last iteration. slowdown: None if no
    flow was over, or the job is merged. merged: some transfers are many sends of a lab, which wait
    for each other.
    """

    name: str
    job: dict[str, Any]
    ranks: int
    nics: tuple[str, ...]
    ordered: bool
    cut_leaves: int
    cut_zones: int
    payload_bytes: int
    headlines: tuple[Headline, ...]
    iterations_ns: tuple[float | None, ...]
    roofline_ns: float
    end_ns: float | None
    steps: tuple[StepTimes, ...]
    slowdown: SlowdownBySize | None = None
    merged: bool = False

    def headline(self, name: str) -> Headline:
        """The headline of that name. Raises KeyError if there is none."""
        for headline in self.headlines:
            if headline.name == name:
                return headline
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class TierUse:
    """A tier of links between switches in one direction, link by link in the fabric's order.

    Utilisation is bytes over the link's capacity until the last job's end. nodes: the lower node of
    each group of parallel links. width: links of each group; `bytes` and `flows` have the first
    group's first. bytes: what each link carried on the wire. flows: how many took it, in fractions
    if switches divide flows. balance, utilisation_mean: over the links that some switch offers to a
    flow of the jobs.
    """

    tier: str
    direction: Direction
    nodes: tuple[str, ...]
    width: int
    rate_bps: float
    bytes: tuple[int, ...]
    flows: tuple[float, ...]
    balance: Balance
    utilisation_mean: float
    utilisation_max: float


@dataclass(frozen=True, slots=True)
class BusyLink:
    """One of the links between switches with the highest load. of_mean: over the mean of its tier
    in that direction, by which links are ranked."""

    link: str
    sender: str
    bytes: int
    flows: float
    of_mean: float


@dataclass(frozen=True, slots=True)
class RateOverTime:
    """The sum of all transfers' rates on the wire from each time on; with packets and links each
    has its mean rate, if it ends."""

    time_ns: tuple[float, ...]
    rate_bps: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """The distribution of a figure over transfers."""

    mean: float
    p50: float
    p99: float
    maximum: float


@dataclass(frozen=True, slots=True)
class FlowTimes:
    """Flow completion times: of the transfers of queue pairs that were over.

    time_ns: from the beginning of a transfer's step until the transfer is over: with packets, until
    its sender has the last ACK; else until its last byte has left, plus the latency of its step.
    slowdown: that time over the least one: the transfer's bytes on the wire at the lowest rate of
    its path, and the latency of its links.
    """

    transfers: int
    time_ns: Distribution
    slowdown: Distribution


@dataclass(frozen=True, slots=True)
class FlowOutcome:
    """All that one end of a queue pair sent, in `transfers`, one after the other. source,
    destination: NICs.

    start_ns, over_ns: when the first began and the last was over; longest_ns, slowdown: of the one
    that took longest (`FlowTimes`). None for never. links: of its path while all links are up, or
    of all its ways where switches divide it; empty without a path.
    """

    job: str
    source: str
    destination: str
    source_port: int
    dest_qp: int
    payload_bytes: int
    transfers: int
    start_ns: float | None
    over_ns: float | None
    longest_ns: float | None
    slowdown: float | None
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PortQueue:
    """The queues of a switch port. port: `ctsw2:rtsw1`, the switch and its interface.
    highest_bytes: the most that a packet found in its class, in frames without FCS, without the one
    under way, as in a lab."""

    port: str
    highest_bytes: int
    marks: int
    drops: int


@dataclass(frozen=True, slots=True)
class LinkPauses:
    """A lossless class on a link in one direction. port: `ctsw2:rtsw1`, which sends, and stops when
    `peer` at the other end asks.

    transitions: how often it stopped. paused_ns, longest_ns: in all and at once. is_paused: at the
    end still. held_max_bytes, headroom_max_bytes: of what the peer held for this link, in all and
    in its headroom; of a NIC what its receive buffer held. dropped_packets: no room for them at the
    peer; of a NIC those of all classes, with its first. discarded_packets: by the watchdog of
    `port`, which fired `watchdog` times.
    """

    port: str
    peer: str
    traffic_class: int
    transitions: int
    paused_ns: float
    longest_ns: float
    is_paused: bool
    held_max_bytes: int
    headroom_max_bytes: int
    dropped_packets: int
    discarded_packets: int
    watchdog: int


@dataclass(frozen=True, slots=True)
class LosslessLinks:
    """Lossless classes (PFC, IEEE 802.1Qbb). classes: those in use. The sums are of all links and
    classes. links: those that were stopped or lost packets, up to 1,024, the longest stopped first.
    deadlock: nodes of which each waits for the next, and the last for the first."""

    classes: tuple[int, ...]
    transitions: int
    paused_ns: float
    dropped_packets: int
    discarded_packets: int
    watchdog: int
    links: tuple[LinkPauses, ...]
    deadlock: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PacketCounts:
    """What packets did. data_packets: sent, with those sent again. acks: with NAKs, as sent.
    packet_hops: transmissions of packets of all kinds. marks, drops: by switch ports. marked: data
    packets that a receiver got with a mark. naks: those that reached their senders. timeouts: of
    ACKs. failed_queue_pairs: gave up after `retries` in a row. queues: the highest ones, up to
    1,024. lossless: None if the lab has no lossless classes or no packet was in them. out_of_order:
    data packets that came before an earlier one. lost: by failures: packets of all kinds that were
    on links that carried nothing, at their ports, or without a route."""

    data_packets: int
    acks: int
    packet_hops: int
    marks: int
    drops: int
    marked: int
    cnps: int
    naks: int
    retransmitted: int
    timeouts: int
    failed_queue_pairs: int
    queues: tuple[PortQueue, ...]
    lossless: LosslessLinks | None = None
    out_of_order: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class SimulatedEvent:
    """A failure, drain or return, and when routing had reacted. links: up to 1,024 that it
    affects."""

    what: str
    start_ns: float
    routed_ns: float | None
    end_ns: float | None
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class SimulationReport(LabDocument):
    """The result of a simulation.

    lab: the spec in full, as JSON values. tiers: the balance of flows per link beside random
    hashing, over the links that a switch can choose for some flow. uses: the load of links. worst:
    the links with the highest load for their tier. finish_ns: when a hundredth, two hundredths, ...
    all of the transfers were over, latency included. flow_times: of jobs that are not merged; None
    if none of their transfers was over. packets: of the engine that has packets. slowest: the flows
    with the longest transfers, up to 500, or as many as have 20,000 links together.
    """

    schema_version: int
    lab: dict[str, Any]
    environment: Environment
    method: Method
    cost: Cost
    warnings: tuple[str, ...]
    jobs: tuple[JobOutcome, ...]
    tiers: tuple[TierBalance, ...]
    uses: tuple[TierUse, ...]
    worst: tuple[BusyLink, ...]
    finish_ns: tuple[float, ...]
    rate: RateOverTime
    events: tuple[SimulatedEvent, ...] = ()
    flow_times: FlowTimes | None = None
    packets: PacketCounts | None = None
    slowest: tuple[FlowOutcome, ...] = ()

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
