"""Performance of collectives: nccl-tests' bandwidths and table, and the least possible time.

From a pattern, sizes and times of the modelled network it computes algbw, busbw, a lower bound
(roofline) and a table in the format of nccl-tests, which tools for that format can read.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rocelab.agent.nic import WIRE_OVERHEAD_BYTES
from rocelab.base.family import Family
from rocelab.jobs.collectives import Pattern, Schedule, kind_of
from rocelab.wire.headers import frame_overhead_bytes

FRAME_OVERHEAD_BYTES = frame_overhead_bytes(Family.IPV4)
"""Ethernet, IPv4, UDP, BTH and ICRC: the bytes that Linux counts for a RoCEv2 packet besides its
payload. Over IPv6 they are 20 more.

On a real cable preamble, FCS and gap are 24 bytes more.
"""

LEAST_RATIO = 0.95
"""JCT ratios below this are not of iterations by themselves: a port that lets packets pass before
their time explains a few hundredths, unless an iteration takes little of the lab's clock."""

BYTE_TYPE = "uint8"
"""nccl-tests' name of ncclUint8: elements are bytes, since no data type is modelled."""


_MEASURED = ("time", "algbw", "busbw", "#wrong")
_WIDTHS = (12, 12, 8, 6, 6, 7, 6, 6, 6)


@dataclass(frozen=True, slots=True)
class PerformanceRow:
    """One measured size."""

    pattern: Pattern
    ranks: int
    size_bytes: int
    time_ns: float
    """That of one iteration on the modelled clock."""

    root: int = -1
    """-1 if there is none."""

    wrong_bytes: int | None = None
    """Bytes that were not delivered exactly once; None if not counted."""

    @property
    def algbw_gbs(self) -> float:
        """Algorithm bandwidth, GB/s (10^9 bytes)."""
        return algbw_gbs(self.size_bytes, self.time_ns)

    @property
    def busbw_gbs(self) -> float:
        """Bus bandwidth, GB/s (10^9 bytes)."""
        return self.algbw_gbs * busbw_factor(self.pattern, self.ranks)


def wire_overhead_bytes(family: Family) -> int:
    """What a RoCEv2 packet of that family takes of a cable besides its payload."""
    return frame_overhead_bytes(family) + WIRE_OVERHEAD_BYTES


def algbw_gbs(size_bytes: int, time_ns: float) -> float:
    """Size over time in GB/s (10^9 bytes). Raises ValueError if no time has passed."""
    if time_ns <= 0:
        raise ValueError(f"a time of {time_ns} ns has no bandwidth")
    return size_bytes / time_ns


def busbw_factor(pattern: Pattern, ranks: int) -> float:
    """busbw / algbw: it makes the bandwidth comparable to a NIC's for any number of ranks.

    nccl-tests, doc/PERFORMANCE.md; the same for every algorithm. Its alltoallv and gather have
    (n-1)/n too. Incast, which it lacks, gets n-1: the receiver's NIC takes in that many sizes.
    """
    return kind_of(pattern).busbw_factor(ranks)


def roofline_ns(
    schedule: Schedule,
    nic_rate_bps: int,
    *,
    mtu_bytes: int = 4096,
    overhead_bytes: int = FRAME_OVERHEAD_BYTES,
) -> float:
    """The least time in which NICs of `nic_rate_bps` can carry `schedule`: that of the busiest one.

    Each NIC sends and receives at its rate at once; a send is packets of `mtu_bytes` payload, each
    `overhead_bytes` longer on the wire. To stay a lower bound it omits latency (alpha), waits
    between sends, ACKs, the RETH of a message's first packet, and links between switches.
    """
    out = [0] * schedule.ranks
    into = [0] * schedule.ranks
    for send in schedule.sends:
        packets = -(-send.size_bytes // mtu_bytes)
        wire_bytes = send.size_bytes + packets * overhead_bytes
        out[send.source] += wire_bytes
        into[send.destination] += wire_bytes
    return max(*out, *into) * 8 * 10**9 / nic_rate_bps


def jct_ratio(measured_ns: float, bound_ns: float) -> float:
    """Measured completion time over its lower bound. Raises ValueError if the bound is 0."""
    if bound_ns <= 0:
        raise ValueError("nothing is sent, so there is no lower bound")
    return measured_ns / bound_ns


def ran_ahead(ratios: Sequence[float]) -> str | None:
    """A warning where the median JCT ratio of a job's iterations is too low: ranks that were done
    earlier had begun the next iteration."""
    if len(ratios) < 2 or (median := statistics.median(ratios)) >= LEAST_RATIO:
        return None
    return (
        f"the median iteration took {median:.2f} times the least time: ranks that were done "
        f"earlier ran ahead into the next one; all {len(ratios)} together took "
        f"{statistics.fmean(ratios):.2f} times the least"
    )


def nccl_table(
    rows: Sequence[PerformanceRow],
    *,
    iterations: int,
    warmup_iterations: int,
    places: Sequence[str] = (),
) -> str:
    """`rows` as nccl-tests prints them, out of place only, `places` as the devices of its ranks.

    Columns are those of nccl-tests (src/util.cu). Raises ValueError without rows.
    """
    if not rows:
        raise ValueError("a table needs a row")
    sizes = [row.size_bytes for row in rows]
    validated = int(all(row.wrong_bytes is not None for row in rows))
    wrong = [row for row in rows if row.wrong_bytes]
    mean = sum(row.busbw_gbs for row in rows) / len(rows)
    lines = [
        f"# nThread 1 nGpus 1 minBytes {min(sizes)} maxBytes {max(sizes)} step: {_step(sizes)} "
        f"warmup iters: {warmup_iterations} iters: {iterations} agg iters: 1 "
        f"validation: {validated} graph: 0",
        "#",
        "# Using devices",
        *(f"#  Rank {rank:2d} on {place:>10}" for rank, place in enumerate(places)),
        "#",
        "# Times are of the modelled network.",
        "#",
        f"#{'out-of-place':>73}",
        "#" + _columns("size", "count", "type", "redop", "root", *_MEASURED)[1:],
        "#" + _columns("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "")[1:],
        *map(_line, rows),
        f"# Out of bounds values : {len(wrong)} {'FAILED' if wrong else 'OK'}",
        f"# Avg bus bandwidth    : {mean:g}",
        "#",
    ]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _step(sizes: Sequence[int]) -> str:
    """nccl-tests' step between sizes: the factor if it is the same between all, else 1."""
    factors = {high / low for low, high in pairwise(sizes)}
    return f"{factors.pop() if len(factors) == 1 else 1:g}(factor)"


def _columns(*cells: str) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))


def _line(row: PerformanceRow) -> str:
    reduces = row.pattern in (Pattern.ALLREDUCE, Pattern.REDUCESCATTER)
    return _columns(
        str(row.size_bytes),
        str(row.size_bytes // row.ranks if kind_of(row.pattern).is_divided else row.size_bytes),
        BYTE_TYPE,
        "sum" if reduces else "none",
        str(row.root),
        _fitted(row.time_ns / 1000, 7),
        _fitted(row.algbw_gbs, 6),
        _fitted(row.busbw_gbs, 6),
        "N/A" if row.wrong_bytes is None else f"{row.wrong_bytes:g}",
    )


def _fitted(value: float, width: int) -> str:
    """The number with as many decimals, up to two, as fit its column."""
    texts = (f"{value:.{decimals}f}" for decimals in (2, 1, 0))
    return next((text for text in texts if len(text) <= width), f"{value:.1e}")
