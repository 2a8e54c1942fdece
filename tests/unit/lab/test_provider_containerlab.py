"""The runtime `containerlab`: its input for containerlab, and the error without containerlab."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator

from rocelab.base.errors import MachineError
from rocelab.lab.kind import CONTAINER_LABEL
from rocelab.lab.lab import Lab
from rocelab.lab.providers import provider_of
from rocelab.lab.providers.containerlab import topology_of
from rocelab.lab.providers.containers import Containers
from rocelab.record import LabFiles
from tests.helpers.target_schemas import clab_schema


def topology() -> dict[str, Any]:
    """The file of a small lab, as containerlab parses it."""
    fabric = Lab.planned("tiny").fabric
    containers = Containers("docker", "clab-tiny", "0123", "rocelab/frr:x")
    text = yaml.safe_dump(topology_of(fabric, LabFiles("tiny"), containers))
    document = yaml.safe_load(text)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("validator", [Draft7Validator, Draft202012Validator])
def test_it_is_valid_against_containerlab_s_schema(validator: Any) -> None:
    assert [error.message for error in validator(clab_schema()).iter_errors(topology())] == []


def test_every_node_waits_with_its_folder_which_only_daemons_write_and_no_network() -> None:
    fabric = Lab.planned("tiny").fabric
    parts = topology()["topology"]
    assert set(parts["nodes"]) == {node.name for node in fabric.nodes}
    for name, node in parts["nodes"].items():
        folder = f"/run/rocelab/tiny/nodes/{name}"
        local = [
            f"{folder}/daemons:{folder}/daemons",
            f"{folder}/daemons:/run/frr",
            f"{folder}/etc:/etc/frr:ro",
        ]
        expected = local if fabric.node(name).is_switch else []
        hosts = "/run/rocelab/tiny/hosts:/etc/hosts:ro"
        assert node["binds"] == [hosts, f"{folder}:{folder}:ro", *expected]
    defaults = parts["defaults"]
    assert (defaults["network-mode"], defaults["privileged"]) == ("none", False)
    assert defaults["labels"] == {CONTAINER_LABEL: "0123"}
    entry, *rest = [defaults["entrypoint"], *shlex.split(defaults["cmd"])]
    assert (entry, rest[0]) == ("/bin/sh", "-c")
    assert "links" not in parts


def test_a_machine_without_containerlab_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="containerlab is not installed") as refused:
        provider_of("containerlab").check(Lab.planned("tiny").fabric)
    assert "--runtime docker" in str(refused.value)
