"""The cells of a sweep: every combination of values as one simulation, checked before any is run.

The inputs of a cell are validated plain values, named by a digest. `run_cell` simulates a cell, in
this process or on another machine.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rocelab.base.errors import Problem, SpecError
from rocelab.base.files import read_input
from rocelab.base.wording import KeyPath, dotted, shown
from rocelab.jobs.collectives import Pattern, kind_of
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import KINDS, SimulatedJob, named_in
from rocelab.labfile.adopted import recorded_spec
from rocelab.labfile.load import lab_of, validate
from rocelab.labfile.model import LabSpec
from rocelab.labfile.reference import withheld
from rocelab.labfile.source import MAX_PROBLEMS, Data, YamlSource, raise_problems
from rocelab.results.engines import Engine
from rocelab.results.simulation import PacketCounts
from rocelab.sim.sweep.sweep_spec import PARTS, SimulateSpec, Sweep, SweepPart

Inputs = dict[str, Any]
"""What `run_cell` takes: the keys `lab`, `job` and `simulate`, each with plain JSON values."""

Figures = dict[str, Any]
"""What `run_cell` returns: one plain value per column."""


WARNINGS, BETWEEN_WARNINGS = "warnings", " | "
"""The column with a cell's warnings, and what is between two of them."""


@dataclass(frozen=True, slots=True)
class SweepCell:
    """One simulation."""

    values: Mapping[str, Data]
    """Of the swept keys, as written."""
    inputs: Inputs
    digest: str
    """Of the inputs and of this tool's version, so that equal cells of two sweeps share one
    result."""
    nics: int
    """Of its fabric."""
    flows: int
    """The approximate number of its job's flows."""


@cache
def tool_version() -> str:
    """The version of this tool."""
    return version("rocelab")


def cells_of(sweep: Sweep) -> tuple[SweepCell, ...]:
    """Every cell in the order of the grid, the last axis fastest.

    Raises SpecError with every problem of every cell, each at the value or key it is about.
    """
    problems = _Problems(sweep)
    known: dict[str, _Valid | None] = {}
    cells = []
    for values in _grid(sweep):
        lab, job, options = (_validated(sweep, name, values, known, problems) for name in PARTS)
        if lab is None or job is None or options is None:
            continue
        assert isinstance(lab.model, LabSpec)
        assert isinstance(job.model, SimulatedJob)
        nics = lab.model.network(job.model.network).counts().nics
        ranks = job.model.ranks or 0
        if ranks > nics:
            problems.note_ranks(values, job.model, nics)
        inputs = {"lab": lab.data, "job": job.data, "simulate": options.data}
        digest = digest_of(inputs, _named_by(job.model))
        cells.append(SweepCell(values, inputs, digest, nics, _flows(job.data, ranks)))
    problems.raise_any()
    return tuple(cells)


def digest_of(inputs: Inputs, named: bytes = b"") -> str:
    """The name of a cell in every sweep: 32 hexadecimal digits of its inputs, of the version, and
    of the content of a file that its job names."""
    text = json.dumps([tool_version(), inputs], sort_keys=True)
    return hashlib.blake2s(text.encode() + named, digest_size=16).hexdigest()


def _named_by(job: SimulatedJob) -> bytes:
    """The content of the files of a job's workload; empty if one cannot be read, which the cell
    then says."""
    files = () if job.workload is None else job.workload.digested
    try:
        return b"".join(map(read_input, files))
    except OSError:
        return b""


def engine_of(inputs: Inputs) -> Engine:
    """The engine that simulates a cell."""
    return Engine(inputs["simulate"]["engine"])


