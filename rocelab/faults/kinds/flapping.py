"""Links whose carrier goes and comes."""

from __future__ import annotations

import random
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.units import DurationNs, SharePpm
from rocelab.faults.base import ALL_PPM, LinkChoice, SeriesSpec, Timed
from rocelab.faults.kinds.carrier_down import CarrierDownSpec
from rocelab.labfile.base import MS, SECOND
from rocelab.labfile.model import MAX_SEED
from rocelab.planning.fabric import Fabric


class FlappingSpec(LinkChoice, SeriesSpec):
    """The carrier goes and comes, again and again."""

    no_lasts = ("flapping lasts count x period", "remove lasts, or set count")
    kind: Literal["flapping"]
    period: Annotated[DurationNs, Field(ge=10 * MS, le=60 * SECOND)] = SECOND
    duty: Annotated[
        SharePpm, Field(gt=0, lt=ALL_PPM, description="share of a period without carrier")
    ] = ALL_PPM // 2
    count: Annotated[int, Field(ge=1, le=10_000, description="number of losses of carrier")] = 5
    jitter: Annotated[
        SharePpm,
        Field(
            ge=0,
            le=ALL_PPM * 2 // 5,
            description="each change is early or late by up to this "
            "share of the shorter of the two times between changes",
        ),
    ] = 0
    seed: Annotated[int, Field(ge=0, le=MAX_SEED, description="draws the jitter")] = 1

    @property
    def last_change(self) -> int:
        return self.at + self.count * self.period

    def singles(self, fabric: Fabric) -> list[Timed]:
        draw = random.Random(self.seed)  # noqa: S311 - a repeatable draw, no secret
        down_ns = self.period * self.duty // ALL_PPM
        spread_ns = min(down_ns, self.period - down_ns) * self.jitter // ALL_PPM
        spec = CarrierDownSpec(
            kind="carrier-down", link=self.link, links=self.links, between=self.between
        )

        def moved(instant_ns: int) -> int:
            return instant_ns + draw.randint(-spread_ns, spread_ns) if spread_ns else instant_ns

        flaps = []
        for number in range(self.count):
            begins = self.at + number * self.period
            # The first change is at the drill's time for the self.
            flaps.append(Timed(spec, moved(begins) if number else begins, moved(begins + down_ns)))
        return flaps
