"""The content of every rendering of a `Comparison`, as rows of text.

The terminal and the page lay out the rows in their own ways. Tables have the fields of
draft-calabria-bmwg-ai-fabric-training-bench (revision 03), in its order: load balancing as in
sections 8 and 6.3 (MMR, JFI, OOO Rate, Retx Rate, Effective Goodput), BusBW as in 9.4, JCT Ratio as
in 10.1, and the parts of section 13. Nothing is measured here.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rocelab.base.units import format_duration
from rocelab.base.wording import counted
from rocelab.labfile.schemes.spec import SCHEMES
from rocelab.planning.fabric import Direction
from rocelab.results.comparison import (
    CellFigures,
    CellResult,
    Comparison,
    ComparisonRun,
    Status,
    TierFigures,
)

RECOMMENDED_CV = 0.05
"""The draft (section 13) recommends a coefficient of variation below this."""

_FORWARDING = (
    "Forwarding, hashing and the choice of paths are the Linux kernel's, packet by packet, steered "
    "by eBPF; queues, rates and times are of the modelled network, divided by the dilation."
)
_LOSSY = (
    "There is no PFC: a full buffer drops, and lost packets are sent again. The draft's PFC counts "
    "are therefore not reported."
)
_LOSSLESS = (
    "Lossless classes pause their senders. Pauses are emulated, and their counts are not in this "
    "comparison: `rocelab traffic` shows those of a run."
)
_LIMITS = (
    "Flowlets choose at random (LetFlow) and not the least loaded path, as some switch ASICs do.",
    "Sizes and iteration counts are far below the draft's (100 iterations, up to 4 GB, 128 "
    "accelerators and more): what runs on one machine.",
)


def limits(found: Comparison) -> tuple[str, ...]:
    """What the results of a comparison do not tell."""
    lossless = found.lab["queues"].get("pfc")
    return (_FORWARDING, _LOSSLESS if lossless else _LOSSY, *_LIMITS)


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A scheme in the draft's template for load balancing; `mark` names a problem with it."""

    config: str
    mmr: str
    jfi: str
    out_of_order: str
    retransmissions: str
    goodput: str
    busbw: str
    jct_ratio: str
    marks: str
    drops: str
    mark: str


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tier under a scheme beside uniform random hashing of equally many flows."""

    config: str
    tier: str
    mmr: str
    random_mmr: str
    jfi: str
    random_jfi: str
    cov: str
    unused: str
    random_unused: str
    utilization: str


@dataclass(frozen=True, slots=True)
class Block:
    """One placement and number of queue pairs: its schemes."""

    title: str
    loads: tuple[LoadRow, ...]
    tiers: tuple[TierRow, ...]


def name_of(kind: str) -> str:
    """The name of a scheme."""
    return SCHEMES[kind].title if kind in SCHEMES else kind


def count(qps: int) -> str:
    """`1 QP`, `4 QPs`."""
    return counted(qps, "QP")


def cells_of(found: Comparison, placement: str, qps: int) -> list[CellResult]:
    """The schemes of a placement and number of queue pairs."""
    return [cell for cell in found.cells if (cell.placement, cell.qps) == (placement, qps)]


def blocks(found: Comparison) -> list[Block]:
    """Every placement and number of queue pairs, in order."""
    return [
        Block(
            f"{placement} placement, {count(qps)} per pair",
            tuple(_load_row(cell, found.repeats) for cell in cells_of(found, placement, qps)),
            tuple(row for cell in cells_of(found, placement, qps) for row in _tier_rows(cell)),
        )
        for placement in found.placements
        for qps in found.qps
    ]


def busbw_rows(found: Comparison) -> list[tuple[str, ...]]:
    """Collective, message size, ranks, QPs, placement, algorithm; then BusBW per scheme, Gb/s."""
    return list(_by_scheme(found, lambda figures: f"{figures.busbw_gbs.median * 8:.0f}"))


def jct_rows(found: Comparison) -> list[tuple[str, ...]]:
    """The same columns with JCT Ratios."""
    return list(_by_scheme(found, lambda figures: f"{figures.jct_ratio.median:.2f}"))


def _by_scheme(found: Comparison, value: Callable[[CellFigures], str]) -> Iterator[tuple[str, ...]]:
    for placement in found.placements:
        for qps in found.qps:
            own = cells_of(found, placement, qps)
            job = own[0].job
            values = [
                "-" if cell.figures is None else value(cell.figures) + _flag(cell) for cell in own
            ]
            yield (
                job["pattern"],
                str(job["size"]),
                str(job["ranks"]),
                str(qps),
                placement,
                job.get("algorithm", "ring") if job["pattern"] == "allreduce" else "direct",
                *values,
            )


def polarization_rows(found: Comparison) -> list[tuple[str, ...]]:
    """Scheme, QPs, placement, the two choices, links unused beside random, information."""
    return [
        (
            name_of(cell.kind),
            str(cell.qps),
            cell.placement,
            one.first,
            one.second,
            f"{one.unused_fraction:.0%}",
            "-" if one.unused_if_random is None else f"{one.unused_if_random:.0%}",
            _number(one.information),
            _number(one.information_if_independent),
        )
        for cell in found.cells
        if cell.figures is not None
        for one in cell.figures.polarizations
    ]


def run_rows(found: Comparison) -> list[tuple[str, ...]]:
    """A row per run: scheme, QPs, placement, number of the run, whether its figures count and why
    not, time of an iteration (median), BusBW in Gb/s and JCT ratio. Empty if each cell has one run
    that counts."""
    rows: list[tuple[str, ...]] = [
        (
            name_of(cell.kind),
            str(cell.qps),
            cell.placement,
            str(number),
            "valid" if run.valid else "failed" if run.errors else "invalid",
            "; ".join(run.why),
            _median([time.modelled_ns for time in run.iterations], format_duration),
            _median(run.busbw_gbs, lambda value: f"{value * 8:.0f}"),
            _median(run.jct_ratio, lambda value: f"{value:.2f}"),
        )
        for cell in found.cells
        for number, run in enumerate(cell.runs, 1)
    ]
    plain = found.repeats == 1 and all(run.valid for cell in found.cells for run in cell.runs)
    return [] if plain else rows


def _median(values: Sequence[float], text: Callable[[float], str]) -> str:
    return text(statistics.median(values)) if values else "-"


def anomalies(found: Comparison) -> list[str]:
    """Cells without a plain measurement, runs that do not count, packets that took another link
    than predicted, notes."""
    notes = list(found.notes)
    for cell in found.cells:
        where = f"{cell.kind}, {count(cell.qps)}, {cell.placement}"
        if cell.reason is not None:
            what = "" if cell.status is Status.MEASURED else f" {cell.status}:"
            notes.append(f"{where}:{what} {cell.reason}")
        if found.repeats > 1:
            notes += [
                f"{where}: run {number} of {found.repeats} does not count: {reason}"
                for number, run in enumerate(cell.runs, 1)
                for reason in run.why
            ]
        if cell.figures is not None and cell.figures.misplaced_packets:
            notes.append(
                f"{where}: {cell.figures.misplaced_packets:,} data packets took another link than "
                "predicted (retransmissions among them)"
            )
    return notes


def repeatability(found: Comparison) -> str:
    """The draft's repeatability statement: iterations, and the CV of BusBW."""
    spreads = [
        cell.figures.busbw_gbs
        for cell in found.cells
        if cell.figures is not None and cell.status is Status.MEASURED
    ]
    if not spreads:
        return "Nothing was measured."
    known = [spread.cov for spread in spreads if spread.cov is not None]
    counts = sorted({spread.n for spread in spreads})
    iterations = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    if not known:
        return f"{iterations} iteration of each: there is no spread to report."
    below = sum(cov < RECOMMENDED_CV for cov in known)
    return (
        f"{iterations} iterations of each. Coefficient of variation of BusBW: median "
        f"{sorted(known)[len(known) // 2]:.1%}, worst {max(known):.1%}; below the recommended "
        f"{RECOMMENDED_CV:.0%} in {below} of {len(known)}."
    )


