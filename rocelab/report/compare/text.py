"""What is said about a comparison: what went wrong, how repeatable it was, its limits."""

from __future__ import annotations

from rocelab.base.quantities import share
from rocelab.report.compare.cells import queue_pairs
from rocelab.results.comparison import Comparison, Status

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


def limits(comparison: Comparison) -> tuple[str, ...]:
    """What the results of a comparison do not tell."""
    lossless = comparison.lab["queues"].get("pfc")
    return (_FORWARDING, _LOSSLESS if lossless else _LOSSY, *_LIMITS)


def anomalies(comparison: Comparison) -> list[str]:
    """Cells without a plain measurement, runs that do not count, packets that took another link
    than predicted, notes."""
    notes = list(comparison.notes)
    for cell in comparison.cells:
        where = f"{cell.kind}, {queue_pairs(cell.qps)}, {cell.placement}"
        if cell.reason is not None:
            what = "" if cell.status is Status.MEASURED else f" {cell.status}:"
            notes.append(f"{where}:{what} {cell.reason}")
        if comparison.repeats > 1:
            notes += [
                f"{where}: run {number} of {comparison.repeats} does not count: {reason}"
                for number, run in enumerate(cell.runs, 1)
                for reason in run.why
            ]
        if cell.figures is not None and cell.figures.misplaced_packets:
            notes.append(
                f"{where}: {cell.figures.misplaced_packets:,} data packets took another link than "
                "predicted (retransmissions among them)"
            )
    return notes


def repeatability(comparison: Comparison) -> str:
    """The draft's repeatability statement: iterations, and the CV of BusBW."""
    spreads = [
        cell.figures.busbw_gbs
        for cell in comparison.cells
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
    median, worst = share(sorted(known)[len(known) // 2]), share(max(known))
    return (
        f"{iterations} iterations of each. Coefficient of variation of BusBW: median {median}, "
        f"worst {worst}; below the recommended {share(RECOMMENDED_CV)} in {below} of {len(known)}."
    )
