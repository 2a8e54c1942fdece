"""The runtime `netns`: a node is a namespace and nothing else.

Only its mount keeps it, so that unmounting the lab's tmpfs removes every namespace.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rocelab.base.progress import Progress, ProgressSink
from rocelab.lab.node import NamespaceNode
from rocelab.lab.providers.door import HostRuntime
from rocelab.linux import namespaces
from rocelab.record import LabFiles
from rocelab.routing.frr.kind import FrrMemory
from rocelab.routing.stack import Installation, stack_for

if TYPE_CHECKING:
    from rocelab.planning.fabric import Fabric


@dataclass(frozen=True, slots=True)
class NetnsProvider:
    """Bare namespaces of this machine. `frr`: the folder of an FRR to use instead of this
    machine's."""

    frr: Path | None
    frr_memory: FrrMemory = FrrMemory.LEAN

    @property
    def kind(self) -> str:
        return "netns"

    def check(self, fabric: Fabric) -> None:
        stack = stack_for(fabric)
        stack.check_configuration(fabric, stack.find(self.frr))

    def make_nodes(self, fabric: Fabric, files: LabFiles, progress: ProgressSink) -> None:
        nodes = fabric.nodes

        def make_all() -> None:
            for done, node in enumerate(nodes, start=1):
                os.close(namespaces.create(files.netns_of(node.name)))
                progress(Progress("nodes", done, len(nodes)))

        namespaces.on_own_thread(make_all)

    def installation(self, fabric: Fabric, files: LabFiles) -> Installation:
        return stack_for(fabric).find(self.frr)

    def versions(self, files: LabFiles) -> Mapping[str, str]:
        return {}

    def gone(self, files: LabFiles) -> tuple[str, ...]:
        """None is: the lab's folder keeps their namespaces."""
        return ()

    def node(self, files: LabFiles, name: str) -> NamespaceNode:
        return NamespaceNode(name, files)

    def remove(self, files: LabFiles) -> None:
        """Nothing to do: everything is in the lab's folder."""


NETNS = HostRuntime("netns", NetnsProvider)
