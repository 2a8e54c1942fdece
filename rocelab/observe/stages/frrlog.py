"""Parses FRR's logs of a reconvergence to typed events.

The logs are those of a switch's bfdd, bgpd and zebra under tracing
(`rocelab.observe.stages.tracing`); events are in order of time, in CLOCK_REALTIME nanoseconds.

The lines are those of the tested releases, FRR 8.4 and 10.3. A line counts only if all of it is as
expected; other lines are ignored, so that a version with another wording gives no event instead of
a wrong one.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from rocelab.base.files import untrusted_lines
from rocelab.results.stages import DetectionCause

NOTIFIED_WITHIN_NS = 500_000_000
"""A session ends with its NOTIFICATION at once, or when a busy machine lets bgpd run; an older
NOTIFICATION belongs to an earlier end, as no session comes back within this time."""

NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class SessionDown:
    """bgpd took an established session down; `detail` is the reason in FRR's words."""

    time_ns: int
    node: str
    neighbour: str
    cause: DetectionCause
    detail: str


@dataclass(frozen=True, slots=True)
class SessionUp:
    """A session of bgpd became established."""

    time_ns: int
    node: str
    neighbour: str


@dataclass(frozen=True, slots=True)
class BfdDown:
    """bfdd took a session down, because of `detail`: `control-expired` is its detection time (RFC
    5880 section 6.8.4), others come from the neighbour or bgpd."""

    time_ns: int
    node: str
    interface: str
    detail: str


@dataclass(frozen=True, slots=True)
class RouteReceived:
    """bgpd accepted a route of a neighbour, or its withdrawal (RFC 4271 section 4.3)."""

    time_ns: int
    node: str
    neighbour: str
    prefix: str
    withdrawn: bool


class RouteProgress(StrEnum):
    """How far a route's change has come on its way from bgpd to the kernel.

    SENT: bgpd has chosen its best paths and notifies zebra. PROCESSED: zebra has made a FIB entry.
    HANDED: zebra's dataplane thread passes it to the kernel. ACKNOWLEDGED: zebra has read the
    kernel's acknowledgement.
    """

    SENT = "sent"
    PROCESSED = "processed"
    HANDED = "handed"
    ACKNOWLEDGED = "acknowledged"


@dataclass(frozen=True, slots=True)
class RouteStep:
    """A route's change came to `step`; `deleted` tells a removal from a new or changed route."""

    time_ns: int
    node: str
    prefix: str
    step: RouteProgress
    deleted: bool


LogEvent = SessionDown | SessionUp | BfdDown | RouteReceived | RouteStep

_STAMP = re.compile(r"(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d)\.(\d{6}) [A-Z]+: (?:\[[^\]]*\])* ?")

_NEIGHBOUR = r"(?P<neighbour>[^\s(]+)(?:\([^)]*\))?"
_PREFIX = r"(?P<prefix>[0-9a-f.:]*[.:][0-9a-f.:]*/\d+)"
_TABLE = r"default\(0:254\):"

_ADJCHANGE = re.compile(
    rf"%ADJCHANGE: neighbor {_NEIGHBOUR} in vrf default (?P<state>Up|Down)(?: (?P<why>\S.*))?"
)
_NOTIFICATION = re.compile(
    rf"%NOTIFICATION(?:\(Hard Reset\))?: (?P<way>sent to|received from) neighbor {_NEIGHBOUR} "
    r"(?P<code>\d+/\d+) \((?P<text>[^)]*)\).*"
)
_BFD = re.compile(
    r"state-change: \[mhop:no .*ifname:(?P<interface>\S{1,15})\] up -> down reason:(?P<why>\S+)"
)
_WITHDRAWN = re.compile(rf"{_NEIGHBOUR} rcvd UPDATE about {_PREFIX} IPv[46] unicast -- withdrawn")
_ANNOUNCED = re.compile(rf"{_NEIGHBOUR} rcvd {_PREFIX} IPv[46] unicast")
_STEPS = {
    # By number in FRR 8.4, by name and table in 10.3.
    RouteProgress.SENT: re.compile(
        r"Tx route (?P<action>add|delete) VRF (?:0|default \(table id 0\)) "
        rf"{_PREFIX}(?: metric .*)?"
    ),
    RouteProgress.PROCESSED: re.compile(
        rf"{_TABLE}{_PREFIX}: (?P<action>Adding|Updating|Deleting) route rn .*"
    ),
    RouteProgress.HANDED: re.compile(
        rf"0:{_PREFIX} Dplane route update ctx \S+ op ROUTE_(?P<action>INSTALL|UPDATE|DELETE)"
    ),
    RouteProgress.ACKNOWLEDGED: re.compile(
        rf"{_TABLE}{_PREFIX} Processing dplane result ctx \S+, "
        r"op ROUTE_(?P<action>INSTALL|UPDATE|DELETE) result SUCCESS"
    ),
}
_DELETIONS = {"delete", "Deleting", "DELETE"}

