"""The runtime of labs that other tools deployed and rocelab adopted: nodes are their containers.

Nothing is made and nothing removed. A node is reached from outside: by its namespace, which the
lab's folder has as a link to that of its process, by the sockets of its daemons, and by the
engine's `exec`. A container that was started again has another process and another namespace: then
the lab has to be adopted again, and the namespace's number tells.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rocelab.base.errors import InputError
from rocelab.base.files import replace_file
from rocelab.base.progress import ProgressSink
from rocelab.lab import wiring
from rocelab.lab.checks import Check
from rocelab.lab.engine import ContainerEngine
from rocelab.lab.kind import ADOPTED
from rocelab.lab.providers.base import NodeProvider
from rocelab.lab.providers.containers import ContainerNode
from rocelab.linux import namespaces, netlink, portstate, processes
from rocelab.linux.bracket import Bracket
from rocelab.linux.links import read_links
from rocelab.linux.rootfs import open_below
from rocelab.record import DamagedRecordError, LabFiles, recorded_count
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr.kind import FrrMemory
from rocelab.routing.stack import Installation, read_installation

if TYPE_CHECKING:
    from rocelab.planning.fabric import Fabric, Link

SUPERVISOR = "watchfrr"
RUN_FOLDER = "var/run/frr"
"""Where FRR's sockets are in a container; /var/run is a link to /run there as well."""


@dataclass(frozen=True, slots=True)
class AdoptedContainer:
    """A node's container: its id, its image, its first process, the number of the process's network
    namespace, and the commands of the routing daemons that ran in it, by name."""

    container: str
    image: str
    pid: int
    netns: int
    commands: Mapping[str, tuple[str, ...]]

    @property
    def is_there(self) -> bool:
        """Whether the process still runs, in the same namespace: its id may be another's by now.
        Raises PermissionError for one with rights that this process lacks."""
        try:
            return namespaces.inode_of(self.pid) == self.netns
        except PermissionError:
            raise
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class AdoptionRecord:
    """What is recorded of a lab that was adopted: how containerlab and its engine call it."""

    lab: str
    program: str
    nodes: Mapping[str, AdoptedContainer]

    @property
    def engine(self) -> ContainerEngine:
        return ContainerEngine(self.program)


def write_adopted(files: LabFiles, adopted: AdoptionRecord) -> None:
    """Write the record of the containers atomically."""
    replace_file(files.adopted, json.dumps(asdict(adopted), indent=1))


def read_adopted(files: LabFiles) -> AdoptionRecord:
    """Read the record of the containers. Raises FileNotFoundError, DamagedRecordError."""
    try:
        document = json.loads(files.adopted.read_text())
        nodes = {
            name: AdoptedContainer(**{**node, "commands": _tuples(node["commands"])})
            for name, node in document["nodes"].items()
        }
        return AdoptionRecord(document["lab"], document["program"], nodes)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise DamagedRecordError(files.lab, f"{files.adopted.name} names no containers") from None


def _tuples(commands: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[str, ...]]:
    return {name: tuple(command) for name, command in commands.items()}


@dataclass(frozen=True, slots=True)
class ContainerFrr(DaemonFiles):
    """The files of FRR in somebody else's container, whose root folder is `root`."""

    root: Path

    def open_control(self, daemon: str) -> int:
        return open_below(self.root, f"{RUN_FOLDER}/{daemon}.vty", os.O_PATH | os.O_NOFOLLOW)


