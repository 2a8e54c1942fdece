"""Prints a `JobReport` as rich tables; the text is complete without colours."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from rocelab.base.statistics import Spread
from rocelab.base.units import format_duration, format_rate, parse_size_bytes
from rocelab.jobs.collectives import Pattern, kind_of
from rocelab.jobs.performance import PerformanceRow, nccl_table
from rocelab.report.console import table
from rocelab.report.jobs.view import lossless_text, pause_rows, propagation_rows
from rocelab.results.job import Headline, JobReport, QueueFigures, RankFigures, Times
from rocelab.routes.balance import TierBalance

SHOWN_RANKS = 32
SHOWN_QUEUES = 12


def print_report(report: JobReport, console: Console) -> None:
    """Print the main figures of a job, times in the modelled network's clock."""
    for problem in report.problems:
        console.print(problem, style="red", markup=False, highlight=False, soft_wrap=True)
    for error in report.errors:
        console.print(error, style="red", markup=False, highlight=False, soft_wrap=True)
    if report.iterations and not report.errors:
        console.print(_nccl(report), markup=False, highlight=False, soft_wrap=True, end="")
    for shown in (
        _headline_table(report),
        _rank_table(report),
        _transport_table(report),
        _pause_table(report),
        _propagation_table(report),
        _queue_table(report),
        _link_table(report),
        _disagreements(report),
    ):
        if shown.row_count:
            console.print()
            console.print(shown)
    agreeing = sum(check.agrees for check in report.accounting)
    console.print(
        f"Devices and endpoints agree on {agreeing} of {len(report.accounting)} counts.",
        highlight=False,
    )
    if report.lossless is not None:
        console.print(lossless_text(report), highlight=False)
    console.print(_verdict(report), style="bold" if report.valid else "bold red", highlight=False)


def _nccl(report: JobReport) -> str:
    """The median iteration in the shape of nccl-tests."""
    job, transport = report.job, report.transport
    time_ns = report.headline("iteration_time").modelled.median
    row = PerformanceRow(
        Pattern(job["pattern"]),
        job["ranks"],
        parse_size_bytes(job["size"]),
        time_ns,
        root=job.get("root", 0) if kind_of(Pattern(job["pattern"])).is_rooted else -1,
        wrong_bytes=abs(transport.posted_bytes - transport.delivered_bytes),
    )
    return nccl_table(
        [row],
        iterations=job["iterations"],
        warmup_iterations=job["warmup_iterations"],
        places=[rank.nic for rank in report.ranks],
    )


def _headline_table(report: JobReport) -> Table:
    of = {headline.of for headline in report.headlines}
    title = "Modelled network, over " + " and ".join(sorted(of)) if of else ""
    shown = table(title, ("", "median", "minimum", "maximum", "CoV", "n"))
    for headline in report.headlines:
        shown.add_row(headline.title, *_spread(headline))
    if report.roofline is not None:
        shown.add_row("lower bound (roofline)", format_duration(report.roofline.modelled_ns))
    if report.completion is not None:
        shown.add_row("all measured iterations", format_duration(report.completion.modelled_ns))
    if report.resolution is not None:
        shown.add_row(
            "resolution of an iteration", f"± {format_duration(report.resolution.modelled_ns)}"
        )
    if report.fairness is not None:
        jfi, ratio = report.fairness.jfi, report.fairness.ratio
        shown.add_row("Jain's index of senders", "-" if jfi is None else f"{jfi:.3f}")
        shown.add_row("fastest / slowest sender", "-" if ratio is None else f"{ratio:.2f}")
    return shown


def _spread(headline: Headline) -> tuple[str, ...]:
    figure: Spread = headline.modelled
    values = (figure.median, figure.minimum, figure.maximum)
    cov = "" if figure.cov is None else f"{figure.cov:.1%}"
    return (*(value_text(value, headline.unit) for value in values), cov, str(figure.n))


def value_text(value: float, unit: str) -> str:
    """A headline's figure with its unit."""
    match unit:
        case "ns":
            return format_duration(value)
        case "bit/s":
            return format_rate(value)
        case "tokens/s":
            return f"{value:,.0f} {unit}"
        case _:
            return f"{value:.2f} {unit}".rstrip()


def _rank_table(report: JobReport) -> Table:
    shown = table(
        "Ranks: waiting for others in an iteration (median), bytes with warm-up",
        ("rank", "NIC", "waited", "in the lab", "sent", "acknowledged", "delivered"),
        left=2,
    )
    listed = report.ranks
    if len(listed) > SHOWN_RANKS:
        listed = tuple(sorted(listed, key=_waiting, reverse=True)[:SHOWN_RANKS])
        shown.caption = f"the {SHOWN_RANKS} of {len(report.ranks)} that waited longest"
    for rank in listed:
        shown.add_row(
            str(rank.rank),
            rank.nic,
            *_both(rank.waiting),
            *(f"{size:,}" for size in (rank.posted_bytes, rank.acked_bytes, rank.delivered_bytes)),
        )
    return shown


def _waiting(rank: RankFigures) -> float:
    return 0.0 if rank.waiting is None else rank.waiting.lab_ns


