"""What lossless classes (PFC, IEEE 802.1Qbb) did during a run, as a part of a job's document.

From it `propagation` finds who made whom wait: pauses spread from the port that began to pause,
against the traffic, to the senders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from rocelab.base.wording import counted

LATE_SHARE_LIMIT = 0.005
"""The most of all packets of lossless classes that may have been admitted only because a peer
stopped later than modelled."""

LATEST_LIMIT = 20.0
"""The most that a single pause may be late, over the same delay: the process that pauses was
stopped, or had no CPU, for some hundredths of an iteration."""

LATENESS_LIMIT = 0.1
"""The most that the 99th percentile of pauses may be late, as a share of the modelled delay from a
threshold to the peer's stop."""


@dataclass(frozen=True, slots=True)
class PauseFigures:
    """What a port and a class did in this run; those without packets and pauses are left out."""

    node: str
    interface: str
    traffic_class: int
    peer: str
    """The node at the cable's other end, which it asked to pause (`pauses_sent`, refreshments
    included) and which asked it (`pauses_received`)."""
    packets: int
    pauses_sent: int
    pauses_received: int
    transitions: int
    """How often it stopped."""
    paused_ns: int
    """In all and at once, in the lab's clock."""
    longest_ns: int
    """In all and at once, in the lab's clock."""
    held_bytes: int
    held_max_bytes: int
    """Since the lab came up, of what its switch held for it, in all and in its headroom; of a NIC
    what its receive buffer held."""
    headroom_max_bytes: int
    """Since the lab came up, of what its switch held for it, in all and in its headroom; of a NIC
    what its receive buffer held."""
    dropped_packets: int
    """No room for them."""
    late_packets: int
    """Room was made for them, since the peer stopped later than modelled."""
    purged_packets: int
    """Lost with a queue or cable."""
    discarded_packets: int
    """By the watchdog, which fired `watchdog` times."""
    watchdog: int
    least_held_bytes: int | None = None
    """The least that a NIC's receive buffer held when the NIC asked for a pause, or asked again;
    None if it never did."""


@dataclass(frozen=True, slots=True)
class PauseSpan:
    """A pause that a port obeyed, in ns of the lab since the jobs' start; `peer` asked for it."""

    node: str
    interface: str
    traffic_class: int
    peer: str
    begin_ns: int
    """When the run began, if the pause is older."""
    end_ns: int | None
    """None if it lasted to the end of the run."""

    def length_ns(self, end_ns: int) -> int:
        """How long it lasted, if the run ended at `end_ns`."""
        return max(0, (end_ns if self.end_ns is None else self.end_ns) - self.begin_ns)


