"""Where nodes live: what a runtime does to make one, and to let it go.

A node, however it is made, is two things to everything else: a network namespace mounted at
/run/rocelab/<lab>/netns/<node>, and a folder /run/rocelab/<lab>/nodes/<node> with the files of its
daemons. Links, queues, traffic, faults and measurements need no more, so they are the same in all.
"""

from __future__ import annotations

from typing import Protocol

from rocelab.plan.fabric import Fabric
from rocelab.progress import ProgressSink
from rocelab.runtime.installation import Installation
from rocelab.runtime.kind import RuntimeKind
from rocelab.runtime.node import NamespaceNode
from rocelab.runtime.record import LabFiles


class NodeProvider(Protocol):
    """A way to make nodes."""

    @property
    def kind(self) -> RuntimeKind: ...

    def check(self) -> None:
        """Raises MachineError where this machine has not what it takes."""
        ...

    def make_nodes(self, fabric: Fabric, files: LabFiles, progress: ProgressSink) -> None:
        """Make every node, and mount its namespace. Whatever is made outside the lab's folder is
        written down in it before. Raises MachineError, OSError."""
        ...

    def installation(self, fabric: Fabric, files: LabFiles) -> Installation:
        """The FRR that is in the nodes that were made. Raises MachineError where there is none."""
        ...

    def node(self, files: LabFiles, name: str) -> NamespaceNode:
        """The handle of a node."""
        ...

    def remove(self, files: LabFiles) -> None:
        """Remove what `make_nodes` made outside the lab's folder, from what was written down.
        Idempotent. Processes of the nodes' namespaces have been killed before. Raises MachineError
        where it can not."""
        ...
