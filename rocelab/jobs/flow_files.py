"""Reads flows and the times when they begin from the files of packet simulators.

Two formats, told apart by their content: the flow file of ns-3's RDMA forks in the form of HPCC's
simulator (alibaba-edu/High-Precision-Congestion-Control, simulation/scratch/third.cc), and the
connection matrix of htsim (Broadcom/csg-htsim, sim/datacenter/connection_matrix.cpp). Times count
from the first flow's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import Field

from rocelab.base.arrays import Floats, Longs
from rocelab.base.errors import Problem, SpecError
from rocelab.base.files import NotTextError, read_input, text_of
from rocelab.base.progress import ProgressSink
from rocelab.base.wording import RefusedError, counted, listed, shown
from rocelab.jobs.flow_list import MOST_FLOWS, FlowList
from rocelab.jobs.transport import MAX_SIZE
from rocelab.jobs.workloads import WorkloadSpec
from rocelab.labfile.reference import may_be_quoted, named_by
from rocelab.labfile.source import raise_problems

NS3_COLUMNS = ("src", "dst", "pg", "dst_port", "size_bytes", "start_s")
HTSIM_COUNTS = ("Nodes", "Connections", "Triggers", "Failures")
MOST_RANKS = 2**20
MOST_DIGITS = 18
LONGEST_S = 1e6

_TRIGGERS = ("trigger", "send_done_trigger", "recv_done_trigger", "addon")

Line = tuple[int, list[str]]
"""The number of a line, from 1, and its words."""

Flow = tuple[int, int, int, float]
"""Source, destination, bytes and start in seconds."""

Columns = tuple[Longs, Longs, Longs, Floats]
"""The same of all flows, by column."""

Parse = Callable[[Sequence[str]], Flow]


class FlowsSpec(WorkloadSpec):
    """Flows that begin at given times."""

    title = "flows of a file, with the times when they begin"
    place = 4
    is_open_loop = True

    file: Annotated[
        str,
        Field(
            min_length=1,
            description="a flow file of ns-3's RDMA forks or a connection matrix of htsim; from "
            "the job file",
        ),
    ]

    @property
    def ranks(self) -> None:
        """As many as the file says."""
        return None

    @property
    def digested(self) -> tuple[Path, ...]:
        return (Path(self.file),)

    def within(self, file: Path) -> Self:
        path = file.parent / self.file
        if not may_be_quoted(path, file):
            with named_by(file, path):
                read_flow_file(path)
        return self.model_copy(update={"file": str(path)})

    def read(self, progress: ProgressSink) -> FlowList:
        return read_flow_file(Path(self.file))


def read_flow_file(path: Path) -> FlowList:
    """The flows of a file; the simulator's host i is rank i. Raises SpecError with every problem
    of the file."""
    file = str(path)
    lines = _lines(path)
    if not lines:
        raise SpecError([Problem(file, None, "", "no flows: the file is empty")])
    number, words = lines[0]
    if words[0] in HTSIM_COUNTS or "->" in words[0]:
        return _htsim(file, lines)
    if len(words) == 1 and words[0].isdecimal():
        return _ns3(file, lines)
    raise SpecError(
        [
            Problem(
                file,
                number,
                "",
                f"expected the number of flows, or Nodes of a matrix, got {shown(' '.join(words))}",
                "give a flow file of an ns-3 fork with RDMA, or a connection matrix of htsim",
            )
        ]
    )


def _lines(path: Path) -> list[Line]:
    """The lines that are not empty and no comment."""
    try:
        text = text_of(read_input(path))
    except OSError as error:
        problem = Problem(str(path), None, "", f"cannot be read: {error.strerror}")
        raise SpecError([problem]) from None
    except NotTextError as error:
        raise SpecError([Problem(str(path), error.line, "", str(error), error.hint)]) from None
    lines = ((number, line.split()) for number, line in enumerate(text.splitlines(), start=1))
    return [(number, words) for number, words in lines if words and words[0][0] != "#"]


def _ns3(file: str, lines: Sequence[Line]) -> FlowList:
    """The flows that the first line counts; lines after them are ignored, as ns-3 does."""
    (first, (count,)), rest = lines[0], lines[1:]
    flows = _bounded(file, first, count, least=1)
    problems: list[Problem] = []
    columns = _ns3_columns([words for _, words in rest[:flows]])
    if columns is None:
        columns = _columns(list(_parsed(file, rest[:flows], _ns3_flow, problems)))
    if len(rest) < flows:
        message = f"{counted(flows, 'flow')} announced, and {len(rest):,} are there"
        problems.append(Problem(file, first, "", message, "correct the number"))
    if problems:
        raise_problems(problems)
    warnings = []
    if len(rest) > flows:
        warnings.append(
            f"{file}: the first line says {counted(flows, 'flow')}; "
            f"{counted(len(rest) - flows, 'line')} after them are ignored, as ns-3 does"
        )
    if len({words[2] for _, words in rest[:flows]}) > 1:
        warnings.append(f"{file}: pg is ignored: all flows are sent with transport.dscp")
    ranks = 1 + max(int(columns[0].max()), int(columns[1].max()))
    return _listed(max(2, ranks), columns, warnings)


def _ns3_columns(rows: Sequence[Sequence[str]]) -> Columns | None:
    """The flows of lines, all read at once, as a file has very many; None if `_ns3_flow` refuses
    one."""
    if set(map(len, rows)) != {len(NS3_COLUMNS)}:
        return None
    source, destination, _, _, size, start = zip(*rows, strict=True)
    counts = source, destination, size
    if not all(all(map(str.isdecimal, words)) for words in counts):
        return None
    if max(max(map(len, words)) for words in counts) > MOST_DIGITS:
        return None
    source_of, destination_of, size_bytes = (np.array(list(map(int, column))) for column in counts)
    try:
        start_s = np.array(list(map(float, start)))
    except ValueError:
        return None
    is_right = (
        (np.maximum(source_of, destination_of) < MOST_RANKS)
        & (source_of != destination_of)
        & (size_bytes >= 1)
        & (size_bytes <= MAX_SIZE)
        & (start_s >= 0)
        & (start_s <= LONGEST_S)
    )
    return (source_of, destination_of, size_bytes, start_s) if is_right.all() else None


def _ns3_flow(words: Sequence[str]) -> Flow:
    if len(words) != len(NS3_COLUMNS):
        raise RefusedError(
            f"expected {len(NS3_COLUMNS)} columns, got {len(words)}", f"{' '.join(NS3_COLUMNS)}"
        )
    source, destination, _, _, size, start = words
    return (
        _rank("src", source),
        _rank("dst", destination),
        _size("size_bytes", size),
        _time_s("start_s", start, 1.0),
    )


def _htsim(file: str, lines: Sequence[Line]) -> FlowList:
    problems: list[Problem] = []
    counts: dict[str, tuple[int, int]] = {}
    body = list(lines)
    while body and body[0][1][0] in HTSIM_COUNTS:
        number, (name, *values) = body.pop(0)
        least = {"Nodes": 2, "Connections": 1}.get(name, 0)
        if name in counts:
            problems.append(Problem(file, number, name, "said twice", "keep one"))
        counts[name] = number, _bounded(file, number, " ".join(values), least)
    for name in ("Triggers", "Failures"):
        number, count = counts.get(name, (0, 0))
        if count:
            problems.append(Problem(file, number, name, *_unsupported(name.lower())))
    connections = list(_parsed(file, body, _htsim_flow, problems))
    for name in ("Nodes", "Connections"):
        if name not in counts:
            problems.append(Problem(file, None, name, "missing", f"write `{name} N`"))
    if not problems and len(connections) != counts["Connections"][1]:
        number, count = counts["Connections"]
        message = f"{counted(count, 'connection')} announced, and {len(connections):,} are there"
        problems.append(Problem(file, number, "Connections", message, "correct the number"))
    if not problems:
        nodes = counts["Nodes"][1]
        problems += [
            Problem(file, number, "", f"there is no node {max(flow[:2])}: Nodes is {nodes:,}")
            for (number, _), flow in zip(body, connections, strict=True)
            if max(flow[:2]) >= nodes
        ]
    if problems:
        raise_problems(problems)
    return _listed(counts["Nodes"][1], _columns(connections), ())


def _htsim_flow(words: Sequence[str]) -> Flow:
    """`src->dst` and, in any order, `start` in picoseconds, `size` in bytes, `id`."""
    if words[0] in ("trigger", "failure"):
        raise RefusedError(*_unsupported(f"{words[0]}s"))
    ends = re.fullmatch(r"(\d+)->(\d+)", words[0])
    if ends is None:
        raise RefusedError(f"expected src->dst, got {shown(words[0])}")
    said: dict[str, str] = {}
    left = iter(words[1:])
    for name in left:
        if name in _TRIGGERS:
            raise RefusedError(*_unsupported("triggers"))
        if name == "prio":
            raise RefusedError(*_unsupported("priorities of connections"))
        if name not in ("id", "start", "size"):
            raise RefusedError(f"expected id, start or size, got {shown(name)}")
        if name in said:
            raise RefusedError(f"{name} is said twice", "keep one")
        said[name] = next(left, "")
    missing = [name for name in ("start", "size") if name not in said]
    if missing:
        raise RefusedError(f"{listed(missing, 'and')} missing", "src->dst start T size BYTES")
    return (
        _rank("src", ends[1]),
        _rank("dst", ends[2]),
        _size("size", said["size"]),
        _time_s("start", said["start"], 1e12),
    )


def _unsupported(what: str) -> tuple[str, str]:
    hints = {
        "failures": "leave them out, and give `--event`",
        "priorities of connections": "leave prio out",
    }
    hint = "each flow needs its own start time: give each a start"
    return f"{what} of htsim are not simulated", hints.get(what, hint)


def _parsed(
    file: str,
    lines: Sequence[Line],
    parse: Parse,
    problems: list[Problem],
) -> Iterator[Flow]:
    """The flows of the lines that are valid; the others are problems."""
    for number, words in lines:
        try:
            flow = parse(words)
            if flow[0] == flow[1]:
                raise RefusedError(f"host {flow[0]} would send to itself")
            yield flow
        except RefusedError as error:
            problems.append(Problem(file, number, "", error.message, error.hint))


def _columns(flows: Sequence[Flow]) -> Columns:
    whole = np.array([flow[:3] for flow in flows], np.int64).reshape(-1, 3).T
    return whole[0], whole[1], whole[2], np.array([flow[3] for flow in flows], np.float64)


def _listed(ranks: int, flows: Columns, warnings: Sequence[str]) -> FlowList:
    source, destination, size_bytes, start_s = flows
    return FlowList(
        ranks,
        source.astype(np.int32),
        destination.astype(np.int32),
        size_bytes,
        start_s - start_s.min(),
        tuple(warnings),
    )


def _bounded(file: str, line: int, word: str, least: int) -> int:
    """The number that a line announces. Raises SpecError."""
    try:
        return _whole("", word, least, MOST_FLOWS, "")
    except RefusedError as error:
        raise SpecError([Problem(file, line, "", error.message)]) from None


@lru_cache(2**16)
def _rank(name: str, word: str) -> int:
    return _whole(name, word, 0, MOST_RANKS - 1, "hosts count from 0")


def _size(name: str, word: str) -> int:
    hint = "bytes of payload; a flow without end is not simulated"
    return _whole(name, word, 1, MAX_SIZE, hint)


def _whole(name: str, word: str, least: int, most: int, hint: str) -> int:
    number = int(word) if word.isdecimal() and len(word) <= MOST_DIGITS else -1
    if not least <= number <= most:
        asked = f"{name}: expected" if name else "expected"
        message = f"{asked} a whole number from {least} to {most:,}, got {shown(word)}"
        raise RefusedError(message, hint)
    return number


def _time_s(name: str, word: str, per_second: float) -> float:
    try:
        seconds = float(word) / per_second
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_S:
        unit = "seconds" if per_second == 1 else "picoseconds"
        raise RefusedError(f"{name}: expected {unit}, got {shown(word)}")
    return seconds
