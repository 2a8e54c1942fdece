"""The scheme `spray`: each packet draws its path."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.labfile.schemes.base import Scheme, Treatment, drawn


class SprayScheme(Scheme):
    """Every packet of RoCE data chooses for itself, at every switch."""

    title = "Packet spray"
    place = 4
    divides_flows = True
    unpredictable = drawn("under spray each packet draws its path at random")
    kind: Annotated[Literal["spray"], Field(description="the scheme")]

    def treatment(self, *, is_leaf: bool) -> Treatment:
        return Treatment.SPRAY
