"""The file format of a sweep: a lab, a job, and the keys that take several values.

The axes of a `Sweep` span the grid of cells. Its parts (lab, job, options of the simulation) stay
the plain data of their files, so that a cell can set any key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from rocelab.base.errors import InputError, Problem, SpecError
from rocelab.base.units import DurationNs
from rocelab.base.wording import RefusedError, closest, described, listed, shown
from rocelab.labfile.base import SECOND, SpecModel
from rocelab.labfile.catalog import JOBS, LABS, find, tree_of
from rocelab.labfile.load import validate, with_files
from rocelab.labfile.model import MAX_SEED
from rocelab.labfile.reference import may_be_quoted, named_by
from rocelab.labfile.references import with_contents
from rocelab.labfile.servers import HOST_MODELS, HostModelBlock
from rocelab.labfile.source import Data, YamlSource, read_source
from rocelab.results.engines import Engine, PortModel

PARTS = ("lab", "job", "simulate")
MAX_CELLS = 20_000
MAX_REPEATS = 1_000

_EXAMPLE = "such as lab.fabric.spines, lab.scheme or job.transport.qps"


def _check_list(value: Any) -> Any:  # noqa: ANN401 - whatever a file holds
    if not isinstance(value, list | tuple) or not value:
        got = "an empty list" if value in ([], ()) else described(value)
        raise RefusedError(f"expected a list of values, got {got}", "such as [4, 16, 32]")
    return value


def _check_values(value: Any) -> Any:  # noqa: ANN401 - whatever a file holds
    """A list of distinct values, or `{repeat: N}`. Raises RefusedError."""
    if isinstance(value, Mapping):
        repeat = value.get("repeat")
        if set(value) != {"repeat"} or type(repeat) is not int or not 2 <= repeat <= MAX_REPEATS:
            raise RefusedError(
                f"expected {{repeat: N}} with N from 2 to {MAX_REPEATS:,}, or a list of values",
                "{repeat: 10} stands for the seeds 1 to 10, whose spread is shown; a block of keys "
                "that is a value stands in a list",
            )
        return value
    for number, item in enumerate(_check_list(value)):
        # 1 and true are equal in Python, but not in YAML.
        if any(type(item) is type(other) and item == other for other in value[:number]):
            raise RefusedError(f"{shown(item)} is given twice", "keep one of them")
    return value


_NONE: dict[str, Any] = {}
_NO_PORTS = "only the engine packets has several models of ports"

Values = Annotated[Any, BeforeValidator(_check_values)]
Zipped = Annotated[Any, BeforeValidator(_check_list)]


class SimulateSpec(SpecModel):
    """How cells are simulated."""

    eps: Annotated[
        float | None,
        Field(
            ge=0,
            le=0.5,
            description="batch completions within this share of the longest remaining time; left "
            "out: exact",
        ),
    ] = None
    model: Annotated[
        Literal["kernel", "crc16", "crc32"],
        Field(description="how switches hash: as Linux, or by a CRC with modulo as ASICs"),
    ] = "kernel"
    hop_latency: Annotated[
        Annotated[DurationNs, Field(ge=0, le=SECOND)] | None,
        Field(
            description="what each link and switch adds to a send; if left out, the lab's "
            "`links.delay`, or 1us"
        ),
    ] = None
    host_model: Annotated[
        HostModelBlock | None,
        Field(
            description="the type of all servers, by its name, the path of its file from the "
            "current folder, or a block; left out: that of the job or the lab, or hosts take no "
            "time"
        ),
    ] = None
    engine: Annotated[
        Engine, Field(strict=False, description="fluids, packets, or packets link by link")
    ] = Engine.FLUID
    ports: Annotated[
        PortModel | None, Field(strict=False, description="of packets: when one leaves a port")
    ] = None
    engine_seed: Annotated[
        int | None,
        Field(
            ge=0,
            le=MAX_SEED,
            description="of packets: draws marks, paths of sprayed packets and the order of what "
            "happens at one instant",
        ),
    ] = None

    @model_validator(mode="after")
    def _what_the_engine_has(self) -> Self:
        if self.engine is not Engine.FLUID and self.eps is not None:
            raise RefusedError("packets are simulated exactly", "leave it out", keys=("eps",))
        if self.engine is not Engine.PACKETS and self.ports is not None:
            raise RefusedError(_NO_PORTS, "add engine: packets", keys=("ports",))
        if self.engine is Engine.FLUID and self.engine_seed is not None:
            raise RefusedError(
                "a fluid draws nothing", "add engine: packets", keys=("engine_seed",)
            )
        return self


class SweepSpec(SpecModel):
    """A sweep: one simulation for each combination of values."""

    lab: Annotated[str, Field(description="a lab by its name, or a file")]
    job: Annotated[
        dict[str, Any] | str, Field(description="the keys of a job, or the name or file of one")
    ]
    simulate: Annotated[dict[str, Any], Field(description="options of the simulation")] = _NONE
    over: Annotated[
        dict[str, Values],
        Field(description=f"keys, {_EXAMPLE}, each with a list of values or {{repeat: N}}"),
    ] = _NONE
    zip: Annotated[
        dict[str, Zipped],
        Field(description="keys that change together: the first values of all, the second, ..."),
    ] = _NONE

    @model_validator(mode="after")
    def _keys_of_a_part(self) -> Self:
        for block, key in [("over", key) for key in self.over] + [("zip", key) for key in self.zip]:
            part, _, rest = key.partition(".")
            if part not in PARTS or not all(rest.split(".")):
                close = closest(part, PARTS)
                meant = f"did you mean {close}.{rest or '...'}? " if close else ""
                raise RefusedError(
                    f"expected keys that start with {listed(f'{name}.' for name in PARTS)}, "
                    f"got {shown(key)}",
                    f"{meant}A key is written in full, {_EXAMPLE}",
                    keys=(block,),
                )
        return self

    @model_validator(mode="after")
    def _each_key_once(self) -> Self:
        keys = [*self.over, *self.zip]
        for key in keys:
            if keys.count(key) > 1:
                raise RefusedError(f"{key} stands in over and in zip", keys=("zip",))
            whole = next((other for other in keys if key.startswith(f"{other}.")), None)
            if whole is not None:
                raise RefusedError(
                    f"{key} is part of {whole}, which is set as a whole",
                    "write the blocks out as values of the outer key",
                    keys=("over", "zip"),
                )
        return self

    @model_validator(mode="after")
    def _zipped_alike(self) -> Self:
        lengths = {key: len(values) for key, values in self.zip.items()}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{key} has {count}" for key, count in lengths.items())
            raise RefusedError(f"expected lists of one length, {said}", keys=("zip",))
        return self

    @model_validator(mode="after")
    def _has_cells(self) -> Self:
        if not self.over and not self.zip:
            raise RefusedError(
                "no key has several values",
                f"give over a key, {_EXAMPLE}, with a list of values",
            )
        counts = {key: _count(values) for key, values in self.over.items()}
        if self.zip:
            counts["zip"] = len(next(iter(self.zip.values())))
        cells = math.prod(counts.values())
        if cells > MAX_CELLS:
            raise RefusedError(
                f"{' x '.join(map(str, counts.values()))} values are {cells:,} cells; at most "
                f"{MAX_CELLS:,} are run",
                "give fewer values or repeats, or put keys that change together in zip",
                keys=("over",),
            )
        return self


def _count(values: Mapping[str, int] | Sequence[Data]) -> int:
    return values["repeat"] if isinstance(values, Mapping) else len(values)


@dataclass(frozen=True, slots=True)
class Axis:
    """Keys that are set together: settings[i] has one value for each key."""

    keys: tuple[str, ...]
    settings: tuple[tuple[Data, ...], ...]
    repeats: bool = False
    """The values are seeds; differences between them are shown as a spread."""

    @property
    def label(self) -> str:
        """The name of the axis: its first key."""
        return self.keys[0]


@dataclass(frozen=True, slots=True)
class SweepPart:
    """What cells share of a lab, a job or the options, as in its file at `path`. `inside` is the
    block of that file, for messages; empty for the whole file. `is_quoted`: whether messages may
    quote the file, as in `rocelab.labfile.reference`."""

    source: YamlSource
    path: Path
    inside: str = ""
    is_quoted: bool = True


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep as written, its parts by name (of PARTS), and the axes of its grid."""

    source: YamlSource
    parts: Mapping[str, SweepPart]
    axes: tuple[Axis, ...]

    @property
    def swept(self) -> tuple[str, ...]:
        """Every key that takes several values."""
        return tuple(key for axis in self.axes for key in axis.keys)


