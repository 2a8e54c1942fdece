"""The scheme `ecmp`: hashing by each switch, as the lab sets it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.labfile.schemes.base import Scheme


class EcmpScheme(Scheme):
    """The kernel's own choice, as `hashing` sets it."""

    title = "ECMP (baseline)"
    place = 0
    is_steered = False
    kind: Annotated[Literal["ecmp"], Field(description="the scheme")] = "ecmp"
