"""The file format of lossless traffic classes: priority-based flow control (IEEE 802.1Qbb).

The block `queues.pfc` of a lab's file, sizes in bytes of the modelled network, is a `PfcSpec`;
`rocelab.planning.pfc` divides each switch's memory by it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from rocelab.base.units import SHARE, SIZE, DurationNs, SharePpm, SizeBytes
from rocelab.base.wording import RefusedError
from rocelab.labfile.base import MS, SECOND, SpecModel

MAX_CLASS = 4
"""Classes 5 to 7, of CNPs, ACKs and control, are never paused, unless a switch's profile does."""

MIN_WATCHDOG = MS // 100
"""The process that watches a lab's queues looks several times within it."""
MAX_WATCHDOG = 60 * SECOND
ALL_PPM = 100 * SHARE.units["%"]

MAX_MEMORY = 64 * 10**9
USUAL_DYNAMIC_TH = 3
MAX_QUANTA = 65_535
"""A pause frame's field has 16 bits (IEEE 802.3 annex 31B)."""


Memory = Annotated[SizeBytes, Field(ge=1, le=MAX_MEMORY)]
Offset = Annotated[
    SizeBytes, Field(ge=0, le=MAX_MEMORY, description="a resume comes this far below XOFF")
]
DynamicTh = Annotated[int, Field(ge=-7, le=8)]
Oversubscription = Annotated[float, Field(ge=1, le=100)]
WatchdogNs = Annotated[DurationNs, Field(ge=MIN_WATCHDOG, le=MAX_WATCHDOG)]


def _check_resumes(offset: int, xoff: int, name: str, key: str) -> None:
    if offset >= xoff:
        raise RefusedError(
            f"expected xon_offset to be below {name} ({SIZE.written(xoff)}), "
            f"got {SIZE.written(offset)}",
            "a resume comes xon_offset below xoff",
            keys=("xon_offset", key),
        )


class WatchdogAction(StrEnum):
    """What the watchdog does with a class that is paused too long."""

    DROP = "drop"
    FORWARD = "forward"


class WatchdogSpec(SpecModel):
    """Frees a queue of a lossless class that pauses have held too long, in modelled time."""

    detection: Annotated[
        WatchdogNs,
        Field(description="nothing left a queue for this long, and pauses still came"),
    ] = 400 * MS
    restoration: Annotated[
        WatchdogNs, Field(description="pauses are obeyed again after this long without")
    ] = 2 * SECOND
    action: Annotated[
        WatchdogAction,
        Field(strict=False, description="drop: the queue's packets are lost; forward: they leave"),
    ] = WatchdogAction.DROP


class NicSpec(SpecModel):
    """The receive buffer of a NIC: what its host has not yet taken. Of each port, in bytes."""

    buffer: Annotated[Memory, Field(description="packets beyond it are lost")] = 2 * 10**6
    drain: Annotated[
        SharePpm | None,
        Field(
            gt=0,
            le=ALL_PPM,
            description="how fast hosts receive packets, as a share of the link's rate; if left "
            "out, on arrival",
        ),
    ] = None
    xoff: Annotated[
        Memory | None,
        Field(description="pauses above; if left out, the buffer minus the link's headroom"),
    ] = None
    xon_offset: Offset = 20 * 10**3

    @model_validator(mode="after")
    def _pauses_before_it_is_full(self) -> Self:
        if self.xoff is not None and self.xoff >= self.buffer:
            raise RefusedError(
                f"expected xoff to be below the buffer ({SIZE.written(self.buffer)}), "
                f"got {SIZE.written(self.xoff)}",
                "what arrives after a pause needs the rest of the buffer",
                keys=("xoff", "buffer"),
            )
        if self.xoff is None:
            _check_resumes(self.xon_offset, self.buffer, "the buffer", "buffer")
        else:
            _check_resumes(self.xon_offset, self.xoff, "xoff", "xoff")
        return self


class PfcSpec(SpecModel):
    """Lossless traffic classes, and the memory of a switch that holds them.

    An ingress port sends a pause for a class whose packets in the switch exceed its threshold
    (XOFF), and a resume once they are `xon_offset` below it. Without `xoff` the threshold is
    dynamic: 2^`dynamic_th` times the free shared memory at that moment.
    """

    classes: Annotated[
        tuple[Annotated[int, Field(ge=0, le=7)], ...],
        Field(
            strict=False,
            min_length=1,
            max_length=8,
            description=f"lossless traffic classes, of 0 to {MAX_CLASS} without a profile",
        ),
    ] = (3,)
    memory: Annotated[
        Memory,
        Field(
            description="packet memory of a switch, for each of its ports; those share all of it"
        ),
    ] = 2 * 10**6
    reserved: Annotated[
        SizeBytes,
        Field(
            ge=0, le=MAX_MEMORY, description="of the memory, for each port's lossless class alone"
        ),
    ] = 0
    dynamic_th: Annotated[
        DynamicTh, Field(description="XOFF is 2^dynamic_th of the free shared memory")
    ] = USUAL_DYNAMIC_TH
    xoff: Annotated[
        Memory | None,
        Field(description="a static XOFF instead of the dynamic one"),
    ] = None
    xon_offset: Offset = 20 * 10**3
    headroom: Annotated[
        Memory | None,
        Field(
            description="memory for what arrives after XOFF, per port and class; if left out, what "
            "the link needs",
        ),
    ] = None
    oversubscription: Annotated[
        Oversubscription,
        Field(description="all ports' headroom : the pool that they share for it"),
    ] = 1.0
    response: Annotated[
        Annotated[int, Field(ge=0, le=MAX_QUANTA)] | None,
        Field(
            description="time that a paused sender takes to stop, in quanta of 512 bit times; if "
            "left out, what is usual at the link's rate",
        ),
    ] = None
    cell_factor: Annotated[
        float,
        Field(ge=1, le=16, description="memory : bytes of packets, where cells are partly filled"),
    ] = 1.0

    nic: Annotated[NicSpec, Field(description="the receive buffer of NICs")] = NicSpec()
    watchdog: Annotated[
        WatchdogSpec | None,
        Field(description="frees queues that are paused too long; {}: with defaults"),
    ] = None

    @field_validator("classes")
    @classmethod
    def _in_order_and_once(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _one_threshold(self) -> Self:
        # A record of a lab has every key, those left out too.
        if self.xoff is not None and self.dynamic_th != USUAL_DYNAMIC_TH:
            raise RefusedError(
                f"expected no dynamic_th together with xoff ({SIZE.written(self.xoff)}), "
                f"got {self.dynamic_th}",
                "a threshold is static or dynamic: leave one of the two out",
                keys=("dynamic_th", "xoff"),
            )
        return self

    @model_validator(mode="after")
    def _resumes_above_nothing(self) -> Self:
        if self.xoff is not None:
            _check_resumes(self.xon_offset, self.xoff, "xoff", "xoff")
        return self