def run_cell(inputs: Inputs) -> Figures:
    """Simulate one cell: its headline figures, medians over iterations; the slowdown of flows that
    begin at given times; what packets did; the max-mean ratio of flows per tier and direction; the
    simulation's warnings, as text.
    Raises RocelabError if the simulation does."""
    from rocelab.base.options import read_options
    from rocelab.sim.options import Options
    from rocelab.sim.simulate import simulate

    spec = recorded_spec(inputs["lab"])
    job = SimulatedJob.model_validate_json(json.dumps(inputs["job"]))
    report = simulate(spec, (job,), read_options(Options, inputs["simulate"]))
    figures: Figures = {
        headline.name: headline.modelled.median for headline in report.jobs[0].headlines
    }
    slowdown = report.jobs[0].slowdown
    if job.is_open_loop and slowdown is not None:
        quantiles = slowdown.quantiles
        figures |= {"slowdown_p50": quantiles[50], "slowdown_p99": quantiles[99]}
    if report.packets is not None:
        figures |= _packet_figures(report.packets)
    for tier in report.tiers:
        figures[f"mmr.{tier.tier}.{tier.direction.value}"] = tier.all_links.mmr
    return figures | {WARNINGS: BETWEEN_WARNINGS.join(report.warnings) or None}


def _packet_figures(packets: PacketCounts) -> Figures:
    figures: Figures = {
        "marks": packets.marks,
        "drops": packets.drops,
        "retransmitted": packets.retransmitted,
        "highest_queue": max((queue.highest_bytes for queue in packets.queues), default=0),
    }
    if packets.lossless is not None:
        figures["paused"] = packets.lossless.paused_ns
    return figures


def _flows(job: Mapping[str, Any], ranks: int) -> int:
    """The approximate number of a job's flows: those of a ring, or of all pairs."""
    pattern = (job["collective"] or {}).get("pattern")
    peers = ranks - 1 if pattern and kind_of(Pattern(pattern)).is_exchange else 1
    return int(
        ranks * peers * (job["transport"].get("qps") or job["transport"].get("connections") or 1)
    )


@dataclass(frozen=True, slots=True)
class _Valid:
    """A part of a cell, and the same part as JSON that reads back."""

    model: BaseModel
    data: dict[str, Any]


def _grid(sweep: Sweep) -> Iterator[dict[str, Data]]:
    for settings in itertools.product(*(axis.settings for axis in sweep.axes)):
        yield {
            key: value
            for axis, setting in zip(sweep.axes, settings, strict=True)
            for key, value in zip(axis.keys, setting, strict=True)
        }


def _validated(
    sweep: Sweep,
    name: str,
    values: Mapping[str, Data],
    known: dict[str, _Valid | None],
    problems: _Problems,
) -> _Valid | None:
    """The part with a cell's values set, None if invalid. `known` caches parts that cells share."""
    part_values = {key: value for key, value in values.items() if key.startswith(f"{name}.")}
    token = f"{name} {json.dumps(part_values)}"
    if token not in known:
        try:
            model = _model(name, merged(sweep, name, part_values), sweep.parts[name].path)
            known[token] = _Valid(model, model.model_dump(mode="json"))
        except SpecError as error:
            known[token] = None
            problems.note(name, part_values, error.problems, is_quoted=sweep.parts[name].is_quoted)
    return known[token]


def _model(name: str, source: YamlSource, path: Path) -> BaseModel:
    """The part that the keys describe; a lone collective needs no block around it. Raises
    SpecError."""
    if name == "lab":
        return lab_of(source)
    if name == "simulate":
        return validate(source, SimulateSpec)
    if any(kind in source.data for kind in KINDS):
        job = validate(replace(source, data={"name": "job", **source.data}), SimulatedJob)
        return named_in(path, job)
    return SimulatedJob(name="job", collective=validate(source, JobSpec))


def merged(sweep: Sweep, name: str, values: Mapping[str, Data]) -> YamlSource:
    """The part as read from a file with these values. Raises SpecError for a key inside something
    that is not a mapping."""
    part = sweep.parts[name].source
    data = copy.deepcopy(part.data)
    lines = dict(part.lines)
    for key, value in values.items():
        *blocks, last = key.split(".")[1:]
        inner: Any = data
        for depth, block in enumerate(blocks, 1):
            inner = inner.setdefault(block, {})
            if not isinstance(inner, dict):
                outer = dotted(tuple(blocks[:depth]))
                raise SpecError(
                    [
                        Problem(
                            part.file,
                            part.line(tuple(blocks[:depth])),
                            key.partition(".")[2],
                            f"{outer} is not a block of keys",
                            f"give {name}.{outer} whole blocks as its values, or write it as a "
                            "block of keys",
                        )
                    ]
                )
        inner[last] = copy.deepcopy(value)
        path: KeyPath = (*blocks, last)
        lines = {at: line for at, line in lines.items() if at[: len(path)] != path}
        # The validator points at keys that have a line; `_Problems` decides which one.
        lines[path] = 0
    return YamlSource(part.file, data, lines)


