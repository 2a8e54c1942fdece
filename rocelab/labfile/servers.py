"""Finds and reads types of servers (`rocelab.hosts`): the shipped ones, a user's, and topologies.

A `host_model` is the name of a file of `servers/`, the path of such a file or of a topology of NCCL
or RCCL (XML), or a block with the same keys. What a file holds stands in the place of its name when
the naming file is read, so that a record or a result needs no file beside itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError

from rocelab.base.errors import InputError, Problem, SpecError
from rocelab.base.wording import RefusedError, printable
from rocelab.hosts.host_spec import HostModelSpec
from rocelab.hosts.topology_xml import is_topology, server_of_topology
from rocelab.labfile.base import safe_name, short_form
from rocelab.labfile.catalog import SERVERS, find, tree_of
from rocelab.labfile.reference import named_by
from rocelab.labfile.references import EACH, Content, FileReference, Naming
from rocelab.labfile.source import parse_source, read_text
from rocelab.labfile.validation import validate

KEY = "host_model"


def find_server(text: str, tree: Path = Path(), folder: Path = Path()) -> Path:
    """The file of the type of server that a user calls `text`, as `catalog.find` has it."""
    return find(text, SERVERS, tree, folder)


def read_server(path: Path) -> HostModelSpec:
    """The type of server in a file: YAML, or a topology. Raises SpecError with every problem."""
    file = printable(str(path))
    text = read_text(path, file)
    if not is_topology(text):
        return validate(parse_source(text, file), HostModelSpec)
    try:
        return server_of_topology(text, safe_name(path.stem) or "topology")
    except RefusedError as error:
        raise SpecError([Problem(file, None, "", error.message, error.hint)]) from None


def server_named(text: str) -> HostModelSpec:
    """The type of server of that name or path, from the current folder. Raises InputError, and
    SpecError with every problem of the file."""
    return read_server(find_server(text))


def _server(naming: Naming) -> Content | None:
    """What the file holds that a `host_model` names. Raises InputError."""
    if not isinstance(naming.value, str):
        return None
    file = find_server(naming.value, tree_of(naming.path), naming.folder)
    with named_by(naming.path, file):
        server = read_server(file)
    return Content(server.model_dump(mode="json", exclude_none=True))


HOST_MODELS = tuple(FileReference((*place, KEY), _server) for place in ((), ("jobs", EACH)))
"""The types of servers that a lab's file names, or one of jobs."""


def _of_text(value: Any) -> Any:  # noqa: ANN401 - whatever a file holds
    """A name or a path, from the current folder, in place of a block: an option's, or a sweep's."""
    if not isinstance(value, str):
        return value
    try:
        return server_named(value)
    except (InputError, ValidationError) as error:
        raise RefusedError(str(error)) from None


HostModelBlock = Annotated[
    HostModelSpec,
    BeforeValidator(_of_text),
    short_form({"type": "string", "description": "the name or the path of a file of servers/"}),
]
"""The key `host_model` of a lab, a job or a drill."""
