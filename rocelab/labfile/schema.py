"""The JSON Schema of a lab, for editors that complete and check YAML as it is typed.

It is made from the models of `rocelab.labfile.model`. Limits and defaults of quantities, and of
lists of them, are written with units (`400G`), and the short forms that the models read are
allowed.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from rocelab.labfile.fields import default_text, keys_of, of_field, phrase, quantity_of
from rocelab.labfile.model import HashingSpec, LabSpec
from rocelab.labfile.schemes.ecmp import EcmpScheme

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


def lab_schema() -> Schema:
    """The JSON Schema (draft 2020-12) of a lab's YAML file."""
    schema = schema_of(LabSpec)
    definitions: dict[str, Schema] = schema["$defs"]
    hashing = HashingSpec.__name__
    seed = definitions[hashing]["properties"]["seed"]
    definitions[hashing] = {
        "title": "Hashing",
        "description": definitions[hashing]["description"],
        "anyOf": [*seed["anyOf"], _without(definitions[hashing], "description")],
    }
    bfd = definitions["RoutingSpec"]["properties"]["bfd"]
    bfd["anyOf"] = [{"$ref": bfd.pop("$ref")}, {"type": "boolean"}]
    bfd["default"] = False
    scheme = schema["properties"]["scheme"]
    kinds = of_field(LabSpec.model_fields["scheme"]).kinds
    assert kinds is not None
    scheme["anyOf"] = [{"enum": list(kinds[1])}, {"oneOf": scheme.pop("oneOf")}]
    scheme["default"] = EcmpScheme().kind
    return {"$schema": DIALECT, **schema, "title": "rocelab lab"}


def schema_of(model: type[BaseModel]) -> Schema:
    """The JSON Schema of a model that users write, without the short forms that it reads."""
    schema = model.model_json_schema()
    _write_as_people_do(model, schema, schema.get("$defs", {}))
    return schema


def _write_as_people_do(
    model: type[BaseModel], schema: Schema, definitions: dict[str, Schema]
) -> None:
    """Give `model`'s properties titles of their keys, and quantities their text."""
    for key, info in keys_of(model):
        declared = of_field(info)
        written = schema["properties"][key]
        written["title"] = key
        written.pop("discriminator", None)  # OpenAPI's: `oneOf` alone says the same
        _leave_null_out(written)
        quantity = quantity_of(declared)
        if quantity is not None:
            for limit in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
                written.pop(limit, None)
            if info.default is not None:
                written["default"] = default_text(info)
            written["description"] += f": {phrase(declared)}"
        item = declared.at(0)
        item_quantity = quantity_of(item)
        if item_quantity is not None:
            if isinstance(info.default, tuple):
                written["default"] = [item_quantity.written(value) for value in info.default]
            written["description"] += f": each {phrase(item)}"
        for member in declared.members:
            if member.model is not None:
                written.pop("default", None)
                definition = definitions[member.model.__name__]
                _write_as_people_do(member.model, definition, definitions)


def _leave_null_out(written: Schema) -> None:
    """Remove null: an optional key is left out of a file, never null."""
    forms = [form for form in written.get("anyOf", ()) if form != {"type": "null"}]
    if len(forms) < len(written.get("anyOf", ())):
        del written["default"]
        written["anyOf"] = forms
        if len(forms) == 1:
            written |= written.pop("anyOf")[0]


def _without(schema: Schema, key: str) -> Schema:
    return {name: value for name, value in schema.items() if name != key}
