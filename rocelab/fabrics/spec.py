"""The kinds of fabric in a lab's file, each a mapping with a `kind`; without one it is a Clos."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field

from rocelab.base.errors import InputError
from rocelab.base.wording import RefusedError
from rocelab.fabrics.base import FabricKind
from rocelab.fabrics.door import KINDS


def _known(value: object) -> object:
    """The block with its kind. Raises RefusedError for a plug-in's kind that cannot be used."""
    if not isinstance(value, Mapping):
        return value
    kind = value.get("kind", "clos")
    if isinstance(kind, str) and kind in KINDS.names:
        try:
            KINDS.find(kind)
        except InputError as error:
            raise RefusedError(error.message, error.hint) from error
    return {"kind": kind, **value}


if TYPE_CHECKING:
    FabricSpec = FabricKind
else:
    FabricSpec = Annotated[
        reduce(or_, KINDS.all().values()), Field(discriminator="kind"), BeforeValidator(_known)
    ]
