"""The scheme."""

from __future__ import annotations

from typing import Literal

from rocelab.labfile.schemes.base import Scheme, Treatment


class RaisingScheme(Scheme):
    """Every switch raises."""

    title = "Raising"
    kind: Literal["broken-hash"]

    def treatment(self, *, is_leaf: bool) -> Treatment:
        treatments: dict[bool, Treatment] = {}
        return treatments[is_leaf]
