"""Checks a test of nccl-tests against itself: what was measured is what is compared.

Size, time, algbw, busbw, ranks and collective of every row must fit each other within the rounding
of the printed digits, every check of the received data must have passed, and one job must have run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rocelab.base.errors import Problem
from rocelab.jobs.collectives import Pattern, patterns_where
from rocelab.jobs.performance import busbw_factor
from rocelab.sim.traces.nccl_rows import ELEMENT_BYTES, NcclRecording, NcclRow, NcclTiming, place

_SLACK = 1e-6
"""Relative: for the arithmetic, beside the rounding of what is printed."""
_LEAST_PRECISION = 0.01
"""The largest relative rounding of a bandwidth from which a time is computed."""
_SHOWN = 3
"""Rows that are named of those with the same fault."""
_ALONE = "build nccl-tests with MPI=1 and start it once with mpirun or srun, so that one job runs"
_FAILED = "find the cause: times of a collective that delivers wrong data are meaningless"
DIVIDED = patterns_where(lambda kind: kind.is_divided)
ROOTED = patterns_where(lambda kind: kind.is_rooted)
_REDUCE = frozenset({Pattern.ALLREDUCE, Pattern.REDUCESCATTER})
_PARTED = DIVIDED | {Pattern.GATHER}
"""Of which a row counts the elements of one rank's part."""
_MOVE = frozenset(DIVIDED | ROOTED) - _REDUCE
"""Collectives that only move data; their programs print `none` as redop."""
_LARGEST_ERROR = {"double": 1e-12, "float": 1e-5, "half": 1e-2, "bfloat16": 1e-1}
"""Errors that old versions allow for floating-point types; none for integers (DeltaMaxValue)."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Every value that a printed number may have had."""

    low: float
    high: float

    def times(self, factor: float) -> _Span:
        return _Span(self.low * factor, self.high * factor)

    def meets(self, other: _Span) -> bool:
        slack = _SLACK * max(abs(self.low), abs(other.low))
        return self.low <= other.high + slack and other.low <= self.high + slack


@dataclass(frozen=True, slots=True)
class _Convention:
    """What algbw is of size / time, and busbw of algbw."""

    algbw: float
    busbw: float


def run_problems(run: NcclRecording, source: str) -> Iterator[Problem]:
    """What shows that a run is not one job."""
    if run.listed_twice is not None:
        rank, first, second = run.listed_twice
        yield Problem(
            source,
            second,
            "",
            f"rank {rank} is listed again, after line {first}: each process ran alone",
            _ALONE,
        )
    elif run.headed_twice is not None:
        message = "the names of the columns a second time, before any row: two processes ran alone"
        yield Problem(source, run.headed_twice, "", message, _ALONE)
    if run.broken is not None:
        hint = "run it again; without this line and a row that it cut off, the others are compared"
        yield Problem(source, run.broken, "", "the test ended here, by an error", hint)
    if len(run.groups) > 1:
        message = f"{len(run.groups)} groups of ranks ran at the same time (NCCL_TESTS_SPLIT)"
        hint = "run the test without it: one collective is simulated, with nothing beside it"
        yield Problem(source, max(run.groups.values()) or None, "", message, hint)


def row_problems(run: NcclRecording, source: str, pattern: Pattern, ranks: int) -> list[Problem]:
    """What in the rows of a run contradicts itself, the collective, or the number of ranks."""
    problems = _few(
        source, [row for row in run.rows if _is_wrong(row, run)], _wrong_message, _FAILED
    )
    if run.failed is not None and not problems:
        what = "the check of received data failed (out of bounds values)"
        problems.append(Problem(source, run.failed or None, run.failed_key, what, _FAILED))
    problems += _few(
        source,
        [row for row in run.rows if _is_foreign(row, pattern)],
        lambda row: f"redop {row.redop}, root {row.root}: not of {article(pattern)}",
    )
    sized = [row for row in run.rows if row.size_bytes]
    problems += _miscounted(source, sized, ranks if pattern in _PARTED else 1)
    convention = _convention(run, sized, pattern, ranks)
    misfits = {
        id(row): message
        for row in sized
        if (message := _misfit(row, run.is_cpu_time, convention, pattern, ranks)) is not None
    }
    hint = _hint(sized, pattern, ranks)
    faulty = [row for row in sized if id(row) in misfits]
    return problems + _few(source, faulty, lambda row: misfits[id(row)], hint)


