"""Reads the JSON of nccl-tests (`-J`), of rccl-tests (`-Z json`), and of a container's log file.

nccl-tests writes one document (src/util.cu), rccl-tests a record for each timing, a line each or as
a list (src/common.cu, Reporter), Docker's json-file driver a line of text in each record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rocelab.base.errors import Problem, SpecError
from rocelab.sim.traces.nccl_rows import (
    NcclRecording,
    NcclRow,
    NcclTiming,
    add_record,
    collective_of,
    size_of,
    timing_of,
    whole,
)

_HINT = "give the file of `-J` (nccl-tests) or `-Z json -x` (rccl-tests) as it was written"
_KEYS = {"cpu_time": "time", "alg_bw": "algbw", "bus_bw": "busbw", "nwrong": "wrong"}


def is_json(text: str) -> bool:
    """Whether a text is meant as JSON; a tag of mpirun begins with a bracket too."""
    return re.match(r"\s*(?:\{|\[\s*\{)", text) is not None


def log_lines(text: str, source: str) -> str | None:
    """The text in records of Docker's json-file driver, None if these are other records.
    Raises SpecError for what is no JSON."""
    lines = [_mapping(record).get("log") for _, record in _records(text, source)]
    texts = [line for line in lines if isinstance(line, str)]
    return "".join(texts) if texts and len(texts) == len(lines) else None


def read_json(text: str, source: str) -> tuple[list[NcclRecording], list[Problem]]:
    """Every run in a text of JSON, and what could not be read. Raises SpecError if it is none."""
    runs: list[NcclRecording] = []
    problems: list[Problem] = []
    for line, record in _records(text, source):
        if isinstance(record, Mapping) and isinstance(record.get("results"), list):
            runs.append(_document(record, source, problems))
        elif isinstance(record, list):
            for index, entry in enumerate(record):
                _record(runs, entry, source, None, f"[{index}]", problems)
        else:
            _record(runs, record, source, line, "", problems)
    return [run for run in runs if run.rows], problems


def _records(text: str, source: str) -> list[tuple[int | None, object]]:
    """The document of a text, or the one of each of its lines, with every number as its text."""
    try:
        return [(None, _parsed(text))]
    except (ValueError, RecursionError) as error:
        whole_error = error
    records: list[tuple[int | None, object]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            records.append((number, _parsed(line)))
        except (ValueError, RecursionError) as error:
            # The first line of a document that spans several is none by itself.
            cause = error if records else whole_error
            at = number if records else getattr(cause, "lineno", 1)
            raise SpecError([Problem(source, at, "", f"not JSON: {cause}", _HINT)]) from None
    return records


def _parsed(text: str) -> object:
    return json.loads(text, parse_float=str, parse_int=str, parse_constant=str)


def _document(document: Mapping[str, Any], source: str, problems: list[Problem]) -> NcclRecording:
    """A run of nccl-tests. Without MPI it lists one device of a process, with MPI one of each."""
    config = _mapping(document.get("config"))
    arguments = document.get("args")
    run = NcclRecording()
    if isinstance(arguments, list) and arguments and isinstance(arguments[0], str):
        run.name = collective_of(arguments[0])
    devices = config.get("devices")
    if isinstance(devices, list) and devices:
        per_process = _number(config.get("nthreads")) * _number(config.get("ngpus"))
        run.ranks, run.ranks_are_exact = len(devices) * per_process, True
        groups = [_number(_mapping(device).get("group"), 0) for device in devices]
        run.groups = dict.fromkeys(groups, 0)
    if _mapping(document.get("out_of_bounds")).get("okay") == "false":
        run.failed, run.failed_key = 0, "out_of_bounds"
    for index, entry in enumerate(document["results"]):
        key = f"results[{index}]"
        try:
            halves, is_cpu_time = _halves(_mapping(entry))
            run.is_cpu_time |= is_cpu_time
            run.rows.append(_row(_mapping(entry), halves, key))
        except ValueError as error:
            problems.append(Problem(source, None, key, str(error), _HINT))
    return run


def _halves(entry: Mapping[str, Any]) -> tuple[Sequence[NcclTiming | None], bool]:
    """The timings out of place and in place, and whether they are of a CPU."""
    halves: list[NcclTiming | None] = []
    is_cpu_time = False
    for name in ("out_of_place", "in_place"):
        half = entry.get(name)
        if half is None:
            halves.append(None)
            continue
        cells = {_KEYS.get(key, key): _cell(value) for key, value in _mapping(half).items()}
        is_cpu_time |= "cpu_time" in half
        halves.append(timing_of({"time": "", **cells}))
    if not any(halves):
        raise ValueError("neither half of the row has a time")
    return halves, is_cpu_time


def _row(entry: Mapping[str, Any], halves: Sequence[NcclTiming | None], key: str) -> NcclRow:
    cells = {name: _cell(value).strip() for name, value in entry.items()}
    return NcclRow(
        None,
        size_of(cells.get("size", "")),
        whole("count", cells.get("count")),
        cells.get("type"),
        cells.get("redop"),
        whole("root", cells.get("root")),
        halves[0],
        halves[1],
        key,
    )


def _record(
    runs: list[NcclRecording],
    record: object,
    source: str,
    line: int | None,
    key: str,
    problems: list[Problem],
) -> None:
    cells = {name.lower(): _cell(value).strip() for name, value in _mapping(record).items()}
    try:
        if not {"size", "time", "algbw", "busbw"} <= set(cells):
            raise ValueError("neither a result of nccl-tests nor a record of rccl-tests")
        add_record(runs, cells, line, key)
    except ValueError as error:
        problems.append(Problem(source, line, key, str(error), _HINT))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _cell(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _number(value: object, default: int = 1) -> int:
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,7}", value) else default
