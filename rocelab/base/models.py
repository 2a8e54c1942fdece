"""The base of every model of what users write: strict keys, and no change afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

SHORT_FORM = "short_form"
"""In a JSON Schema before `rocelab.labfile.schema` has written it: what may stand for a block."""


class SpecModel(BaseModel):
    """Unknown keys are errors, text is not taken for numbers, and a spec never changes."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        validate_default=False,
        allow_inf_nan=False,
        # When it is first used: a command reads few of the models that it imports, and a model has
        # those of its blocks in its own.
        defer_build=True,
    )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values of some fields. What is cached follows anew from them."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def changed(self, block: str, *keys: str) -> list[str]:
        """Those of `keys` whose values are not their defaults, as `block.key`."""
        fields = type(self).model_fields
        return [f"{block}.{key}" for key in keys if getattr(self, key) != fields[key].default]
