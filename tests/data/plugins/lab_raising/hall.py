"""The kind of fabric."""

from __future__ import annotations

from typing import ClassVar, Literal

from rocelab.fabrics.base import FabricKind
from rocelab.fabrics.layout import Layout
from rocelab.fabrics.roles import Role


class RaisingKind(FabricKind):
    """Switches that are none."""

    roles: ClassVar = (Role.LEAF,)
    kind: Literal["broken-hall"]

    def layout(self) -> Layout:
        return [Layout((), (), ())][1]
