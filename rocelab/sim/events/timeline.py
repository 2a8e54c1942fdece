"""Resolves a timeline on a network: when links fail and return, and when routing has moved.

Turns a `TimelineSpec` into `Outage`s in order of beginning, and computes the state of all links
while some outages are active.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Bools, Floats, Ints
from rocelab.base.errors import COMMAND_LINE, InputError, Problem, SpecError
from rocelab.base.units import SHARE
from rocelab.labfile.base import SECOND
from rocelab.routes.arrays.network import Network
from rocelab.sim.events.event_spec import ConvergenceStatistic, EventKind, EventSpec, TimelineSpec
from rocelab.sim.events.reaction import FLAP_NS, Breakage, ReactionPlace, reaction_of
from rocelab.sim.events.targets import TargetKind, links_of, parse_target


@dataclass(frozen=True, eq=False)
class EventOutage:
    """An event on a network."""

    what: str
    kind: EventKind
    links: Ints
    """Those it affects."""
    begins_s: float
    ends_s: float
    """Inf for never."""
    reaction_s: float
    """From its beginning until routes avoid the links, inf for never; `reaction` says why."""
    reaction: str
    remaining: float = 0.0
    """The share of the links' rate that remains."""

    @property
    def loses_packets(self) -> bool:
        """Whether flows lose packets: a drain moves them first."""
        return self.kind not in (EventKind.DRAIN, EventKind.DEGRADE)

    @property
    def routed_s(self) -> float:
        """When routes avoid the links; inf if never during the outage."""
        moved = self.begins_s + self.reaction_s
        return moved if moved < self.ends_s else math.inf


def resolve(network: Network, spec: TimelineSpec) -> tuple[EventOutage, ...]:
    """The outages of a timeline on a network.

    Raises SpecError with every event whose target the network does not have.
    """
    draw = np.random.default_rng(spec.seed)
    outages: list[EventOutage] = []
    problems: list[Problem] = []
    for event in spec.events:
        try:
            outages.append(outage_of(network, event, spec.reaction, draw))
        except InputError as error:
            key = f"{event.kind} {event.target}"
            problems.append(Problem(COMMAND_LINE, None, key, error.message, error.hint))
    if problems:
        raise SpecError(problems)
    return tuple(sorted(outages, key=lambda outage: outage.begins_s))


def outage_of(
    network: Network,
    event: EventSpec,
    reaction: ConvergenceStatistic | int = ConvergenceStatistic.MEDIAN,
    draw: np.random.Generator | None = None,
) -> EventOutage:
    """The outage of one event. Raises InputError as `links_of` does."""
    target = parse_target(event.target)
    links = links_of(network, target, draw or np.random.default_rng(1))
    asked = reaction if event.reaction is None else event.reaction
    reaction_s, source = _reaction(network, event, target.thing, links, asked)
    begins_s = event.at / SECOND
    return EventOutage(
        what=f"{event.kind} {target}",
        kind=event.kind,
        links=links,
        begins_s=begins_s,
        ends_s=math.inf if event.lasts is None else begins_s + event.lasts / SECOND,
        reaction_s=reaction_s,
        reaction=source,
        remaining=0.0 if event.to is None else event.to / (100 * SHARE.units["%"]),
    )


def link_state(
    network: Network, outages: Iterable[tuple[EventOutage, bool]]
) -> tuple[Bools, Floats]:
    """The links that routing sees as up, L, and the capacity of each send, 2L, in bit/s, during
    these outages; the second of each pair is whether routing has moved. A drained link carries what
    is on it."""
    up = np.ones(network.links, bool)
    part = np.ones(network.links)
    for outage, routed in outages:
        if outage.kind is not EventKind.DRAIN:
            part[outage.links] = np.minimum(part[outage.links], outage.remaining)
        if outage.kind is not EventKind.DEGRADE and routed:
            up[outage.links] = False
    return up, network.capacity_bps * np.repeat(part, 2)


def moments_of(outages: Iterable[EventOutage]) -> list[float]:
    """When something happens to links or routes, ascending."""
    return sorted(
        moment
        for outage in outages
        for moment in (outage.begins_s, outage.routed_s, outage.ends_s)
        if math.isfinite(moment)
    )


class LinkStates:
    """The state of a network's links at a moment: as of `link_state`."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.up = np.ones(network.links, bool)
        self.capacity_bps = network.capacity_bps

    def at(self, now_s: float, outages: Sequence[EventOutage]) -> tuple[bool, bool]:
        """Go on to a moment; whether capacities, and whether the links that routing uses, stay."""
        on = [
            (outage, outage.routed_s <= now_s)
            for outage in outages
            if outage.begins_s <= now_s < outage.ends_s
        ]
        up, capacity_bps = link_state(self._network, on)
        # A link that routing left stays unused until it carries again, even if another fault began
        # on it.
        silent = np.zeros(len(up), bool)
        for outage, _ in on:
            silent[outage.links] |= outage.kind is not EventKind.DEGRADE
        up &= self.up | ~silent
        same = np.array_equal(capacity_bps, self.capacity_bps), np.array_equal(up, self.up)
        self.up, self.capacity_bps = up, capacity_bps
        return same


def _reaction(
    network: Network,
    event: EventSpec,
    thing: TargetKind,
    links: Ints,
    asked: ConvergenceStatistic | int,
) -> tuple[float, str]:
    if event.kind is EventKind.DEGRADE:
        return math.inf, "routing ignores rates"
    if not isinstance(asked, ConvergenceStatistic):
        return asked / SECOND, "as given"
    place, fan_out = _place(network, thing, links)
    measured = reaction_of(network.spec, _breakage(event, thing, place), place, fan_out)
    return measured.at(asked), measured.source


def _breakage(event: EventSpec, thing: TargetKind, place: ReactionPlace) -> Breakage:
    match event.kind:
        case EventKind.BLACKHOLE:
            return Breakage.SILENT
        case EventKind.CRASH:
            return Breakage.CRASH
        case EventKind.DRAIN:
            return Breakage.DRAIN
        case _ if thing is TargetKind.SWITCH and place is ReactionPlace.SPINE:
            return Breakage.POWER
        case _ if event.lasts is not None and event.lasts <= FLAP_NS:
            return Breakage.FLAP
        case _:
            return Breakage.CABLE


def _place(
    network: Network, thing: TargetKind, links: Sequence[int] | Ints
) -> tuple[ReactionPlace, int]:
    """The place in the fabric, the one with the longest reaction if several; and the fan-out
    there."""
    if not len(links):
        return ReactionPlace.SPINE, 1
    lower = network.lower[links]
    first = lower[np.argmin(network.tier[lower])]
    fan_out = int(np.count_nonzero(network.lower == first))
    if network.tier[first] == 0:
        return ReactionPlace.NIC, fan_out
    if thing is TargetKind.SWITCH:
        return ReactionPlace.SPINE, fan_out
    return (ReactionPlace.RACK if network.tier[first] == 1 else ReactionPlace.TRUNK), fan_out
