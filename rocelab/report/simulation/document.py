"""The document of a `SimulationReport`: jobs, flows, packets, pauses, links, events and how it was
computed."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from rocelab.base.quantities import Unit, duration, in_unit, memory, rate, ratio, share
from rocelab.base.wording import counted
from rocelab.report.basis import with_basis
from rocelab.report.document import (
    Block,
    Cell,
    Code,
    Column,
    Document,
    Figure,
    Items,
    Note,
    Replay,
    Row,
    Section,
    Table,
    Tone,
    columns,
)
from rocelab.report.flowtimes import by_size_table, times_table
from rocelab.report.order import event_name
from rocelab.report.served import served_blocks
from rocelab.report.simulation import plots
from rocelab.report.simulation.answer import simulation_answer
from rocelab.report.simulation.models import model_section
from rocelab.report.simulation.recorded import recorded, which_flows
from rocelab.results.engines import Engine
from rocelab.results.simulation import (
    FlowOutcome,
    JobOutcome,
    Method,
    SimulationReport,
    TierUse,
)

MOST_JOBS = 40
MOST_QUEUES = 10
LISTED_FLOWS = 20
NAMED_LINKS = 8


def simulation_document(report: SimulationReport) -> Document:
    """All of a simulation."""
    lab, method = report.lab, report.method
    document = Document(
        f"Simulation of {lab['name']}, {method.hosts}{_shared_tcp(report)}",
        (
            *(Note(text, Tone.CAUTION, page_only=True) for text in report.warnings),
            Section("Jobs", _jobs(report)),
            Section("Requests", _served(report)),
            Replay(partial(recorded, report)),
            Section("Flow completion", _flow_times(report)),
            Section("Slowest flows", _slowest(report), page_only=True),
            model_section(report),
            Section("Packets", (_packets(report), *_queues(report))),
            Section("What happened", (_events(report),)),
            Section("Links between switches", (*_drawn(report, heat=plots.heat), *_links(report))),
            _method(report),
        ),
        kind="rocelab simulate",
        card=simulation_answer(report),
        lead=f"{counted(len(report.jobs), 'job')} under scheme {lab['scheme']['kind']}: "
        f"{counted(method.flows, 'flow')}, {counted(method.transfers, 'transfer')}, engine "
        f"{method.engine}. Nothing was sent on a network.",
        meta=f"{report.environment.started} · rocelab {report.environment.tool_text}",
    )
    return with_basis(document, report.basis, fails=bool(report.events))


def _shared_tcp(report: SimulationReport) -> str:
    """What stands for TCP, if a job has it."""
    transports = ((one.job.get("collective") or one.job).get("transport") for one in report.jobs)
    is_tcp = any(transport and transport.get("kind") == "tcp" for transport in transports)
    return ", TCP as fair shares" if is_tcp else ""


def _drawn(
    report: SimulationReport, **draw: Callable[[SimulationReport], object]
) -> tuple[Figure, ...]:
    return tuple(Figure(name, partial(plot, report)) for name, plot in draw.items())  # type: ignore[arg-type]


def _jobs(report: SimulationReport) -> tuple[Block, ...]:
    titles = {headline.name: headline.title for job in report.jobs for headline in job.headlines}
    table = Table(
        "Jobs, on the modelled network (medians of iterations)",
        (
            Column("job"),
            Column("ranks", Unit.COUNT),
            Column("neighbouring ranks on other leaves", Unit.COUNT, page_only=True),
            Column("in other zones", Unit.COUNT, page_only=True),
            Column("sent", Unit.BYTES),
            *columns(Unit.FIGURE, *titles.values()),
            Column("lower bound", Unit.NS),
        ),
        tuple(
            (
                job.name,
                job.ranks,
                job.cut_leaves,
                job.cut_zones,
                job.payload_bytes,
                *(_headline(job, name) for name in titles),
                job.roofline_ns,
            )
            for job in report.jobs
        ),
        most=MOST_JOBS,
    )
    steps = Section("Steps of the last iteration", _drawn(report, timeline=plots.timeline))
    curves = (
        Figure("finishing", partial(plots.finishing, report), _at_once(report)),
        Figure("rates", partial(plots.rates, report), _constant(report)),
        Figure("jobs", partial(plots.jobs, report)),
    )
    return (table, *curves, steps)


def _served(report: SimulationReport) -> tuple[Block, ...]:
    jobs = [(job.name, job.served) for job in report.jobs if job.served is not None]
    which = [f" of {name}" if len(jobs) > 1 else "" for name, _ in jobs]
    return tuple(
        block
        for text, (_, served) in zip(which, jobs, strict=True)
        for block in served_blocks(served, text)
    )


def _at_once(report: SimulationReport) -> str:
    """The sentence in place of a distribution of times that are alike."""
    if len(report.finish_ns) < 2:
        return ""
    times = report.method.transfers
    who = "The only transfer ends" if times == 1 else f"All {times:,} transfers end"
    return f"{who} within 1% of {duration(report.finish_ns[-1])}."


def _constant(report: SimulationReport) -> str:
    """The sentence in place of a rate that does not change."""
    rate_bps = plots.constant_bps(report)
    if rate_bps is None:
        return ""
    sent_ns = report.rate.time_ns[-1]
    return (
        f"All transfers together send {rate(rate_bps)} on the wire for {duration(sent_ns)}, "
        "without latency."
    )


def _headline(job: JobOutcome, name: str) -> Cell:
    for headline in job.headlines:
        if headline.name == name:
            return in_unit(headline.modelled.median, headline.unit)
    return "never ends" if None in job.iterations_ns else None


def _flow_times(report: SimulationReport) -> tuple[Block, ...]:
    times = report.flow_times
    blocks: list[Block] = []
    if report.without_times:
        blocks.append(Note(report.without_times))
    if times is not None:
        transfers = counted(times.transfers, "transfer")
        text = f"{transfers} of queue pairs; slowdown: over the least time, alone on the path."
        blocks += [
            Note(text, page_only=True),
            times_table(times),
        ]
    curve = Figure("slowdown", partial(plots.slowdown, report), _equally_slow(report))
    by_size = by_size_table((job.name, job.slowdown) for job in report.jobs)
    return (*blocks, curve, by_size)


def _equally_slow(report: SimulationReport) -> str:
    """The sentence in place of a distribution of slowdowns that are alike; empty without any."""
    if report.flow_times is None:
        return ""
    return (
        "The slowdown of all flows (time over the least one, alone on the path) is within 1% of "
        f"{ratio(report.flow_times.slowdown.maximum)}."
    )


def _slowest(report: SimulationReport) -> tuple[Block, ...]:
    if not report.slowest:
        return ()
    if alike := _equal_times(report):
        return (Note(alike),)
    more = len(report.slowest) > LISTED_FLOWS
    text = (
        f"{which_flows(report, len(report.slowest))} "
        + (f"The table has the first {LISTED_FLOWS}, `result.json` has all. " if more else "")
        + "The time is that of the flow's slowest transfer; `--flows FILE` writes every transfer "
        "of every flow. Links are those of its path while all are up, or of all its ways where "
        "switches divide it."
    )
    return (
        Note(text),
        Table(
            "",
            (
                *columns(Unit.TEXT, "flow", "job", "from, to", "queue pair, port"),
                Column("bytes", Unit.BYTES),
                Column("transfers", Unit.COUNT),
                Column("slowest", Unit.NS),
                Column("slowdown", Unit.RATIO),
                Column("over at", Unit.NS),
                Column("links"),
            ),
            tuple(
                _flow(f"f{number}", flow)
                for number, flow in enumerate(report.slowest[:LISTED_FLOWS], 1)
            ),
        ),
    )


def _equal_times(report: SimulationReport) -> str:
    """One sentence in place of a list of flows that took the same time; empty if they differ."""
    times = {
        None if flow.longest_ns is None else duration(flow.longest_ns) for flow in report.slowest
    }
    if len(report.slowest) < LISTED_FLOWS or len(times) > 1 or None in times:
        return ""
    local = sum(_server(flow.source) == _server(flow.destination) for flow in report.slowest)
    inside = f", {local:,} of them inside one server" if local else ""
    return (
        f"No flow is slower than others: the slowest transfer of each of the "
        f"{len(report.slowest):,} listed in `result.json` takes {times.pop()}{inside}."
    )


def _server(nic: str) -> str:
    return nic.partition(":")[0]


def _flow(name: str, flow: FlowOutcome) -> Row:
    more = len(flow.links) - NAMED_LINKS
    links = ", ".join(flow.links[:NAMED_LINKS]) or "no path"
    return (
        name,
        flow.job,
        f"{flow.source} → {flow.destination}",
        f"{flow.dest_qp}, {flow.source_port}",
        flow.payload_bytes,
        flow.transfers,
        _time_cell(flow.longest_ns),
        flow.slowdown,
        _time_cell(flow.over_ns),
        f"{links} and {more} more" if more > 0 else links,
    )


def _time_cell(time_ns: float | None) -> Cell:
    return "never" if time_ns is None else time_ns


def _packets(report: SimulationReport) -> Table:
    counts = report.packets
    titles = ("data", "sent again", "out of order", "ACKs", "NAKs", "timeouts", "marks", "CNPs")
    rows: tuple[Row, ...] = ()
    if counts is not None:
        rows = (
            (
                counts.data_packets,
                counts.retransmitted,
                counts.out_of_order,
                counts.acks,
                counts.naks,
                counts.timeouts,
                counts.marks,
                counts.cnps,
                counts.drops,
                counts.lost,
            ),
        )
    head = (*titles, "drops", "lost by failures")
    return Table("", tuple(Column(title, Unit.COUNT) for title in head), rows, names=0)


def _queues(report: SimulationReport) -> tuple[Table, ...]:
    packets = report.packets
    if packets is None:
        return ()
    queues = Table(
        "Highest queues of switch ports",
        (Column("port"), Column("highest", Unit.BYTES), *columns(Unit.COUNT, "marks", "drops")),
        tuple(
            (queue.port, queue.highest_bytes, queue.marks, queue.drops) for queue in packets.queues
        ),
        most=MOST_QUEUES,
    )
    return (queues,) if packets.lossless is None else (queues, _pauses(report))


def _pauses(report: SimulationReport) -> Table:
    assert report.packets is not None
    lossless = report.packets.lossless
    assert lossless is not None
    return Table(
        "Pauses of lossless classes, by the port that stopped",
        (
            Column("port"),
            Column("class", Unit.NUMBER),
            Column("asked by", Unit.FIGURE),
            Column("times", Unit.COUNT),
            *columns(Unit.NS, "in all", "longest"),
            Column("held for it", Unit.BYTES),
            Column("dropped", Unit.COUNT),
        ),
        tuple(
            (
                link.port,
                link.traffic_class,
                link.peer,
                link.transitions,
                link.paused_ns,
                link.longest_ns,
                link.held_max_bytes,
                link.dropped_packets,
            )
            for link in lossless.links
        ),
        most=MOST_QUEUES,
        caption=f"of all links {counted(lossless.transitions, 'time')}, "
        f"{duration(lossless.paused_ns)}; {counted(lossless.dropped_packets, 'packet')} dropped, "
        f"{lossless.discarded_packets:,} by watchdogs",
    )


def _links(report: SimulationReport) -> tuple[Table, Table]:
    by_key = {(tier.tier, tier.direction): tier for tier in report.tiers}
    rows = []
    for use in report.uses:
        if use.balance.total:
            tier = by_key.get((use.tier, use.direction))
            flows = None if tier is None else tier.all_links.mmr
            random = None if tier is None or tier.random is None else tier.random.mmr
            rows.append(_use(use, flows, random))
    links = Table(
        "Links between switches, compared with uniform random hashing of the same number of flows",
        (
            Column("tier"),
            *columns(Unit.COUNT, "links", "unused"),
            *columns(Unit.RATIO, "MMR of flows", "random MMR", "MMR of bytes", "JFI"),
            *columns(Unit.SHARE, "mean use", "busiest"),
        ),
        tuple(rows),
    )
    worst = Table(
        "Most loaded links between switches",
        (
            *columns(Unit.TEXT, "link", "sent by"),
            Column("flows", Unit.FIGURE),
            Column("of mean", Unit.RATIO),
        ),
        tuple(
            (link.link, link.sender, f"{link.flows:,.4g}", link.of_mean) for link in report.worst
        ),
    )
    return links, worst


def _use(use: TierUse, flows: float | None, random: float | None) -> Row:
    whole = use.balance
    return (
        f"{use.tier} {use.direction}",
        whole.links,
        whole.unused,
        flows,
        random,
        whole.mmr,
        whole.jfi,
        use.utilisation_mean,
        use.utilisation_max,
    )


def _events(report: SimulationReport) -> Table:
    return Table(
        "",
        (*columns(Unit.TEXT, "event", "what"), *columns(Unit.NS, "at", "routed around", "back")),
        tuple(
            (event_name(number), event.what, event.start_ns, event.routed_ns, event.end_ns)
            for number, event in enumerate(report.events, 1)
        ),
        names=2,
        sortable=False,
    )


def _latency(method: Method) -> str:
    if method.latencies_ns is None:
        return duration(method.latency_ns)
    low, high = map(duration, method.latencies_ns)
    return f"{low} to {high}, each link its own"


def _method(report: SimulationReport) -> Section:
    method = report.method
    return Section(
        "How it was worked out",
        (
            Note(_how(report)),
            Note(f"Latency of a send: {_latency(method)}. Left out:", page_only=True),
            Items(method.leaves_out, page_only=True),
            Code(json.dumps(report.lab, indent=1), title="the lab in full", page_only=True),
            *(
                Code(json.dumps(job.job, indent=1), title=f"job {number} in full", page_only=True)
                for number, job in enumerate(report.jobs, 1)
            ),
        ),
    )


def _how(report: SimulationReport) -> str:
    method, cost = report.method, report.cost
    exact = "exact" if method.eps == 0 else f"completions batched within {share(method.eps)}"
    note = "queues, marks, pauses and drops are not in it"
    if method.engine is Engine.PACKETS:
        exact = f"packet by packet, ports {method.ports}, seed {method.seed}"
        note = method.hosts
    elif method.engine is Engine.LINKS:
        exact = f"packet by packet, each link alone, seed {method.seed}"
        note = "a link does not know what happens behind it"
    took_s = sum(cost.seconds.values())
    return (
        f"{report.lab['name']}, scheme {report.lab['scheme']['kind']}, choice by {method.model}: "
        f"{counted(method.flows, 'flow')}, {counted(method.transfers, 'transfer')}, "
        f"{counted(method.solves, 'solve')} "
        f"({exact}{', each proven max-min fair' if method.proven else ''}) in {took_s:.1f} s and "
        f"{memory(cost.peak_memory_bytes)}. Engine {method.engine}: {note}."
    )
