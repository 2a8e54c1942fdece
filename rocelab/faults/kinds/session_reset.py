"""BGP sessions that are reset (RFC 7747 sections 5.6 and 5.7)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.faults import policy
from rocelab.faults.base import NodeFault, SwitchFaultSpec, Target
from rocelab.faults.selectors import NodeName, check_node
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric, Link, RouteBasis


class ResetMode(StrEnum):
    """How BGP sessions are reset (RFC 7747 sections 5.6 and 5.7)."""

    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True, slots=True)
class SessionReset(NodeFault):
    """A switch resets its sessions on some links: an instant, which ends by itself.

    Hard: they are closed and reopened (RFC 7747 section 5.6). `soft`: both ends announce all routes
    again and the sessions stay up (RFC 2918), so that no route is lost.
    """

    links: tuple[Link, ...]
    soft: bool = False
    distant: tuple[str, ...] = ()
    """Neighbours over no link of the switch's own, as bgpd calls them."""
    kind: str = "session-reset"

    @property
    def subject(self) -> str:
        near = (link.port(self.node).name for link in self.links)
        return " ".join(f"{self.node}:{name}" for name in (*near, *self.distant))

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
        return [*(policy.peer_name(link, self.node) for link in self.links), *self.distant]


class SessionResetSpec(SwitchFaultSpec):
    """BGP sessions are reset; an instant, which ends by itself."""

    no_lasts = ("a reset is an instant", "remove lasts")
    instant = True
    drawn = Target.SWITCH
    kind: Literal["session-reset"]
    peer: Annotated[NodeName | None, Field(description="a neighbour; else all")] = None
    mode: Annotated[ResetMode, Field(strict=False)] = ResetMode.HARD

    def resolve(self, fabric: Fabric) -> SessionReset:
        policy.check_stack(fabric)
        switch = self.find(fabric)
        links = tuple(link for link in fabric.links_of[switch] if link in fabric.sessions)
        distant = policy.distant_peers(fabric, switch)
        if not links and not distant:
            hint = "name a switch that has neighbours"
            if fabric.basis is RouteBasis.ASSUMED:
                hint = (
                    "its own configuration says which, and is known once the lab is up: use --lab"
                )
            raise InputError(f"{switch} has no BGP session to reset", hint=hint)
        if self.peer is not None:
            check_node(fabric, self.peer)
            neighbours = dict.fromkeys(
                (*(link.far(switch).node for link in links), *distant.values())
            )
            links = tuple(link for link in links if link.far(switch).node == self.peer)
            distant = {name: node for name, node in distant.items() if node == self.peer}
            if not links and not distant:
                raise InputError(
                    f"{switch} has no session with {self.peer}",
                    hint=f"it has with {', '.join(neighbours)}",
                )
        return SessionReset(switch, links, self.mode is ResetMode.SOFT, tuple(distant))
