"""A routing daemon that hangs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rocelab.faults.base import Target
from rocelab.faults.daemons import DaemonFault, DaemonFaultSpec
from rocelab.lab.lab import RunningLab
from rocelab.linux import processes
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric


@dataclass(frozen=True, slots=True)
class DaemonHang(DaemonFault):
    """A daemon stops (SIGSTOP): its sockets stay open, and neighbours learn of it by their timers.

    Data that arrives meanwhile waits in its sockets and is read at the end.
    """

    kind: str = "daemon-hang"

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset(
            f"{self.daemon} of {self.node} (process {pid}) is not stopped"
            for pid in self._pids(lab)
            if not processes.is_stopped(pid)
        )

    def inject(self, lab: RunningLab) -> Bracket:
        lab.node(self.node).hold_supervisor()
        return processes.stop(self._pids(lab)) or Bracket.now()

    def restore(self, lab: RunningLab) -> Bracket | None:
        resumed = processes.resume(self._pids(lab))
        lab.node(self.node).free_supervisor()
        return resumed

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        stopped = any(processes.is_stopped(pid) for pid in self._pids(lab))
        remains = (f"{self.daemon} of {self.node} is stopped",) if stopped else ()
        return (*remains, *lab.node(self.node).supervisor_faults())

    def _pids(self, lab: RunningLab) -> list[int]:
        pid = lab.node(self.node).daemons().get(self.daemon)
        return [] if pid is None else [pid]


class DaemonHangSpec(DaemonFaultSpec):
    """A routing daemon hangs (SIGSTOP): its sessions look alive until their timers end."""

    drawn = Target.SWITCH
    kind: Literal["daemon-hang"]

    def resolve(self, fabric: Fabric) -> DaemonHang:
        return DaemonHang(self.find(fabric), self.daemon_in(fabric))
