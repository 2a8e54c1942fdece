"""What faults of a switch's daemons share: the daemons, and which of them run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from rocelab.base.errors import InputError
from rocelab.base.wording import RefusedError, listed, name_hint, shown
from rocelab.faults.base import NodeFault, SwitchFaultSpec
from rocelab.lab.lab import RunningLab
from rocelab.linux import processes
from rocelab.planning.fabric import Fabric
from rocelab.routing.stack import STACKS, stack_for


def _names() -> list[str]:
    """The daemons of every routing stack."""
    return sorted({name for stack in STACKS.all().values() for name in stack.programs})


def _in_schema(schema: dict[str, object]) -> None:
    schema["enum"] = _names()


def _known(name: str) -> str:
    if name not in _names():
        raise RefusedError(
            f"expected {listed(_names(), 'or')}, got {shown(name)}", name_hint(name, _names())
        )
    return name


DaemonName = Annotated[
    str,
    AfterValidator(_known),
    Field(
        description="by default the one that holds the BGP sessions",
        json_schema_extra=_in_schema,
    ),
]
"""A daemon of a routing stack. Of FRR's, bfdd runs only where the lab has BFD, and mgmtd only since
FRR 10."""


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

    daemon: DaemonName | None = None

    def daemon_in(self, fabric: Fabric) -> str:
        """The daemon's name, by default the one with the BGP sessions. Raises InputError if the
        switch runs none of that name with any release."""
        stack, switch = stack_for(fabric), self.find(fabric)
        if fabric.observed is None:
            known: Sequence[str] = (
                *stack.of_some_releases,
                *stack.daemons(fabric.network_of(switch), fabric.node(switch)),
            )
        else:
            known = fabric.observed.daemons.get(switch, ())
        daemon = self.daemon or stack.speaker
        _check(fabric.name, switch, known, daemon)
        return daemon


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