@dataclass(frozen=True, slots=True)
class Lossless:
    """Lossless classes in a run.

    lateness: of stops and starts, after they were due as modelled, in the lab's clock, of all ports
    and of NICs alone (`nics_late_p99_ns`); None without pauses.
    """

    classes: tuple[int, ...]
    ports: tuple[PauseFigures, ...]
    spans: tuple[PauseSpan, ...]
    spans_left_out: int
    """Of `spans`, over and shorter than all that are kept."""
    delay_ns: int
    """The shortest modelled time from a threshold to the peer's stop."""
    late_p50_ns: int | None
    late_p99_ns: int | None
    late_max_ns: int | None
    unbalanced: tuple[str, ...]
    """Where queues hold packets that no pause stops, or a switch holds other bytes than its
    queues."""
    is_alive: bool
    """The process that pauses ran at the end."""
    nics_late_p99_ns: int | None = None
    restarts: int = 0
    """How often it ended before and was started again, each time with all gates open."""
    is_recorded: bool = True
    """Its journal had room for all pauses."""
    unreported: int = 0
    """Events of ports that it did not get."""
    unreceived: Mapping[str, int] = field(default_factory=dict)
    """Ports whose peer received fewer pause frames than they sent, by how many."""
    unaccounted: Mapping[str, int] = field(default_factory=dict)
    """Switches' ports, or switches whose watchdog discarded packets, with packets that came in, and
    were neither admitted, dropped nor discarded, by how many."""

    @property
    def part(self) -> str:
        """Which of the pauses a view of `spans` shows; empty if all."""
        if not self.spans_left_out:
            return ""
        kept = len(self.spans)
        return f"the {kept:,} longest of {kept + self.spans_left_out:,} pauses"

    @property
    def servers(self) -> frozenset[str]:
        """Nodes that forward nothing: only switches admit packets."""
        nodes = {port.node for port in self.ports}
        return frozenset(nodes - {port.node for port in self.ports if port.packets})

    @property
    def packets(self) -> int:
        """Packets that switches admitted to lossless classes."""
        return sum(port.packets for port in self.ports)

    @property
    def dropped(self) -> int:
        """Packets that a lossless class lost for lack of room."""
        return sum(port.dropped_packets for port in self.ports)

    @property
    def late(self) -> int:
        """Packets that would have been dropped too, had room not been made for them."""
        return sum(port.late_packets for port in self.ports)

    @property
    def discarded(self) -> int:
        """Packets that watchdogs dropped."""
        return sum(port.discarded_packets for port in self.ports)

    @property
    def transitions(self) -> int:
        return sum(port.transitions for port in self.ports)

    @property
    def watchdog(self) -> int:
        return sum(port.watchdog for port in self.ports)

    def losses(self) -> tuple[str, ...]:
        """Why a run in which nothing was broken is no measurement: pause frames and packets that
        are missing. A link or switch that is broken takes some with it."""
        frames = (
            f"not valid because {count:,} pause frames of {place} did not reach its peer"
            for place, count in self.unreceived.items()
        )
        packets = (
            f"not valid because {counted(count, 'packet')} that came into {place} "
            f"{'is' if count == 1 else 'are'} not accounted for; "
            "was there other traffic?"
            for place, count in self.unaccounted.items()
        )
        return (*frames, *packets)

    def problems(self) -> tuple[str, ...]:
        """Why the run is no measurement of lossless classes."""
        problems = []
        if not self.is_alive:
            problems.append("not valid because the PFC process had ended or was stopped")
        if self.restarts:
            problems.append("not valid because the PFC process ended and was restarted")
        if not self.is_recorded:
            problems.append(
                "not valid because there was no room to record all pauses: take the lab down and up"
            )
        if self.unreported:
            problems.append(
                f"not valid because the PFC process missed {self.unreported:,} "
                "thresholds and pauses: it had not read earlier ones in time"
            )
        if self.packets and self.late > LATE_SHARE_LIMIT * self.packets:
            problems.append(
                f"not valid because {self.late:,} of {self.packets:,} packets came later than the "
                f"modelled pause allows (the limit is {LATE_SHARE_LIMIT:.1%})"
            )
        limit_ns = LATENESS_LIMIT * self.delay_ns
        if self.late_p99_ns is not None and self.late_p99_ns > limit_ns:
            problems.append(
                f"not valid because 1 of 100 pauses was {self.late_p99_ns / 1000:,.0f} us late or "
                f"more (the limit is {limit_ns / 1000:,.0f} us, {LATENESS_LIMIT:.0%} of the "
                "modelled delay)"
            )
        if self.late_max_ns is not None and self.late_max_ns > LATEST_LIMIT * self.delay_ns:
            problems.append(
                f"not valid because a pause was {self.late_max_ns / 1e6:,.0f} ms late (the limit "
                f"is {LATEST_LIMIT * self.delay_ns / 1e6:,.0f} ms)"
            )
        problems += [
            f"not valid because the accounting of {place} is wrong" for place in self.unbalanced
        ]
        return tuple(problems)


