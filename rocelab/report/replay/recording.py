"""The data of a page that replays a drill, a simulation or a lab, or shows the loads of cells.

Makes from a `DrillResult` a `Recording` of plain values, for the script of the page
(docs/results.md, "The page"). `rocelab.report.simulation.recorded`,
`rocelab.report.compare.recorded` and `rocelab.live.recorded` make those of simulations, comparisons
and labs. Events and losses are complete. Rates are summed over longer intervals where a page would
become too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from rocelab.base.arrays import Floats
from rocelab.base.quantities import BPS_PER_GBS, Unit
from rocelab.base.wording import counted
from rocelab.planning.fabric import Direction, Fabric
from rocelab.planning.zones import zone_titles
from rocelab.report.jobs.text import job_name
from rocelab.report.repeats import representative
from rocelab.report.stages import CAUSES
from rocelab.results.drill import DrillResult, JobsRun, PhaseRun
from rocelab.results.job import FlowFigures, JobReport
from rocelab.results.probes import Event, FibChange, FlowRecord, ProbeRun, Rate
from rocelab.results.stages import Stages, SwitchStages

MS = 10**6
BURST_NS = MS
"""Changes of a switch's FIB that are less apart are one event with their number."""

SIMULATED_RATES = 500
MOST_TOTALS = 40_000
MOST_RATES = 200_000
"""The most numbers that all runs of a page have as rates of all flows together, and of each."""
PATHS_OF_JOBS = "its path when the job began, by the kernels' tables then"
MOST_SENT = 5_000
"""The most flows of jobs that all runs of a page list."""

FAULT, STAGE, ROUTES = "fault", "stage", "routes"
Entry = dict[str, Any]
"""An event: `t_ns` after the first event, `kind`, and the keys of its kind."""


@dataclass(frozen=True, slots=True)
class RecordedFlow:
    """A flow."""

    name: str
    source: str
    destination: str
    sport: int
    path: tuple[int, ...]
    """Numbers of its links before the first event, empty if it is not known."""


@dataclass(frozen=True, slots=True)
class ProbedFlow(RecordedFlow):
    """A flow of probes, and when it lost packets."""

    affected: int
    sent: int
    lost: int
    reordered: int
    convergence_ns: int | None
    """Of the worst event, None if there is nothing to measure."""

    resolution_ns: int
    """The flow's times are no finer."""

    outages: tuple[tuple[int, int | None, int], ...]
    """Of each its start, its end (None: the end of the run) and the packets."""


@dataclass(frozen=True, slots=True)
class SentFlow(RecordedFlow):
    """What one end of a queue pair sent, as `FlowFigures` has it."""

    dest_qp: int
    payload_bytes: int
    packets: int
    retransmitted: int
    ce: int
    rtt_p99_ns: float | None


@dataclass(frozen=True, slots=True)
class Rates:
    """Packets per interval, from `start_ns` on: a row per flow, or one of all."""

    start_ns: int
    interval_ns: int
    sent: list[list[int]]
    received: list[list[int]]


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job: what all its senders sent on the modelled network, in each interval from 0 on, on the
    wire in bit/s or, of payload, in GB/s (`rates_in`); when its measured iterations began and
    ended."""

    name: str
    interval_ns: float
    rates_in: Unit
    rates: list[float]
    iterations: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Samples:
    """What was read of a lab at the times `t_ns`: of each metric the values that are not 0, by
    direction; the carriers at both ends of links that lack one; the states of nodes that are not
    `ok`. None: as in the sample before."""

    t_ns: list[int]
    values: list[Mapping[str, Mapping[int, float]]]
    carrier: list[Mapping[str, list[bool]] | None]
    states: list[Mapping[str, str] | None]


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One valid run, of probes with `flows` and rates, or of `jobs` with `flows`; or a lab with
    `samples`; or one cell of several, with `loads`, `flows` and no time. Times are the lab's."""

    title: str
    dilation: float
    """How many times slower the lab's clock runs than the modelled network's."""

    begin_ns: int
    end_ns: int
    events: list[Entry]
    loads: list[int]
    """Packets of the same traffic, undisturbed, or packets or bytes of the jobs, by number of the
    direction (link i has 2 i up and 2 i + 1 down)."""

    loads_are: str
    """In words."""

    about: str = ""
    """What a cell's figures are, in words."""

    rates_are: str = ""
    """In words."""

    flows_are: str = ""
    """In words."""

    paths_are: str = ""
    """In words."""

    flows: Sequence[RecordedFlow] = field(default_factory=list)
    totals: Rates | None = None
    rates: Rates | None = None
    jobs: list[RecordedJob] = field(default_factory=list)
    samples: Samples | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """All that the page's script needs. chosen: the run that is shown first, as in the tables."""

    nodes: list[Entry]
    links: list[Entry]
    runs: list[RecordedRun]
    chosen: int

    @property
    def dilation(self) -> float:
        """How many times slower the lab's clock runs than the modelled network's."""
        return self.runs[0].dilation

    def document(self) -> dict[str, Any]:
        """The recording as JSON values."""
        return asdict(self)


