"""A server whose processes all stop for a while.

In: a server. Out: a fault that stops and continues whatever runs in its namespace: traffic agents
and what a user started. The kernel's side of it, its NICs and the answers to pings, goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from labs.lab import Lab
from labs.runtime import processes


@dataclass(frozen=True, slots=True)
class HostPause:
    """Every process of a server gets SIGSTOP, and SIGCONT at the end."""

    server: str
    kind: str = "host-pause"

    @property
    def subject(self) -> str:
        return self.server

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.server,)

    def prepare(self, lab: Lab) -> None:
        """Nothing takes time."""

    def inject(self, lab: Lab) -> None:
        """Until all have stopped: one that runs may have just started another."""
        while running := [pid for pid in self._pids(lab) if processes.is_running(pid)]:
            processes.stop(running)

    def restore(self, lab: Lab) -> None:
        processes.resume(self._stopped(lab))

    def remains(self, lab: Lab) -> tuple[str, ...]:
        return tuple(f"process {pid} of {self.server} is stopped" for pid in self._stopped(lab))

    def _pids(self, lab: Lab) -> list[int]:
        return lab.node(self.server).processes()

    def _stopped(self, lab: Lab) -> list[int]:
        return [pid for pid in self._pids(lab) if processes.is_stopped(pid)]
