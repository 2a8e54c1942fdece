"""Faults as users write them, each a mapping with a `kind`.

Validates a drill file's `faults`, or one fault for a running lab, with times in ns and shares in
parts per million. `rocelab.faults.resolve` finds their targets on a lab.

    {kind: blackhole, link: rtsw1:ctsw2, towards: rtsw1, at: 1s, lasts: 500ms}
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from rocelab.faults.selectors import LinkSelector, NodeName
from rocelab.plan.fabric import Fabric, Link
from rocelab.spec.base import MS, SECOND, SpecModel
from rocelab.spec.model import MAX_SEED
from rocelab.units import SHARE, DurationNs, SharePpm
from rocelab.wording import RefusedError

MAX_DURATION = 600 * SECOND
ALL_PPM = SHARE.units["%"] * 100


class Daemon(StrEnum):
    """The daemons of a switch; bfdd only if the lab has BFD, mgmtd only since FRR 10."""

    ZEBRA = "zebra"
    BGPD = "bgpd"
    BFDD = "bfdd"
    MGMTD = "mgmtd"


class ResetMode(StrEnum):
    """How BGP sessions are reset (RFC 7747 sections 5.6 and 5.7)."""

    HARD = "hard"
    SOFT = "soft"


class _Timed(SpecModel):
    """When a fault begins and how long it lasts; required in a drill, not on a running lab."""

    at: Annotated[DurationNs, Field(ge=0, le=MAX_DURATION, description="after time 0")] = 0
    lasts: Annotated[
        DurationNs | None,
        Field(gt=0, le=MAX_DURATION, description="then it is undone; without it, at the end"),
    ] = None


class LinkFaultSpec(_Timed):
    """A fault of one link or of several at once."""

    link: LinkSelector | None = None
    links: Annotated[
        tuple[LinkSelector, ...],
        Field(strict=False, max_length=64, description="instead of link: all of them at once"),
    ] = ()

    @model_validator(mode="after")
    def _one_way_to_name_links(self) -> Self:
        if (self.link is None) == (not self.links):
            raise RefusedError("expected link or links, one of the two")
        return self

    def find(self, fabric: Fabric) -> tuple[Link, ...]:
        """The selected links of `fabric`, without duplicates. Raises InputError as
        `LinkSelector.find` does."""
        selectors = self.links if self.link is None else (self.link,)
        return tuple(dict.fromkeys(selector.find(fabric) for selector in selectors))


Towards = Annotated[
    NodeName | None,
    Field(description="the node at whose end packets are hit; without it, in both directions"),
]


class CarrierDownSpec(LinkFaultSpec):
    """The carrier goes down, as when a cable is pulled; with `side`, only one end loses it and
    receives nothing, as when one fibre of two breaks."""

    kind: Literal["carrier-down"]
    side: Annotated[NodeName | None, Field(description="the end that sees it; else both")] = None


class FlappingSpec(LinkFaultSpec):
    """The carrier goes down and up repeatedly."""

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

    @model_validator(mode="after")
    def _ends_by_itself(self) -> Self:
        if self.lasts is not None:
            raise RefusedError(
                "flapping lasts count x period", "remove lasts, or set count", keys=("lasts",)
            )
        return self


class BlackholeSpec(LinkFaultSpec):
    """Every packet is lost and the carrier stays up, so that no event reports it."""

    kind: Literal["blackhole"]
    towards: Towards = None


class GreyLossSpec(LinkFaultSpec):
    """A random share of packets is lost."""

    kind: Literal["grey-loss"]
    towards: Towards = None
    loss: Annotated[SharePpm, Field(gt=0, le=ALL_PPM)] = ALL_PPM // 100


class CorruptionSpec(LinkFaultSpec):
    """A bit of some RoCE packets flips inside a switch: their ICRC fails at the receiver."""

    kind: Literal["corruption"]
    towards: Towards = None
    share: Annotated[SharePpm, Field(gt=0, le=ALL_PPM)] = ALL_PPM // 100


class DelaySpec(LinkFaultSpec):
    """Every packet is delayed, in the lab's clock."""

    kind: Literal["delay"]
    towards: Towards = None
    delay: Annotated[DurationNs, Field(gt=0, le=10 * SECOND)] = 10 * MS


