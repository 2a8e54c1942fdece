"""What faults of a switch's daemons share: the daemons, and which of them run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.faults.base import NodeFault, SwitchFaultSpec
from rocelab.lab.lab import RunningLab
from rocelab.linux import processes
from rocelab.plan.fabric import Fabric
from rocelab.routing.frr import configuration as frr


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


class DaemonFaultSpec(SwitchFaultSpec):
    """A fault of a switch's daemon."""

    daemon: Annotated[Daemon, Field(strict=False)] = Daemon.BGPD

    def find(self, fabric: Fabric) -> str:
        """The switch's name. Raises InputError also where it runs no such daemon with any FRR."""
        switch = super().find(fabric)
        check_planned(fabric, switch, self.daemon)
        return switch


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
