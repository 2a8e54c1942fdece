"""Links on which every packet vanishes."""

from __future__ import annotations

from typing import Literal

from rocelab.dataplane.impairments.impairment import Impairment, Kind
from rocelab.faults.base import LinkFaultSpec, Target, Towards
from rocelab.faults.impairments import CableFault
from rocelab.plan.fabric import Fabric, Link


def blackhole(links: tuple[Link, ...], towards: str | None = None) -> CableFault:
    """Every packet vanishes and the carrier stays."""
    return CableFault(links, "blackhole", Impairment(Kind.BLACKHOLE), towards)


class BlackholeSpec(LinkFaultSpec):
    """Every packet vanishes and the carrier stays, so neither end notices."""

    drawn = Target.LINK
    kind: Literal["blackhole"]
    towards: Towards = None

    def resolve(self, fabric: Fabric) -> CableFault:
        return blackhole(self.find(fabric, self.towards), self.towards)
