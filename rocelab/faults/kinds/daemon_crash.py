"""A routing daemon that dies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rocelab.faults.base import Target
from rocelab.faults.daemons import (
    DaemonFault,
    DaemonFaultSpec,
    missing_daemons,
    running_daemons,
)
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric


@dataclass(frozen=True, slots=True)
class DaemonCrash(DaemonFault):
    """A daemon dies (SIGKILL) and is started again at the end.

    If bgpd dies, the kernel closes its sessions and zebra withdraws its routes. Without zebra the
    kernel continues to forward and bgpd keeps its sessions, but no change reaches the kernel.
    Without mgmtd, part of FRR since release 10, only configuration stops. Restarting zebra restarts
    the others too: see `NamespaceNode.start_daemons`. BIRD is one daemon: the kernel continues to
    forward, and neighbours withdraw what it announced.
    """

    kind: str = "daemon-crash"

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return running_daemons(lab, self.node, (self.daemon,))

    def inject(self, lab: RunningLab) -> Bracket:
        node = lab.node(self.node)
        node.hold_supervisor()
        return node.kill_daemons((self.daemon,)) or Bracket.now()

    def restore(self, lab: RunningLab) -> Bracket | None:
        """The time that a daemon needs to load is part of the recovery."""
        node, begun = lab.node(self.node), Bracket.now()
        node.free_supervisor()
        if self.daemon in node.daemons():
            return None
        node.start_daemons(lab.daemons_of(self.node))
        return begun

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return (*lab.node(self.node).supervisor_faults(), *missing_daemons(lab, self.node))


class DaemonCrashSpec(DaemonFaultSpec):
    """A routing daemon dies (SIGKILL). Undone by starting it again."""

    drawn = Target.SWITCH
    kind: Literal["daemon-crash"]

    def resolve(self, fabric: Fabric) -> DaemonCrash:
        return DaemonCrash(self.find(fabric), self.daemon_in(fabric))