def worst_tier(figures: CellFigures) -> TierFigures | None:
    """The tier and direction of the highest MMR."""
    known = [tier for tier in figures.tiers if tier.mmr is not None]
    return max(known, key=lambda tier: tier.mmr or 0.0) if known else None


def cell_name(cell: CellResult) -> str:
    """`ecmp, 4 QPs, contiguous`; with a star if its figures do not count."""
    return f"{cell.kind}, {count(cell.qps)}, {cell.placement}{_flag(cell)}"


def shown_run(cell: CellResult) -> ComparisonRun | None:
    """The run whose links are drawn: the first valid one, or the first; None without runs."""
    return next((run for run in cell.runs if run.valid), next(iter(cell.runs), None))


def link_matrix(
    found: Comparison, placement: str, tier: str, direction: Direction
) -> tuple[list[str], list[str], list[list[float]]]:
    """Loads over their mean: a row per scheme and number of QPs (of the first run, valid or not),
    a column per link."""
    rows, columns, values = [], [], []
    for cell in found.cells:
        run = shown_run(cell)
        if cell.placement != placement or run is None:
            continue
        own = [link for link in run.links if (link.tier, link.direction) == (tier, direction)]
        mean = sum(link.packets for link in own) / len(own) if own else 0
        if mean:
            columns = [link.link for link in own]
            rows.append(f"{cell.kind}, {count(cell.qps)}{_flag(cell)}")
            values.append([link.packets / mean for link in own])
    return rows, columns, values


