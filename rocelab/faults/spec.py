"""The kinds of faults, each a mapping with a `kind`: the one list that files and commands read.

A drill file's `faults`, or one fault for a running lab, become validated specs with times in ns and
shares in parts per million. `resolve` of a spec gives the fault on a fabric.

    {kind: blackhole, link: rtsw1:ctsw2, towards: rtsw1, at: 1s, lasts: 500ms}
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from rocelab.base.units import DurationNs, SharePpm
from rocelab.faults.base import ALL_PPM, LinkFaultSpec, TimedSpec
from rocelab.faults.bgp import AbruptRemovalSpec, DrainSpec, SessionResetSpec
from rocelab.faults.daemons import DaemonCrashSpec, DaemonHangSpec
from rocelab.faults.hosts import HostPauseSpec
from rocelab.faults.impairments import BlackholeSpec, CorruptionSpec, DelaySpec, GreyLossSpec
from rocelab.faults.leaks import BadPrefixSpec, RouteLeakSpec
from rocelab.faults.links import (
    CarrierDownSpec,
    MtuMismatchSpec,
    NicPortDownSpec,
    RateDegradeSpec,
)
from rocelab.faults.pauses import PauseDeafSpec, PauseStormSpec, SlowReceiverSpec
from rocelab.faults.power import PowerLossSpec
from rocelab.labfile.base import MS, SECOND
from rocelab.labfile.model import MAX_SEED


class FlappingSpec(LinkFaultSpec):
    """The carrier goes and comes, again and again."""

    no_lasts = ("flapping lasts count x period", "remove lasts, or set count")
    kind: Literal["flapping"]
    period: Annotated[DurationNs, Field(ge=10 * MS, le=60 * SECOND)] = SECOND
    duty: Annotated[
        SharePpm, Field(gt=0, lt=ALL_PPM, description="share of a period without carrier")
    ] = ALL_PPM // 2
    count: Annotated[int, Field(ge=1, le=10_000, description="how many times it goes")] = 5
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


class CampaignKind(StrEnum):
    """The kinds that a campaign may draw: faults with an effect and an end."""

    CARRIER_DOWN = "carrier-down"
    BLACKHOLE = "blackhole"
    GREY_LOSS = "grey-loss"
    DELAY = "delay"
    POWER_LOSS = "power-loss"
    DAEMON_CRASH = "daemon-crash"
    DAEMON_HANG = "daemon-hang"
    DRAIN = "drain"
    SESSION_RESET = "session-reset"


class CampaignSpec(TimedSpec):
    """Faults drawn from a seed: the same seed and lab give the same faults."""

    no_lasts = (
        "a campaign ends with its last fault",
        "remove lasts; each_lasts is how long one fault does",
    )
    kind: Literal["campaign"]
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 1
    count: Annotated[int, Field(ge=1, le=1000)] = 10
    kinds: Annotated[
        tuple[Annotated[CampaignKind, Field(strict=False)], ...],
        Field(strict=False, min_length=1),
    ] = (CampaignKind.CARRIER_DOWN, CampaignKind.BLACKHOLE, CampaignKind.DAEMON_CRASH)
    every: Annotated[
        DurationNs, Field(ge=MS, le=60 * SECOND, description="mean time between two beginnings")
    ] = 2 * SECOND
    each_lasts: Annotated[
        DurationNs, Field(ge=MS, le=60 * SECOND, description="mean time that one lasts")
    ] = SECOND


SingleFaultSpec = (
    CarrierDownSpec
    | BlackholeSpec
    | GreyLossSpec
    | CorruptionSpec
    | DelaySpec
    | RateDegradeSpec
    | MtuMismatchSpec
    | NicPortDownSpec
    | SlowReceiverSpec
    | PauseStormSpec
    | PauseDeafSpec
    | HostPauseSpec
    | PowerLossSpec
    | DaemonCrashSpec
    | DaemonHangSpec
    | DrainSpec
    | AbruptRemovalSpec
    | SessionResetSpec
    | RouteLeakSpec
    | BadPrefixSpec
)
"""Faults that begin once and end once."""

FaultSpec = Annotated[SingleFaultSpec | FlappingSpec | CampaignSpec, Field(discriminator="kind")]

SINGLE_FAULT: TypeAdapter[SingleFaultSpec] = TypeAdapter(
    Annotated[SingleFaultSpec, Field(discriminator="kind")]
)
