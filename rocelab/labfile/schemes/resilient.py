"""The scheme `resilient`: groups of next hops that move few flows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.labfile.schemes.base import Scheme, Unpredictable


class ResilientScheme(Scheme):
    """Next-hop groups of the kernel that move only the flows of members that come or go."""

    title = "ECMP, resilient groups"
    place = 5
    is_steered = False
    unpredictable = Unpredictable(
        "paths under resilient depend on which buckets each switch has moved",
        (
            "they cannot be predicted",
            "--probe cannot check one either; count packets per link instead",
        ),
        (
            "loads cannot be predicted",
            "while nothing has failed they are as even as ecmp's: take --scheme ecmp, or measure "
            "with `rocelab compare`",
        ),
    )
    controller = "rocelab.dataplane.controller.loop:ResilientRounds"
    kind: Annotated[Literal["resilient"], Field(description="the scheme")]
    buckets: Annotated[
        int, Field(ge=8, le=4096, description="buckets that flows are hashed over, per group")
    ] = 128
