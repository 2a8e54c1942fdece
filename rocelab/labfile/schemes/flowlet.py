"""The scheme `flowlet`: paths drawn again after pauses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.units import DurationNs
from rocelab.labfile.base import SECOND
from rocelab.labfile.schemes.base import US, Scheme, Treatment, drawn


class FlowletScheme(Scheme):
    """The lowest tier lets a flow choose anew after a pause."""

    title = "DLB (flowlet)"
    place = 3
    divides_flows = True
    unpredictable = drawn("under flowlet each flowlet draws its path at random")
    kind: Annotated[Literal["flowlet"], Field(description="the scheme")]
    gap: Annotated[
        DurationNs,
        Field(
            ge=US,
            le=SECOND,
            description="a pause after which a flow may change its path, of the modelled network",
        ),
    ] = 256 * US

    def treatment(self, *, is_leaf: bool) -> Treatment:
        return Treatment.FLOWLET if is_leaf else Treatment.KERNEL

    @property
    def gap_ns(self) -> int:
        return self.gap