def _both(time: Times | None) -> tuple[str, str]:
    if time is None:
        return "-", "-"
    return format_duration(time.modelled_ns), format_duration(time.lab_ns)


def _transport_table(report: JobReport) -> Table:
    counts = report.transport
    shown = table("Transport", ("", "", "", ""), left=0)
    shown.show_header = False
    trips = report.round_trips
    figures = [
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
    ]
    cells = [(name, f"{count:,}") for name, count in figures]
    if counts.reordered is not None:
        share = counts.reordered_share or 0.0
        cells.append(("reordered", f"{counts.reordered:,} ({share:.2%})"))
        cells.append(("most packets late", f"{counts.reorder_extent:,}"))
    if trips is not None:
        for name, time in (
            ("round trip, p50", trips.p50),
            ("round trip, p99", trips.p99),
            ("round trip, maximum", trips.maximum),
        ):
            cells.append((name, format_duration(time.modelled_ns)))
    half = (len(cells) + 1) // 2
    for left, right in zip(cells[:half], [*cells[half:], ("", "")], strict=False):
        shown.add_row(*left, *right)
    return shown


def _queue_table(report: JobReport) -> Table:
    busy = [queue for queue in report.queues if queue.marked or queue.dropped_packets]
    deep = sorted(report.queues, key=lambda queue: queue.depth_max_bytes or 0, reverse=True)
    queues = sorted(busy, key=_trouble, reverse=True) or [q for q in deep if q.depth_max_bytes]
    what = "that marked or dropped" if busy else "no marks, no drops; the deepest"
    shown = table(
        f"Queues of switch ports: {what}",
        ("port", "class", "packets", "marked", "dropped", "deepest", "mean depth"),
    )
    for queue in queues[:SHOWN_QUEUES]:
        mean = queue.depth_mean_bytes
        shown.add_row(
            f"{queue.node}:{queue.interface}",
            str(queue.traffic_class),
            f"{queue.packets:,}",
            f"{queue.marked:,}",
            f"{queue.dropped_packets:,}",
            "-" if queue.depth_max_bytes is None else f"{queue.depth_max_bytes:,} B",
            "-" if mean is None else f"{mean:,.0f} B",
        )
    if len(queues) > SHOWN_QUEUES:
        shown.caption = f"and {len(queues) - SHOWN_QUEUES} more"
    return shown


def _pause_table(report: JobReport) -> Table:
    shown = table(
        "Ports that were paused (PFC)",
        ("port", "class", "by", "times", "in all", "longest", "headroom", "dropped", "watchdog"),
    )
    rows = pause_rows(report)
    for row in rows[:SHOWN_QUEUES]:
        shown.add_row(*row)
    if len(rows) > SHOWN_QUEUES:
        shown.caption = f"and {len(rows) - SHOWN_QUEUES} more"
    return shown


def _propagation_table(report: JobReport) -> Table:
    shown = table(
        "Where pauses began", ("node", "class", "others stopped", "who, by distance"), names=1
    )
    for row in propagation_rows(report)[:SHOWN_QUEUES]:
        shown.add_row(*row)
    return shown


def _trouble(queue: QueueFigures) -> tuple[int, int]:
    return queue.dropped_packets, queue.marked


def _link_table(report: JobReport) -> Table:
    shown = table(
        "Links between switches, RoCEv2 packets",
        ("tier", "links", "packets", "unused", "MMR", "JFI", "worst group (MMR)"),
    )
    for tier in report.tiers:
        if tier.all_links.total:
            shown.add_row(*_tier(tier))
    return shown


def _tier(tier: TierBalance) -> tuple[str, ...]:
    whole = tier.all_links
    worst = next((group for group in tier.groups if group.node == tier.worst_group), None)
    return (
        f"{tier.tier} {tier.direction}",
        str(whole.links),
        f"{whole.total:,.0f}",
        str(whole.unused),
        f"{whole.mmr:.2f}",
        f"{whole.jfi:.3f}",
        "" if worst is None else f"{worst.node} ({worst.balance.mmr:.2f})",
    )


def _disagreements(report: JobReport) -> Table:
    shown = table("Counts of devices and endpoints that differ", ("", "count", "against", "where"))
    for check in report.accounting:
        if not check.agrees:
            shown.add_row(
                f"{check.name}: {check.left}, {check.right}",
                f"{check.left_count:,}",
                f"{check.right_count:,}",
                ", ".join(check.differing),
            )
    return shown


def _verdict(report: JobReport) -> str:
    clock, fidelity = report.clock, report.fidelity
    cpu = fidelity.agents_cpu_s / max(1e-9, fidelity.elapsed_s)
    carried = (
        f"{report.lab['name']}, dilation {clock.dilation:g}: {fidelity.elapsed_s:.1f} s, "
        f"{cpu:.1f} of {report.environment.cpu_count} CPUs, NICs held back by the machine "
        f"{fidelity.lost_share:.2%}"
    )
    if fidelity.backlog_share is not None:
        carried += f", packets waited for a server {fidelity.backlog_share:.2%} of the time"
    if report.problems:
        return f"invalid, its figures do not count; {carried}"
    return f"a queue pair failed; {carried}" if report.errors else carried