class _Problems:
    """The problems of cells: each problem once, with the cells that have it."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._cells = list(_grid(sweep))
        self._found: dict[Problem, list[Mapping[str, Data]]] = {}

    def note(
        self,
        name: str,
        values: Mapping[str, Data],
        problems: Sequence[Problem],
        *,
        is_quoted: bool = True,
    ) -> None:
        """Note the problems of the part `name` with these values; `is_quoted` as in `Part`."""
        part = self._sweep.parts[name]
        for problem in problems:
            placed = self._at_value(name, values, problem)
            if placed is None:
                at_key = self._at_key(part, problem)
                placed = at_key if is_quoted else withheld(at_key)
            self._found.setdefault(placed, []).append(values)

    def note_ranks(self, values: Mapping[str, Data], job: SimulatedJob, nics: int) -> None:
        """Note that a cell has more ranks than NICs."""
        source = self._sweep.parts["job"].source
        key = job.kind if job.kind in source.data else "ranks"
        problem = Problem(
            source.file,
            source.line((key,)),
            key,
            f"{job.ranks:,} ranks on the {nics:,} NICs of the fabric",
            "each rank needs its own NIC: use fewer ranks, or a larger fabric",
        )
        self.note("job", values, [problem])

    def raise_any(self) -> None:
        """Raises SpecError if there are problems."""
        if self._found:
            entries = itertools.islice(self._found.items(), MAX_PROBLEMS)
            untold = max(0, len(self._found) - MAX_PROBLEMS)
            raise_problems([self._counted_problem(*entry) for entry in entries], untold=untold)

    def _at_value(self, name: str, values: Mapping[str, Data], problem: Problem) -> Problem | None:
        """The problem, located at the swept value that caused it; None if no swept value did."""
        full = f"{name}.{problem.key}"
        for key, value in values.items():
            if key == full or full.startswith((f"{key}.", f"{key}[")):
                source = self._sweep.source
                block = "over" if ("over", key) in source.lines else "zip"
                path: KeyPath = (block, key)
                axis = next(axis for axis in self._sweep.axes if key in axis.keys)
                if not axis.repeats:
                    column = axis.keys.index(key)
                    column_values = [setting[column] for setting in axis.settings]
                    step = next(n for n, entry in enumerate(column_values) if entry is value)
                    path = (*path, step)
                return replace(problem, file=source.file, line=source.line(path), key=dotted(path))
        return None

    def _at_key(self, part: SweepPart, problem: Problem) -> Problem:
        inside = ".".join(piece for piece in (part.inside, problem.key) if piece)
        return replace(problem, line=problem.line or None, key=inside)

    def _counted_problem(self, problem: Problem, having: Sequence[Mapping[str, Data]]) -> Problem:
        """The problem, with how many cells have it and the values of the first."""
        keys = tuple(having[0])
        wanted = {_token(keys, row) for row in having}
        cells = [cell for cell in self._cells if _token(keys, cell) in wanted]
        if len(cells) == len(self._cells):
            return problem
        first = ", ".join(f"{key}: {shown(value)}" for key, value in cells[0].items())
        which = "only" if len(cells) == 1 else "first"
        said = f"({len(cells):,} of {len(self._cells):,} cells, the {which} with {first})"
        return replace(problem, message=f"{problem.message} {said}")


def _token(keys: Sequence[str], values: Mapping[str, Data]) -> str:
    return json.dumps([values[key] for key in keys])
