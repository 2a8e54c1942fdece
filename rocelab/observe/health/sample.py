"""Computes the value of every SLI at every place between two readings of a lab.

Pure. A `Sample` holds only values that are not zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rocelab.agent.live import LiveCounters
from rocelab.linux.counters import DepthCounters, QueueCounters
from rocelab.observe.health.endpoints import split_endpoint
from rocelab.observe.health.health_spec import DEFINITIONS, LEAST_PACKETS, HealthSpec, PlaceKind
from rocelab.observe.health.reading import PauseReading, Reading
from rocelab.planning.fabric import DirectedLink, Fabric, Link
from rocelab.planning.queues import QueuePlan
from rocelab.results.health import Sli

_EMPTY = QueueCounters(0, 0, 0, 0, 0, None, None, None)
_SILENT = LiveCounters()

Values = Mapping[Sli, Mapping[str, float]]
"""Values that are not zero, by SLI and place."""

NetworksOf = Callable[[Sli, str], tuple[str, ...]]
"""The networks that a place of an SLI belongs to; none in a lab with one."""


def one_network(sli: Sli, where: str) -> tuple[str, ...]:
    """The networks of a place in a lab with one: none."""
    return ()


@dataclass(frozen=True)
class Places:
    """The places of a fabric, by their names in samples."""

    fabric: Fabric

    @cached_property
    def directed_links(self) -> dict[str, DirectedLink]:
        """Both directions of every link, in build order, by name: `rtsw1:ctsw2 to ctsw2`."""
        return {f"{link.name} to {link.receiver}": link for link in self.fabric.directed_links}

    @cached_property
    def sent_by(self) -> dict[str, str]:
        """The name of the direction that each port sends, by the port's name."""
        return {str(link.port): name for name, link in self.directed_links.items()}

    @cached_property
    def received_by(self) -> dict[str, str]:
        """The name of the direction that each port receives, by the port's name."""
        return {str(link.far): name for name, link in self.directed_links.items()}

    def nodes_of(self, sli: Sli, where: str) -> tuple[str, ...]:
        """The nodes concerned: a link's ends; a server and the switches it is wired to."""
        match DEFINITIONS[sli].of:
            case PlaceKind.DIRECTION:
                return _ends(self.directed_links[where].link)
            case PlaceKind.LINK:
                return _ends(self.fabric.link_by_name[where])
            case PlaceKind.SERVER:
                server, _ = split_endpoint(where)
                links = self.fabric.links_of[server]
                return (server, *dict.fromkeys(link.far(server).node for link in links))
            case PlaceKind.SWITCH:
                return (where,)

    @property
    def networks(self) -> tuple[str, ...]:
        """The names of the networks of a lab with several, or that of the one that the fabric
        is."""
        names = (part.network_name for part in self.fabric.networks)
        return tuple(name for name in names if name is not None)

    def networks_of(self, sli: Sli, where: str) -> tuple[str, ...]:
        """The networks that a place belongs to; none in a lab with one."""
        if not self.fabric.parts:
            return self.networks
        match DEFINITIONS[sli].of:
            case PlaceKind.DIRECTION:
                return self._network_of(self.directed_links[where].link.b.node)
            case PlaceKind.LINK:
                return self._network_of(self.fabric.link_by_name[where].b.node)
            case PlaceKind.SERVER:
                return split_endpoint(where)[1]
            case PlaceKind.SWITCH:
                return self._network_of(where)

    def _network_of(self, switch: str) -> tuple[str, ...]:
        return (self.fabric.network_of(switch).network_name or "",)


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample. `time_ns` is CLOCK_REALTIME when it was taken, `span_ns` the time it covers."""

    time_ns: int
    span_ns: int
    values: Values
    gaps: tuple[str, ...] = ()

    def breaches(
        self, spec: HealthSpec, networks_of: NetworksOf = one_network
    ) -> dict[Sli, dict[str, float]]:
        """The values that miss their objective, by SLI and place; other SLIs are left out."""
        breaches = {}
        for sli, values in self.values.items():
            missed = {
                where: value
                for where, value in values.items()
                if (objective := spec.objective(sli, networks_of(sli, where))) is not None
                and value > objective
            }
            if missed:
                breaches[sli] = missed
        return breaches


def compare(places: Places, plans: Sequence[QueuePlan], before: Reading, now: Reading) -> Sample:
    """The sample from `before` to `now`. What either could not read is left out. plans: of each
    network."""
    values: dict[Sli, dict[str, float]] = {sli: {} for sli in Sli}
    for sli, where, value in (
        *_direction_losses(places, before, now),
        *_link_findings(places.fabric, before, now),
        *_queue_findings(places, plans, before, now),
        *_lossless_findings(places, before.pauses, now.pauses),
        *_server_findings(before, now),
        *((Sli.ROUTES_INCOMPLETE, node, n) for node, n in now.routes_incomplete.items()),
        *((Sli.SESSIONS_DOWN, link, not is_up) for link, is_up in now.sessions.items()),
    ):
        if value:
            values[sli][where] = float(value)
    return Sample(now.time_ns, now.since_ns(before), values, now.gaps)


def _ends(link: Link) -> tuple[str, str]:
    return link.a.node, link.b.node


_Findings = Iterator[tuple[Sli, str, float]]


def _direction_losses(places: Places, before: Reading, now: Reading) -> _Findings:
    for name, link in places.directed_links.items():
        yield Sli.LINK_LOSS, name, now.lost.get(link, 0) - before.lost.get(link, 0)


def _link_findings(fabric: Fabric, before: Reading, now: Reading) -> _Findings:
    for link in fabric.links:
        ends = [(port.node, port.interface) for port in (link.a, link.b)]
        seen = [end for end in ends if end in before.ports and end in now.ports]
        losses = [now.ports[end].carrier_losses - before.ports[end].carrier_losses for end in seen]
        yield Sli.FLAPS, link.name, max(losses, default=0)
        yield Sli.LINKS_DOWN, link.name, any(not now.ports[end].carrier for end in seen)


def _queue_findings(
    places: Places, plans: Sequence[QueuePlan], before: Reading, now: Reading
) -> _Findings:
    planned = {port: (plan, queued) for plan in plans for port, queued in plan.port_of.items()}
    for name, link in places.directed_links.items():
        port = link.sender, link.port.interface
        queues = now.queues.get(port)
        if queues is None or port not in planned:
            continue
        plan, queued = planned[port]
        then = before.queues.get(port, {})
        pairs = {number: (then.get(number, _EMPTY), queue) for number, queue in queues.items()}
        drops = sum(b.dropped_packets - a.dropped_packets for a, b in pairs.values())
        yield Sli.QUEUE_DROPS, name, drops
        kind = plan.kinds[queued.kind]
        # The buffer is what a lossy class holds at most: it limits no other.
        depth = max(
            (
                max(b.depth_bytes, deepest(a.on_arrival, b.on_arrival, plan.bin_edges_bytes))
                / kind.buffer_bytes[number]
                for number, (a, b) in pairs.items()
                if number not in plan.lossless_classes
            ),
            default=0,
        )
        yield Sli.QUEUE_DEPTH, name, depth
        marked = [pair for number, pair in pairs.items() if kind.lines[number] is not None]
        packets = sum(b.packets - a.packets for a, b in marked)
        if packets >= LEAST_PACKETS:
            yield Sli.CE_RATIO, name, sum(_ce(b) - _ce(a) for a, b in marked) / packets


def _ce(queue: QueueCounters) -> int:
    """Packets that left with CE or, if the engine does not see them, that were marked here."""
    return queue.marked if queue.ce_out is None else queue.ce_out


def deepest(
    then: DepthCounters | None, now: DepthCounters | None, bin_edges_bytes: Sequence[int]
) -> int:
    """The greatest depth of a queue between two readings, or a little less.

    Exact if it was deeper than ever before; else the lower edge of the highest bin that counted, so
    that no depth is reported that was not reached.
    """
    if now is None:
        return 0
    if now.max_bytes > (then.max_bytes if then else 0):
        return now.max_bytes
    before = then.packets if then else (0,) * len(now.packets)
    counted = [bin_edges_bytes[i] for i, n in enumerate(now.packets) if n > before[i]]
    return max(counted, default=0)


def _lossless_findings(
    places: Places, before: PauseReading | None, now: PauseReading | None
) -> _Findings:
    """The pause share of a port's class that was paused longest, and the sum over its classes of
    all other values."""
    if before is None or now is None or now.t_ns <= before.t_ns:
        return
    span_ns = now.t_ns - before.t_ns
    paused: dict[str, float] = {}
    counted: Counter[tuple[Sli, str]] = Counter()
    for (port, traffic_class), after in now.classes.items():
        then = before.classes[port, traffic_class]
        out, into = places.sent_by[str(port)], places.received_by[str(port)]
        share = min(1.0, max(0, after.paused_ns - then.paused_ns) / span_ns)
        paused[out] = max(paused.get(out, 0.0), share)
        counted[Sli.WATCHDOG_EVENTS, out] += after.watchdog_fired - then.watchdog_fired
        counted[Sli.LOSSLESS_DROPS, into] += after.dropped_packets - then.dropped_packets
    yield from ((Sli.PAUSE_SHARE, where, share) for where, share in paused.items())
    yield from ((sli, where, number) for (sli, where), number in counted.items())


def _server_findings(before: Reading, now: Reading) -> _Findings:
    for server, counters in now.endpoints.items():
        then = before.endpoints.get(server, _SILENT)
        yield Sli.OUT_OF_SEQUENCE, server, counters.out_of_sequence - then.out_of_sequence
        yield Sli.ACK_TIMEOUTS, server, counters.timeouts - then.timeouts
        yield Sli.ICRC_ERRORS, server, counters.icrc_errors - then.icrc_errors
