"""Links that flip bits of some RoCE packets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.units import SharePpm
from rocelab.dataplane.impairments.impairment import Impairment, ImpairmentKind
from rocelab.faults.base import ALL_PPM
from rocelab.faults.impairments import CableFaultSpec


class CorruptionSpec(CableFaultSpec):
    """A bit of some RoCE packets flips inside a switch: their ICRC fails at the receiver."""

    kind: Literal["corruption"]
    share: Annotated[SharePpm, Field(gt=0, le=ALL_PPM)] = ALL_PPM // 100

    @property
    def impairment(self) -> Impairment:
        return Impairment(ImpairmentKind.CORRUPTION, self.share / ALL_PPM)
