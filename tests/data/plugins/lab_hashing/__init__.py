"""Load-balancing schemes: a hash of chosen fields, hashes of their own with and without a program
for labs, and a controller."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rocelab.labfile.schemes.base import Hashed, Headers, Scheme, Treatment, drawn

if TYPE_CHECKING:
    from rocelab.labfile.schemes.base import Words, Words64


class ChosenFieldsScheme(Scheme):
    """Every switch hashes the destination, the destination QP, or both."""

    title = "Hash of the destination"
    kind: Literal["chosen-fields"]
    fields: Annotated[Literal["destination", "qp", "both"], Field(description="what is hashed")] = (
        "both"
    )

    def treatment(self, *, is_leaf: bool) -> Treatment:
        return Treatment.HASH

    @property
    def hashed(self) -> Hashed:
        destination, qp = Hashed.DESTINATION, Hashed.DESTINATION_QP
        return {"destination": destination, "qp": qp, "both": destination | qp}[self.fields]


class _InTurn(Scheme):
    ways: Annotated[int, Field(ge=1, le=256, description="uplinks of a leaf")] = 4

    def treatment(self, *, is_leaf: bool) -> Treatment:
        return Treatment.FUNCTION if is_leaf else Treatment.KERNEL

    def hashes(self, headers: Headers, seeds: Words64) -> Words:
        """The middle of an uplink's part of all hashes."""
        way = headers.destination_qp % self.ways
        return ((2 * way + 1) * 2**31 // self.ways).astype("uint32")


class ModuloScheme(_InTurn):
    """Leaves take the uplinks in turn by the destination QP; other switches hash as ever."""

    title = "QPs in turn"
    kind: Literal["modulo"]


class TurnsScheme(_InTurn):
    """The same, with a program for labs."""

    title = "QPs in turn, in labs too"
    program = Path(__file__).with_name("turns.c")
    kind: Literal["turns"]

    @property
    def parameter(self) -> int:
        return self.ways


class FirstWayScheme(Scheme):
    """A controller sends every flow by the first uplink of its leaf."""

    title = "The first uplink"
    unpredictable = drawn("a controller places flows while the lab runs")
    controller = "lab_hashing.controller:FirstWay"
    kind: Literal["first-way"]

    def treatment(self, *, is_leaf: bool) -> Treatment:
        return Treatment.ENTRIES if is_leaf else Treatment.KERNEL
