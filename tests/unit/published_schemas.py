"""The published schemas that rendered files are checked against, where they are found.

They are read from the folder that ROCELAB_SCHEMAS names, or from ../shared/data/schemas beside
the repository; a test that needs one and does not find it is skipped and says so.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
CLAB = "clab.schema.json"
TOPOLOGIES = "clabernetes.containerlab.dev_topologies.yaml"


def published(name: str) -> str:
    folder = os.environ.get("ROCELAB_SCHEMAS", str(REPOSITORY.parent / "shared/data/schemas"))
    file = Path(folder) / name
    if not file.exists():
        pytest.skip(f"{file} is not here: set ROCELAB_SCHEMAS to the folder with {name}")
    return file.read_text()


def clab_schema() -> dict[str, Any]:
    """containerlab's schema, in the regular expressions that Python has: `\\p{N}` and `\\p{L}`
    are digits and letters of any script."""
    text = published(CLAB).replace(r"[\\p{N}\\p{L}]", r"[^\\W_]")
    assert r"\\p" not in text
    schema = json.loads(text)
    assert isinstance(schema, dict)
    return schema


def topology_schema() -> tuple[str, dict[str, Any]]:
    """The apiVersion of clabernetes' Topology, and its OpenAPI schema as a JSON Schema that lets
    nothing through which a cluster would silently drop."""
    definition = yaml.safe_load(published(TOPOLOGIES))
    (version,) = definition["spec"]["versions"]
    schema = strict(version["schema"]["openAPIV3Schema"])
    assert isinstance(schema, dict)
    return f"{definition['spec']['group']}/{version['name']}", schema


def strict(node: Any) -> Any:
    if isinstance(node, list):
        return [strict(each) for each in node]
    if not isinstance(node, dict):
        return node
    made = {key: strict(value) for key, value in node.items() if not key.startswith("x-")}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made
