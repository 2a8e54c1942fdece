"""Reads what a prediction is asked for: a file of flows, and overrides of a lab's file.

A file of flows, CSV with a header or YAML with a key `flows`, becomes a `FlowRow` per flow of a
fabric; the text of `--scheme` and `--hashing` becomes specs. Errors are SpecErrors with every
problem at its line.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from itertools import islice
from operator import is_
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo

from rocelab.base.errors import COMMAND_LINE, InputError, Problem, SpecError
from rocelab.base.files import NotTextError, read_input, text_of
from rocelab.base.units import SizeBytes
from rocelab.base.wording import RefusedError, name_hint
from rocelab.jobs.flow_list import MOST_FLOWS
from rocelab.jobs.placement import NicRef
from rocelab.jobs.sport import QPN_LIMIT
from rocelab.labfile.base import SpecModel, split_nic
from rocelab.labfile.load import validate
from rocelab.labfile.model import HashingSpec
from rocelab.labfile.scalars import read_scalar
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.labfile.source import Data, YamlSource, raise_problems, read_source
from rocelab.labfile.table import TableFormat, check_header, read_cell, read_table
from rocelab.planning.fabric import Fabric
from rocelab.prediction.matrix import FlowRow

MOST_BYTES = 10**18


class FlowSpec(SpecModel):
    """A flow in a file."""

    source: Annotated[str, Field(description="the sending server, or its NIC, such as srv1-1:2")]
    source_nic: Annotated[int, Field(ge=1, le=64, description="its NIC, from 1")] = 1
    destination: Annotated[str, Field(description="the receiving server, or its NIC")]
    destination_nic: Annotated[int, Field(ge=1, le=64, description="its NIC, from 1")] = 1
    sport: Annotated[int, Field(ge=1, le=65535, description="UDP source port")]
    dest_qp: Annotated[
        int, Field(ge=0, lt=QPN_LIMIT, description="destination QP, which e-ecmp hashes")
    ] = 0
    leaves_by: Annotated[
        int, Field(ge=0, le=1, description="port of a NIC that has two, from 0")
    ] = 0
    bytes: Annotated[
        SizeBytes | None, Field(ge=0, le=MOST_BYTES, description="payload, such as 64MB")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _nics_by_name(cls, data: object) -> object:
        return split_nic(split_nic(data, "source", "source_nic"), "destination", "destination_nic")


class FlowSetSpec(SpecModel):
    """A file of flows."""

    flows: Annotated[
        tuple[FlowSpec, ...], Field(strict=False, min_length=1, description="the flows")
    ]


class PredictionOverrides(SpecModel):
    """The overrides on the command line; None keeps the lab's own."""

    scheme: Annotated[SchemeSpec | None, Field(description="how flows are spread")] = None
    hashing: Annotated[HashingSpec | None, Field(description="the seeds of switches")] = None


def read_asked(scheme: str | None, hashing: str | None = None) -> PredictionOverrides:
    """The specs of two options, None for an option that is not set. Raises SpecError."""
    texts = {"scheme": scheme, "hashing": hashing}
    data: dict[str, Data] = {}
    problems = []
    for key, text in texts.items():
        if text is None:
            continue
        try:
            data[key] = read_scalar(text, None, plain=True)
        except RefusedError as error:
            problems.append(Problem(COMMAND_LINE, None, key, error.message, error.hint))
    if problems:
        raise_problems(problems)
    return validate(YamlSource(COMMAND_LINE, data, {}), PredictionOverrides)


FLOWS_TABLE = TableFormat(
    "flows",
    "flows",
    {name: field.is_required() for name, field in FlowSpec.model_fields.items()},
    MOST_FLOWS,
)


def read_flows(path: Path, fabric: Fabric) -> list[FlowRow]:
    """The flows of a file, CSV by its ending and YAML otherwise.

    The first line of a CSV names its columns, those of `FlowSpec`; source, destination and sport
    are required. An empty cell is a missing value. Raises SpecError with every problem.
    """
    ports = {
        NicRef(server.name, number): len(nic.links)
        for server in fabric.servers
        for number, nic in enumerate(fabric.nics(server.name), start=1)
    }
    is_csv = path.suffix.lower() == ".csv"
    if is_csv and (rows := _read_columns(path, ports)) is not None:
        return rows
    source = read_table(path, FLOWS_TABLE) if is_csv else read_source(path)
    spec = validate(source, FlowSetSpec)
    rows = [
        FlowRow(
            NicRef(flow.source, flow.source_nic),
            NicRef(flow.destination, flow.destination_nic),
            flow.sport,
            flow.dest_qp,
            flow.bytes,
            None,
            flow.leaves_by,
        )
        for flow in spec.flows
    ]
    problems = [
        Problem(source.file, source.line(("flows", index, key)), key, error.message, error.hint)
        for index, row in enumerate(rows)
        if not _fits(row, ports)
        for key, error in _misfits(fabric, spec.flows[index])
    ]
    if problems:
        raise_problems(problems)
    return rows


