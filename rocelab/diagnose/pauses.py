"""Finds who made a job's transfers wait with pauses (PFC), and why.

Pauses go back to a node that nobody had paused (`rocelab.results.lossless`). A server pauses its
switch because its host receives packets slowly, or because its NIC storms; a switch pauses its
senders because one of its ports gets more than it carries: an incast, if that port goes to a
server. Transfers that such pauses stopped, and that end elsewhere, are victims.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rocelab.base import quantities
from rocelab.base.wording import listed
from rocelab.diagnose.case import Case
from rocelab.diagnose.critical import Floats, Numbers
from rocelab.diagnose.paths import named, suspects
from rocelab.planning.fabric import DirectedLink, Fabric
from rocelab.planning.pauses import plan_pauses
from rocelab.planning.queues import lab_rate_bps
from rocelab.report.jobs.text import by_distance
from rocelab.results.diagnosis import Cause, CauseVerdict
from rocelab.results.job import JobReport
from rocelab.results.lossless import PauseSpan, TracedPause, propagation

LINE_RATE = 0.9
"""The least share of its rate that an incast's port carries while its switch pauses others."""

FAN_IN = 2.0
"""The least ratio of what that port carries to what the median port towards a NIC does."""

LEAST_SENDERS = 2
"""The least number of servers that an incast stops."""

STOPPED = 0.1
"""The least share of a run for which a port was stopped that explains a queue in front of it."""

LEAST_NOTED = 0.01
"""The least share of the recorded time that pauses without a known cause stopped, for a note."""

MOST_PAIRS = 4
"""Pairs of ranks that a victim's evidence names."""


@dataclass(frozen=True, slots=True, eq=False)
class Stops:
    """When any of some ports was stopped: begins and ends in order, and how long until each."""

    edges_ns: Floats
    until_ns: Floats

    @classmethod
    def of(cls, spans: Iterable[PauseSpan], end_ns: int) -> Stops:
        """The stops by some pauses in a run that ended at `end_ns`."""
        edges, until = [0.0], [0.0]
        for begin, length in sorted((span.begin_ns, span.length_ns(end_ns)) for span in spans):
            begin_ns, stop_ns = max(float(begin), edges[-1]), float(begin + length)
            if stop_ns > begin_ns:
                edges += [begin_ns, stop_ns]
                until += [until[-1], until[-1] + stop_ns - begin_ns]
        return cls(np.array(edges), np.array(until))

    @property
    def whole_ns(self) -> float:
        return float(self.until_ns[-1])

    def within(self, begin_ns: Numbers, end_ns: Numbers) -> Floats:
        """How long of each time."""
        begins, ends = (np.interp(at, self.edges_ns, self.until_ns) for at in (begin_ns, end_ns))
        return np.asarray(ends - begins)


@dataclass(frozen=True, slots=True)
class PauseOrigin:
    """Where pauses began: at `node`, which nobody had paused."""

    node: str
    cause: Cause | None
    """SLOW_RECEIVER, PAUSE_STORM, INCAST, or None for anything else."""
    ports: tuple[DirectedLink, ...]
    """Of switches, towards the receivers."""
    pauses: tuple[TracedPause, ...]
    """Those that go back to it."""
    evidence: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        return named(self.ports) if self.cause is Cause.INCAST else self.node

    @property
    def receivers(self) -> frozenset[str]:
        return frozenset(port.receiver for port in self.ports)

    @property
    def spans(self) -> tuple[PauseSpan, ...]:
        return tuple(pause.span for pause in self.pauses)


def origins(
    fabric: Fabric, report: JobReport, pauses: Sequence[TracedPause]
) -> tuple[PauseOrigin, ...]:
    """Where the pauses of one class began.

    While a port that keeps stopping goes on, its switch, and those behind it, look like origins
    themselves. So pauses that began at a switch for no cause of its own are those of the origin
    that stopped this switch the longest, if any did.
    """
    by_root: dict[str, list[TracedPause]] = defaultdict(list)
    for pause in pauses:
        by_root[pause.root].append(pause)
    origin_of = {
        root: _incast(fabric, report, root, pauses, traces)
        if fabric.node(root).is_switch
        else _receiver(fabric, report, root, traces)
        for root, traces in by_root.items()
    }
    end_ns = report.fidelity.elapsed_ns
    for origin in [origin for origin in origin_of.values() if origin.cause is None]:
        stopped_ns = {
            other.node: sum(s.length_ns(end_ns) for s in other.spans if s.node == origin.node)
            for other in origin_of.values()
            if other.cause is not None
        }
        behind = max(stopped_ns, key=lambda node: stopped_ns[node], default="")
        if stopped_ns.get(behind):
            first = origin_of[behind]
            origin_of[behind] = replace(first, pauses=(*first.pauses, *origin.pauses))
            del origin_of[origin.node]
    return tuple(origin_of.values())


def port_of(fabric: Fabric, span: PauseSpan) -> DirectedLink:
    """The port that a pause stopped, with the link that it sends on."""
    ports = {(link.sender, link.port.interface): link for link in fabric.directed_links}
    return ports[span.node, span.interface]