_CAUSE_OF_REASON = {
    "Interface down": DetectionCause.CARRIER,
    "BFD down received": DetectionCause.BFD,
    "Peer closed the session": DetectionCause.SESSION_CLOSED,
    "Admin. shutdown": DetectionCause.ADMIN,
    "User reset": DetectionCause.ADMIN,
}
_LOST_REASON = "Waiting for peer OPEN"
"""What FRR 10.3 names for most ends: the reason of the attempt before has replaced the session's
own (FRRouting/frr pull request 19667)."""

_NOTIFICATION_SENT, _NOTIFICATION_RECEIVED = "BGP Notification send", "BGP Notification received"
# RFC 4271 section 4.5, RFC 4486 section 3, RFC 9384 section 3 (Cease/BFD Down).
_CAUSE_OF_CODE = {
    "4/0": DetectionCause.HOLD_TIMER,
    "6/2": DetectionCause.ADMIN,
    "6/4": DetectionCause.ADMIN,
    "6/10": DetectionCause.BFD,
}


def parse_log(node: str, text: str) -> tuple[LogEvent, ...]:
    """The events in the log of one daemon of `node`, sorted: each of its threads buffers lines for
    a while, so a file is not in order."""
    return tuple(sorted(_events(node, untrusted_lines(text)), key=lambda event: event.time_ns))


def _events(node: str, lines: Iterable[str]) -> Iterator[LogEvent]:
    notified: dict[tuple[str, str], tuple[int, str, str]] = {}
    for line in lines:
        stamp = _STAMP.match(line)
        seconds = None if stamp is None else _seconds(stamp[1])
        if stamp is None or seconds is None:
            continue
        message = line[stamp.end() :].rstrip()
        time_ns = seconds * 10**9 + int(stamp[2]) * NS_PER_US
        if match := _NOTIFICATION.fullmatch(message):
            notified[match["neighbour"], match["way"]] = time_ns, match["code"], match["text"]
        elif match := _ADJCHANGE.fullmatch(message):
            neighbour = match["neighbour"]
            if match["state"] == "Up":
                yield SessionUp(time_ns, node, neighbour)
            else:
                cause, detail = _why(match["why"] or "", neighbour, time_ns, notified)
                yield SessionDown(time_ns, node, neighbour, cause, detail)
        elif event := _other_event(node, time_ns, message):
            yield event


def _why(
    reason: str,
    neighbour: str,
    time_ns: int,
    notified: dict[tuple[str, str], tuple[int, str, str]],
) -> tuple[DetectionCause, str]:
    """bgpd names a NOTIFICATION as the only reason of a session's end; the line before says which
    one."""
    way = {_NOTIFICATION_SENT: "sent to", _NOTIFICATION_RECEIVED: "received from"}.get(reason)
    if reason == _LOST_REASON:
        return DetectionCause.OTHER, ""
    if way is None:
        return _CAUSE_OF_REASON.get(reason, DetectionCause.OTHER), reason
    told_ns, code, text = notified.get((neighbour, way), (0, "", reason))
    if time_ns - told_ns > NOTIFIED_WITHIN_NS:
        code, text = "", reason
    if reason == _NOTIFICATION_RECEIVED:
        return DetectionCause.SESSION_CLOSED, text
    return _CAUSE_OF_CODE.get(code, DetectionCause.OTHER), text


def _other_event(node: str, time_ns: int, message: str) -> LogEvent | None:
    # Most lines under tracing are irrelevant: one word test is faster than five expressions.
    if "route" in message or "dplane" in message:
        for step, expression in _STEPS.items():
            if match := expression.fullmatch(message):
                return RouteStep(
                    time_ns, node, match["prefix"], step, match["action"] in _DELETIONS
                )
        return None
    if "rcvd" in message:
        if match := _WITHDRAWN.fullmatch(message):
            return RouteReceived(time_ns, node, match["neighbour"], match["prefix"], True)
        if match := _ANNOUNCED.fullmatch(message):
            return RouteReceived(time_ns, node, match["neighbour"], match["prefix"], False)
        return None
    if match := _BFD.fullmatch(message):
        return BfdDown(time_ns, node, match["interface"], match["why"])
    return None


@lru_cache(maxsize=256)
def _seconds(text: str) -> int | None:
    """Unix seconds of FRR's `2026/11/21 10:30:35`, which is UTC (rocelab.routing.daemons), or None
    if not a date."""
    date, _, clock = text.partition(" ")
    parts = [int(part) for part in (*date.split("/"), *clock.split(":"))]
    try:
        return calendar.timegm((*parts, 0, 0, 0))
    except ValueError:
        return None
