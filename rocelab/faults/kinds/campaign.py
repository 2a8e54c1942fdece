"""Faults drawn from a seed, of kinds that a campaign may draw."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.base.units import DurationNs
from rocelab.faults.base import SeriesSpec, SingleFaultSpec, Target, Timed
from rocelab.faults.door import KINDS
from rocelab.faults.selectors import LinkSelector
from rocelab.labfile.base import MS, SECOND
from rocelab.labfile.model import MAX_SEED
from rocelab.planning.fabric import Fabric

KIND = "campaign"
DRAWN: dict[str, type[SingleFaultSpec]] = {
    name: kind
    for name, kind in KINDS.all(without=KIND).items()
    if issubclass(kind, SingleFaultSpec) and kind.drawn is not None
}
"""The kinds that a campaign may draw: faults with an effect and an end."""

if TYPE_CHECKING:
    DrawnKind = str
else:
    DrawnKind = Literal[tuple(DRAWN)]


class CampaignSpec(SeriesSpec):
    """Faults drawn from a seed: the same seed and lab give the same faults."""

    no_lasts = (
        "a campaign ends with its last fault",
        "remove lasts: each_lasts is how long each fault lasts",
    )
    kind: Literal["campaign"]
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 1
    count: Annotated[int, Field(ge=1, le=1000)] = 10
    kinds: Annotated[
        tuple[DrawnKind, ...],
        Field(strict=False, min_length=1),
    ] = ("carrier-down", "blackhole", "daemon-crash")
    every: Annotated[
        DurationNs, Field(ge=MS, le=60 * SECOND, description="mean time from one fault to the next")
    ] = 2 * SECOND
    each_lasts: Annotated[
        DurationNs, Field(ge=MS, le=60 * SECOND, description="mean duration of a fault")
    ] = SECOND

    def singles(self, fabric: Fabric) -> list[Timed]:
        """Intervals and lengths are exponential, as for independent causes. A
        node has one fault at a time, including its links': restoring one would restore part of
        another."""
        draw = random.Random(self.seed)  # noqa: S311 - a repeatable draw, no secret
        begins = self.at
        busy_until: dict[str, int] = {}
        drawn = []
        for _ in range(self.count):
            nodes, spec = _draw_fault(fabric, draw.choice(self.kinds), draw)
            begins = max(begins, *(busy_until.get(node, 0) for node in nodes))
            lasts = max(1, round(draw.expovariate(1 / self.each_lasts)))
            busy_until.update(dict.fromkeys(nodes, begins + lasts))
            drawn.append(Timed(spec, begins, None if spec.instant else begins + lasts))
            begins += max(1, round(draw.expovariate(1 / self.every)))
        return drawn


def _draw_fault(
    fabric: Fabric, kind: str, draw: random.Random
) -> tuple[tuple[str, ...], SingleFaultSpec]:
    """A random fault of that kind, and its nodes."""
    if not fabric.trunks:
        raise InputError(f"no link of lab {fabric.name} joins two switches: nothing to draw from")
    link = draw.choice(fabric.trunks)
    ends = (link.a.node, link.b.node)
    selector = LinkSelector(node=link.a.node, interface=link.a.interface)
    uppers = [node for node in fabric.switches if not node.is_leaf] or fabric.switches
    upper = draw.choice(uppers).name
    anywhere = draw.choice(fabric.switches).name
    model = DRAWN[kind]
    if model.drawn is Target.LINK:
        return ends, model.model_validate({"kind": kind, "link": selector})
    switch = upper if model.drawn is Target.UPPER_SWITCH else anywhere
    return (switch,), model.model_validate({"kind": kind, "switch": switch})
