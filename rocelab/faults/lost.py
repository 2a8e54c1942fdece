"""A fault of a lab's record that cannot be read back.

Its package was uninstalled, cannot be loaded, or refuses now what it accepted. It has its name and
its nodes, nothing restores it, and `down` takes it away with the lab.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from rocelab.base.errors import InputError
from rocelab.faults.base import SingleFaultSpec
from rocelab.faults.door import KINDS
from rocelab.lab.lab import RunningLab
from rocelab.planning.fabric import Fabric


@dataclass(frozen=True, slots=True)
class LostFault:
    """A fault that can neither be read back nor be undone; `why` says what happened to its
    package, or what it says."""

    kind: str
    subject: str
    nodes: tuple[str, ...]
    why: str

    def _refuse(self, lab: RunningLab) -> NoReturn:
        raise InputError(
            f"{self.kind} of {self.subject} cannot be undone: {self.why}",
            "install the package that injected it and restore the fault, or take the lab down: "
            f"`rocelab down {lab.name}`",
        )

    prepare = intact = inject = restore = remains = _refuse


class LostSpec(SingleFaultSpec):
    """Stands for the spec of such a fault."""

    subject: str
    nodes: tuple[str, ...]
    why: str

    @classmethod
    def recorded(cls, document: Mapping[str, Any]) -> Self:
        """Of a fault's document in a lab's record."""
        kind, package = document["spec"]["kind"], document.get("package") or "another rocelab"
        try:
            KINDS.find(kind)
        except InputError as error:
            why = error.message
            if not KINDS.has(kind):
                why = f"it is of {package}, which is not installed any more"
        else:
            why = f"it was written by {package}, and its keys have changed since"
        return cls(
            kind=kind,
            subject=document.get("subject", "an unknown subject"),
            nodes=tuple(document.get("nodes", ())),
            why=why,
        )

    def resolve(self, fabric: Fabric) -> LostFault:
        return LostFault(self.kind, self.subject, self.nodes, self.why)
