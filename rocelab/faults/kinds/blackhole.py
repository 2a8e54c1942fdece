"""Links on which every packet vanishes."""

from __future__ import annotations

from typing import Literal

from rocelab.dataplane.impairments.impairment import Impairment, ImpairmentKind
from rocelab.faults.base import Target
from rocelab.faults.impairments import CableFaultSpec


class BlackholeSpec(CableFaultSpec):
    """Every packet vanishes and the carrier stays, so neither end notices."""

    drawn = Target.LINK
    kind: Literal["blackhole"]

    @property
    def impairment(self) -> Impairment:
        return Impairment(ImpairmentKind.BLACKHOLE)
