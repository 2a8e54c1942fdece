"""Links that flip bits of some RoCE packets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.units import SharePpm
from rocelab.dataplane.impairments.impairment import Impairment, Kind
from rocelab.faults.base import ALL_PPM, LinkFaultSpec, Towards
from rocelab.faults.impairments import CableFault
from rocelab.plan.fabric import Fabric, Link


def corruption(links: tuple[Link, ...], share_ppm: int, towards: str | None = None) -> CableFault:
    """A bit flips in a share of RoCE packets, and their ICRC fails at the receiver."""
    impairment = Impairment(Kind.CORRUPTION, share_ppm / ALL_PPM)
    return CableFault(links, "corruption", impairment, towards)


class CorruptionSpec(LinkFaultSpec):
    """A bit of some RoCE packets flips inside a switch: their ICRC fails at the receiver."""

    kind: Literal["corruption"]
    towards: Towards = None
    share: Annotated[SharePpm, Field(gt=0, le=ALL_PPM)] = ALL_PPM // 100

    def resolve(self, fabric: Fabric) -> CableFault:
        return corruption(self.find(fabric, self.towards), self.share, self.towards)
