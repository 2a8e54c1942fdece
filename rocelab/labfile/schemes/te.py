"""The scheme `te`: a controller places flows."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.units import DurationNs
from rocelab.labfile.base import MS, SECOND
from rocelab.labfile.schemes.base import Scheme, Treatment, Unpredictable


class TeEngine(StrEnum):
    """What places flows on paths."""

    CSPF = "cspf"
    LP = "lp"


class TeScheme(Scheme):
    """Centralised traffic engineering: a controller places each flow; hashing places the rest."""

    title = "Traffic engineering"
    place = 6
    unpredictable = Unpredictable(
        "te places flows while the lab runs",
        (
            "a planned lab has no paths yet",
            "bring the lab up, and ask again while it carries traffic",
        ),
        ("these flows have no paths yet", "measure it with `rocelab compare`"),
    )
    controller = "rocelab.dataplane.controller.loop:TeRounds"
    kind: Annotated[Literal["te"], Field(description="the scheme")]
    engine: Annotated[
        TeEngine,
        Field(
            strict=False,
            description="cspf: shortest paths with room, flow by flow; lp: the optimum, rounded",
        ),
    ] = TeEngine.CSPF
    period: Annotated[
        DurationNs,
        Field(
            ge=100 * MS,
            le=600 * SECOND,
            description="time between the controller's rounds, on the machine's clock",
        ),
    ] = SECOND

    def treatment(self, *, is_leaf: bool) -> Treatment:
        return Treatment.ENTRIES

    @property
    def controller_period_s(self) -> float:
        return self.period / SECOND

    def check_simulation(self) -> None:
        """Simulations place flows with the same engines."""
