"""Links whose packets come later."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.units import DurationNs
from rocelab.dataplane.impairments.impairment import Impairment, Kind
from rocelab.faults.base import LinkFaultSpec, Target, Towards
from rocelab.faults.impairments import CableFault
from rocelab.labfile.base import MS, SECOND
from rocelab.plan.fabric import Fabric, Link


def delay(links: tuple[Link, ...], delay_ns: int, towards: str | None = None) -> CableFault:
    """Every packet comes later, in order."""
    return CableFault(links, "delay", Impairment(Kind.DELAY, delay_ns=delay_ns), towards)


class DelaySpec(LinkFaultSpec):
    """Every packet takes longer, by the lab's clock."""

    drawn = Target.LINK
    kind: Literal["delay"]
    towards: Towards = None
    delay: Annotated[DurationNs, Field(gt=0, le=10 * SECOND)] = 10 * MS

    def resolve(self, fabric: Fabric) -> CableFault:
        return delay(self.find(fabric, self.towards), self.delay, self.towards)