def with_times(run: NcclRecording, pattern: Pattern, ranks: int) -> tuple[list[NcclRow], list[str]]:
    """The rows that have bytes and a time of the collective, and what to say about the others.

    With `-C` the printed time is that of the CPU that launched; the collective's own is size /
    algbw (src/common.cu: getBw has the measured time), if algbw has enough digits.
    """
    notes = []
    rows = [row for row in run.rows if row.size_bytes]
    if empty := len(run.rows) - len(rows):
        notes.append(f"{_rows(empty)} of 0 bytes left out")
    if run.is_cpu_time:
        scale = _convention(run, rows, pattern, ranks).algbw
        timed = [row for row in (_retimed(row, scale) for row in rows) if row is not None]
        notes.append("cputime is the CPU's; the collective's time is size / algbw")
        if imprecise := len(rows) - len(timed):
            notes.append(f"{_rows(imprecise)} with an algbw of too few digits left out")
        rows = timed
    return rows, notes


def fitting_ranks(rows: Sequence[NcclRow], pattern: Pattern) -> int | None:
    """The number of ranks that counts, or else the ratio of busbw to algbw, mean; None if they
    mean none, or several by the digits that are printed."""
    counted = {row.parts for row in rows} - {1, None}
    if pattern in DIVIDED and len(counted) == 1:
        return counted.pop()
    precise = max((row.timing for row in rows), key=lambda timing: timing.algbw_gbs, default=None)
    if precise is None or precise.algbw_gbs <= 0:
        return None
    share = precise.busbw_gbs / precise.algbw_gbs / (2 if pattern is Pattern.ALLREDUCE else 1)
    if (pattern is not Pattern.ALLREDUCE and pattern not in DIVIDED) or not 0 < share < 1 - 1e-6:
        return None
    ranks = round(1 / (1 - share))
    algbw = _around(precise.algbw_gbs, precise.rounding.algbw_gbs)
    busbw = _around(precise.busbw_gbs, precise.rounding.busbw_gbs)
    near = range(max(2, ranks - 1), ranks + 2)
    fitting = [count for count in near if algbw.times(busbw_factor(pattern, count)).meets(busbw)]
    return ranks if fitting == [ranks] else None


def article(pattern: Pattern) -> str:
    """The pattern with its article."""
    return f"{'an' if pattern[0] in 'aeiou' else 'a'} {pattern}"


