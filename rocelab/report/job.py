"""The document of a job alone, a `JobReport`; times are in the modelled network's clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from rocelab.base.quantities import Unit, duration, formatted, in_unit, ratio, share
from rocelab.base.units import parse_size_bytes
from rocelab.jobs.collectives import Pattern, kind_of
from rocelab.jobs.performance import PerformanceRow, nccl_table
from rocelab.report.answers.job import job_answer
from rocelab.report.basis import with_basis
from rocelab.report.document import (
    Block,
    Cell,
    Code,
    Column,
    Document,
    Figure,
    Note,
    Replay,
    Row,
    Section,
    Table,
    Tone,
    Value,
    columns,
)
from rocelab.report.jobs.plots import progress_plot
from rocelab.report.jobs.tables import pause_table, propagation_table
from rocelab.report.jobs.tcp import tcp_section
from rocelab.report.jobs.text import lossless_text
from rocelab.report.jobs.workload import workload_blocks
from rocelab.report.replay.recording import Recording, recorded_jobs, recording_of
from rocelab.report.stages import stages_sections
from rocelab.results.drill import JobsRun
from rocelab.results.job import FlowOutage, Headline, JobReport, QueueFigures, RankFigures, Times
from rocelab.results.probes import Disturbance
from rocelab.routes.balance import TierBalance

MOST_RANKS = 32
MOST_QUEUES = 12
MOST_OUTAGES = 24


def job_document(report: JobReport) -> Document:
    """All of a job."""
    failed = [*report.problems, *report.errors]
    agreeing = sum(check.agrees for check in report.accounting)
    measured = report.is_collective and bool(report.iterations) and not report.errors
    lossless = lossless_text(report)
    blocks: tuple[Block, ...] = (
        *(Note(text, Tone.BAD) for text in failed),
        *(Note(text, Tone.BAD) for text in disturbed_by(report.disturbed)),
        *([Section("As nccl-tests prints it", (Code(_nccl(report)),))] if measured else []),
        Replay(partial(_recording, report)),
        _outages(report),
        _headlines(report),
        *workload_blocks(report),
        _ranks(report),
        _transport(report) if report.tcp is None else tcp_section(report),
        pause_table(report, "Ports that were paused (PFC)"),
        propagation_table(report),
        _queues(report),
        _links(report),
        _disagreements(report),
        *stages_sections(report.stages, "job"),
        Section(
            "Can it be trusted?",
            (
                Note(
                    f"Devices and endpoints agree on {agreeing} of {len(report.accounting)} counts."
                ),
                *([Note(lossless)] if lossless else []),
                Note(_verdict(report), Tone.STRONG if report.valid else Tone.BAD),
            ),
        ),
    )
    job = report.job
    size = f" of {job['size']}" if job.get("size") else ""
    document = Document(
        f"{report.title}{size} on {report.lab['name']}",
        blocks,
        kind=f"rocelab traffic on lab `{report.lab['name']}`",
        meta=" ".join(
            (
                report.hosts[:1].upper() + report.hosts[1:],
                *(() if report.tcp is None else report.tcp.clock),
            )
        ).strip(),
        card=job_answer(report, Figure("answer", partial(progress_plot, report))),
    )
    return with_basis(document, report.basis)


def _recording(report: JobReport) -> Recording | None:
    """The recording of the run; None where its lab cannot be planned any more."""
    try:
        fabric = report.fabric
    except ValueError:
        return None
    run = JobsRun(report.problems, (report,), stages=report.stages)
    return recording_of(fabric, [recorded_jobs(fabric, report.title, run)])


def disturbed_by(disturbed: Sequence[Disturbance]) -> tuple[str, ...]:
    """A line for each fault that disturbed a run."""
    return tuple(f"disturbed by {disturbance.text}" for disturbance in disturbed)


def _nccl(report: JobReport) -> str:
    """The median iteration in the shape of nccl-tests."""
    job, ranks = report.job, report.ranks
    row = PerformanceRow(
        Pattern(job["pattern"]),
        job["ranks"],
        parse_size_bytes(job["size"]),
        report.headline("iteration_time").modelled.median,
        root=job.get("root", 0) if kind_of(Pattern(job["pattern"])).is_rooted else -1,
        wrong_bytes=abs(sum(rank.posted_bytes - rank.delivered_bytes for rank in ranks)),
    )
    text = nccl_table(
        [row],
        iterations=job["iterations"],
        warmup_iterations=job["warmup_iterations"],
        places=[rank.nic for rank in report.ranks],
    )
    return text.rstrip("\n")


def _outages(report: JobReport) -> Table:
    """The flows that waited for acknowledgements, the longest first."""
    outages = sorted(report.outages, key=lambda outage: -(outage.out_ns or math.inf))
    return Table(
        "Flows that were out, in the lab's clock",
        (
            *columns(Unit.TEXT, "from", "to"),
            Column("QP", Unit.NUMBER),
            Column("out", Unit.FIGURE),
            Column("sent again", Unit.COUNT),
            Column("at", Unit.FIGURE),
        ),
        tuple(_outage(report, outage) for outage in outages),
        most=MOST_OUTAGES,
        caption="How long a flow waited for an acknowledgement, where it sent packets again or "
        "waited longer than an undisturbed one.",
    )


def _outage(report: JobReport, outage: FlowOutage) -> Row:
    flow, event = report.flows[outage.flow], report.event_of(outage)
    return (
        report.ranks[flow.rank].nic,
        report.ranks[flow.peer].nic,
        flow.dest_qp,
        "to the end"
        if outage.out_ns is None
        else formatted(outage.out_ns, Unit.NS, outage.resolution_ns),
        outage.retransmitted,
        "no fault" if event is None else event.title,
    )


def _headlines(report: JobReport) -> Table:
    of = {headline.of for headline in report.headlines}
    rows: list[Row] = [(headline.title, *_spread(headline)) for headline in report.headlines]
    for title, time in (
        ("lower bound (roofline)", report.roofline),
        ("all measured iterations", report.completion),
    ):
        if time is not None:
            rows.append(_single(title, duration(time.modelled_ns)))
    if report.resolution is not None:
        text = f"± {duration(report.resolution.modelled_ns)}"
        rows.append(_single("resolution of an iteration", text))
    if report.fairness is not None:
        jfi, fastest = report.fairness.jfi, report.fairness.ratio
        rows.append(_single("Jain's index of senders", Value(jfi, Unit.RATIO)))
        rows.append(_single("fastest / slowest sender", Value(fastest, Unit.RATIO)))
    titles = ("median", "minimum", "maximum", "CoV", "n")
    return Table(
        "Figures, modelled, over " + " and ".join(sorted(of)) if of else "",
        (Column(""), *columns(Unit.FIGURE, *titles)),
        tuple(rows),
        sortable=False,
    )


def _spread(headline: Headline) -> Row:
    figure = headline.modelled
    values = (figure.median, figure.minimum, figure.maximum)
    cov = "" if figure.cov is None else share(figure.cov)
    return (*(in_unit(value, headline.unit) for value in values), cov, str(figure.n))


def _single(title: str, cell: Cell) -> Row:
    return (title, cell, "", "", "", "")


def _ranks(report: JobReport) -> Table:
    ranks = report.ranks
    caption = ""
    if len(ranks) > MOST_RANKS:
        ranks = tuple(sorted(ranks, key=_waiting, reverse=True)[:MOST_RANKS])
        caption = f"the {MOST_RANKS} of {len(report.ranks)} that waited longest"
    return Table(
        "Ranks: time waited in an iteration (median), bytes with warm-up",
        (
            *columns(Unit.TEXT, "rank", "NIC"),
            *columns(Unit.NS, "waited, modelled", "waited, lab"),
            *columns(Unit.COUNT, "sent", "acknowledged", "delivered"),
        ),
        tuple(
            (
                rank.rank,
                rank.nic,
                *_both(rank.waiting),
                rank.posted_bytes,
                rank.acked_bytes,
                rank.delivered_bytes,
            )
            for rank in ranks
        ),
        caption=caption,
    )


def _waiting(rank: RankFigures) -> float:
    return 0.0 if rank.waiting is None else rank.waiting.lab_ns


def _both(time: Times | None) -> tuple[Cell, Cell]:
    return (None, None) if time is None else (time.modelled_ns, time.lab_ns)


def _transport(report: JobReport) -> Table:
    """Two figures a line, without a heading."""
    counts, trips = report.roce, report.round_trips
    cells: list[tuple[str, Cell]] = [
        (title, Value(number, Unit.COUNT))
        for title, number in (
            ("queue pairs", counts.queue_pairs),
            ("data packets", counts.data_packets),
            ("retransmitted", counts.retransmitted),
            ("timeouts", counts.timeouts),
            ("NAKs sent", counts.naks_sent),
            ("NAKs received", counts.naks_received),
            ("out of order", counts.out_of_order),
            ("duplicates", counts.duplicates),
            ("marked (CE) at receivers", counts.ce),
            ("CNPs sent", counts.cnps_sent),
            ("CNPs received", counts.cnps_received),
            ("wrong ICRC", counts.icrc_errors),
            ("port moves", counts.port_moves),
        )
    ]
    if counts.reordered is not None:
        part = share(counts.reordered_share or 0.0)
        cells.append(("reordered", f"{counts.reordered:,} ({part})"))
        cells.append(("most packets late", Value(counts.reorder_extent, Unit.COUNT)))
    if trips is not None:
        times = (("p50", trips.p50), ("p99", trips.p99), ("maximum", trips.maximum))
        cells += [(f"round trip, {name}", Value(time.modelled_ns, Unit.NS)) for name, time in times]
    half = (len(cells) + 1) // 2
    pairs = zip(cells[:half], [*cells[half:], ("", "")], strict=False)
    head = tuple(Column("", Unit.FIGURE) for _ in range(4))
    rows = tuple((*left, *right) for left, right in pairs)
    return Table("Transport, times modelled", head, rows, sortable=False)


def _queues(report: JobReport) -> Table:
    busy = [queue for queue in report.queues if queue.marked or queue.dropped_packets]
    deep = sorted(report.queues, key=lambda queue: queue.depth_max_bytes or 0, reverse=True)
    queues = sorted(busy, key=_losses_and_marks, reverse=True) or [
        q for q in deep if q.depth_max_bytes
    ]
    what = "that marked or dropped" if busy else "no marks, no drops; the deepest"
    return Table(
        f"Queues of switch ports: {what}",
        (
            Column("port"),
            Column("class", Unit.NUMBER),
            *columns(Unit.COUNT, "packets", "marked", "dropped"),
            *columns(Unit.BYTES, "deepest", "mean depth"),
        ),
        tuple(
            (
                report.fabric.port_name(queue.node, queue.interface),
                queue.traffic_class,
                queue.packets,
                queue.marked,
                queue.dropped_packets,
                queue.depth_max_bytes,
                queue.depth_mean_bytes,
            )
            for queue in queues
        ),
        most=MOST_QUEUES,
    )


def _losses_and_marks(queue: QueueFigures) -> tuple[int, int]:
    return queue.dropped_packets, queue.marked


def _links(report: JobReport) -> Table:
    return Table(
        "Links between switches, RoCEv2 packets",
        (
            Column("tier"),
            *columns(Unit.COUNT, "links", "packets", "unused"),
            *columns(Unit.RATIO, "MMR", "JFI"),
            Column("worst group (MMR)", Unit.FIGURE),
        ),
        tuple(_tier(tier) for tier in report.tiers if tier.all_links.total),
    )


def _tier(tier: TierBalance) -> Row:
    whole = tier.all_links
    worst = next((group for group in tier.groups if group.node == tier.worst_group), None)
    mmr = None if worst is None else worst.balance.mmr
    return (
        f"{tier.tier} {tier.direction}",
        whole.links,
        whole.total,
        whole.unused,
        whole.mmr,
        whole.jfi,
        "" if worst is None or mmr is None else f"{worst.node} ({ratio(mmr)})",
    )


def _disagreements(report: JobReport) -> Table:
    return Table(
        "Counts of devices and endpoints that differ",
        (Column(""), *columns(Unit.COUNT, "count", "against"), Column("where", Unit.FIGURE)),
        tuple(
            (
                f"{check.name}: {check.left}, {check.right}",
                check.left_count,
                check.right_count,
                ", ".join(check.differing),
            )
            for check in report.accounting
            if not check.agrees
        ),
    )


def _verdict(report: JobReport) -> str:
    clock, fidelity = report.clock, report.fidelity
    cpu = fidelity.agents_cpu_s / max(1e-9, fidelity.elapsed_s)
    carried = (
        f"{report.lab['name']}, dilation {clock.dilation:g}: {fidelity.elapsed_s:.1f} s, "
        f"{cpu:.1f} of {report.environment.cpu_count} CPUs, NICs held back by the machine "
        f"{share(fidelity.lost_share)}"
    )
    if fidelity.backlog_share is not None:
        waited = share(fidelity.backlog_share)
        carried += f", packets waited for a server {waited} of the time"
    if report.problems:
        return f"invalid, its figures do not count; {carried}"
    if report.errors:
        return f"a queue pair failed; {carried}"
    if report.disturbed:
        return f"disturbed, not a measurement of the lab as planned; {carried}"
    return carried
