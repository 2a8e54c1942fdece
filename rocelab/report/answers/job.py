"""What a job reached, over its lower bound, and what was seen that holds a job back."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rocelab.base.quantities import Unit, duration, formatted, in_unit, ratio, share, size
from rocelab.base.wording import counted
from rocelab.report.answers.clauses import and_more, headline_card, sentence
from rocelab.report.answers.events import event_text
from rocelab.report.document import MOST_FIGURES, Answer, Card, Figure
from rocelab.report.served import served_clause
from rocelab.results.job import FlowOutage, Headline, JobReport
from rocelab.results.lossless import Lossless

LEAST_MMR = 1.2
"""A busiest link that has less over the mean of its tier holds nothing up."""

_FIRST = (
    *("ttft_p50", "ttft_p99", "itl_p99"),
    *("iteration_time", "busbw", "jct_ratio", "goodput", "sender_goodput"),
)
"""The headlines that a card has, in this order."""


def job_answer(report: JobReport, plot: Figure | None = None) -> Answer:
    """The answer of a job alone."""
    if report.errors:
        return Answer(sentence(f"it failed: {and_more(report.errors)}"), (), plot)
    invalid = f"invalid, its figures do not count: {and_more(report.problems)}"
    disturbed = f"disturbed by {and_more(fault.text for fault in report.disturbed)}"
    text = sentence(
        outage_clause(report),
        reached_clause(report),
        held_back_clause(report),
        invalid if report.problems else "",
        disturbed if report.disturbed else "",
    )
    return Answer(text, _figures(report), plot)


def outage_clause(report: JobReport) -> str:
    """`cable rtsw1:ctsw2 down: 4 of 48 flows out for up to 127 ms`, of the event with the longest
    outage; empty without events."""
    if not report.events:
        return ""
    felt = [outage for outage in report.outages if report.event_of(outage)]
    worst = max(felt, key=_length, default=None)
    event = None if worst is None else report.event_of(worst)
    flows = counted(len(report.flows), "flow")
    if worst is None or event is None:
        return f"{event_text(report.events[0])}: none of {flows} was out"
    same = [outage for outage in felt if report.event_of(outage) == event]
    out = f"{event_text(event)}: {len({outage.flow for outage in same})} of {flows} out"
    back = [outage.out_ns for outage in same if outage.out_ns is not None]
    if back:
        out += f" for up to {formatted(max(back), Unit.NS, worst.resolution_ns)}"
    missing = len(same) - len(back)
    return out + (f", {missing} of them not back at the end" if missing else "")


def _length(outage: FlowOutage) -> float:
    return math.inf if outage.out_ns is None else outage.out_ns


def reached_clause(report: JobReport) -> str:
    """`allreduce of 4MB over 4 ranks: busbw 9.8 GB/s, an iteration takes 1.28 times its lower
    bound`; empty if nothing was measured."""
    job = report.job
    of_size = f" of {job['size']}" if job.get("size") else ""
    what = f"{report.title}{of_size} over {counted(len(report.ranks), 'rank')}"
    figures = report.workload
    if figures is not None and figures.served is not None:
        return f"{what}: {served_clause(figures.served)}"
    if figures is not None and figures.flow_times is not None:
        slowest = ratio(figures.flow_times.slowdown.p99)
        flows = counted(figures.flow_times.transfers, "flow")
        return f"{what}: 99% of {flows} take at most {slowest} times what each takes alone"
    parts = list(_reached({headline.name: headline for headline in report.headlines}))
    return f"{what}: {', '.join(parts)}" if parts else ""


def _reached(headlines: dict[str, Headline]) -> Iterator[str]:
    names = {"busbw": "busbw", "goodput": "goodput"}
    for name, title in names.items():
        if name in headlines:
            headline = headlines[name]
            yield f"{title} {in_unit(headline.modelled.median, headline.unit)}"
    if "jct_ratio" in headlines:
        over = ratio(headlines["jct_ratio"].modelled.median)
        yield f"an iteration takes {over} times its lower bound"


def held_back_clause(report: JobReport) -> str:
    """What was seen of drops, pauses, marks and busy links, the gravest only; empty if the job has
    no counts of them."""
    clauses = (_dropped(report), _sent_again(report), _paused(report.lossless), _marked(report))
    gravest = next(filter(None, clauses), "")
    busiest = _busiest(report)
    counts = report.transport
    if not gravest and not busiest and counts is not None and counts.data_packets:
        return "nothing was dropped, sent again, paused or marked"
    return " and ".join(filter(None, (gravest, busiest)))


def _dropped(report: JobReport) -> str:
    dropping = [queue for queue in report.queues if queue.dropped_packets]
    if not dropping:
        return ""
    worst = max(dropping, key=lambda queue: queue.dropped_packets)
    port = report.fabric.port_name(worst.node, worst.interface)
    return f"{counted(worst.dropped_packets, 'packet')} dropped at {port}"


def _sent_again(report: JobReport) -> str:
    counts = report.transport
    if report.tcp is not None and report.tcp.resent_bytes:
        return f"TCP sent {share(report.tcp.resent_share or 0.0)} of its payload again"
    if counts is None or not counts.retransmitted:
        return ""
    return f"{counts.retransmitted:,} of {counted(counts.data_packets, 'packet')} were sent again"


def _paused(lossless: Lossless | None) -> str:
    if lossless is None or not lossless.transitions:
        return ""
    return f"ports were paused {counted(lossless.transitions, 'time')}"


def _marked(report: JobReport) -> str:
    marking = [queue for queue in report.queues if queue.marked]
    if not marking:
        return ""
    worst = max(marking, key=lambda queue: queue.marked)
    depth = worst.depth_max_bytes
    up_to = "" if depth is None else f" in a queue of up to {size(depth)}"
    port = report.fabric.port_name(worst.node, worst.interface)
    return f"{port} marked {counted(worst.marked, 'packet')}{up_to}"


def _busiest(report: JobReport) -> str:
    tiers = [(tier.all_links.mmr, tier) for tier in report.tiers if tier.all_links.mmr is not None]
    if not tiers:
        return ""
    mmr, tier = max(tiers, key=lambda pair: pair[0])
    if mmr < LEAST_MMR:
        return ""
    return f"the busiest {tier.tier} link {tier.direction} has {ratio(mmr)} times the mean"


def _figures(report: JobReport) -> tuple[Card, ...]:
    by_name = {headline.name: headline for headline in report.headlines}
    cards = [headline_card(by_name[name]) for name in _FIRST if name in by_name]
    return (*cards, *_counts(report))[:MOST_FIGURES]


def _counts(report: JobReport) -> Iterator[Card]:
    counts, tcp = report.transport, report.tcp
    if counts is not None:
        yield Card("Packets sent again", formatted(counts.retransmitted, Unit.COUNT))
    if tcp is not None and tcp.resent_share is not None:
        yield Card("TCP sent again", share(tcp.resent_share))
    if report.round_trips is not None:
        yield Card("Round trip, p99", duration(report.round_trips.p99.modelled_ns))
    if depths := [queue.depth_max_bytes for queue in report.queues if queue.depth_max_bytes]:
        yield Card("Deepest queue", size(max(depths)))
