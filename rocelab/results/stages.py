"""Where the time of a reconvergence went, switch by switch: the data.

Frozen dataclasses of scalars and tuples, which a drill's result can hold and
`rocelab.base.documents` writes and reads. docs/convergence.md explains each stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter

from rocelab.base.documents import Format

SCHEMA_VERSION = 1
LOG_STAMP_NS = 1000
HOLD_NS = 50_000_000
"""How long FRR's bgpd holds a changed route back before it decides on it (bgpd/bgp_route.c,
`spec.hold` of its work queue)."""


@dataclass(frozen=True, slots=True)
class ReadDelay:
    """How late netlink events are stamped, measured by changes at known instants during the
    recording. From just before the system call to the event's stamp, so it includes the kernel's
    own work: an upper bound."""

    probes: int
    median_ns: int
    p99_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """The resolution of the stages of a run."""

    log_stamp_ns: int
    """FRR rounds its stamps down to this: every stage but carrier, kernel and packets."""
    read_delay: ReadDelay | None
    """Of carrier and kernel, None if not measured."""
    packet_interval_ns: int | None
    """Of the first good packet, None if no flow crossed the failed element."""

    @property
    def worst_ns(self) -> int:
        """The coarsest of the three; for the read delay its 99th percentile."""
        delay_ns = 0 if self.read_delay is None else self.read_delay.p99_ns
        return max(self.log_stamp_ns, delay_ns, self.packet_interval_ns or 0)


@dataclass(frozen=True, slots=True)
class SwitchStages:
    """What one switch did after an event; times are nanoseconds after the Convergence Event Instant
    (RFC 6412 section 3.2.2), None if not observed."""

    node: str
    detected_by: DetectionCause | None
    """The kind and the time of its first sign on this switch."""
    detected_ns: int | None
    """The kind and the time of its first sign on this switch."""
    session_ns: int | None
    """Bgpd took its session to the neighbour down, or had it up again."""
    best_path_ns: int | None
    """Bgpd had decided on the route `prefix` and notified zebra."""
    zebra_ns: int | None
    """Zebra passed that route to the kernel."""
    kernel_ns: int | None
    """The kernel's FIB changed for `prefix`, the last of all routes that lost a next hop. RFC 7747
    section 5 benchmarks BGP by the data plane, not by bgpd."""
    first_good_packet_ns: int | None
    """Of the flows that crossed the switch and lost packets, when the last one's packets arrived
    again: Full Convergence Time (RFC 6412 section 3.6.1) of these flows. None if one never
    recovered."""
    prefix: str | None
    changes: int
    """How many changes of its FIB the event caused."""


@dataclass(frozen=True, slots=True)
class Stages:
    """All switches that took part in one event, in order of detection."""

    schema_version: int
    event: str
    resolution: Resolution
    switches: tuple[SwitchStages, ...]


FORMAT = Format(
    Stages,
    SCHEMA_VERSION,
    "a document of convergence stages",
    "give what `rocelab.base.documents.to_json` wrote",
)


class DetectionCause(StrEnum):
    """How a switch detected an event.

    `PEER`: a neighbour withdrew or announced a route. `SESSION_CLOSED`: the neighbour ended the
    session (or its TCP connection ended). `ADMIN`: a command on this switch.
    """

    CARRIER = "carrier"
    BFD = "bfd"
    HOLD_TIMER = "hold-timer"
    PEER = "peer"
    SESSION_CLOSED = "session-closed"
    SESSION_UP = "session-up"
    ADMIN = "admin"
    OTHER = "other"


def holds_until(stages: Stages, until_ns: float) -> int:
    """At how many switches in a row bgpd held the change back for `HOLD_NS`, up to the last
    decision before `until_ns` after the event: a switch that a neighbour's update told of it waited
    for the last decision before that update."""
    decisions = [
        (switch.best_path_ns, switch.detected_ns, switch.detected_by)
        for switch in stages.switches
        if switch.best_path_ns is not None and switch.detected_ns is not None
    ]
    holds, limit_ns = 0, until_ns
    for decided_ns, detected_ns, cause in sorted(decisions, key=itemgetter(0), reverse=True):
        if decided_ns > limit_ns:
            continue
        holds += decided_ns - detected_ns >= HOLD_NS - stages.resolution.worst_ns
        if cause is not DetectionCause.PEER:
            break
        limit_ns = detected_ns
    return holds
