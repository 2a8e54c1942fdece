"""The fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rocelab.faults.base import NodeFault, RunningLab, SwitchFaultSpec
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric


@dataclass(frozen=True, slots=True)
class Raising(NodeFault):
    """A fault that raises in one of its methods."""

    where: str
    kind: str = "broken-route"

    def _at(self, where: str) -> None:
        if self.where == where:
            raise LookupError(f"no {where}")

    def intact(self, lab: RunningLab) -> frozenset[str]:
        self._at("intact")
        return frozenset({"all"})

    def inject(self, lab: RunningLab) -> Bracket:
        self._at("inject")
        return Bracket.of(lambda: None)

    def restore(self, lab: RunningLab) -> Bracket | None:
        self._at("restore")
        return None

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        self._at("remains")
        return ()


class RaisingSpec(SwitchFaultSpec):
    """A fault that raises."""

    kind: Literal["broken-route"]
    where: Literal["plan", "intact", "inject", "restore", "remains"] = "inject"

    def resolve(self, fabric: Fabric) -> Raising:
        fault = Raising(self.find(fabric), self.where)
        fault._at("plan")
        return fault
