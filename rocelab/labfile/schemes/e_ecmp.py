"""The scheme `e-ecmp`: the destination QP is in the hash."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.labfile.schemes.base import Scheme, Treatment


class EEcmpScheme(Scheme):
    """E-ECMP: every switch also hashes the destination QP of RoCE packets (BTH)."""

    title = "E-ECMP (destination QP in the hash)"
    place = 1
    kind: Annotated[Literal["e-ecmp"], Field(description="the scheme")]

    def treatment(self, *, is_leaf: bool) -> Treatment:
        return Treatment.HASH