@dataclass(frozen=True, slots=True)
class AdoptedNode(ContainerNode):
    """A node of a lab that was adopted."""

    record: AdoptedContainer

    @property
    def daemon_files(self) -> ContainerFrr:
        return ContainerFrr(self.files.node(self.name), Path(f"/proc/{self.record.pid}/root"))

    @property
    def command_line(self) -> list[str]:
        return ["vtysh"]

    def daemons(self) -> dict[str, int]:
        """The routing daemons that run, of those that ran when the lab was adopted."""
        daemons = {}
        for pid in self.processes():
            name = processes.name_of(pid)
            if name in self.record.commands and processes.is_alive(pid):
                daemons[name] = pid
        return daemons

    def kill_daemons(self, names: Iterable[str]) -> Bracket | None:
        """Raises InputError, before any is killed, if one is the container's first process: the
        container would end with it, and its links."""
        wanted, alive = tuple(names), self.daemons()
        if self.record.pid in (alive.get(name) for name in wanted):
            raise InputError(
                f"the container of {self.name} runs a daemon as its first process and ends with it",
                hint="daemon-hang stops it and does not end it",
            )
        return ContainerNode.kill_daemons(self, wanted)

    def hold_supervisor(self) -> None:
        """FRR's watchfrr, which starts a daemon again that was killed or does not answer."""
        processes.stop(self._supervisors())

    def free_supervisor(self) -> None:
        processes.resume(self._supervisors())

    def supervisor_faults(self) -> tuple[str, ...]:
        stopped = any(processes.is_stopped(pid) for pid in self._supervisors())
        return (f"{SUPERVISOR} of {self.name} is stopped",) if stopped else ()

    def _supervisors(self) -> list[int]:
        return [pid for pid in self.processes() if processes.name_of(pid) == SUPERVISOR]

    def start_daemons(self, names: Iterable[str]) -> None:
        """Start those that do not run, by their commands, unless watchfrr does. Raises
        MachineError."""
        if self._supervisors():
            return
        alive = self.daemons()
        for name in names:
            if name not in alive:
                self.engine.run("exec", "--detach", self.container, *self.record.commands[name])

    def keep_ports(self, cables: Sequence[Link]) -> None:
        """Keep the state of ports that are up. A port that is down stays down, and one that another
        fault has already changed was kept before."""

        def read() -> dict[int, portstate.PortState]:
            with netlink.open_socket() as channel:
                ports = {port.index: port for port in read_links(channel) if port.up}
                wanted = ports.keys() & {link.port(self.name).index for link in cables}
                return {index: portstate.read_port(channel, ports[index]) for index in wanted}

        others = recorded_count(self.files) > 1
        states = namespaces.inside(self.netns, read)
        for link in cables:
            file, state = self._kept_file(link), states.get(link.port(self.name).index)
            if others and file.exists():
                continue
            if state is None:
                file.unlink(missing_ok=True)
            else:
                replace_file(file, portstate.to_json(state))

    def raise_ports(self, cables: Sequence[Link]) -> Bracket:
        indexes = [link.port(self.name).index for link in self._kept_up(cables)]
        done = self.send([wiring.set_up(index, up=True) for index in indexes])
        self.mend_ports(cables)
        return done

    def mend_ports(self, cables: Sequence[Link]) -> None:
        for link in cables:
            index = link.port(self.name).index
            txqlen, lost = self._lost(link)

            def mend(
                index: int = index,
                txqlen: int | None = txqlen,
                lost: Sequence[portstate.RestoreMessage] = lost,
            ) -> None:
                with netlink.open_socket() as channel:
                    if txqlen is not None:
                        netlink.send_batch(channel, [portstate.set_txqlen(index, txqlen)])
                    portstate.send_back(channel, lost)

            if txqlen is not None or lost:
                namespaces.inside(self.netns, mend)

    def port_faults(self, cables: Iterable[Link]) -> list[str]:
        faults = []
        for link, is_up in self._kept_up(cables).items():
            port = link.port(self.name)
            if not is_up:
                faults.append(f"{port} is down")
            elif lost := self._lost(link)[1]:
                faults.append(f"{port} lacks {len(lost)} addresses, neighbours or routes")
        return faults

    def _kept_up(self, cables: Iterable[Link]) -> dict[Link, bool]:
        """The links whose port here was up when it was kept and still exists, each with whether the
        port is up: nobody can undo a fault of a port that was removed."""

        def read() -> dict[int, bool]:
            with netlink.open_socket() as channel:
                return {link.index: link.up for link in read_links(channel)}

        up = namespaces.inside(self.netns, read)
        at = {link: link.port(self.name).index for link in cables if self._kept_file(link).exists()}
        return {link: up[index] for link, index in at.items() if index in up}

    def _lost(self, link: Link) -> tuple[int | None, tuple[portstate.RestoreMessage, ...]]:
        """What was kept of a port and is not so now: its txqlen, and what was set on it."""
        try:
            before = portstate.from_json(self._kept_file(link).read_text())
        except FileNotFoundError:
            return None, ()

        def read() -> portstate.PortState | None:
            with netlink.open_socket() as channel:
                index = link.port(self.name).index
                ports = (port for port in read_links(channel) if port.index == index)
                return next((portstate.read_port(channel, port) for port in ports), None)

        now = namespaces.inside(self.netns, read)
        if now is None:
            return None, ()
        txqlen = before.txqlen if before.txqlen != now.txqlen else None
        return txqlen, portstate.missing(before.kept, now.kept)

    def _kept_file(self, link: Link) -> Path:
        return self.files.node(self.name) / f"{link.port(self.name).interface}.port"


@dataclass(frozen=True, slots=True)
class AdoptedProvider:
    """The containers of a lab that others deployed."""

    @property
    def kind(self) -> str:
        return ADOPTED

    @property
    def frr_memory(self) -> FrrMemory:
        return FrrMemory.PLAIN

    def check(self, fabric: Fabric) -> None:
        raise InputError(
            "a lab that was adopted is not brought up here",
            "deploy it with `containerlab deploy`, then `rocelab adopt` it",
        )

    def make_nodes(self, fabric: Fabric, files: LabFiles, progress: ProgressSink) -> None:
        self.check(fabric)

    def installation(self, fabric: Fabric, files: LabFiles) -> Installation:
        return read_installation(files.root)

    def versions(self, files: LabFiles) -> Mapping[str, str]:
        adopted = read_adopted(files)
        release = adopted.engine.run("version", "--format", "{{.Server.Version}}").strip()
        images = sorted({node.image for node in adopted.nodes.values()})
        return {adopted.program: release, "images": ", ".join(images)}

    def gone(self, files: LabFiles) -> tuple[str, ...]:
        """The nodes whose containers have ended or were started again since the lab was adopted."""
        nodes = read_adopted(files).nodes
        return tuple(name for name, node in nodes.items() if not node.is_there)

    def node(self, files: LabFiles, name: str) -> AdoptedNode:
        adopted = read_adopted(files)
        record = adopted.nodes[name]
        return AdoptedNode(name, files, adopted.engine, record.container, record)

    def remove(self, files: LabFiles) -> None:
        """Nothing to do: nothing was made outside the lab's folder."""


class AdoptedRuntime:
    """The runtime `adopted`, as registered."""

    def provider(self, image: str | None, frr: Path | None, frr_memory: FrrMemory) -> NodeProvider:
        raise InputError(
            "no command makes the nodes of the runtime adopted",
            "adopt a lab that others deployed with `rocelab adopt`",
        )

    def recorded(self) -> NodeProvider:
        return AdoptedProvider()

    def checks(self) -> Sequence[Check]:
        return ()


ADOPTED_LABS = AdoptedRuntime()
