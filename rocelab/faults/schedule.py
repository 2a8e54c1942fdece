"""The schedule of faults: flapping and campaigns become single timed faults.

Expands faults as written, with a fabric for campaigns to draw from, into `Timed` faults in order of
time. Pure: a seed decides every draw.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.base.errors import InputError
from rocelab.faults.base import ALL_PPM
from rocelab.faults.links import CarrierDownSpec
from rocelab.faults.selectors import LinkSelector, with_names
from rocelab.faults.spec import (
    SINGLE_FAULT,
    CampaignKind,
    CampaignSpec,
    FaultSpec,
    FlappingSpec,
    SingleFaultSpec,
)
from rocelab.plan.fabric import Fabric

_OF_LINKS = (
    CampaignKind.CARRIER_DOWN,
    CampaignKind.BLACKHOLE,
    CampaignKind.GREY_LOSS,
    CampaignKind.DELAY,
)
_OF_UPPER_SWITCHES = (CampaignKind.POWER_LOSS, CampaignKind.DRAIN)


@dataclass(frozen=True, slots=True)
class Timed:
    """A single fault from `begins_ns` to `ends_ns` after time 0; None: until the end of all."""

    spec: SingleFaultSpec
    begins_ns: int
    ends_ns: int | None


def expand(fabric: Fabric, faults: Sequence[FaultSpec]) -> tuple[Timed, ...]:
    """Single faults in the order of their beginnings, with the names of their nodes. Raises
    InputError if the fabric lacks a node that one calls by its place."""
    found: list[Timed] = []
    for written in faults:
        fault = with_names(written, fabric)
        match fault:
            case FlappingSpec():
                found += _flaps(fault)
            case CampaignSpec():
                found += _drawn(fabric, fault)
            case _:
                ends = None if fault.lasts is None else fault.at + fault.lasts
                found.append(Timed(fault, fault.at, ends))
    return tuple(sorted(found, key=lambda timed: timed.begins_ns))


def _flaps(fault: FlappingSpec) -> list[Timed]:
    draw = random.Random(fault.seed)  # noqa: S311 - a repeatable draw, no secret
    down_ns = fault.period * fault.duty // ALL_PPM
    spread_ns = min(down_ns, fault.period - down_ns) * fault.jitter // ALL_PPM
    spec = CarrierDownSpec(
        kind="carrier-down", link=fault.link, links=fault.links, between=fault.between
    )

    def moved(instant_ns: int) -> int:
        return instant_ns + draw.randint(-spread_ns, spread_ns) if spread_ns else instant_ns

    flaps = []
    for number in range(fault.count):
        begins = fault.at + number * fault.period
        # The first change is at the drill's time for the fault.
        flaps.append(Timed(spec, moved(begins) if number else begins, moved(begins + down_ns)))
    return flaps


def _drawn(fabric: Fabric, fault: CampaignSpec) -> list[Timed]:
    """The faults of a campaign. Intervals and lengths are exponential, as for independent causes. A
    node has one fault at a time, including its links': restoring one would restore part of
    another."""
    draw = random.Random(fault.seed)  # noqa: S311 - a repeatable draw, no secret
    begins = fault.at
    busy_until: dict[str, int] = {}
    drawn = []
    for _ in range(fault.count):
        nodes, spec = _draw_fault(fabric, draw.choice(fault.kinds), draw)
        begins = max(begins, *(busy_until.get(node, 0) for node in nodes))
        lasts = max(1, round(draw.expovariate(1 / fault.each_lasts)))
        busy_until.update(dict.fromkeys(nodes, begins + lasts))
        drawn.append(Timed(spec, begins, None if spec.instant else begins + lasts))
        begins += max(1, round(draw.expovariate(1 / fault.every)))
    return drawn


def _draw_fault(
    fabric: Fabric, kind: CampaignKind, draw: random.Random
) -> tuple[tuple[str, ...], SingleFaultSpec]:
    """A random fault of that kind, and its nodes."""
    if not fabric.trunks:
        raise InputError(f"no link of lab {fabric.name} joins two switches: nothing to draw from")
    link = draw.choice(fabric.trunks)
    ends = (link.a.node, link.b.node)
    selector = LinkSelector(node=link.a.node, interface=link.a.interface)
    # Without their only switch, a rack's servers lose all traffic, which routing cannot prevent.
    uppers = [node for node in fabric.switches if not node.is_leaf] or fabric.switches
    upper = draw.choice(uppers).name
    anywhere = draw.choice(fabric.switches).name
    if kind in _OF_LINKS:
        return ends, SINGLE_FAULT.validate_python({"kind": kind.value, "link": selector})
    switch = upper if kind in _OF_UPPER_SWITCHES else anywhere
    return (switch,), SINGLE_FAULT.validate_python({"kind": kind.value, "switch": switch})
