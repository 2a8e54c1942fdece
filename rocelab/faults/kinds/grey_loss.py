"""Links that lose some packets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.units import SharePpm
from rocelab.dataplane.impairments.impairment import Impairment, Kind
from rocelab.faults.base import ALL_PPM, LinkFaultSpec, Target, Towards
from rocelab.faults.impairments import CableFault
from rocelab.plan.fabric import Fabric, Link


def grey_loss(links: tuple[Link, ...], loss_ppm: int, towards: str | None = None) -> CableFault:
    """A share of packets vanishes, drawn one by one."""
    return CableFault(links, "grey-loss", Impairment(Kind.LOSS, loss_ppm / ALL_PPM), towards)


class GreyLossSpec(LinkFaultSpec):
    """Some packets vanish, drawn one by one."""

    drawn = Target.LINK
    kind: Literal["grey-loss"]
    towards: Towards = None
    loss: Annotated[SharePpm, Field(gt=0, le=ALL_PPM)] = ALL_PPM // 100

    def resolve(self, fabric: Fabric) -> CableFault:
        return grey_loss(self.find(fabric, self.towards), self.loss, self.towards)