def _receiver(
    fabric: Fabric, report: JobReport, server: str, traces: Sequence[TracedPause]
) -> PauseOrigin:
    """A server whose NIC paused its switches: a storm if its receive buffer does not explain it."""
    lossless, plan = report.lossless, plan_pauses(fabric)
    assert lossless is not None
    assert plan is not None
    (nic, *_) = plan.ports_of[server]
    assert nic.buffer is not None
    spans = [pause.span for pause in traces if pause.depth == 1]
    lengths_ns = [span.length_ns(report.fidelity.elapsed_ns) for span in spans]
    longest_ns = max(lengths_ns)
    asked = [port.least_held_bytes for port in lossless.ports if port.node == server]
    least = min((held for held in asked if held is not None), default=nic.buffer.full)
    is_storm = least < nic.buffer.empty
    asks = f"it should ask only above {quantities.size(nic.buffer.full)}"
    why = (
        f"its receive buffer held only {quantities.size(least)} when it asked for one: {asks}"
        if is_storm
        else f"its receive buffer held {quantities.size(least)} or more whenever it asked: {asks}"
    )
    return PauseOrigin(
        server,
        Cause.PAUSE_STORM if is_storm else Cause.SLOW_RECEIVER,
        tuple(dict.fromkeys(port_of(fabric, span) for span in spans)),
        tuple(traces),
        (
            f"{server} asked for {len(spans):,} pauses, {sum(lengths_ns) / 1e6:,.0f} ms of the "
            f"lab in all and {longest_ns / 1e6:,.0f} ms at once at most",
            why,
        ),
    )


def _incast(
    fabric: Fabric,
    report: JobReport,
    switch: str,
    pauses: Sequence[TracedPause],
    traces: Sequence[TracedPause],
) -> PauseOrigin:
    """A switch that paused others: an incast if ports of it towards servers were full, and not
    stopped themselves."""
    end_ns = report.fidelity.elapsed_ns
    carried = {link: figures.bytes for link, figures in report.figures_by_link.items()}
    down = [link for link in fabric.directed_links if not fabric.node(link.receiver).is_switch]
    usual = statistics.median(carried.get(port, 0) for port in down)
    window_ns = Stops.of([pause.span for pause in traces], end_ns).whole_ns
    stopped = defaultdict(list)
    for pause in pauses:
        stopped[pause.span.node, pause.span.interface].append(pause.span)
    senders = {pause.span.node for pause in traces if not fabric.node(pause.span.node).is_switch}
    ports, evidence = [], []
    for port in (link for link in down if link.sender == switch):
        rate_bps = lab_rate_bps(port.link, report.clock.dilation)
        size = carried.get(port, 0)
        busy_ns = size * 8e9 / rate_bps
        stopped_ns = Stops.of(stopped[switch, port.port.interface], end_ns).whole_ns
        if (
            len(senders) >= LEAST_SENDERS
            and busy_ns >= LINE_RATE * window_ns
            and stopped_ns <= (1 - LINE_RATE) * window_ns
            and size >= max(1.0, FAN_IN * usual)
        ):
            ports.append(port)
            evidence.append(
                f"{port.port} was busy for {busy_ns / 1e6:,.0f} ms of the lab and was stopped for "
                f"{stopped_ns / 1e6:,.0f} ms, while {switch} paused others for "
                f"{window_ns / 1e6:,.0f} ms, {len(senders)} servers among them"
            )
    return PauseOrigin(
        switch, Cause.INCAST if ports else None, tuple(ports), tuple(traces), tuple(evidence)
    )


@dataclass(frozen=True, slots=True)
class _StoppedTransfers:
    """The transfers of a job that the pauses of an origin stopped: when, by sender's and receiver's
    rank."""

    case: Case
    origin: PauseOrigin
    stops: Mapping[tuple[int, int], Stops]

    @property
    def victims(self) -> _StoppedTransfers:
        """The transfers that end elsewhere than at the origin's receivers."""
        ends = self.origin.receivers
        past = {
            pair: stops
            for pair, stops in self.stops.items()
            if self.case.server_of[pair[1]] not in ends
        }
        return replace(self, stops=past)

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({sender for sender, _ in self.stops}))

    def excess(self) -> tuple[int, tuple[int, ...]]:
        """How long transfers on critical paths were stopped, in ns, and in which iterations."""
        timing = self.case.timing
        total_ns, iterations = 0.0, set()
        for critical in (sent for path in timing.paths for sent in path):
            send = timing.schedule.sends[critical.send]
            stops = self.stops.get((send.source, send.destination))
            if stops is not None:
                times = np.array([critical.ready_ns]), np.array([critical.ended_ns])
                part_ns = float(stops.within(*times)[0])
                total_ns += part_ns
                if part_ns:
                    iterations.add(critical.iteration)
        return round(total_ns), tuple(sorted(iterations))