def recording(result: DrillResult) -> Recording | None:
    """The recording of a result's valid runs of probes and jobs; None without one, and where its
    lab cannot be planned any more. The links of programs were not watched."""
    runs = [
        (number, run)
        for number, repeat in enumerate(result.repeats, 1)
        for run in repeat
        if run.valid and run.programs is None
    ]
    try:
        fabric = result.fabric if runs else None
    except ValueError:
        fabric = None
    if fabric is None:
        return None
    first = runs[0][1].phase
    sample = representative(result, first)
    numbers = [(number, run.phase) for number, run in runs]
    return recording_of(
        fabric,
        [
            _run(fabric, _title(result, run.phase, number), run, result.dilation, 1 / len(runs))
            for number, run in runs
        ],
        chosen=0 if sample is None else numbers.index((sample[0], first)),
    )


def recording_of(fabric: Fabric, runs: list[RecordedRun], chosen: int = 0) -> Recording:
    """The recording of runs on a fabric."""
    titles = zone_titles(fabric)
    return Recording(
        nodes=[
            {
                "name": node.name,
                "role": node.role.name,
                "tier": node.role.tier,
                "zone": titles.get(node.name),
            }
            for node in fabric.nodes
        ],
        links=[{"name": link.name, "a": link.a.node, "b": link.b.node} for link in fabric.links],
        runs=runs,
        chosen=chosen,
    )


def numbers_of(fabric: Fabric) -> Mapping[str, int]:
    """The number of each link by its name."""
    return {link.name: number for number, link in enumerate(fabric.links)}


def sent_flows(
    fabric: Fabric,
    jobs: Sequence[tuple[Sequence[str], Sequence[FlowFigures]]],
    most: int,
) -> tuple[list[SentFlow], str]:
    """At most `most` flows of jobs, each job given by its ranks' NICs and its flows: if there are
    more, those with the most packets sent again or marked; and a sentence that says which."""
    numbers = numbers_of(fabric)
    flows = [(nics, flow) for nics, of_job in jobs for flow in of_job]
    listed = sorted(flows, key=lambda entry: (-entry[1].retransmitted, -entry[1].ce))[:most]
    which = all_of(len(flows))
    if len(listed) < len(flows):
        which = f"The {most:,} of {len(flows):,} flows with the most packets sent again or marked"
    text = f"{which}; a flow is what one end of a queue pair sends."
    if not any(flow.links for _, flow in flows):
        text += " Their paths do not follow from tables alone."
    return [
        SentFlow(
            name=f"f{number}",
            source=nics[flow.rank],
            destination=nics[flow.peer],
            sport=flow.sport,
            path=tuple(numbers[link] for link in flow.links),
            dest_qp=flow.dest_qp,
            payload_bytes=flow.bytes,
            packets=flow.packets,
            retransmitted=flow.retransmitted,
            ce=flow.ce,
            rtt_p99_ns=flow.rtt_p99_ns,
        )
        for number, (nics, flow) in enumerate(listed, 1)
    ], text


def all_of(flows: int) -> str:
    """`All 16 flows`, `1 flow`."""
    return f"{'All ' if flows > 1 else ''}{counted(flows, 'flow')}"


def loads_of(fabric: Fabric, packets: Mapping[tuple[str, Direction], int]) -> list[int]:
    """Packets in the order of directions; empty without any."""
    ways = chain.from_iterable((link.up, link.down) for link in fabric.links)
    return [packets.get((way.link.name, way.direction), 0) for way in ways] if packets else []


