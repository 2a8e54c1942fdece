"""Reads a lab's YAML file, or that of another model, to a validated model.

`read_model` serves any pydantic model that users write; `load_spec` reads a lab, with what the
files that it names hold.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rocelab.labfile.base import is_name
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.configuration import read_files
from rocelab.labfile.model import LabSpec
from rocelab.labfile.networks import NetworksFile
from rocelab.labfile.profiles import with_profiles
from rocelab.labfile.references import by_network, with_contents
from rocelab.labfile.servers import with_host_models
from rocelab.labfile.source import YamlSource, read_source
from rocelab.labfile.splitting import split_graph
from rocelab.labfile.validation import Model
from rocelab.labfile.validation import validate as validate


def load_spec(path: Path) -> LabSpec:
    """The lab that a YAML file describes, with what the files that it names hold. Raises SpecError
    with every problem of a stage."""
    source = read_source(path)
    if "networks" in source.data:
        source = split_graph(with_contents(source, path.parent))
        return validate(by_network(source, partial(_with_files, path)), NetworksFile).lab
    spec = validate(_with_files(path, source), LabSpec)
    routing = spec.routing
    if routing.config is None and routing.templates is None:
        return spec
    held = dict(read_files(routing.config, routing.templates, path, spec.switches))
    return spec.model_copy(update={"routing": routing.model_copy(update=held)})


def _with_files(path: Path, source: YamlSource) -> YamlSource:
    return with_host_models(with_profiles(with_contents(source, path.parent), path), path)


def load(text: str | Path, *, dilation: float | None = None) -> LabSpec:
    """The spec of a lab's file or name (in `labs/` of the current folder, or shipped). `dilation`
    replaces the file's.

    Raises InputError, and SpecError with every problem of the file.
    """
    spec = load_spec(find_lab(str(text)))
    return spec if dilation is None else spec.model_copy(update={"dilation": dilation})


def read_name(path: Path) -> str:
    """The name in a lab's file, which may have problems elsewhere. Raises SpecError."""
    name = read_source(path).data.get("name")
    return name if isinstance(name, str) and is_name(name) else load_spec(path).name


def read_model(path: Path, model: type[Model]) -> Model:
    """The `model` that a YAML file holds. Raises SpecError with every problem of a stage."""
    return validate(read_source(path), model)