@dataclass(frozen=True, slots=True)
class Propagation:
    """Pauses that spread from `root`, which was paused by nobody when it asked for them."""

    root: str
    traffic_class: int
    waited_ns: dict[str, int]
    """How long ports stopped because of it, by the node that stopped, in the lab's clock; `depth`
    of each: 1 for the root's own peers."""
    depth: dict[str, int]

    @property
    def total_ns(self) -> int:
        return sum(self.waited_ns.values())


@dataclass(frozen=True, slots=True)
class TracedPause:
    """A pause and the node that it goes back to, by `depth` pauses: 1 where that node asked for
    it."""

    span: PauseSpan
    root: str
    depth: int


def traced(spans: Sequence[PauseSpan], servers: Collection[str]) -> tuple[TracedPause, ...]:
    """The pauses with the node that each spread from, in the order of `spans`.

    A switch asks for a pause because packets wait in it. If a port of it is itself stopped at that
    moment, they wait for that port's peer, and so on: the last in this chain is the root. Of
    several stopped ports the one that has been so longest is followed. What `servers` receive
    waits for no port of theirs.
    """
    by_node: dict[tuple[str, int], list[PauseSpan]] = defaultdict(list)
    for span in spans:
        if span.node not in servers:
            by_node[span.node, span.traffic_class].append(span)
    return tuple(TracedPause(span, *_root(span, by_node)) for span in spans)


def propagation(
    spans: Sequence[PauseSpan], servers: Collection[str], end_ns: int
) -> tuple[Propagation, ...]:
    """The nodes that pauses spread from (`traced`), the most costly first. `end_ns`: when lasting
    pauses are cut."""
    waited: dict[tuple[str, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    depths: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for pause in traced(spans, servers):
        span, place = pause.span, (pause.root, pause.span.traffic_class)
        waited[place][span.node] += span.length_ns(end_ns)
        depths[place][span.node] = min(pause.depth, depths[place].get(span.node, pause.depth))
    origins = [
        Propagation(root, traffic_class, dict(nodes), depths[root, traffic_class])
        for (root, traffic_class), nodes in waited.items()
    ]
    return tuple(sorted(origins, key=lambda origin: -origin.total_ns))


def root_share(
    spans: Sequence[PauseSpan], servers: Collection[str], end_ns: int, nodes: Collection[str]
) -> float | None:
    """The share of all time paused whose pauses began at `nodes`; None without pauses. The rest as
    in `propagation`."""
    origins = propagation(spans, servers, end_ns)
    total_ns = sum(origin.total_ns for origin in origins)
    if not total_ns:
        return None
    return sum(origin.total_ns for origin in origins if origin.root in nodes) / total_ns


def find_deadlock(spans: Sequence[PauseSpan], servers: Collection[str]) -> tuple[str, ...]:
    """The nodes of a ring in which ports were still paused at the end of the run, each by the next
    and the last by the first; empty without one.

    A run ends when nothing has arrived for a while: pauses that are left wait for each other, or
    for the NIC of one of `servers`, which is in no ring: what it receives waits for none of its
    ports.
    """
    pausing: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    for span in spans:
        if span.end_ns is None and span.node not in servers:
            pausing[span.node, span.traffic_class].add((span.peer, span.traffic_class))
    try:
        TopologicalSorter(pausing).prepare()
    except CycleError as error:
        # From each node to the one that waits for it, the first again at the end.
        return tuple(node for node, _ in reversed(error.args[1][1:]))
    return ()


def _root(span: PauseSpan, by_node: dict[tuple[str, int], list[PauseSpan]]) -> tuple[str, int]:
    """The node that `span` goes back to, and by how many pauses."""
    seen, depth = {span.node}, 1
    while span.peer not in seen:
        seen.add(span.peer)
        at_ns = span.begin_ns
        stopped = [
            pause
            for pause in by_node.get((span.peer, span.traffic_class), ())
            if pause.begin_ns <= at_ns and (pause.end_ns is None or pause.end_ns > at_ns)
        ]
        if not stopped:
            break
        span = min(stopped, key=lambda pause: pause.begin_ns)
        depth += 1
    return span.peer, depth
