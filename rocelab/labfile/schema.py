"""The JSON Schema of a lab, for editors that complete and check YAML as it is typed.

It is made from the models of `rocelab.labfile.model`. Limits and defaults of quantities, and of
lists of them, are written with units (`400G`), and the short forms that the models read are
allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from rocelab.fabrics.graph import LinkSpec, NodeSpec
from rocelab.fabrics.kinds.graph import GraphSpec
from rocelab.labfile.base import SHORT_FORM
from rocelab.labfile.fields import (
    default_text,
    is_above_zero,
    keys_of,
    of_field,
    phrase,
    quantity_of,
)
from rocelab.labfile.model import HashingSpec, LabSpec, RoutingSpec
from rocelab.labfile.networks import WHOLE, NetworksFile
from rocelab.labfile.schemes.ecmp import EcmpScheme

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]
Definitions = Mapping[type[BaseModel], Schema]
"""The definitions of a schema by their models: two packages may have classes of one name, which
pydantic then gives other keys."""
_MODEL = "$model"
_ABOVE_ZERO = "^(?=[0-9.]*[1-9])"
"""Begins a pattern of quantities that are not 0."""
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "ge", "le", "gt", "lt")
"""Of numbers; the short ones are pydantic's, of keys that may be left out."""
_ABOUT = ("title", "description", "default")


class _ModelSchema(GenerateJsonSchema):
    """Notes in each definition its model."""

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        return {**super().model_schema(schema), _MODEL: schema["cls"]}


def lab_schema() -> Schema:
    """The JSON Schema (draft 2020-12) of a lab's YAML file."""
    schema, definitions = _schema_of(LabSpec)
    hashing = definitions[HashingSpec]
    keys = {key: value for key, value in hashing.items() if key != "description"}
    seed, description = keys["properties"]["seed"], hashing["description"]
    hashing.clear()
    hashing |= {"title": "Hashing", "description": description, "anyOf": [*seed["anyOf"], keys]}
    bfd = definitions[RoutingSpec]["properties"]["bfd"]
    bfd["anyOf"] = [{"$ref": bfd.pop("$ref")}, {"type": "boolean"}]
    bfd["default"] = False
    schema["properties"]["scheme"]["default"] = EcmpScheme().kind
    graph = definitions[GraphSpec]
    graph["properties"]["cables"] = {
        "title": "cables",
        "description": "instead of links: the path of a CSV or a drawing of cables",
        "type": "string",
    }
    graph["required"] = ["kind"]
    for model in (NodeSpec, LinkSpec):
        definition = definitions[model]
        forms = definition.get("anyOf", [definition])  # a link's short form is text
        forms[-1]["properties"]["network"] = {
            "title": "network",
            "description": "in a graph beside networks: which of them it is in",
            "type": "string",
        }
    _add_networks(schema)
    return {"$schema": DIALECT, **schema, "title": "rocelab lab"}


def _add_networks(schema: Schema) -> None:
    """Allow the form of a lab with several networks."""
    properties = schema["properties"]
    of_network = {key: value for key, value in properties.items() if key not in WHOLE}
    schema["$defs"]["Network"] = {
        "title": "Network",
        "description": "a network, with what a lab with one network has at its top",
        "type": "object",
        "additionalProperties": False,
        "properties": of_network,
    }
    properties["networks"] = {
        "title": "networks",
        "description": NetworksFile.model_fields["networks"].description,
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/Network"},
    }
    schema["required"] = ["name"]
    schema["anyOf"] = [{"required": ["fabric"]}, {"required": ["networks"]}]


def schema_of(model: type[BaseModel]) -> Schema:
    """The JSON Schema of a model that users write, with the short forms that its fields and models
    state (`rocelab.labfile.base.short_form`)."""
    return _schema_of(model)[0]


def _schema_of(model: type[BaseModel]) -> tuple[Schema, Definitions]:
    schema = model.model_json_schema(schema_generator=_ModelSchema)
    schema.pop(_MODEL)
    models = [made for made in schema.get("$defs", {}).values() if _MODEL in made]
    definitions = {made.pop(_MODEL): made for made in models}
    for one, definition in ((model, schema), *definitions.items()):
        _write_as_people_do(one, definition)
    _write_short_forms(schema)
    return schema, definitions


def _write_as_people_do(model: type[BaseModel], schema: Schema) -> None:
    """Give `model`'s properties titles of their keys, and quantities their text."""
    for key, info in keys_of(model):
        declared = of_field(info)
        written = schema["properties"][key]
        written["title"] = key
        written.pop("discriminator", None)  # OpenAPI's: `oneOf` alone says the same
        _remove_null(written)
        quantity = quantity_of(declared)
        if quantity is not None:
            for limit in _LIMITS:
                written.pop(limit, None)
            if is_above_zero(declared) and "pattern" in written:
                written["pattern"] = quantity.pattern.replace("^", _ABOVE_ZERO, 1)
            if info.default is not None and not info.is_required():
                written["default"] = default_text(info)
            _describe(written, phrase(declared))
        item = declared.at(0)
        item_quantity = quantity_of(item)
        if item_quantity is not None:
            if isinstance(info.default, tuple):
                written["default"] = [item_quantity.written(value) for value in info.default]
            _describe(written, f"each {phrase(item)}")
        if any(member.model is not None for member in declared.members):
            written.pop("default", None)


def _write_short_forms(part: object) -> None:
    """Put each short form beside the form that it is short for."""
    if isinstance(part, list):
        for item in part:
            _write_short_forms(item)
    elif isinstance(part, dict):
        for value in part.values():
            _write_short_forms(value)
        if SHORT_FORM in part:
            short = part.pop(SHORT_FORM)
            about = {key: part.pop(key) for key in _ABOUT if key in part}
            whole = dict(part)
            part.clear()
            part |= {**about, "anyOf": [short, whole]}


def _describe(written: Schema, text: str) -> None:
    """Add the form of a key's values to its description."""
    described = written.get("description")
    written["description"] = text if described is None else f"{described}: {text}"


def _remove_null(written: Schema) -> None:
    """Remove null: an optional key is left out of a file, never null."""
    forms = [form for form in written.get("anyOf", ()) if form != {"type": "null"}]
    if len(forms) < len(written.get("anyOf", ())):
        del written["default"]
        written["anyOf"] = forms
        if len(forms) == 1:
            written |= written.pop("anyOf")[0]