def rate_over_time(name: str, times_ns: Floats, rates_bps: Floats) -> RecordedJob:
    """The mean rate in each of equal intervals: `rates_bps[i]` holds from `times_ns[i]`, of which
    the first is 0, to the next."""
    sent = np.concatenate(([0.0], np.cumsum(rates_bps * np.diff(times_ns))))
    edges = np.linspace(0, times_ns[-1], SIMULATED_RATES + 1)
    means = np.diff(np.interp(edges, times_ns, sent)) / np.diff(edges)
    return RecordedJob(name, float(edges[1]), Unit.BITS_PER_S, np.rint(means).tolist(), ())


def _title(result: DrillResult, phase: str, number: int) -> str:
    where = result.where(phase)
    return f"{where}, repeat {number}" if where else f"repeat {number}"


def _run(fabric: Fabric, title: str, run: PhaseRun, dilation: float, share: float) -> RecordedRun:
    """`share` of the page's room is for this run."""
    measured = run.measured
    if isinstance(measured, JobsRun):
        return recorded_jobs(fabric, title, measured, share)
    assert isinstance(measured, ProbeRun)
    return recorded_probes(fabric, title, measured, dilation, share)


def recorded_probes(
    fabric: Fabric, title: str, probes: ProbeRun, dilation: float, share: float = 1
) -> RecordedRun:
    """A run of probes, in `share` of a page's room."""
    rate = probes.flows[0].rate
    numbers = numbers_of(fabric)
    return RecordedRun(
        title=title,
        dilation=dilation,
        begin_ns=rate.start_ns,
        end_ns=rate.start_ns + rate.interval_ns * len(rate.sent),
        events=_events([event.event for event in probes.events], probes.stages, probes.fib),
        loads=loads_of(
            fabric,
            {
                (load.link, load.direction): load.packets
                for hashing in probes.hashing
                if hashing.own
                for load in hashing.loads
            },
        ),
        loads_are="packets carried by this traffic before any fault",
        paths_are="its path before the first event, by the kernels' tables then",
        flows=[_flow(probes, record, numbers) for record in probes.flows],
        totals=_totals(probes, int(MOST_TOTALS * share)),
        rates=_rates([record.rate for record in probes.flows], int(MOST_RATES * share)),
    )


def recorded_jobs(fabric: Fabric, title: str, run: JobsRun, share: float = 1) -> RecordedRun:
    """A run of jobs, in `share` of a page's room."""
    devices = run.reports[0]
    of_jobs = [([rank.nic for rank in report.ranks], report.flows) for report in run.reports]
    flows, flows_are = sent_flows(fabric, of_jobs, int(MOST_SENT * share))
    return RecordedRun(
        title=title,
        dilation=devices.clock.dilation,
        begin_ns=0,
        end_ns=devices.fidelity.elapsed_ns,
        events=_events(devices.events, run.stages),
        loads=loads_of(
            fabric, {(link.link, link.direction): link.packets for link in devices.links}
        ),
        loads_are="packets of the jobs",
        rates_are="goodput (payload acknowledged)",
        flows=flows,
        flows_are=flows_are,
        paths_are=PATHS_OF_JOBS,
        jobs=[
            _job(job_name(report.title, number, len(run.reports)), report)
            for number, report in enumerate(run.reports, 1)
        ],
    )


def _job(name: str, report: JobReport) -> RecordedJob:
    rates = [sender.rate_bps for sender in report.goodput.senders]
    return RecordedJob(
        name=name,
        interval_ns=report.goodput.step.lab_ns,
        rates_in=Unit.GB_PER_S,
        rates=[
            sum(rates_of_interval) / BPS_PER_GBS
            for rates_of_interval in zip_longest(*rates, fillvalue=0.0)
        ],
        iterations=report.iteration_spans_ns,
    )


def _events(
    events: Sequence[Event], stages: Sequence[Stages], fib: Sequence[FibChange] = ()
) -> list[Entry]:
    """All entries in order of time."""
    faults = (entry for number, event in enumerate(events, 1) for entry in _faults(number, event))
    traced = (
        entry
        for event, of_event in zip(events, stages, strict=False)
        for entry in _stages(event, of_event)
    )
    return sorted(chain(faults, routes(fib), traced), key=lambda entry: entry["t_ns"])


def _faults(number: int, event: Event) -> Iterator[Entry]:
    """Each change of the event of that number; of a result that has only the event, that one."""
    for change in event.faults:
        yield {
            "t_ns": change.t_ns,
            "kind": FAULT,
            "event": number,
            "fault": change.kind,
            "subject": change.subject,
            "begins": change.begins,
            "links": change.links,
            "nodes": change.nodes,
            "dark": change.dark,
        }
    if not event.faults:
        yield {
            "t_ns": event.t_ns,
            "kind": FAULT,
            "event": number,
            "fault": event.kind,
            "subject": event.subject,
            "begins": event.change == "begin",
            "links": (),
            "nodes": (),
            "dark": False,
        }


