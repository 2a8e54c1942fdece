"""How long routing takes to move away from a fault, as measured in the lab.

Given a fault's class and its place in a network: the median and 95th percentile of Full Convergence
Time (RFC 6412 section 3.6.1) of the nearest row of docs/convergence-table.md, and which row that
is. `python -m bench.reaction` writes reaction.json, which ships, from that table's data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files

from rocelab.base import quantities
from rocelab.base.documents import Format
from rocelab.labfile.base import MS, SECOND
from rocelab.labfile.model import LabSpec
from rocelab.sim.events.event_spec import ConvergenceStatistic

SCHEMA_VERSION = 1
TABLE_FILE = "reaction.json"
FLAP_NS = 200 * MS
"""A carrier loss up to this long is a flap in the lab's table."""


class Breakage(StrEnum):
    """How a link or switch breaks, in the table's words."""

    CABLE = "cable"
    SILENT = "silent"
    FLAP = "flap"
    CRASH = "crash"
    POWER = "power"
    DRAIN = "drain"


class ReactionPlace(StrEnum):
    """The place of a fault: at a NIC, between leaf and spine, above that, or a whole switch."""

    NIC = "nic"
    RACK = "rack"
    TRUNK = "trunk"
    SPINE = "spine"


@dataclass(frozen=True, slots=True)
class ReactionRow:
    """A row of the lab's table."""

    name: str
    title: str
    breakage: Breakage
    fabric: str
    place: ReactionPlace
    place_title: str
    fan_out: int
    n: int
    """failures."""
    median_ns: int
    p95_ns: int
    noticed_ns: tuple[int, int] | None
    """Earliest and latest time at which the protocol notices a silent failure, None if no timer
    decides."""
    bfd: bool
    """Whether BFD's timers decide."""


@dataclass(frozen=True, slots=True)
class ReactionTable:
    """The lab's convergence times, and what they were measured on."""

    schema_version: int
    measured_on: str
    rows: tuple[ReactionRow, ...]


FORMAT = Format(
    ReactionTable,
    SCHEMA_VERSION,
    "a table of reaction times",
    "make it again with `python -m bench.reaction`",
)


@dataclass(frozen=True, slots=True)
class Reaction:
    """Seconds from a fault until the last flow has routes again, inf for never; and the reason."""

    median_s: float
    p95_s: float
    source: str

    def at(self, which: ConvergenceStatistic) -> float:
        return self.median_s if which is ConvergenceStatistic.MEDIAN else self.p95_s


NEVER = Reaction(math.inf, math.inf, "no protocol watches a NIC's link")


@cache
def shipped_table() -> ReactionTable:
    """The table that ships with this package."""
    text = files("rocelab.sim.events").joinpath(TABLE_FILE).read_text(encoding="utf-8")
    return FORMAT.read(text)


def reaction_of(spec: LabSpec, breakage: Breakage, place: ReactionPlace, fan_out: int) -> Reaction:
    """The reaction of the nearest row: the same timers first, then place, kind of fabric and
    fan-out.

    If a silent failure was not measured with these timers, the result is the middle (median) or end
    (p95) of the interval in which the timers of `spec` notice it, plus the time that routing took
    after the same point in the row (RFC 5880 section 6.8.4, RFC 4271 section 8). fan_out: equal
    links of the switch next to the fault, >= 1.
    """
    rows: Sequence[ReactionRow] = [row for row in shipped_table().rows if row.breakage is breakage]
    if breakage is Breakage.SILENT:
        if place is ReactionPlace.NIC:
            return NEVER
        rows = _nearest_timers(rows, spec)
    fabric = spec.fabric.convergence
    row = min(
        rows,
        key=lambda row: (
            row.place is not place,
            row.fabric != fabric,
            abs(math.log(row.fan_out / fan_out)),
        ),
    )
    median_ns, p95_ns, moved = float(row.median_ns), float(row.p95_ns), ""
    if row.noticed_ns is not None and row.noticed_ns != noticed_ns(spec):
        earliest_ns, latest_ns = noticed_ns(spec)
        median_ns = (earliest_ns + latest_ns) / 2 + max(0.0, median_ns - sum(row.noticed_ns) / 2)
        p95_ns = latest_ns + max(0.0, p95_ns - row.noticed_ns[1])
        moved = (
            f", moved to the {quantities.duration(earliest_ns)} to "
            f"{quantities.duration(latest_ns)} of this lab's timers"
        )
    return Reaction(
        median_ns / SECOND,
        p95_ns / SECOND,
        f"measured: {row.title}, {row.place_title} of {row.fabric}, fan-out {row.fan_out}, "
        f"{row.n} failures{moved}",
    )


def noticed_ns(spec: LabSpec) -> tuple[int, int]:
    """The earliest and latest that a lab's timers notice silence: BFD's, or BGP's hold timer."""
    bfd = spec.routing.bfd
    if bfd is None:
        return spec.routing.hold - spec.routing.keepalive, spec.routing.hold
    return bfd.interval * (bfd.multiplier - 1), bfd.interval * bfd.multiplier


def _nearest_timers(rows: Sequence[ReactionRow], spec: LabSpec) -> list[ReactionRow]:
    """The rows with the same protocol's timers (BFD's or BGP's) as `spec`, nearest to its own."""
    latest_ns = noticed_ns(spec)[1]
    apart = {
        row: abs(math.log(row.noticed_ns[1] / latest_ns))
        for row in rows
        if row.noticed_ns and row.bfd is (spec.routing.bfd is not None)
    }
    nearest = min(apart.values())
    return [row for row, distance in apart.items() if distance == nearest]
