"""Links that lose some packets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.units import SharePpm
from rocelab.dataplane.impairments.impairment import Impairment, ImpairmentKind
from rocelab.faults.base import ALL_PPM, Target
from rocelab.faults.impairments import CableFaultSpec


class GreyLossSpec(CableFaultSpec):
    """Some packets vanish, drawn one by one."""

    drawn = Target.LINK
    kind: Literal["grey-loss"]
    loss: Annotated[SharePpm, Field(gt=0, le=ALL_PPM)] = ALL_PPM // 100

    @property
    def impairment(self) -> Impairment:
        return Impairment(ImpairmentKind.LOSS, self.loss / ALL_PPM)
