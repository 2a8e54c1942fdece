"""The JSON Schemas of the files that people write: labs, drills, jobs, flows, sweeps, servers.

A file of one of two forms is told apart by a key, so that an editor names what is wrong in the form
that was meant. `docs/generate.py` writes them to `schemas/`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum

from pydantic import BaseModel

from rocelab.drills.drill_spec import DrillSpec, PhaseDrillSpec
from rocelab.hosts.host_spec import HostModelSpec
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import JobsSpec
from rocelab.labfile.schema import DIALECT, Schema, lab_schema, schema_of
from rocelab.prediction.prediction_spec import FlowSetSpec
from rocelab.sim.sweep.sweep_spec import SweepSpec


class SchemaKind(StrEnum):
    """A kind of file that has a schema."""

    LAB = "lab"
    DRILL = "drill"
    JOB = "job"
    FLOWS = "flows"
    SWEEP = "sweep"
    SERVER = "server"


def schema(kind: SchemaKind) -> Schema:
    """The JSON Schema (draft 2020-12) of a kind of file."""
    return {**_MADE[kind](), "$schema": DIALECT, "title": f"rocelab {kind}"}


def schema_text(kind: SchemaKind) -> str:
    """The content of its file."""
    return json.dumps(schema(kind), indent=2) + "\n"


def file_name(kind: SchemaKind) -> str:
    """The name of its file in `schemas/`."""
    return f"{kind}.schema.json"


def _drill() -> Schema:
    return _either("phases", DrillSpec, PhaseDrillSpec)


def _job() -> Schema:
    return _either("pattern", JobSpec, JobsSpec)


def _either(key: str, with_key: type[BaseModel], without: type[BaseModel]) -> Schema:
    """The schema of a file that has one form if it has a key, and another if not."""
    forms = [schema_of(model) for model in (with_key, without)]
    definitions: Schema = {}
    for form in forms:
        definitions |= form.pop("$defs", {})
    names = [model.__name__ for model in (with_key, without)]
    definitions |= dict(zip(names, forms, strict=True))
    then, otherwise = ({"$ref": f"#/$defs/{name}"} for name in names)
    return {"if": {"required": [key]}, "then": then, "else": otherwise, "$defs": definitions}


_MADE: Mapping[SchemaKind, Callable[[], Schema]] = {
    SchemaKind.LAB: lab_schema,
    SchemaKind.DRILL: _drill,
    SchemaKind.JOB: _job,
    SchemaKind.FLOWS: lambda: schema_of(FlowSetSpec),
    SchemaKind.SWEEP: lambda: schema_of(SweepSpec),
    SchemaKind.SERVER: lambda: schema_of(HostModelSpec),
}
