"""The schemas that rendered files are checked against.

tests/data/schemas has the project's own schemas of the keys that it writes. With
ROCELAB_PUBLISHED=FOLDER the published schemas of containerlab and clabernetes are used instead
(tests/data/README.md).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parents[1] / "data"
CLAB = "clab.schema.json"
TOPOLOGIES = "clabernetes.containerlab.dev_topologies.yaml"


def schema_text(name: str) -> str:
    folder = Path(os.environ.get("ROCELAB_PUBLISHED") or DATA)
    return (folder / "schemas" / name).read_text()


def clab_schema() -> dict[str, Any]:
    """containerlab's schema, with Python's regular expression for letters and digits of any
    script."""
    text = schema_text(CLAB).replace(r"[\\p{N}\\p{L}]", r"[^\\W_]")
    assert r"\\p" not in text
    schema = json.loads(text)
    assert isinstance(schema, dict)
    return schema


def topology_schema() -> tuple[str, dict[str, Any]]:
    """The apiVersion of clabernetes' Topology, and its OpenAPI schema as a JSON Schema that rejects
    keys that a cluster would silently drop."""
    definition = yaml.safe_load(schema_text(TOPOLOGIES))
    (version,) = definition["spec"]["versions"]
    schema = strict(version["schema"]["openAPIV3Schema"])
    assert isinstance(schema, dict)
    return f"{definition['spec']['group']}/{version['name']}", schema


def strict(node: Any) -> Any:
    if isinstance(node, list):
        return [strict(part) for part in node]
    if not isinstance(node, dict):
        return node
    made = {key: strict(value) for key, value in node.items() if not key.startswith("x-")}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made
