"""A lab as a Mininet network: its nodes, links and `mininet>` command line.

    from rocelab.mininet import LabCLI, LabNet

    net = LabNet("zone-small")
    net.start()
    LabCLI(net)
    net.stop()

`LabNet` is a `mininet.net.Mininet` whose switches run FRR, from the name or file of a lab, or from
a lab that is up. Links are wired in one batch as in every runtime; Mininet's objects represent
existing nodes and links. Nothing outside the lab is changed or removed: `mn -c` is never called,
and Mininet's own host-wide limits are not set.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from rocelab.base.progress import ProgressSink, no_progress
from rocelab.lab import hosts
from rocelab.lab.lab import Lab, PlannedLab, RunningLab
from rocelab.lab.providers import provider_of
from rocelab.lab.providers.mininet import find_mininet
from rocelab.lab.teardown import take_down
from rocelab.linux import namespaces
from rocelab.observe.evidence.unconverged import keep_unconverged
from rocelab.planning.fabric import Link as PlannedLink
from rocelab.planning.fabric import Port
from rocelab.record import LabFiles, recorded_labs

find_mininet()

from mininet.cli import CLI  # noqa: E402
from mininet.link import Intf, Link  # noqa: E402
from mininet.net import Mininet  # noqa: E402
from mininet.node import Node  # noqa: E402

AnyLab = PlannedLab[RunningLab] | RunningLab


class LabNode(Node):  # type: ignore[misc]
    """A shell in a running node, with FRR's `vtysh` in a switch."""

    def __init__(self, name: str, files: LabFiles, programs: Path | None) -> None:
        self.files = files
        super().__init__(name, inNamespace=False)
        if programs is not None:
            self.cmd(f"export PATH={programs}:$PATH")

    def _popen(self, cmd: list[str], **params: object) -> subprocess.Popen[bytes]:
        start = super()._popen

        def started() -> subprocess.Popen[bytes]:
            hosts.enter(self.files, self.name)
            process: subprocess.Popen[bytes] = start(cmd, **params)
            return process

        return namespaces.on_own_thread(started)

    def start(self, _controllers: object) -> None:
        """Mininet asks switches to start; these already run."""


class LabLink(Link):  # type: ignore[misc]
    """A link that exists already."""

    @classmethod
    def makeIntfPair(cls, *_: object, **__: object) -> None:  # noqa: N802
        """Nothing is left to make."""

    def delete(self) -> None:
        """Taking the lab down removes its links."""


class LabNet(Mininet):  # type: ignore[misc]
    """A lab as a Mininet network; a lab that is up is entered at once."""

    def __init__(self, lab: AnyLab | str | Path) -> None:
        """Raises InputError if there is no such lab, MachineError without Mininet or root."""
        self.lab: AnyLab = _lab_of(lab)
        # Skip Mininet's one-time setup of the machine, which changes sysctls of the host.
        before, Mininet.inited = Mininet.inited, True
        try:
            super().__init__(controller=None, link=LabLink)
        finally:
            Mininet.inited = before
        if isinstance(self.lab, RunningLab):
            self.enter()

    def build(self) -> None:
        """There is nothing to build before the lab is up."""

    def start(self, progress: ProgressSink = no_progress) -> None:
        """Bring the lab up if it is not, and open a shell in each node. Raises as `Lab.up`."""
        if isinstance(self.lab, PlannedLab):
            keep_unconverged(self.lab)
            self.lab = self.lab.up(progress)
        if not self.built:
            self.enter()

    def enter(self) -> None:
        """Open a shell in each node of the running lab, and register its links."""
        assert isinstance(self.lab, RunningLab)
        fabric = self.lab.fabric
        for planned in fabric.nodes:
            handle = self.lab.node(planned.name)
            programs = handle.daemon_files.programs if planned.is_switch else None
            node = LabNode(planned.name, handle.files, programs)
            (self.switches if planned.is_switch else self.hosts).append(node)
            self.nameToNode[planned.name] = node
        for link in fabric.links:
            self.links.append(self._link(link))
        self.built = True

    def _link(self, link: PlannedLink) -> LabLink:
        made = LabLink(
            self.nameToNode[link.a.node],
            self.nameToNode[link.b.node],
            intfName1=link.a.interface,
            intfName2=link.b.interface,
            addr1=link.a.mac,
            addr2=link.b.mac,
            intf=_KnownIntf,
        )
        for intf, port in ((made.intf1, link.a), (made.intf2, link.b)):
            intf.know(port)
        return made

    def leave(self) -> None:
        """Close the shells; the lab keeps running."""
        for node in (*self.switches, *self.hosts):
            node.terminate()
        for known in (self.switches, self.hosts, self.links, self.nameToNode):
            known.clear()
        self.built = False

    def stop(self) -> None:
        """Close the shells and take the lab down."""
        self.leave()
        take_down(self.lab.name)


class LabCLI(CLI):  # type: ignore[misc]
    """Mininet's command line, which takes the first word of `srv1-1 ping srv2-1` for a node."""

    identchars = f"{CLI.identchars}-"


class _KnownIntf(Intf):  # type: ignore[misc]
    """An interface with an address that Mininet did not give it."""

    def config(self, **_: object) -> dict[str, object]:
        """Nothing is left to configure."""
        return {}

    def know(self, port: Port) -> None:
        if port.address is not None:
            self.ip, length = port.address.split("/")
            self.prefixLen = int(length)


def _lab_of(lab: AnyLab | str | Path) -> AnyLab:
    if isinstance(lab, PlannedLab | RunningLab):
        return lab
    if str(lab) in recorded_labs():
        return RunningLab.open(lab)
    return Lab.planned(lab, provider_of("mininet"))
