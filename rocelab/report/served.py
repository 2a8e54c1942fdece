"""The part of a report about requests that a job served: what they feel, and the network's part."""

from __future__ import annotations

from functools import partial

from rocelab.base.quantities import Unit, bandwidth, duration, share
from rocelab.base.wording import counted
from rocelab.jobs.served import Carried, Latency, Served
from rocelab.report.document import (
    Block,
    Cell,
    Column,
    Figure,
    Items,
    Note,
    Row,
    Table,
    columns,
)
from rocelab.report.servedplots import served_plot

GB = 1e9


def served_blocks(served: Served, which: str = "") -> tuple[Block, ...]:
    """Tables and notes. which: of which job, such as ` of chat`, where there are several."""
    carried = served.by(Carried.CARRIED)
    ideal, alone = served.by(Carried.NONE), served.by(Carried.ALONE)
    latencies = Table(
        f"What requests{which} feel",
        (
            Column(""),
            Column("mean", Unit.NS, page_only=True),
            *columns(Unit.NS, "p50", "p90", "p99"),
            Column("highest", Unit.NS, page_only=True),
            Column("p99 if flows were alone", Unit.NS, page_only=True),
            Column("p99 without network", Unit.NS),
            *columns(Unit.SHARE, "network's part of p50", "of p99"),
        ),
        tuple(
            _row(latency, alone.latency(latency.name), ideal.latency(latency.name))
            for latency in carried.latencies
        ),
        sortable=False,
    )
    curves = Figure("requests", partial(served_plot, served))
    return (
        Note(_load(served)),
        latencies,
        curves,
        Note(_goodput(served)),
        Items(_left_out(served)),
    )


def served_clause(served: Served) -> str:
    """The sentence of an answer."""
    carried, ideal = served.by(Carried.CARRIED), served.by(Carried.NONE)
    ttft = carried.latency("ttft")
    if not carried.answered:
        return f"none of {counted(served.requests, 'request')} is answered"
    part = network_part(ttft.p99_ns, ideal.latency("ttft").p99_ns)
    of_network = "" if part is None else f" ({share(part)} of it the network's)"
    p50, p99 = _time(ttft.p50_ns), _time(ttft.p99_ns)
    itl = _time(carried.latency("itl").p50_ns)
    text = f"TTFT {p50} at the median and {p99} at p99{of_network}, {itl} between tokens"
    if served.ttft_objective_ns is None and served.itl_objective_ns is None:
        return text
    return f"{text}; {share(carried.goodput)} of requests meet their objectives"


def network_part(carried: float | None, ideal: float | None) -> float | None:
    """The share of a time that is not there if the network takes none; None for an endless one."""
    if not carried or ideal is None:
        return None
    return (carried - ideal) / carried


def _row(carried: Latency, alone: Latency, ideal: Latency) -> Row:
    def cell(value_ns: float | None) -> Cell:
        return "never" if value_ns is None and carried.p50_ns is not None else value_ns

    return (
        carried.title,
        cell(carried.mean_ns),
        carried.p50_ns,
        cell(carried.p90_ns),
        cell(carried.p99_ns),
        cell(carried.highest_ns),
        alone.p99_ns,
        ideal.p99_ns,
        network_part(carried.p50_ns, ideal.p50_ns),
        network_part(carried.p99_ns, ideal.p99_ns),
    )


def _time(value_ns: float | None) -> str:
    return "without end" if value_ns is None else duration(value_ns)


def _load(served: Served) -> str:
    rate = "" if served.rate is None else f", {served.rate:.3g} a second"
    text = (
        f"{counted(served.requests, 'request')}{rate}: "
        f"{counted(served.prompt_tokens, 'token')} of prompts, "
        f"{share(served.reused_tokens / max(1, served.prompt_tokens))} of them not computed again, "
        f"and {served.answer_tokens:,} of answers.{_prefill(served)}"
    )
    if served.together:
        return f"{text} The same replicas decode: no cache travels."
    mean, peak = served.cache_bytes_per_s, served.cache_peak_bytes_per_s
    if mean is None:
        return text
    in_peak = "" if peak is None else f", {bandwidth(peak / GB)} in the peak second"
    return f"{text} Caches travel at {bandwidth(mean / GB)} on average{in_peak}."


def _prefill(served: Served) -> str:
    load = served.prefill_load
    if load is None:
        return ""
    grows = ": queues grow" if load > 1 else ""
    return f" Prompts need {share(load)} of what replicas compute while requests arrive{grows}."


def _goodput(served: Served) -> str:
    objectives = [
        f"{name} of at most {duration(value_ns)}"
        for name, value_ns in (
            ("TTFT", served.ttft_objective_ns),
            ("ITL", served.itl_objective_ns),
        )
        if value_ns is not None
    ]
    if not objectives:
        return "No objectives: ttft and itl of the job say which requests count as good."
    carried, ideal = served.by(Carried.CARRIED), served.by(Carried.NONE)
    rate = carried.goodput_per_s
    per_s = "" if rate is None else f", {rate:.3g} a second"
    return (
        f"Goodput, with {' and '.join(objectives)}: {share(carried.goodput)} of requests{per_s}; "
        f"{share(ideal.goodput)} if the network took no time."
    )


def _left_out(served: Served) -> tuple[str, ...]:
    timed = served.requests - served.rejected
    few = f"p99 of fewer than 100 requests, here {timed}, is the slowest."
    return (
        *served.warnings,
        *([few] if timed < 100 else []),
        "TTFT, the time to the first token, is queue, prefill, transfer of the cache, and the wait "
        "for a place in the batch and a token. ITL, between tokens, is a request's mean.",
        "The network's part: what is missing when caches and experts' tokens travel in no time; "
        "prefills and batches are then made anew. Flows alone: each at the rate of its NICs, "
        "without headers and latency.",
    )
