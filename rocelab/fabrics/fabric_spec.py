"""The kinds of fabric in a lab's file, each a mapping with a `kind`; without one it is a Clos."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator

from rocelab.base.kinds import check_usable, in_order, one_of
from rocelab.fabrics.base import FabricKind
from rocelab.fabrics.door import KINDS


def _with_kind(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    block = {"kind": "clos", **value}
    check_usable(KINDS, block["kind"])
    return block


if TYPE_CHECKING:
    FabricSpec = FabricKind
else:
    FabricSpec = Annotated[one_of(in_order(KINDS).values()), BeforeValidator(_with_kind)]
