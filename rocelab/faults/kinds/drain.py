"""The graceful drain of a switch (RFC 8326)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rocelab.faults import policy
from rocelab.faults.base import NodeFault, SwitchFaultSpec, Target
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric

GRACEFUL_SHUTDOWN = "bgp graceful-shutdown"


NEIGHBOURS_ASKED = 4
"""The number of a drained switch's neighbours that are checked: all get the same, and each answer
takes CPU time."""


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


class DrainSpec(SwitchFaultSpec):
    """Graceful shutdown (RFC 8326): neighbours are asked to prefer any other path."""

    drawn = Target.UPPER_SWITCH
    kind: Literal["drain"]

    def resolve(self, fabric: Fabric) -> Drain:
        policy.check_rendered(fabric)
        return Drain(self.find(fabric))
