"""A switch that loses its power: all its links and processes at once.

The fault ends with a cold boot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rocelab.base.errors import InputError
from rocelab.faults.base import NodeFault, SwitchFaultSpec, Target
from rocelab.faults.daemons import missing_daemons, running_daemons
from rocelab.faults.ports import running_ports
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric, Link


@dataclass(frozen=True, slots=True)
class SwitchPowerLoss(NodeFault):
    """Neighbours lose their carrier, then the daemons are killed.

    Ports go down one after the other in one batch, because the kernel cannot take several down at
    once. Carriers go first, so that no session ends before its link. The boot finds no route in the
    kernel and no knowledge of neighbours; ports come up once the daemons run. Parts outside FRR
    stay: hash seed, queues and the scheme's program are the switch's hardware.
    """

    kind: str = "power-loss"

    def dark_ports(self, fabric: Fabric) -> tuple[tuple[str, str], ...]:
        links = fabric.links_of[self.node]
        return tuple((end.node, end.interface) for link in links for end in (link.a, link.b))

    def intact(self, lab: RunningLab) -> frozenset[str]:
        lit = running_ports(lab, [(self.node, link.port(self.node)) for link in self._links(lab)])
        return lit | running_daemons(lab, self.node, lab.daemons_of(self.node))

    def inject(self, lab: RunningLab) -> Bracket:
        """The instant is that of the carriers: no neighbour sees the daemons die."""
        node = lab.node(self.node)
        dark = node.lower_ports(self._links(lab))
        node.kill_daemons(node.stack.programs)
        return dark

    def restore(self, lab: RunningLab) -> Bracket | None:
        """The instant is when power returns: the boot time is part of the recovery."""
        if not self.remains(lab):
            return None
        # The fault may be half done: a boot begins without carrier, routes and processes.
        begun = self.inject(lab)
        node = lab.node(self.node)
        node.start_daemons(lab.daemons_of(self.node))
        node.raise_ports(self._links(lab))
        return begun

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        faults = lab.node(self.node).port_faults(self._links(lab))
        return (*missing_daemons(lab, self.node), *faults)

    def _links(self, lab: RunningLab) -> tuple[Link, ...]:
        return lab.fabric.links_of[self.node]


class PowerLossSpec(SwitchFaultSpec):
    """A switch loses its power: all its links and processes at once. Undone by a cold boot."""

    drawn = Target.UPPER_SWITCH
    kind: Literal["power-loss"]

    def resolve(self, fabric: Fabric) -> SwitchPowerLoss:
        if fabric.is_adopted:
            raise InputError(
                f"lab {fabric.name} was adopted: rocelab cannot boot a switch that it did not make",
                hint="take its links down, with `links`, or kill a daemon of it",
            )
        return SwitchPowerLoss(self.find(fabric))
