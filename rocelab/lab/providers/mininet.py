"""The runtime `mininet`: Mininet's class Node makes every node.

The namespace is mounted, so that it outlives Mininet's shell in it and the lab outlives the command
that made it. `rocelab.mininet` wraps a lab of any runtime in a Mininet object with shells,
interfaces, links and Mininet's command line.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocelab.base.errors import MachineError
from rocelab.base.progress import Progress, ProgressSink
from rocelab.lab.checks import program_check
from rocelab.lab.providers.door import HostRuntime
from rocelab.lab.providers.netns import NetnsProvider
from rocelab.linux import namespaces
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles

DEBIAN_PACKAGES = "/usr/lib/python3/dist-packages"
PROGRAMS = ("mnexec", "ifconfig", "nsenter")
_INSTALL = "install it with `make setup` (Debian packages mininet and net-tools)"


def find_mininet() -> None:
    """Make `import mininet` work with Debian's package, which a virtual environment does not see,
    and expose no other package of the system. Raises MachineError if there is no Mininet."""
    if "mininet" in sys.modules or importlib.util.find_spec("mininet"):
        return
    spec = importlib.machinery.PathFinder.find_spec("mininet", [DEBIAN_PACKAGES])
    if spec is None or spec.loader is None:
        raise MachineError("Mininet is not installed", _INSTALL)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mininet"] = module
    spec.loader.exec_module(module)


@dataclass(frozen=True, slots=True)
class MininetProvider(NetnsProvider):
    """Namespaces that Mininet makes."""

    @property
    def kind(self) -> str:
        return "mininet"

    def check(self, fabric: Fabric) -> None:
        NetnsProvider.check(self, fabric)
        find_mininet()
        for program in PROGRAMS:
            if shutil.which(program) is None:
                raise MachineError(f"Mininet needs {program}, which is not installed", _INSTALL)

    def make_nodes(self, fabric: Fabric, files: LabFiles, progress: ProgressSink) -> None:
        find_mininet()
        from mininet.node import Node

        for done, planned in enumerate(fabric.nodes, start=1):
            node = Node(planned.name)
            try:
                namespaces.keep(Path(f"/proc/{node.pid}/ns/net"), files.netns_of(planned.name))
            finally:
                node.terminate()
            progress(Progress("nodes", done, len(fabric.nodes)))

    def versions(self, files: LabFiles) -> Mapping[str, str]:
        find_mininet()
        from mininet.net import VERSION

        return {"mininet": VERSION}


MININET = HostRuntime(
    "mininet",
    MininetProvider,
    lambda: [program_check(("mn", "--version"), "mininet", "the runtime mininet")],
)
