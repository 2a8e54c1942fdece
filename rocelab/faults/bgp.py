"""Faults of BGP sessions: a graceful drain, an abrupt removal, a reset.

They change bgpd's running configuration and restore it from the rendered one, which a bgpd that
starts meanwhile reads by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.faults import policy
from rocelab.faults.base import NodeFault, SwitchFaultSpec
from rocelab.faults.selectors import NodeName, check_node
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket
from rocelab.plan.fabric import Fabric, Link

GRACEFUL_SHUTDOWN = "bgp graceful-shutdown"
NEIGHBOURS_ASKED = 4
"""The number of a drained switch's neighbours that are checked: all get the same, and each answer
takes CPU time."""


class ResetMode(StrEnum):
    """How BGP sessions are reset (RFC 7747 sections 5.6 and 5.7)."""

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True, slots=True)
class Drain(NodeFault):
    """Graceful shutdown (RFC 8326): the switch asks its neighbours to prefer any other path.

    It announces all paths again with the community GRACEFUL_SHUTDOWN, to which eBGP neighbours give
    local preference 0 (FRR's default), and its sessions stay up. If there is no other path, as
    behind a rack's only switch, nothing moves. Servers with two ports do not notice it.
    """

    kind: str = "drain"

    def intact(self, lab: RunningLab) -> frozenset[str]:
        """Some neighbours with a running bgpd, each with normal paths from the switch."""
        links = [link for link in lab.fabric.links_of[self.node] if link in lab.fabric.sessions]
        neighbours = {link.far(self.node).node: link for link in links}
        return frozenset(
            f"{neighbour} prefers {self.node} as before"
            for neighbour, link in list(neighbours.items())[:NEIGHBOURS_ASKED]
            if policy.answers(lab, neighbour)
            and policy.peer_name(link, neighbour) not in policy.shutting_down(lab, neighbour)
        )

    def inject(self, lab: RunningLab) -> Bracket:
        return policy.configure(lab, self.node, [GRACEFUL_SHUTDOWN])

    def restore(self, lab: RunningLab) -> Bracket | None:
        if not self.remains(lab):
            return None
        return policy.configure(lab, self.node, [f"no {GRACEFUL_SHUTDOWN}"])

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        if not policy.has_bgpd(lab, self.node):
            return ()
        drained = GRACEFUL_SHUTDOWN in policy.running_lines(lab, self.node)
        return (f"{self.node} is in graceful shutdown",) if drained else ()


@dataclass(frozen=True, slots=True)
class AbruptRemoval(NodeFault):
    """All BGP sessions of a switch are shut at once, by its groups of neighbours.

    Neighbours get a notification (RFC 4271 Cease, RFC 9003); links and daemons stay up.
    """

    kind: str = "abrupt-removal"

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset(
            f"the session of {self.node} with {peer} is established"
            for peer, session in policy.sessions(lab, self.node).items()
            if session.established
        )

    def inject(self, lab: RunningLab) -> Bracket:
        return policy.configure(lab, self.node, self._lines(lab))

    def restore(self, lab: RunningLab) -> Bracket | None:
        left = self._left(lab)
        if not left:
            return None
        return policy.configure(lab, self.node, [f"no {line}" for line in left])

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return tuple(f"{self.node} has `{line}`" for line in self._left(lab))

    def _lines(self, lab: RunningLab) -> list[str]:
        groups = policy.peer_groups(lab.fabric, self.node)
        return [f"neighbor {group} shutdown" for group in groups]

    def _left(self, lab: RunningLab) -> list[str]:
        if not policy.has_bgpd(lab, self.node):
            return []
        running = policy.running_lines(lab, self.node)
        return [line for line in self._lines(lab) if line in running]


@dataclass(frozen=True, slots=True)
class SessionReset(NodeFault):
    """A switch resets its sessions on some links: an instant, which ends by itself.

    Hard: they are closed and reopened (RFC 7747 section 5.6). `soft`: both ends announce all routes
    again and the sessions stay up (RFC 2918), so that no route is lost.
    """

    links: tuple[Link, ...]
    soft: bool = False
    kind: str = "session-reset"

    @property
    def subject(self) -> str:
        return " ".join(f"{self.node}:{link.port(self.node).interface}" for link in self.links)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.node, *(link.far(self.node).node for link in self.links))))

    def intact(self, lab: RunningLab) -> frozenset[str]:
        """bgpd's counters of the established sessions since it started, with its process id."""
        pid = lab.node(self.node).daemons().get("bgpd")
        counts = policy.session_counts(lab, self.node)
        return frozenset(
            f"bgpd of {self.node} (process {pid}) has asked {peer} for its routes "
            f"{counts[peer].refreshes} times"
            if self.soft
            else f"bgpd of {self.node} (process {pid}) has lost its session with {peer} "
            f"{counts[peer].ended} times"
            for peer in self._peers()
            if peer in counts and counts[peer].established
        )

    def inject(self, lab: RunningLab) -> Bracket:
        return policy.clear(lab, self.node, self._peers(), soft=self.soft)

    def restore(self, lab: RunningLab) -> None:
        """Nothing to undo: bgpd reopens its sessions by itself."""

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        """Nothing: reopening sessions are part of convergence (`policy.sessions`)."""
        return ()

    def _peers(self) -> list[str]:
        return [policy.peer_name(link, self.node) for link in self.links]


class DrainSpec(SwitchFaultSpec):
    """Graceful shutdown (RFC 8326): neighbours are asked to prefer any other path."""

    kind: Literal["drain"]

    def resolve(self, fabric: Fabric) -> Drain:
        policy.check_rendered(fabric)
        return Drain(self.find(fabric))


class AbruptRemovalSpec(SwitchFaultSpec):
    """All BGP sessions of a switch are shut at once."""

    kind: Literal["abrupt-removal"]

    def resolve(self, fabric: Fabric) -> AbruptRemoval:
        policy.check_rendered(fabric)
        return AbruptRemoval(self.find(fabric))


class SessionResetSpec(SwitchFaultSpec):
    """BGP sessions are reset; an instant, which ends by itself."""

    no_lasts = ("a reset is an instant", "remove lasts")
    instant = True
    kind: Literal["session-reset"]
    peer: Annotated[NodeName | None, Field(description="a neighbour; else all")] = None
    mode: Annotated[ResetMode, Field(strict=False)] = ResetMode.HARD

    def resolve(self, fabric: Fabric) -> SessionReset:
        switch = self.find(fabric)
        links = tuple(link for link in fabric.links_of[switch] if link in fabric.sessions)
        if not links:
            raise InputError(
                f"{switch} has no BGP session to reset", hint="name a switch that has neighbours"
            )
        if self.peer is not None:
            check_node(fabric, self.peer)
            neighbours = dict.fromkeys(link.far(switch).node for link in links)
            links = tuple(link for link in links if link.far(switch).node == self.peer)
            if not links:
                raise InputError(
                    f"{switch} has no session with {self.peer}",
                    hint=f"it has with {', '.join(neighbours)}",
                )
        return SessionReset(switch, links, self.mode is ResetMode.SOFT)
