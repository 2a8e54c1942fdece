"""Reads a measurement of a real cluster: a test of nccl-tests or rccl-tests, checked.

It takes the output of all_reduce_perf and the other programs, of any version, as text, CSV or
JSON, whatever a launcher puts before each line, and rocelab's own tables. A line that cannot be
read and a row that contradicts itself are errors with their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rocelab.base.errors import Problem, SpecError
from rocelab.jobs.collectives import Pattern
from rocelab.labfile.source import raise_problems
from rocelab.sim.traces.nccl_checks import (
    article,
    fitting_ranks,
    row_problems,
    run_problems,
    with_times,
)
from rocelab.sim.traces.nccl_json import is_json, log_lines, read_json
from rocelab.sim.traces.nccl_rows import NcclRecording, NcclRow
from rocelab.sim.traces.nccl_text import HINT, read_tables

_ALONE = "the times are of one rank alone, which sends nothing: run it with two ranks or more"


@dataclass(frozen=True, slots=True)
class NcclTest:
    """One test: a collective of `ranks` ranks."""

    pattern: Pattern
    ranks: int
    rows: tuple[NcclRow, ...]
    notes: tuple[str, ...] = ()
    """What was left out, or computed otherwise."""


def read_nccl_tests(
    text: str,
    source: str = "nccl-tests",
    *,
    pattern: Pattern | None = None,
    ranks: int | None = None,
) -> NcclTest:
    """The test in nccl-tests' output `text`; with several, the only one of `pattern`.

    Pattern and ranks are needed where the output does not say them; where it does, they must agree.
    Rows of 0 bytes are left out. `source` names the text in errors. Raises SpecError with every
    line that cannot be read and every row that does not fit its own size, time and bandwidths, the
    pattern, the ranks, or whose check failed.
    """
    runs, problems = _read(text, source)
    if problems:
        raise_problems(problems)
    if not runs:
        raise SpecError([Problem(source, None, "", "no row of nccl-tests in it", HINT)])
    run, notes = _chosen(runs, source, pattern)
    problems = list(run_problems(run, source))
    if problems:
        raise SpecError(problems)
    pattern = _pattern(run, source, pattern)
    ranks = _ranks(run, source, pattern, ranks)
    problems = row_problems(run, source, pattern, ranks)
    if problems:
        raise SpecError(problems)
    rows, more = with_times(run, pattern, ranks)
    if not rows:
        message = f"no row has a size and a time to compare: {'; '.join(more)}"
        raise SpecError([Problem(source, run.line, "", message, "measure larger sizes")])
    if pattern is Pattern.ALLTOALLV:
        more.append("the parts of an alltoallv are not printed: the simulation draws its own")
    return NcclTest(pattern, ranks, tuple(rows), (*notes, *more))


def _read(text: str, source: str) -> tuple[list[NcclRecording], list[Problem]]:
    if not is_json(text):
        return read_tables(text, source)
    lines = log_lines(text, source)
    return read_json(text, source) if lines is None else read_tables(lines, source)


def _chosen(
    runs: Sequence[NcclRecording], source: str, pattern: Pattern | None
) -> tuple[NcclRecording, list[str]]:
    """The run to compare, and what to say about the others. Raises SpecError unless it is clear."""
    if len(runs) == 1:
        return runs[0], []
    kept = [run for run in runs if pattern is None or run.name in (None, pattern)]
    if len(kept) == 1:
        line = f" from line {kept[0].line}" if kept[0].line else ""
        return kept[0], [f"one of {len(runs)} tests in {source}: {pattern}{line}"]
    names = {run.name for run in runs}
    by_name = ", or name it by --pattern" if len(names) == len(runs) and None not in names else ""
    problems = []
    for number, run in enumerate(runs, start=1):
        named = f": {run.name}" if run.name else ""
        problems.append(Problem(source, run.line, "", f"test {number} of {len(runs)} in it{named}"))
    problems[-1] = replace(problems[-1], hint=f"give a file with one of them{by_name}")
    raise SpecError(problems)


def _pattern(run: NcclRecording, source: str, pattern: Pattern | None) -> Pattern:
    if run.name is None:
        if pattern is not None:
            return pattern
        message = "it does not name the collective that it measured"
        raise SpecError([Problem(source, run.line, "", message, "say it: --pattern allreduce")])
    if pattern is not None and run.name != pattern:
        message = f"a test of {run.name}, not of {article(pattern)}"
        hint = "leave --pattern out, or give the log of that test"
        raise SpecError([Problem(source, run.line, "", message, hint)])
    if run.name not in {known.value for known in Pattern}:
        message = f"a test of {run.name}, which is not simulated"
        hint = f"these are: {', '.join(known.value for known in Pattern)}"
        raise SpecError([Problem(source, run.line, "", message, hint)])
    return Pattern(run.name)


def _ranks(run: NcclRecording, source: str, pattern: Pattern, ranks: int | None) -> int:
    def refuse(message: str, hint: str) -> SpecError:
        line = run.ranks_line or run.line
        return SpecError([Problem(source, line, "", message, hint)])

    listed, is_exact = run.ranks, run.ranks_are_exact
    if listed == 1 and is_exact:
        raise refuse("one rank", _ALONE)
    if ranks is None:
        if listed is not None and is_exact:
            return listed
        fitting = fitting_ranks(run.rows, pattern)
        example = f"--ranks {fitting}, which the rows fit" if fitting else "--ranks N"
        raise refuse("it does not list all of its ranks", f"say how many: {example}")
    if listed is not None and (ranks < listed or (is_exact and ranks != listed)):
        raise refuse(f"it lists {listed} ranks, not {ranks}", "leave --ranks out, or correct it")
    if ranks % (run.per_process or 1):
        per_process = run.per_process
        raise refuse(
            f"{ranks} ranks, but {per_process} in each process (nThread x nGpus)", "correct it"
        )
    return ranks