def _read_columns(path: Path, ports: Mapping[NicRef, int]) -> list[FlowRow] | None:
    """The flows of a CSV, of which each column's different cells are validated once, as a file has
    very many; None if one has a problem, for `read_table` and `validate` to say which."""
    try:
        columns = _columns(path)
    except (OSError, NotTextError, csv.Error, SpecError, RefusedError, ValidationError):
        return None
    if columns is None:
        return None
    nics = {(nic.server, nic.nic): nic for nic in ports}
    leaves_by = columns["leaves_by"]
    source, destination = (
        [nics.get(place) for place in zip(columns[end], columns[f"{end}_nic"], strict=True)]
        for end in ("source", "destination")
    )
    known = [nic for nic in source if nic is not None]
    if len(known) < len(source) or None in destination or any(map(is_, source, destination)):
        return None
    if any(port >= ports[nic] for nic, port in set(zip(known, leaves_by, strict=True))):
        return None
    unknown = [None] * len(known)
    kept = (columns[name] for name in ("sport", "dest_qp", "bytes"))
    return list(map(FlowRow, known, destination, *kept, unknown, leaves_by))


def _columns(path: Path) -> dict[str, list[Any]] | None:
    """The values of each key of `FlowSpec`, for each flow of a CSV; None for other than 1 to
    `MOST_FLOWS` lines of as many cells as the header. Raises what readers and validators raise."""
    reader = csv.reader(StringIO(text_of(read_input(path)), newline=""), strict=True)
    header = [name.strip() for name in next(reader, [])]
    check_header(str(path), header, FLOWS_TABLE)
    most = FLOWS_TABLE.most_rows
    lines = [cells for cells in islice(reader, most + 1) if cells]
    if not 0 < len(lines) <= most or set(map(len, lines)) != {len(header)}:
        return None
    cells_of = dict(zip(header, zip(*lines, strict=True), strict=True))
    return {
        name: _values(field, cells_of[name]) if name in cells_of else [field.default] * len(lines)
        for name, field in FlowSpec.model_fields.items()
    }


def _values(field: FieldInfo, cells: Sequence[str]) -> list[Any]:
    """The values of cells of a column, each different cell read once."""
    texts = list(dict.fromkeys(cells))
    filled = [text for text in texts if text.strip()]
    if len(filled) < len(texts) and field.is_required():
        raise RefusedError("an empty cell")
    data = [read_cell(text) for text in filled]
    if None in data:
        raise RefusedError("a cell without a value")
    many: Any = list
    kind = TypeAdapter[list[Any]](many[field.rebuild_annotation()], config=FlowSpec.model_config)
    value_of = dict.fromkeys(texts, field.default)
    value_of.update(zip(filled, kind.validate_python(data), strict=True))
    return list(map(value_of.__getitem__, cells))


def _fits(row: FlowRow, ports: Mapping[NicRef, int]) -> bool:
    """Whether a flow has two NICs of these, each with its number of ports, and leaves by one."""
    return (
        row.leaves_by < ports.get(row.source, 0)
        and row.destination in ports
        and row.source != row.destination
    )


def _misfits(fabric: Fabric, flow: FlowSpec) -> list[tuple[str, InputError]]:
    misfits = []
    for end, server, number in (
        ("source", flow.source, flow.source_nic),
        ("destination", flow.destination, flow.destination_nic),
    ):
        node = fabric.node_by_name.get(server)
        if node is None or node.is_switch:
            what = "is a switch" if node else "is not in the fabric"
            hint = name_hint(server, [known.name for known in fabric.servers])
            misfits.append((end, InputError(f"{server} {what}", hint)))
        elif number > len(fabric.nics(server)):
            most = len(fabric.nics(server))
            error = InputError(f"{server} has no NIC {number}", f"its NICs are 1 to {most}")
            misfits.append((f"{end}_nic", error))
    if misfits:
        return misfits
    if (flow.source, flow.source_nic) == (flow.destination, flow.destination_nic):
        error = InputError("source and destination are the same NIC", "name two NICs")
        misfits.append(("destination", error))
    ports = len(fabric.nics(flow.source)[flow.source_nic - 1].links)
    if flow.leaves_by >= ports:
        error = InputError(f"the NIC has {ports} port", "leave leaves_by out")
        misfits.append(("leaves_by", error))
    return misfits