def routes(changes: Sequence[FibChange]) -> Iterator[Entry]:
    """The bursts of changes of each switch's FIB: how many `changes` from `t_ns` to `until_ns`, how
    many routes were `removed`, and how many are then `incomplete`: missing, or with fewer next hops
    than they had first."""
    for node in dict.fromkeys(change.node for change in changes):
        planned: dict[str, int] = {}
        incomplete: set[str] = set()
        burst: Entry | None = None
        for change in changes:
            if change.node != node:
                continue
            if burst is not None and change.t_ns - burst["until_ns"] >= BURST_NS:
                yield burst
                burst = None
            if burst is None:
                burst = {"t_ns": change.t_ns, "kind": ROUTES, "node": node}
                burst |= {"changes": 0, "removed": 0}
            width = planned.setdefault(change.prefix, change.width_before or 0)
            if (change.width_after or 0) < width:
                incomplete.add(change.prefix)
            else:
                incomplete.discard(change.prefix)
            burst["changes"] += 1
            burst["removed"] += change.action == "delete"
            burst |= {"until_ns": change.t_ns, "incomplete": len(incomplete)}
        if burst is not None:
            yield burst


def _stages(event: Event, stages: Stages) -> Iterator[Entry]:
    for switch in stages.switches:
        for after_ns, text in _steps(event, switch):
            if after_ns is not None:
                yield {
                    "t_ns": event.t_ns + after_ns,
                    "kind": STAGE,
                    "node": switch.node,
                    "text": text,
                }


def _steps(event: Event, switch: SwitchStages) -> tuple[tuple[int | None, str], ...]:
    cause = "" if switch.detected_by is None else f" by {CAUSES[switch.detected_by]}"
    session = "takes a BGP session down" if event.change == "begin" else "has a BGP session again"
    return (
        (switch.detected_ns, f"detects it{cause}"),
        (switch.session_ns, f"bgpd {session}"),
        (switch.best_path_ns, f"bgpd has decided on the route to {switch.prefix}"),
        (switch.zebra_ns, f"zebra passes the route to {switch.prefix} to the kernel"),
    )


def _flow(run: ProbeRun, record: FlowRecord, numbers: Mapping[str, int]) -> ProbedFlow:
    measured = record.measurement
    affected = [
        (event_convergence.convergence_ns, event_convergence.resolution_ns + event.event.took_ns)
        for event_convergence, event in zip(measured.events, run.events, strict=True)
        if event_convergence.affected
    ]
    return ProbedFlow(
        name=record.flow.name,
        source=record.flow.source,
        destination=record.flow.destination,
        sport=record.flow.source_port,
        affected=len(affected),
        sent=measured.sent,
        lost=measured.lost,
        reordered=measured.reordered,
        convergence_ns=max((ns for ns, _ in affected if ns is not None), default=None),
        resolution_ns=max((ns for _, ns in affected), default=round(measured.resolution_ns)),
        path=tuple(numbers[link] for link in record.path),
        outages=tuple((outage.start_ns, outage.end_ns, outage.lost) for outage in measured.outages),
    )


def _totals(run: ProbeRun, most: int) -> Rates:
    rate = run.flows[0].rate
    sent = _summed(flow.rate.sent for flow in run.flows)
    received = _summed(flow.rate.received for flow in run.flows)
    return _rates([Rate(rate.start_ns, rate.interval_ns, sent, received)], most)


def _summed(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(*rows, fillvalue=0)))


def _rates(rates: Sequence[Rate], most: int) -> Rates:
    """Rates in so few intervals that no more than `most` numbers remain."""
    first = rates[0]
    numbers = sum(len(rate.sent) + len(rate.received) for rate in rates)
    together = max(1, -(-numbers // max(1, most)))
    return Rates(
        start_ns=first.start_ns,
        interval_ns=first.interval_ns * together,
        sent=[_thinned(rate.sent, together) for rate in rates],
        received=[_thinned(rate.received, together) for rate in rates],
    )


def _thinned(values: Sequence[int], together: int) -> list[int]:
    starts = np.arange(0, len(values), together)
    summed: list[int] = np.add.reduceat(np.array(values, dtype=np.int64), starts).tolist()
    return summed