def tiers_of(found: Comparison) -> list[tuple[str, Direction]]:
    """The tiers and directions that carried something."""
    keys = [
        (tier.tier, tier.direction)
        for cell in found.cells
        if cell.figures is not None
        for tier in cell.figures.tiers
        if tier.mmr is not None
    ]
    return list(dict.fromkeys(keys))


def _load_row(cell: CellResult, repeats: int) -> LoadRow:
    figures = cell.figures
    mark = "" if cell.status is Status.MEASURED else f"{cell.status}: {cell.reason}"
    if cell.status is Status.MEASURED and cell.reason is not None:
        mark = f"{sum(run.valid for run in cell.runs)} of {repeats} runs: {cell.reason}"
    if figures is None:
        none = "-"
        return LoadRow(
            name_of(cell.kind), none, none, none, none, none, none, none, none, none, mark
        )
    worst = worst_tier(figures)
    return LoadRow(
        config=name_of(cell.kind),
        mmr=_number(None if worst is None else worst.mmr),
        jfi=_number(None if worst is None else worst.jfi, 3),
        out_of_order=f"{figures.out_of_order_pps:,.0f} ({figures.out_of_order_share:.2%})",
        retransmissions=f"{figures.retransmission_pps:,.0f}",
        goodput=f"{figures.goodput_share:.1%}",
        busbw=f"{figures.busbw_gbs.median * 8:.0f}",
        jct_ratio=f"{figures.jct_ratio.median:.2f}",
        marks=f"{figures.ecn_marking_share:.2%}",
        drops=f"{figures.dropped_packets:,.0f}",
        mark=mark,
    )


def _tier_rows(cell: CellResult) -> list[TierRow]:
    if cell.figures is None:
        return []
    return [
        TierRow(
            config=name_of(cell.kind) + _flag(cell),
            tier=f"{tier.tier} {tier.direction}",
            mmr=_number(tier.mmr),
            random_mmr=f"{_number(tier.random_mmr)} (p99 {_number(tier.random_mmr_p99)})",
            jfi=_number(tier.jfi, 3),
            random_jfi=_number(tier.random_jfi, 3),
            cov=_number(tier.cov),
            unused=f"{tier.unused:g} of {tier.links}",
            random_unused="-" if tier.random_unused is None else f"{tier.random_unused:.1f}",
            utilization=f"{tier.max_utilization:.0%}",
        )
        for tier in cell.figures.tiers
        if tier.mmr is not None
    ]


def flags_used(cells: Sequence[CellResult]) -> bool:
    """Whether any cell has a star."""
    return any(_flag(cell) and cell.figures is not None for cell in cells)


def _flag(cell: CellResult) -> str:
    return "" if cell.status is Status.MEASURED else "*"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
