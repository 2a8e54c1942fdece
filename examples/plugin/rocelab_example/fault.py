"""Fault `route-hole`: a switch drops what it should forward to a server, and BGP does not see it.

A policy rule of the kernel drops packets to the server's prefix. FRR does not read such rules: the
route stays, and the switch still announces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rocelab import InputError, MachineError
from rocelab.faults.base import NodeFault, RunningLab, SwitchFaultSpec
from rocelab.linux.bracket import Bracket

if TYPE_CHECKING:
    from rocelab import Fabric

PRIORITY = "50"
"""Of the rule: before that of the main table."""


@dataclass(frozen=True, slots=True)
class RouteHole(NodeFault):
    """A switch drops packets to these prefixes."""

    prefixes: tuple[str, ...]
    kind: str = "route-hole"

    def intact(self, lab: RunningLab) -> frozenset[str]:
        present = self._present(lab)
        return frozenset(f"{self.node} forwards to {p}" for p in self.prefixes if p not in present)

    def inject(self, lab: RunningLab) -> Bracket:
        return Bracket.of(lambda: [self._rule(lab, "add", prefix) for prefix in self.prefixes])

    def restore(self, lab: RunningLab) -> Bracket | None:
        present = self._present(lab)
        if not present:
            return None
        return Bracket.of(lambda: [self._rule(lab, "del", prefix) for prefix in present])

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return tuple(f"{self.node} drops packets to {prefix}" for prefix in self._present(lab))

    def _rule(self, lab: RunningLab, verb: str, prefix: str) -> str:
        rule = ["to", prefix, "blackhole", "priority", PRIORITY]
        return self._ip(lab, "rule", verb, *rule)

    def _present(self, lab: RunningLab) -> list[str]:
        rules = self._ip(lab, "rule", "show", "priority", PRIORITY)
        return [p for p in self.prefixes if f" to {p.removesuffix('/32')} blackhole" in rules]

    def _ip(self, lab: RunningLab, *words: str) -> str:
        done = lab.node(self.node).exec(["ip", *words])
        if done.returncode:
            raise MachineError(f"{self.node}: ip {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


class RouteHoleSpec(SwitchFaultSpec):
    """A switch drops packets to a server, and BGP does not see it."""

    kind: Literal["route-hole"]
    server: Annotated[str, Field(description="the server that it forwards nothing to")]

    def resolve(self, fabric: Fabric) -> RouteHole:
        if self.server not in {server.name for server in fabric.servers}:
            raise InputError(f"there is no server {self.server} in lab {fabric.name}")
        nics = fabric.nics(self.server)
        prefixes = {p.prefix for nic in nics for p in fabric.prefixes_holding(nic.ip)}
        return RouteHole(self.find(fabric), tuple(sorted(prefixes)))
