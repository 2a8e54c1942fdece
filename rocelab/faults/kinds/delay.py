"""Links whose packets come later."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.units import DurationNs
from rocelab.dataplane.impairments.impairment import Impairment, ImpairmentKind
from rocelab.faults.base import Target
from rocelab.faults.impairments import CableFaultSpec
from rocelab.labfile.base import MS, SECOND


class DelaySpec(CableFaultSpec):
    """Every packet takes longer, by the lab's clock."""

    drawn = Target.LINK
    kind: Literal["delay"]
    delay: Annotated[DurationNs, Field(gt=0, le=10 * SECOND)] = 10 * MS

    @property
    def impairment(self) -> Impairment:
        return Impairment(ImpairmentKind.DELAY, delay_ns=self.delay)