def paused_transfers(case: Case) -> tuple[list[CauseVerdict], list[str], frozenset[DirectedLink]]:
    """Verdicts on who stopped the job's transfers, notes on pauses with nobody to blame, and the
    ports whose queues either explains."""
    if not case.pauses:
        return [], [], frozenset()
    lossless = case.report.lossless
    assert lossless is not None
    verdicts: list[CauseVerdict] = []
    notes = [f"pauses: the analysis covers {lossless.part}"] if lossless.part else []
    explained = {port for port in case.fabric.directed_links if _is_stopped_often(case, port)}
    for origin in origins(case.fabric, case.report, case.pauses):
        explained.update(origin.ports)
        stopped = _stopped(case, origin)
        if origin.cause is None:
            notes += _note(stopped)
            continue
        victims = stopped.victims
        if len(stopped.stops) > len(victims.stops):
            verdicts.append(_verdict(stopped))
        if victims.stops:
            verdicts.append(_victims(victims))
    return verdicts, notes, frozenset(explained)


def _is_stopped_often(case: Case, port: DirectedLink) -> bool:
    place = port.sender, port.port.interface
    spans = [p.span for p in case.pauses if (p.span.node, p.span.interface) == place]
    end_ns = case.report.fidelity.elapsed_ns
    return Stops.of(spans, end_ns).whole_ns > STOPPED * end_ns


def _stopped(case: Case, origin: PauseOrigin) -> _StoppedTransfers:
    timing, end_ns = case.timing, case.report.fidelity.elapsed_ns
    sends: dict[tuple[int, int], list[int]] = defaultdict(list)
    for send in timing.schedule.sends:
        sends[send.source, send.destination].append(send.id)
    by_pair = {}
    for pair, columns in sends.items():
        stops = Stops.of((span for span in origin.spans if case.crosses(pair, span)), end_ns)
        if stops.within(timing.posted[:, columns], timing.arrived[:, columns]).any():
            by_pair[pair] = stops
    return _StoppedTransfers(case, origin, by_pair)


def _verdict(stopped: _StoppedTransfers) -> CauseVerdict:
    case, origin = stopped.case, stopped.origin
    assert origin.cause is not None
    excess_ns, iterations = stopped.excess()
    return CauseVerdict(
        cause=origin.cause,
        subject=origin.subject,
        server=None if origin.cause is Cause.INCAST else origin.node,
        ranks=tuple(
            rank for rank, server in enumerate(case.server_of) if server in origin.receivers
        ),
        links=suspects(origin.ports),
        excess=case.times(excess_ns),
        iterations=iterations,
        evidence=(*origin.evidence, *_tree(case, origin)),
    )


def _victims(stopped: _StoppedTransfers) -> CauseVerdict:
    case, origin = stopped.case, stopped.origin
    excess_ns, iterations = stopped.excess()
    pauses = [
        pause
        for pause in origin.pauses
        if any(case.crosses(pair, pause.span) for pair in stopped.stops)
    ]
    # Those that another node began for it have depths of their own.
    nearest = min(pauses, key=lambda pause: (pause.root != origin.node, pause.depth))
    shared = port_of(case.fabric, nearest.span)
    pairs = [f"{sender} to {receiver}" for sender, receiver in sorted(stopped.stops)]
    more = f" and {len(pairs) - MOST_PAIRS} more" if len(pairs) > MOST_PAIRS else ""
    return CauseVerdict(
        cause=Cause.VICTIM,
        subject=f"of {origin.cause} {origin.subject}, at {shared.port}",
        server=None,
        ranks=stopped.ranks,
        links=suspects((shared,)),
        excess=case.times(excess_ns),
        iterations=iterations,
        evidence=(
            f"transfers of ranks {', '.join(pairs[:MOST_PAIRS])}{more} do not end at "
            f"{listed(sorted(origin.receivers))}, and waited for pauses that began at "
            f"{origin.node}, at {shared.port} and before",
            *origin.evidence,
            *_tree(case, origin),
        ),
    )


def _tree(case: Case, origin: PauseOrigin) -> Iterator[str]:
    """Who was stopped, as a job's report shows it."""
    lossless = case.report.lossless
    assert lossless is not None
    spans = [pause.span for pause in case.pauses]
    for spread in propagation(spans, lossless.servers, case.report.fidelity.elapsed_ns):
        if spread.root == origin.node:
            yield (
                f"pauses that began at {spread.root} stopped others for "
                f"{spread.total_ns / 1e6:,.0f} ms of the lab; by distance {by_distance(spread)}"
            )


def _note(stopped: _StoppedTransfers) -> Iterator[str]:
    took_ns = float(stopped.case.timing.took.sum())
    excess_ns, _ = stopped.excess()
    if excess_ns >= LEAST_NOTED * took_ns:
        yield (
            f"pauses that began at {stopped.origin.node} stopped the critical path for "
            f"{excess_ns / 1e6:,.0f} ms of the lab: its ports received more than they carry, "
            f"without an incast. Placement and hashing, not a fault"
        )
