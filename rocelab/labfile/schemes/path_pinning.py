"""The scheme `path-pinning`: an uplink for each destination."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.labfile.schemes.base import Scheme, Treatment


class PathPinningScheme(Scheme):
    """The lowest tier sends by the uplink whose number is the destination's port in its rack."""

    title = "Path pinning"
    place = 2
    kind: Annotated[Literal["path-pinning"], Field(description="the scheme")]

    def treatment(self, *, is_leaf: bool) -> Treatment:
        return Treatment.PINS if is_leaf else Treatment.KERNEL
