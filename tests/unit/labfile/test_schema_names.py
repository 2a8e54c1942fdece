"""Packages may have models of the same name: each has a definition of its own in a schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from rocelab.base.models import SpecModel
from rocelab.base.units import DurationNs
from rocelab.labfile.schema import schema_of


def block(kind: str, **keys: Any) -> type[SpecModel]:
    """A model called Spec of a module of its own."""
    fields: dict[str, Any] = {"kind": Literal[kind], **keys}
    model: type[SpecModel] = create_model("Spec", __base__=SpecModel, __module__=kind, **fields)
    return model


ONE = block("one", gap=Annotated[DurationNs, Field(ge=0, description="a pause")])
OTHER = block("other", size=Annotated[int, Field(ge=1, description="a size")])


class Both(SpecModel):
    """A block of either."""

    block: Annotated[ONE | OTHER, Field(discriminator="kind", description="one of the two")]  # type: ignore[valid-type]


def test_two_models_of_one_name_have_a_definition_each() -> None:
    schema = schema_of(Both)
    of_kinds = {
        tuple(definition["properties"]): definition for definition in schema["$defs"].values()
    }
    assert set(of_kinds) == {("kind", "gap"), ("kind", "size")}
    assert of_kinds["kind", "gap"]["properties"]["gap"]["title"] == "gap"
    assert "minimum" not in of_kinds["kind", "gap"]["properties"]["gap"], "it is text with a unit"
    assert not any("$model" in definition for definition in schema["$defs"].values())