def read_sweep(path: Path) -> Sweep:
    """The sweep that a YAML file describes. Raises SpecError with every problem of a stage.

    Names are looked up in the file's own tree first; paths are relative to the file, then to the
    current folder.
    """
    source = read_source(path)
    spec = validate(source, SweepSpec)
    parts = {"simulate": _block(source, path, "simulate")}
    problems: list[Problem] = []
    for name in ("lab", "job"):
        try:
            parts[name] = _part(source, name, path)
        except SpecError as error:
            problems += error.problems
        except InputError as error:
            line = source.line((name,))
            problems.append(Problem(source.file, line, name, error.message, error.hint))
    if problems:
        raise SpecError(problems)
    return Sweep(source, parts, tuple(_axes(spec)))


def _part(source: YamlSource, name: str, sweep: Path) -> SweepPart:
    said = source.data[name]
    if not isinstance(said, str):
        return _block(source, sweep, name)
    named = find(said, LABS if name == "lab" else JOBS, tree_of(sweep), sweep.parent)
    if not named.is_file():
        named = Path(said)
    with named_by(sweep, named):
        part = _only_job(_with_files(read_source(named), named, name), named)
    return replace(part, is_quoted=may_be_quoted(named, sweep))


def _only_job(source: YamlSource, path: Path) -> SweepPart:
    """The file itself, or the only job of a file with a list of jobs. Raises SpecError for
    several."""
    jobs = source.data.get("jobs")
    if not isinstance(jobs, list):
        return SweepPart(source, path)
    if len(jobs) != 1 or not isinstance(jobs[0], dict):
        problem = "a sweep runs one job, and this file does not list just one"
        hint = "write the intended job to its own file"
        raise SpecError([Problem(source.file, source.line(("jobs",)), "jobs", problem, hint)])
    lines = {path[2:]: line for path, line in source.lines.items() if path[:2] == ("jobs", 0)}
    return SweepPart(YamlSource(source.file, jobs[0], lines), path, "jobs[0]")


def _block(source: YamlSource, path: Path, name: str) -> SweepPart:
    data = source.data.get(name, {})
    assert isinstance(data, dict)
    lines = {path[1:]: line for path, line in source.lines.items() if path[:1] == (name,)}
    block = _with_files(YamlSource(source.file, data, lines), path, name)
    return SweepPart(block, path, name)


def _with_files(source: YamlSource, path: Path, name: str) -> YamlSource:
    if name == "lab":
        return with_files(source, path)
    return with_contents(source, path, HOST_MODELS)


def _axes(spec: SweepSpec) -> Iterable[Axis]:
    for key, values in spec.over.items():
        repeats = isinstance(values, Mapping)
        points = range(1, values["repeat"] + 1) if repeats else values
        yield Axis((key,), tuple((value,) for value in points), repeats)
    if spec.zip:
        yield Axis(tuple(spec.zip), tuple(zip(*spec.zip.values(), strict=True)))
