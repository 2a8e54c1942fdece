"""The document of a trace of requests: how they arrive, their lengths, what their caches weigh."""

from __future__ import annotations

from rocelab.base.quantities import Unit, duration, share
from rocelab.base.wording import counted
from rocelab.jobs.serving.summary import RequestSummary, Tokens
from rocelab.report.document import Block, Column, Items, Note, Row, Table, columns

NS = 1e9
GB = 1e9


def request_blocks(summary: RequestSummary) -> tuple[Block, ...]:
    """Tables and notes."""
    lengths = Table(
        "Tokens",
        (Column(""), *columns(Unit.COUNT, "mean", "p50", "p90", "p99", "highest")),
        (_row("prompt", summary.prompt), _row("answer", summary.answer)),
        sortable=False,
    )
    caches = Table(
        "Keys and values of all prompts, by model",
        (
            Column("model"),
            Column("of a token", Unit.BYTES),
            *columns(Unit.GB_PER_S, "mean", "mean without reused", "peak second"),
        ),
        tuple(
            (
                cache.model,
                cache.token_bytes,
                _gigabytes(cache.bytes_per_s),
                _gigabytes(cache.without_reused_bytes_per_s),
                _gigabytes(cache.peak_bytes_per_s),
            )
            for cache in summary.caches
        ),
    )
    return Note(_arrivals(summary)), lengths, caches, Items(summary.warnings)


def _arrivals(summary: RequestSummary) -> str:
    text = counted(summary.requests, "request")
    if summary.rate is None:
        return f"{text}, all at once."
    text += (
        f", the last {duration(summary.lasts_s * NS)} after the first: {summary.rate:.3g} a second"
    )
    if summary.peak_rate is not None:
        text += f", {summary.peak_rate:,} in the peak second"
    if summary.gap_cv is not None:
        text += f"; gaps deviate by {summary.gap_cv:.3g} times their mean (Poisson: 1)"
    if summary.reused:
        text += f"; {share(summary.reused)} of prompts' tokens are the beginning of earlier prompts"
    return f"{text}."


def _row(name: str, tokens: Tokens) -> Row:
    return (name, round(tokens.mean), tokens.p50, tokens.p90, tokens.p99, tokens.highest)


def _gigabytes(bytes_per_s: float | None) -> float | None:
    return None if bytes_per_s is None else bytes_per_s / GB
