"""Faults of routing daemons: killed, or stopped so that they look alive.

In: a switch and a daemon's name. Out: faults that signal the process in the switch's pid file.
"""

from __future__ import annotations

from dataclasses import dataclass

from labs.errors import InputError
from labs.lab import Lab
from labs.plan.fabric import Fabric
from labs.render import frr
from labs.runtime import processes


@dataclass(frozen=True, slots=True)
class DaemonCrash:
    """A daemon dies (SIGKILL) and is started again at the end.

    With bgpd its sessions are closed by the kernel and zebra withdraws its routes. Without zebra
    the kernel forwards on and bgpd keeps its sessions, but no change reaches the kernel any more.
    Starting zebra again starts the others too: see `NamespaceNode.start_daemons`.
    """

    node: str
    daemon: str
    kind: str = "daemon-crash"

    @property
    def subject(self) -> str:
        return f"{self.daemon} of {self.node}"

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)

    def prepare(self, lab: Lab) -> None:
        """Raises InputError where the lab's switches run no such daemon."""
        check_daemon(lab.fabric, self.daemon)

    def inject(self, lab: Lab) -> None:
        lab.node(self.node).kill_daemons((self.daemon,))

    def restore(self, lab: Lab) -> None:
        if self.daemon not in lab.node(self.node).daemons():
            lab.node(self.node).start_daemons(frr.daemons(lab.fabric))

    def remains(self, lab: Lab) -> tuple[str, ...]:
        return missing_daemons(lab, self.node)


@dataclass(frozen=True, slots=True)
class DaemonHang:
    """A daemon stops (SIGSTOP): its sockets stay open, and neighbours learn of it by their timers.

    What arrives meanwhile waits in its sockets and is read at the end.
    """

    node: str
    daemon: str
    kind: str = "daemon-hang"

    @property
    def subject(self) -> str:
        return f"{self.daemon} of {self.node}"

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,)

    def prepare(self, lab: Lab) -> None:
        """Raises InputError where the lab's switches run no such daemon."""
        check_daemon(lab.fabric, self.daemon)

    def inject(self, lab: Lab) -> None:
        processes.stop(self._pids(lab))

    def restore(self, lab: Lab) -> None:
        processes.resume(self._pids(lab))

    def remains(self, lab: Lab) -> tuple[str, ...]:
        stopped = any(processes.is_stopped(pid) for pid in self._pids(lab))
        return (f"{self.daemon} of {self.node} is stopped",) if stopped else ()

    def _pids(self, lab: Lab) -> list[int]:
        pid = lab.node(self.node).daemons().get(self.daemon)
        return [] if pid is None else [pid]


def check_daemon(fabric: Fabric, daemon: str) -> None:
    """Raises InputError where the fabric's switches run no such daemon."""
    known = frr.daemons(fabric)
    if daemon not in known:
        raise InputError(
            f"the switches of lab {fabric.name} run no {daemon}",
            hint="set routing.bfd" if daemon == "bfdd" else f"they run {', '.join(known)}",
        )


def missing_daemons(lab: Lab, switch: str) -> tuple[str, ...]:
    """Each daemon that a switch should run and does not."""
    alive = lab.node(switch).daemons()
    return tuple(
        f"{daemon} of {switch} does not run"
        for daemon in frr.daemons(lab.fabric)
        if daemon not in alive
    )
