"""The interface of a runtime: how it makes nodes and removes them.

For the rest of rocelab a node is two things, however it is made: a network namespace mounted at
/run/rocelab/<lab>/netns/<node>, and a folder /run/rocelab/<lab>/nodes/<node> with the files of its
daemons. Links, queues, traffic, faults and measurements need no more, so they are the same in all
runtimes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from rocelab.base.progress import ProgressSink
from rocelab.lab.node import NamespaceNode
from rocelab.record import LabFiles
from rocelab.routing.frr.kind import FrrMemory
from rocelab.routing.stack import Installation

if TYPE_CHECKING:
    from rocelab.planning.fabric import Fabric


class NodeProvider(Protocol):
    """A way to make nodes."""

    @property
    def kind(self) -> str:
        """Its name in records and results."""
        ...

    @property
    def frr_memory(self) -> FrrMemory:
        """How the daemons of a lab that it brings up are to use memory."""
        ...

    def check(self, fabric: Fabric) -> None:
        """Raises MachineError if this machine lacks what the runtime needs for the fabric,
        InputError if the runtime cannot run its routing stack."""
        ...

    def make_nodes(self, fabric: Fabric, files: LabFiles, progress: ProgressSink) -> None:
        """Make every node, and mount its namespace. Anything made outside the lab's folder is
        recorded in the folder first. Raises MachineError, OSError."""
        ...

    def installation(self, fabric: Fabric, files: LabFiles) -> Installation:
        """The routing stack in the nodes. Raises MachineError if there is none."""
        ...

    def versions(self, files: LabFiles) -> Mapping[str, str]:
        """The releases of the programs that made the nodes of a lab that is up, and their image.
        Raises MachineError."""
        ...

    def gone(self, files: LabFiles) -> tuple[str, ...]:
        """The nodes of a lab that is up that are gone. Raises DamagedRecordError."""
        ...

    def node(self, files: LabFiles, name: str) -> NamespaceNode:
        """The handle of a node."""
        ...

    def remove(self, files: LabFiles) -> None:
        """Remove what `make_nodes` made outside the lab's folder, from what was recorded.
        Idempotent. The processes in the nodes' namespaces must have been killed. Raises
        MachineError if it fails."""
        ...
