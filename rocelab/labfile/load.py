"""Reads a lab's YAML file, or that of another model, to a validated model.

`read_model` serves any pydantic model that users write; `load_spec` reads a lab, with what the
files that it names hold.
"""

from __future__ import annotations

from pathlib import Path

from rocelab.labfile.base import is_name
from rocelab.labfile.cables import CABLE_LISTS
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.configuration import configurations
from rocelab.labfile.model import LabSpec
from rocelab.labfile.networks import NetworksFile
from rocelab.labfile.profiles import PROFILES
from rocelab.labfile.references import by_network, with_contents
from rocelab.labfile.servers import HOST_MODELS
from rocelab.labfile.source import YamlSource, read_source
from rocelab.labfile.splitting import split_graph
from rocelab.labfile.validation import Model
from rocelab.labfile.validation import validate as validate

NETWORK_FILES = (*CABLE_LISTS, *PROFILES, *HOST_MODELS)
"""The files that a network of a lab with several names."""
LAB_FILES = (
    *NETWORK_FILES,
    *configurations(lambda source: validate(source, LabSpec).switches),
)
"""The files that the file of a lab with one network names."""


def load_spec(path: Path) -> LabSpec:
    """The lab that a YAML file describes, with what the files that it names hold. Raises SpecError
    with every problem of a stage."""
    return lab_of(with_files(read_source(path), path))


def with_files(source: YamlSource, path: Path) -> YamlSource:
    """The file of a lab at `path` with what the files that it names hold, and each node and link of
    a graph in its network. Raises SpecError."""
    if "networks" not in source.data:
        return with_contents(source, path, LAB_FILES)
    source = split_graph(with_contents(source, path, CABLE_LISTS))
    return by_network(source, lambda part: with_contents(part, path, NETWORK_FILES))


def lab_of(source: YamlSource) -> LabSpec:
    """The lab that a file with the contents of others describes. Raises SpecError."""
    if "networks" in source.data:
        return validate(source, NetworksFile).lab
    return validate(source, LabSpec)


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