def _few(
    source: str,
    rows: Sequence[NcclRow],
    message: object,
    hint: str | None = None,
) -> list[Problem]:
    """A problem for the first few of `rows`, and how many more there are."""
    assert callable(message)
    problems = [place(source, row, message(row), hint) for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        more = f"and {_rows(len(rows) - _SHOWN)} more like these"
        problems.append(place(source, rows[_SHOWN], more))
    return problems


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def _is_wrong(row: NcclRow, run: NcclRecording) -> bool:
    return any(_fails(timing, row, run.counts_wrong) for timing in row.timings)


def _fails(timing: NcclTiming, row: NcclRow, counts_wrong: bool) -> bool:
    if timing.wrong is None:
        return False
    allowed = 0.0 if counts_wrong else _LARGEST_ERROR.get(row.type or "", 0.0)
    return timing.wrong > 1.5 * allowed


def _wrong_message(row: NcclRow) -> str:
    wrong = max(timing.wrong or 0 for timing in row.timings)
    amount = "beyond its limit" if math.isinf(wrong) else f"{wrong:g}"
    return f"the check of this row failed: #wrong is {amount}"


def _is_foreign(row: NcclRow, pattern: Pattern) -> bool:
    """Whether redop or root, where a version prints them, are of another collective."""
    if row.redop is not None and pattern in (_REDUCE if row.redop == "none" else _MOVE):
        return True
    return row.root is not None and (row.root >= 0) != (pattern in ROOTED)


def _miscounted(source: str, rows: Sequence[NcclRow], parts: int) -> list[Problem]:
    """Rows whose size is not that of their elements: `count` is of the whole buffer, or of one of
    its parts (getCollByteCount of each program), in all rows alike."""
    held = {
        id(row): row.count * ELEMENT_BYTES[row.type]
        for row in rows
        if row.count is not None and row.type in ELEMENT_BYTES
    }
    counted = [row for row in rows if id(row) in held]

    def misfits(factor: int) -> list[NcclRow]:
        return [row for row in counted if held[id(row)] * factor != row.size_bytes]

    return _few(
        source,
        min(misfits(1), misfits(parts), key=len),
        lambda row: f"size is {row.size_bytes:,} B, but count is {row.count:,} of type {row.type}",
        "check --ranks, and that the row is as it was printed",
    )


def _conventions(pattern: Pattern, ranks: int) -> list[_Convention]:
    """The usual one, and that of versions before 2.4, which leave out a rank's own part."""
    factor = busbw_factor(pattern, ranks)
    usual = [_Convention(1, factor)]
    return [*usual, _Convention(factor, 1)] if pattern in DIVIDED else usual


def _convention(
    run: NcclRecording, rows: Sequence[NcclRow], pattern: Pattern, ranks: int
) -> _Convention:
    """The convention that most rows follow."""

    def followers(convention: _Convention) -> int:
        return sum(
            _misfit(row, run.is_cpu_time, convention, pattern, ranks) is None for row in rows
        )

    return max(_conventions(pattern, ranks), key=followers)


def _misfit(
    row: NcclRow, is_cpu_time: bool, convention: _Convention, pattern: Pattern, ranks: int
) -> str | None:
    """What does not fit in a row, None if all fits."""
    for timing in row.timings:
        rounding = timing.rounding
        algbw = _around(timing.algbw_gbs, rounding.algbw_gbs)
        busbw = _around(timing.busbw_gbs, rounding.busbw_gbs)
        least_us = timing.time_us - rounding.time_us
        fastest = row.size_bytes / least_us / 1000 if least_us > 0 else math.inf
        speed = _Span(row.size_bytes / (timing.time_us + rounding.time_us) / 1000, fastest)
        if not is_cpu_time and not speed.times(convention.algbw).meets(algbw):
            return (
                f"algbw is {timing.algbw_gbs:g} GB/s, but {row.size_bytes:,} bytes in "
                f"{timing.time_us:g} us are {row.size_bytes / timing.time_us / 1000:.2f} GB/s"
            )
        expected = [algbw.times(convention.busbw)]
        if not is_cpu_time:
            expected.append(speed.times(convention.algbw * convention.busbw))
        if all(span.meets(busbw) for span in expected):
            continue
        if timing.busbw_gbs == 0:
            return f"busbw is 0 at an algbw of {timing.algbw_gbs:g} GB/s: one rank ran alone"
        factor = convention.busbw
        return (
            f"busbw is {timing.busbw_gbs:g} GB/s at an algbw of {timing.algbw_gbs:g}; "
            f"{article(pattern)} of {ranks} ranks has {factor:.4g} times algbw"
        )
    return None


def _hint(rows: Sequence[NcclRow], pattern: Pattern, ranks: int) -> str:
    if all(timing.busbw_gbs == 0 for row in rows for timing in row.timings):
        return _ALONE
    fitting = fitting_ranks(rows, pattern)
    if fitting is not None and fitting != ranks:
        return f"of {article(pattern)} the rows fit {fitting} ranks: check --ranks and --pattern"
    return "check --pattern and --ranks, and that the row is as it was printed"


def _around(value: float, error: float) -> _Span:
    return _Span(max(value - error, 0.0), value + error)


def _retimed(row: NcclRow, scale: float) -> NcclRow | None:
    """The row with times of size / algbw, None if algbw has too few digits."""

    def timed(timing: NcclTiming | None) -> NcclTiming | None:
        if timing is None or timing.rounding.algbw_gbs > _LEAST_PRECISION * timing.algbw_gbs:
            return None
        time_us = row.size_bytes * scale / timing.algbw_gbs / 1000
        error = time_us * timing.rounding.algbw_gbs / timing.algbw_gbs
        return replace(timing, time_us=time_us, rounding=replace(timing.rounding, time_us=error))

    out_of_place, in_place = timed(row.out_of_place), timed(row.in_place)
    if out_of_place is None and in_place is None:
        return None
    return replace(row, out_of_place=out_of_place, in_place=in_place)
