"""A switch whose BGP sessions are all shut at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rocelab.faults import policy
from rocelab.faults.base import NodeFault, SwitchFaultSpec
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric


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


class AbruptRemovalSpec(SwitchFaultSpec):
    """All BGP sessions of a switch are shut at once."""

    kind: Literal["abrupt-removal"]

    def resolve(self, fabric: Fabric) -> AbruptRemoval:
        policy.check_rendered(fabric)
        return AbruptRemoval(self.find(fabric))
