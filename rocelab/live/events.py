"""What the stream tells of a lab, as data; docs/live.md describes each for those who read it.

All times are CLOCK_REALTIME, ns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CarrierEvent:
    """A port lost its carrier or has it again, by rtnetlink. `t_ns`: when that was read."""

    t_ns: int
    link: str
    node: str
    interface: str
    carrier: bool
    kind: Literal["carrier"] = "carrier"


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """An end of a BGP session came up or went down."""

    t_ns: int
    """By the log of its bgpd."""

    link: str | None
    """None for a neighbour that is not in the lab."""

    node: str
    neighbour: str
    """FRR's name for the other end."""

    peer: str | None
    """The node of the other end; None for a neighbour that is not in the lab."""

    up: bool
    cause: str
    """That of `rocelab.results.stages.Cause`."""

    detail: str
    """FRR's words for the cause."""

    kind: Literal["session"] = "session"


@dataclass(frozen=True, slots=True)
class RoutesEvent:
    """A switch's kernel changed its table between `t_ns` and `until_ns`: `changes` notifications of
    rtnetlink, `removed` of which removed a route."""

    t_ns: int
    until_ns: int
    node: str
    changes: int
    removed: int
    kind: Literal["routes"] = "routes"


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node's state is another one than in the sample before (`rocelab.live.state.NodeState`)."""

    t_ns: int
    node: str
    state: str
    ports_down: int
    sessions_down: int
    routes_incomplete: int
    kind: Literal["node"] = "node"


@dataclass(frozen=True, slots=True)
class FaultEvent:
    """A fault entered the lab's record, or left it: then no trace of it remains.

    `ends_ns`: when it will be undone by itself, None if nobody has said.
    """

    t_ns: int
    number: int
    fault: str
    subject: str
    begins: bool
    ends_ns: int | None
    kind: Literal["fault"] = "fault"


@dataclass(frozen=True, slots=True)
class SchemeEvent:
    """The lab spreads flows in another way; `scheme` has its keys. `t_ns`: of the sample."""

    t_ns: int
    scheme: Mapping[str, object]
    kind: Literal["scheme"] = "scheme"


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A job of the page or, with the pattern `probes`, as many flows of probes begin to send, or
    have ended. `outcome`: None while they run; else `valid`, `disturbed`, `invalid`, `failed` or
    `stopped`."""

    t_ns: int
    pattern: str
    ranks: int
    outcome: str | None
    kind: Literal["job"] = "job"


@dataclass(frozen=True, slots=True)
class UseEvent:
    """Another process has the lab for itself, `user`, such as `a drill`, or has it no longer: None.
    `t_ns`: when that was seen."""

    t_ns: int
    user: str | None
    pid: int | None
    kind: Literal["use"] = "use"


@dataclass(frozen=True, slots=True)
class NoteEvent:
    """What the reader should know of the view itself, such as what could not be read."""

    t_ns: int
    text: str
    kind: Literal["note"] = "note"


Event = (
    CarrierEvent
    | SessionEvent
    | RoutesEvent
    | NodeEvent
    | FaultEvent
    | SchemeEvent
    | JobEvent
    | UseEvent
    | NoteEvent
)


def document(event: Event) -> dict[str, object]:
    """The event as in the stream."""
    return asdict(event)
