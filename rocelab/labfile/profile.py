"""A switch model's buffers and QoS, as its configuration has them: pools, profiles, maps, ports.

`rocelab.labfile.sonic` reads a `ProfileSpec` from SONiC's files; it is part of a lab's spec, so
records and results need no such file. Names are the files' own. `rocelab.labfile.switchports` says
what a port of a lab takes from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from rocelab.labfile.base import SpecModel

MOST_PORTS = 4096
"""Of a chassis with its line cards."""

Bytes = Annotated[int, Field(ge=0, le=2**48)]
Exponent = Annotated[int, Field(ge=-8, le=16)]


class PoolMode(StrEnum):
    """How the profiles of a pool say what a port may take of it."""

    DYNAMIC = "dynamic"
    STATIC = "static"


class SchedulerType(StrEnum):
    """How a queue gets its turn."""

    DWRR = "DWRR"
    WRR = "WRR"
    STRICT = "STRICT"


class PoolSpec(SpecModel):
    """A row of BUFFER_POOL: a part of the packet memory that ports share."""

    type: str
    """ingress, egress or both."""
    mode: Annotated[PoolMode, Field(strict=False)] = PoolMode.DYNAMIC
    """Whether thresholds are shares of what is free, or sizes."""
    size: Bytes | None = None
    """None: the switch works it out itself (dynamic buffer model)."""
    xoff: Bytes = 0
    """The shared headroom pool; 0: each port has its own headroom."""


class BufferProfileSpec(SpecModel):
    """A row of BUFFER_PROFILE: what a priority group or a queue may hold."""

    pool: str = ""
    """The pool's name."""
    size: Bytes = 0
    """Reserved for each, headroom of its own included."""
    xoff: Bytes | None = None
    """The headroom of a lossless priority group."""
    xon: Bytes = 0
    """A resume comes below this, or below the limit minus `xon_offset`, whichever is more."""
    xon_offset: Bytes | None = None
    """None: `xon` alone decides."""
    dynamic_th: Exponent | None = None
    """The limit is 2^this of what is free of the pool."""
    static_th: Bytes | None = None
    """The limit in bytes."""


class LookupRow(SpecModel):
    """A row of pg_profile_lookup.ini: the lossless priority groups of ports with such a cable."""

    speed_mbps: Annotated[int, Field(ge=1)]
    """Of the port."""
    cable_m: Annotated[int, Field(ge=0)]
    """The longest cable, in metres."""
    size: Bytes
    """Reserved for each, headroom of its own included."""
    xon: Bytes
    """As of a buffer profile."""
    xoff: Bytes
    """The headroom."""
    threshold: Annotated[int, Field(ge=-8, le=2**48)]
    """`dynamic_th` or `static_th`, by the mode of the ingress lossless pool."""
    xon_offset: Bytes | None = None
    """None where the file has no such column."""

    @property
    def name(self) -> str:
        """What SONiC calls the profile that it makes of the row."""
        return f"pg_lossless_{self.speed_mbps}_{self.cable_m}m_profile"


class WredSpec(SpecModel):
    """A row of WRED_PROFILE: the line for ECN-capable packets of colour green."""

    marks: bool
    """Whether packets are marked; else dropped early."""
    kmin: Bytes
    """green_min_threshold."""
    kmax: Bytes
    """green_max_threshold."""
    percent: Annotated[float, Field(ge=0, le=100)]
    """green_drop_probability."""


class SchedulerSpec(SpecModel):
    """A row of SCHEDULER."""

    type: Annotated[SchedulerType, Field(strict=False)]
    """How its queues get their turn."""
    weight: Annotated[int, Field(ge=1, le=2**16)] = 1
    """Of those that share."""
    is_shaped: bool = False
    """Whether it limits the rate of its queues."""


class QueueRow(SpecModel):
    """A queue of a port: its rows of BUFFER_QUEUE and QUEUE."""

    queue: Annotated[int, Field(ge=0, le=63)]
    """Its number."""
    buffer: str = ""
    """The buffer profile's name."""
    scheduler: str = ""
    """The scheduler's name."""
    wred: str = ""
    """The WRED profile's name."""


class GroupRow(SpecModel):
    """A priority group of a port: its row of BUFFER_PG."""

    group: Annotated[int, Field(ge=0, le=63)]
    """Its number."""
    buffer: str
    """The buffer profile's name; empty: the switch makes one for speed and cable."""


class WatchdogRow(SpecModel):
    """A row of PFC_WD."""

    action: str
    """drop, forward or alert."""
    detection_ms: Annotated[int, Field(ge=1, le=60_000)]
    """detection_time."""
    restoration_ms: Annotated[int, Field(ge=0, le=60_000)]
    """restoration_time."""


class PortsSpec(SpecModel):
    """Ports with the same settings."""

    ports: Annotated[tuple[str, ...], Field(strict=False, max_length=MOST_PORTS)] = ()
    """Their names on the switch."""
    speed_mbps: int | None = None
    """Of PORT, if the files have it."""
    cable_m: int | None = None
    """Of CABLE_LENGTH, if the files have it."""
    groups: Annotated[tuple[GroupRow, ...], Field(strict=False)] = ()
    """By number."""
    queues: Annotated[tuple[QueueRow, ...], Field(strict=False)] = ()
    """By number."""
    dscp_to_tc: str = ""
    """The map's name."""
    tc_to_queue: str = ""
    """The map's name."""
    tc_to_group: str = ""
    """The map's name."""
    pfc: Annotated[tuple[int, ...], Field(strict=False)] = ()
    """The priorities of pfc_enable."""
    watchdog: WatchdogRow | None = None
    """None where PFC_WD has no such port."""


Map = Annotated[tuple[int, ...], Field(strict=False, max_length=64)]
"""What each number from 0 on is mapped to."""


class ProfileSpec(SpecModel):
    """The buffers and QoS of a switch model."""

    name: str
    """Of the catalog, or of the first file."""
    files: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """That it was read from."""
    pools: dict[str, PoolSpec] = Field(default_factory=dict)
    """BUFFER_POOL."""
    buffers: dict[str, BufferProfileSpec] = Field(default_factory=dict)
    """BUFFER_PROFILE."""
    lookup: Annotated[tuple[LookupRow, ...], Field(strict=False)] = ()
    """pg_profile_lookup.ini."""
    wred: dict[str, WredSpec] = Field(default_factory=dict)
    """WRED_PROFILE."""
    schedulers: dict[str, SchedulerSpec] = Field(default_factory=dict)
    """SCHEDULER."""
    dscp_to_tc: dict[str, Map] = Field(default_factory=dict)
    """DSCP_TO_TC_MAP."""
    tc_to_queue: dict[str, Map] = Field(default_factory=dict)
    """TC_TO_QUEUE_MAP."""
    tc_to_group: dict[str, Map] = Field(default_factory=dict)
    """TC_TO_PRIORITY_GROUP_MAP."""
    oversubscription: float | None = None
    """over_subscribe_ratio of DEFAULT_LOSSLESS_BUFFER_PARAMETER."""
    dynamic_th: Exponent | None = None
    """default_dynamic_th of DEFAULT_LOSSLESS_BUFFER_PARAMETER."""
    kinds: Annotated[tuple[PortsSpec, ...], Field(strict=False)] = ()
    """Its ports, those with most of one kind first."""
    unused: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Tables about queues that the kit has no use for."""
