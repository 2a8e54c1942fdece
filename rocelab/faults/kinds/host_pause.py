"""A server whose processes all stop for a while.

It stops and continues all processes in the server's namespace: traffic agents and a user's
programs. The server's kernel keeps working, with its NICs and answers to pings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rocelab.faults.base import NodeFault, SingleFaultSpec
from rocelab.faults.selectors import NodeName, check_server
from rocelab.lab.lab import RunningLab
from rocelab.linux import processes
from rocelab.linux.bracket import Bracket, spanning
from rocelab.planning.fabric import Fabric


@dataclass(frozen=True, slots=True)
class HostPause(NodeFault):
    """Every process of a server gets SIGSTOP, and SIGCONT at the end."""

    kind: str = "host-pause"

    def stopped(self) -> tuple[str, ...]:
        return (self.node,)

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset(
            f"process {pid} of {self.node} runs"
            for pid in self._pids(lab)
            if processes.is_running(pid)
        )

    def inject(self, lab: RunningLab) -> Bracket:
        """Repeats until all have stopped: a running one may have just started another."""
        stopped = []
        while running := [pid for pid in self._pids(lab) if processes.is_running(pid)]:
            stopped.append(processes.stop(running) or Bracket.now())
        return spanning(stopped) if stopped else Bracket.now()

    def restore(self, lab: RunningLab) -> Bracket | None:
        return processes.resume(self._stopped(lab))

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return tuple(f"process {pid} of {self.node} is stopped" for pid in self._stopped(lab))

    def _pids(self, lab: RunningLab) -> list[int]:
        return lab.node(self.node).processes()

    def _stopped(self, lab: RunningLab) -> list[int]:
        return [pid for pid in self._pids(lab) if processes.is_stopped(pid)]


class HostPauseSpec(SingleFaultSpec):
    """A server's processes stop, as in a long garbage collection, and go on."""

    kind: Literal["host-pause"]
    server: NodeName

    def resolve(self, fabric: Fabric) -> HostPause:
        check_server(fabric, self.server)
        return HostPause(self.server)
