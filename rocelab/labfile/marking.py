"""The file format of a queue's marking line, `queues.ecn` of a lab's file."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from rocelab.base.units import SIZE, SizeBytes
from rocelab.base.wording import RefusedError
from rocelab.labfile.base import SpecModel

MAX_BUFFER = 64 * 10**9


class EcnSpec(SpecModel):
    """WRED/ECN marking line of a queue: 0 below kmin, rising to pmax at kmax, 1 above."""

    kmin: Annotated[
        SizeBytes, Field(ge=1, le=MAX_BUFFER, description="queue above which packets are marked")
    ] = 800 * 10**3
    kmax: Annotated[
        SizeBytes,
        Field(ge=1, le=MAX_BUFFER, description="queue above which every packet is marked"),
    ] = 3200 * 10**3
    pmax: Annotated[float, Field(gt=0, le=1, description="probability of a mark at kmax")] = 0.2

    @model_validator(mode="after")
    def _a_rising_line(self) -> Self:
        if self.kmax <= self.kmin:
            raise RefusedError(
                f"expected kmax to be above kmin ({SIZE.written(self.kmin)}), "
                f"got {SIZE.written(self.kmax)}",
                "marking rises from kmin to kmax",
                keys=("kmax", "kmin"),
            )
        return self