class RateDegradeSpec(LinkFaultSpec):
    """A link trains at a lower rate."""

    kind: Literal["rate-degrade"]
    towards: Towards = None
    rate: Annotated[SharePpm, Field(gt=0, lt=ALL_PPM, description="of the link's own")] = (
        ALL_PPM // 4
    )


class MtuMismatchSpec(LinkFaultSpec):
    """One end accepts only smaller packets: large ones are lost, BGP's pass."""

    kind: Literal["mtu-mismatch"]
    side: Annotated[NodeName | None, Field(description="the end; else the upper one")] = None
    mtu: Annotated[int, Field(ge=576, le=9216, description="bytes of an IP packet")] = 1500


class NicFaultSpec(_Timed):
    """A fault of a server's NIC."""

    server: NodeName
    nic: Annotated[int, Field(ge=1, le=64, description="from 1")] = 1


class NicPortDownSpec(NicFaultSpec):
    """A port of a server's NIC loses its carrier."""

    kind: Literal["nic-port-down"]
    port: Annotated[int, Field(ge=1, le=2, description="from 1; NICs have one or two")] = 1


class SlowReceiverSpec(NicFaultSpec):
    """A NIC receives packets slowly, as when its host's memory is slow. Without PFC this is a lower
    rate of the switch port before it."""

    kind: Literal["slow-receiver"]
    rate: Annotated[SharePpm, Field(gt=0, lt=ALL_PPM, description="of the NIC's own")] = (
        ALL_PPM // 4
    )


class HostPauseSpec(_Timed):
    """A server's processes stop, as in a long garbage collection, and continue."""

    kind: Literal["host-pause"]
    server: NodeName


class SwitchFaultSpec(_Timed):
    """A fault of a switch."""

    switch: NodeName


class PowerLossSpec(SwitchFaultSpec):
    """A switch loses its power: all its links and processes at once. Undone by a cold boot."""

    kind: Literal["power-loss"]


class DaemonCrashSpec(SwitchFaultSpec):
    """A routing daemon dies (SIGKILL). Undone by starting it again."""

    kind: Literal["daemon-crash"]
    daemon: Annotated[Daemon, Field(strict=False)] = Daemon.BGPD


class DaemonHangSpec(SwitchFaultSpec):
    """A routing daemon hangs (SIGSTOP): its sessions look alive until their timers end."""

    kind: Literal["daemon-hang"]
    daemon: Annotated[Daemon, Field(strict=False)] = Daemon.BGPD


class DrainSpec(SwitchFaultSpec):
    """Graceful shutdown (RFC 8326): neighbours are asked to prefer any other path."""

    kind: Literal["drain"]


class AbruptRemovalSpec(SwitchFaultSpec):
    """All BGP sessions of a switch are shut at once."""

    kind: Literal["abrupt-removal"]


class SessionResetSpec(SwitchFaultSpec):
    """BGP sessions are reset; an instantaneous fault."""

    kind: Literal["session-reset"]
    peer: Annotated[NodeName | None, Field(description="a neighbour; else all")] = None
    mode: Annotated[ResetMode, Field(strict=False)] = ResetMode.HARD

    @model_validator(mode="after")
    def _an_instant(self) -> Self:
        if self.lasts is not None:
            raise RefusedError("a reset is an instant", "remove lasts", keys=("lasts",))
        return self


class RouteLeakSpec(SwitchFaultSpec):
    """A rack's switch announces to all neighbours what it learned from one."""

    kind: Literal["route-leak"]
    filtered: Annotated[
        bool, Field(description="neighbours keep their filters towards the rack")
    ] = True


class BadPrefixSpec(SwitchFaultSpec):
    """A rack's switch announces the prefix of another rack as its own."""

    kind: Literal["bad-prefix"]
    of: Annotated[NodeName, Field(description="the switch whose prefix it is")]
    filtered: Annotated[
        bool, Field(description="neighbours keep their filters towards the rack")
    ] = True


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


class CampaignSpec(_Timed):
    """Faults drawn from a seed: the same seed and lab give the same faults."""

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

    @model_validator(mode="after")
    def _ends_by_itself(self) -> Self:
        if self.lasts is not None:
            raise RefusedError(
                "a campaign ends with its last fault",
                "remove lasts; each_lasts is how long one fault does",
                keys=("lasts",),
            )
        return self


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
