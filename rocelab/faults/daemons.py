"""Faults of routing daemons: killed, or stopped so that they look alive.

They signal the process in the switch's pid file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.faults.base import NodeFault, SwitchFaultSpec
from rocelab.lab.lab import RunningLab
from rocelab.linux import processes
from rocelab.linux.bracket import Bracket
from rocelab.plan.fabric import Fabric
from rocelab.render import frr


class Daemon(StrEnum):
    """The daemons of a switch; bfdd only where the lab has BFD, mgmtd only since FRR 10."""

    ZEBRA = "zebra"
    BGPD = "bgpd"
    BFDD = "bfdd"
    MGMTD = "mgmtd"


@dataclass(frozen=True, slots=True)
class DaemonFault(NodeFault):
    """What faults of a daemon have in common."""

    daemon: str

    @property
    def subject(self) -> str:
        return f"{self.daemon} of {self.node}"

    def prepare(self, lab: RunningLab) -> None:
        """Raises InputError if the switch runs no such daemon."""
        _check(lab.name, self.node, lab.daemons_of(self.node), self.daemon)


@dataclass(frozen=True, slots=True)
class DaemonCrash(DaemonFault):
    """A daemon dies (SIGKILL) and is started again at the end.

    If bgpd dies, the kernel closes its sessions and zebra withdraws its routes. Without zebra the
    kernel continues to forward and bgpd keeps its sessions, but no change reaches the kernel.
    Without mgmtd, part of FRR since release 10, only configuration stops. Restarting zebra restarts
    the others too: see `NamespaceNode.start_daemons`.
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
        found = (f"{self.daemon} of {self.node} is stopped",) if stopped else ()
        return (*found, *lab.node(self.node).supervisor_faults())

    def _pids(self, lab: RunningLab) -> list[int]:
        pid = lab.node(self.node).daemons().get(self.daemon)
        return [] if pid is None else [pid]


def check_planned(fabric: Fabric, switch: str, daemon: str) -> None:
    """Raises InputError if a switch of the fabric runs no such daemon with any FRR."""
    if fabric.observed is None:
        known: Sequence[str] = ("mgmtd", *frr.daemons(fabric))
    else:
        known = fabric.observed.daemons.get(switch, ())
    _check(fabric.name, switch, known, daemon)


def _check(lab: str, switch: str, known: Sequence[str], daemon: str) -> None:
    if daemon not in known:
        hints = {"bfdd": "set routing.bfd", "mgmtd": "FRR has it since release 10"}
        raise InputError(
            f"{switch} of lab {lab} runs no {daemon}",
            hint=hints.get(daemon, f"it runs {', '.join(known)}"),
        )


def running_daemons(lab: RunningLab, switch: str, names: Sequence[str]) -> frozenset[str]:
    """Each of these daemons that a switch runs, with its process."""
    alive = lab.node(switch).daemons()
    return frozenset(
        f"{name} of {switch} runs as process {alive[name]}" for name in names if name in alive
    )


def missing_daemons(lab: RunningLab, switch: str) -> tuple[str, ...]:
    """Each daemon that a switch should run but does not."""
    alive = lab.node(switch).daemons()
    return tuple(
        f"{daemon} of {switch} does not run"
        for daemon in lab.daemons_of(switch)
        if daemon not in alive
    )


def idle_daemons(lab: RunningLab, switch: str) -> tuple[str, ...]:
    """Each daemon that a switch should run but does not, or that a signal has stopped."""
    stopped = (
        f"a signal has stopped {name} of {switch}"
        for name, pid in lab.node(switch).daemons().items()
        if processes.is_stopped(pid)
    )
    return (*missing_daemons(lab, switch), *stopped)


class DaemonCrashSpec(SwitchFaultSpec):
    """A routing daemon dies (SIGKILL). Undone by starting it again."""

    kind: Literal["daemon-crash"]
    daemon: Annotated[Daemon, Field(strict=False)] = Daemon.BGPD

    def resolve(self, fabric: Fabric) -> DaemonCrash:
        switch = self.find(fabric)
        check_planned(fabric, switch, self.daemon)
        return DaemonCrash(switch, self.daemon.value)


class DaemonHangSpec(SwitchFaultSpec):
    """A routing daemon hangs (SIGSTOP): its sessions look alive until their timers end."""

    kind: Literal["daemon-hang"]
    daemon: Annotated[Daemon, Field(strict=False)] = Daemon.BGPD

    def resolve(self, fabric: Fabric) -> DaemonHang:
        switch = self.find(fabric)
        check_planned(fabric, switch, self.daemon)
        return DaemonHang(switch, self.daemon.value)
