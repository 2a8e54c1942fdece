"""Two load-balancing schemes: a hash of chosen fields, and a hash of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rocelab.labfile.schemes.base import Hashed, Headers, Scheme, Treatment

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


class ModuloScheme(Scheme):
    """Leaves take the uplinks in turn by the destination QP; other switches hash as ever."""

    title = "QPs in turn"
    kind: Literal["modulo"]
    ways: Annotated[int, Field(ge=1, le=256, description="uplinks of a leaf")] = 4

    def treatment(self, *, is_leaf: bool) -> Treatment:
        return Treatment.FUNCTION if is_leaf else Treatment.KERNEL

    def hashes(self, headers: Headers, seeds: Words64) -> Words:
        """The middle of an uplink's part of all hashes."""
        way = headers.destination_qp % self.ways
        return ((2 * way + 1) * 2**31 // self.ways).astype("uint32")
