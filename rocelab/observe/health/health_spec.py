"""YAML to `HealthSpec`: the SLIs of a lab and their objectives, which values are acceptable.

A drill's block `health`, or the defaults, give a validated `HealthSpec`. The monitor compares each
sample with `objective(sli)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from rocelab.base.errors import InputError
from rocelab.base.units import DurationNs
from rocelab.base.wording import name_hint
from rocelab.labfile.base import MS, SECOND, SpecModel
from rocelab.results.health import Sli

LEAST_PACKETS = 100
"""A ratio of fewer packets is not compared with an objective: two marks of five say nothing."""


class PlaceKind(StrEnum):
    """The kind of place that a value belongs to."""

    DIRECTION = "direction"
    LINK = "link"
    SERVER = "server"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Definition:
    """An SLI: what a value counts, of which kind of place, and its default objective."""

    unit: str
    of: PlaceKind
    default: float


DEFINITIONS: dict[Sli, Definition] = {
    Sli.LINK_LOSS: Definition("packets", PlaceKind.DIRECTION, 0),
    Sli.LINKS_DOWN: Definition("links", PlaceKind.LINK, 0),
    Sli.FLAPS: Definition("losses of carrier", PlaceKind.LINK, 0),
    Sli.QUEUE_DROPS: Definition("packets", PlaceKind.DIRECTION, 0),
    Sli.QUEUE_DEPTH: Definition("of the buffer", PlaceKind.DIRECTION, 0.8),
    Sli.CE_RATIO: Definition("of the packets", PlaceKind.DIRECTION, 0.5),
    Sli.OUT_OF_SEQUENCE: Definition("packets", PlaceKind.SERVER, 0),
    Sli.ACK_TIMEOUTS: Definition("timeouts", PlaceKind.SERVER, 0),
    Sli.ICRC_ERRORS: Definition("packets", PlaceKind.SERVER, 0),
    Sli.ROUTES_INCOMPLETE: Definition("routes", PlaceKind.SWITCH, 0),
    Sli.SESSIONS_DOWN: Definition("sessions", PlaceKind.LINK, 0),
    Sli.PAUSE_SHARE: Definition("of the time", PlaceKind.DIRECTION, 0.5),
    Sli.LOSSLESS_DROPS: Definition("packets", PlaceKind.DIRECTION, 0),
    Sli.WATCHDOG_EVENTS: Definition("events", PlaceKind.DIRECTION, 0),
}
"""Operators of RoCE clusters alarm on any lost packet, flap, out-of-sequence packet or local ACK
timeout, and on buffers more than 80 % full. The limit of half of a port's packets marked is this
tool's own choice: DCQCN marks by design; more than half means that it does not help. So is that of
half of the time paused: a lossless fabric pauses by design."""

LOSSLESS_SLIS = frozenset({Sli.PAUSE_SHARE, Sli.LOSSLESS_DROPS, Sli.WATCHDOG_EVENTS})
"""The SLIs that only labs with lossless classes have."""


def _off(value: object) -> object:
    # YAML reads a bare off as false.
    return None if value is False or value == "off" else value


Objective = Annotated[float | None, Field(ge=0, le=10**12), BeforeValidator(_off)]
Share = Annotated[float | None, Field(ge=0, le=1), BeforeValidator(_off)]


class Objectives(SpecModel):
    """The largest acceptable value of each SLI; `off` disables one."""

    link_loss: Annotated[Objective, Field(description="packets lost on a link per sample")] = (
        DEFINITIONS[Sli.LINK_LOSS].default
    )
    links_down: Annotated[Objective, Field(description="links without carrier")] = DEFINITIONS[
        Sli.LINKS_DOWN
    ].default
    flaps: Annotated[Objective, Field(description="losses of carrier of a link per sample")] = (
        DEFINITIONS[Sli.FLAPS].default
    )
    queue_drops: Annotated[
        Objective, Field(description="packets that did not fit a switch port's buffer per sample")
    ] = DEFINITIONS[Sli.QUEUE_DROPS].default
    queue_depth: Annotated[Share, Field(description="deepest queue, as a share of the buffer")] = (
        DEFINITIONS[Sli.QUEUE_DEPTH].default
    )
    ce_ratio: Annotated[
        Share, Field(description="share of the packets of marked classes that leave a port with CE")
    ] = DEFINITIONS[Sli.CE_RATIO].default
    out_of_sequence: Annotated[
        Objective, Field(description="packets out of sequence at a server per sample")
    ] = DEFINITIONS[Sli.OUT_OF_SEQUENCE].default
    ack_timeouts: Annotated[
        Objective, Field(description="local ACK timeouts of a server per sample")
    ] = DEFINITIONS[Sli.ACK_TIMEOUTS].default
    icrc_errors: Annotated[
        Objective, Field(description="packets with a wrong ICRC at a server per sample")
    ] = DEFINITIONS[Sli.ICRC_ERRORS].default
    routes_incomplete: Annotated[
        Objective, Field(description="routes of a switch that are missing or too narrow")
    ] = DEFINITIONS[Sli.ROUTES_INCOMPLETE].default
    sessions_down: Annotated[Objective, Field(description="BGP sessions not established")] = (
        DEFINITIONS[Sli.SESSIONS_DOWN].default
    )
    pause_share: Annotated[
        Share, Field(description="share of the time that a port's lossless class is paused")
    ] = DEFINITIONS[Sli.PAUSE_SHARE].default
    lossless_drops: Annotated[
        Objective,
        Field(description="packets of lossless classes that a port has no room for per sample"),
    ] = DEFINITIONS[Sli.LOSSLESS_DROPS].default
    watchdog_events: Annotated[
        Objective, Field(description="queues that the PFC watchdog frees at a port per sample")
    ] = DEFINITIONS[Sli.WATCHDOG_EVENTS].default

    def objective_of(self, sli: Sli) -> float | None:
        """The largest acceptable value, None if the SLI is off."""
        value: float | None = getattr(self, sli.value)
        return value


class HealthSpec(Objectives):
    """How often a lab is sampled, and the objectives of its SLIs; `off` disables one."""

    interval: Annotated[
        DurationNs,
        Field(ge=100 * MS, le=60 * SECOND, description="between two samples"),
    ] = SECOND
    evidence: Annotated[
        int,
        Field(ge=0, le=32, description="bundles of evidence at most, one per SLI; 0 for none"),
    ] = 4
    networks: Annotated[
        dict[str, Objectives],
        Field(description="other objectives of a network of a lab with several, by its name"),
    ] = Field(default_factory=dict)

    def objective(self, sli: Sli, networks: Sequence[str] = ()) -> float | None:
        """The largest acceptable value at a place that belongs to `networks`, None if the SLI is
        off there. Of several networks the strictest counts."""
        limits = [self._of_network(sli, name) for name in networks] or [self.objective_of(sli)]
        return min((value for value in limits if value is not None), default=None)

    def _of_network(self, sli: Sli, network: str) -> float | None:
        block = self.networks.get(network)
        is_own = block is not None and sli.value in block.model_fields_set
        return (block if block is not None and is_own else self).objective_of(sli)

    def check_networks(self, names: Sequence[str | None]) -> None:
        """Raises InputError if it has objectives of a network that is not one of the lab's,
        `names`."""
        known = [name for name in names if name is not None]
        for name in self.networks:
            if name not in known:
                raise InputError(
                    f"health.networks has objectives of network {name}, which the lab does not "
                    "have",
                    name_hint(name, known) or "it has one network: write its objectives in health",
                )
