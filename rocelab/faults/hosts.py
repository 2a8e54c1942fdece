"""A server whose processes all stop for a while.

It stops and continues all processes in the server's namespace: traffic agents and a user's
programs. The server's kernel keeps working, with its NICs and answers to pings.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.kernel import processes
from rocelab.kernel.bracket import Bracket, spanning
from rocelab.runtime.lab import Lab


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
        """Does nothing."""

    def intact(self, lab: Lab) -> frozenset[str]:
        return frozenset(
            f"process {pid} of {self.server} runs"
            for pid in self._pids(lab)
            if processes.is_running(pid)
        )

    def inject(self, lab: Lab) -> Bracket:
        """Repeats until all have stopped: a running one may have just started another."""
        stopped = []
        while running := [pid for pid in self._pids(lab) if processes.is_running(pid)]:
            stopped.append(processes.stop(running) or Bracket.now())
        return spanning(stopped) if stopped else Bracket.now()

    def restore(self, lab: Lab) -> Bracket | None:
        return processes.resume(self._stopped(lab))

    def remains(self, lab: Lab) -> tuple[str, ...]:
        return tuple(f"process {pid} of {self.server} is stopped" for pid in self._stopped(lab))

    def _pids(self, lab: Lab) -> list[int]:
        return lab.node(self.server).processes()

    def _stopped(self, lab: Lab) -> list[int]:
        return [pid for pid in self._pids(lab) if processes.is_stopped(pid)]
