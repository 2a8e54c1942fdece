"""A running node: its namespace, its daemons, and commands in it.

A handle needs a node's name and its lab's files. It reads the node's state at each call, so that
any process may have one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from rocelab.base.errors import InputError, MachineError
from rocelab.lab import hosts, wiring
from rocelab.linux import links, mounts, namespaces, netlink, processes
from rocelab.linux.bracket import Bracket
from rocelab.linux.commands import Command, LateError
from rocelab.linux.links import LinkCounters, read_counters
from rocelab.record import LabFiles
from rocelab.routing import daemons
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr.memory import read_memory
from rocelab.routing.stack import STACKS, Installation, RoutingStack, read_installation

if TYPE_CHECKING:
    from rocelab.planning.fabric import Link, Port

Result = TypeVar("Result")


class PortGoneError(MachineError):
    """A port of a running lab was removed or renamed in its node."""

    def __init__(self, port: Port | str) -> None:
        super().__init__(
            f"{port} is gone: it was removed or renamed in its node",
            "take the lab down and bring it up again",
        )


@dataclass(frozen=True, slots=True)
class NamespaceNode:
    """A node whose processes run on this machine in their own network namespace. Other kinds of
    nodes differ only in how a process is started in them."""

    name: str
    files: LabFiles

    @property
    def netns(self) -> Path:
        return self.files.netns_of(self.name)

    @property
    def daemon_files(self) -> DaemonFiles:
        return DaemonFiles(self.files.node(self.name))

    @property
    def installation(self) -> Installation:
        """The programs of the routing stack that the lab was brought up with."""
        return read_installation(self.files.root)

    @property
    def stack(self) -> RoutingStack:
        """The routing stack that the lab was brought up with."""
        return STACKS.find(self.installation.stack)

    @property
    def command_line(self) -> list[str]:
        """The stack's command line for the node's own daemons, as a command in the node."""
        # By its shell, as /run may be mounted noexec.
        return ["/bin/sh", str(self.daemon_files.programs / self.stack.shell)]

    def exec(
        self, argv: Sequence[str], *, timeout_s: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` in the node, without input, and return its output when it ends: a process
        that it leaves in the background runs on.

        Raises InputError when there is no such command, MachineError if it runs for longer than
        `timeout_s`: then it and its process group were killed.
        """
        return self._run(argv, timeout_s, self._variables(), self.enter)

    def inside(self, function: Callable[[], Result]) -> Result:
        """What `function` returns when called in the node's network, on a thread of its own. Raises
        what it raises."""
        return namespaces.inside(self.netns, function)

    def enter(self) -> None:
        """Move the calling thread, which must end there, into the node: its network, host name and
        /etc/hosts. Raises OSError."""
        hosts.enter(self.files, self.name)

    def become(self, argv: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
        """Replace this process by a program inside the node, with `environment` added to its
        variables.

        Raises OSError if there is no such program; the process is inside the node then.
        """
        variables = {**self._variables(), **environment}
        self.enter()
        os.execvpe(argv[0], list(argv), variables)  # noqa: S606 - the user's own program

    def shell(self) -> tuple[list[str], dict[str, str]]:
        """The user's shell, as `become` takes it. Its prompt names the node."""
        program = os.environ.get("SHELL") or "/bin/sh"
        prompt = f"{self.files.lab}/{self.name}:\\w\\$ "
        environment = {"PS1": prompt, "ROCELAB_LAB": self.files.lab, "ROCELAB_NODE": self.name}
        arguments = [program]
        if Path(program).name == "bash":
            arguments += ["--rcfile", _bash_start_file(prompt, self.daemon_files.programs)]
        return arguments, environment

    def _variables(self) -> dict[str, str]:
        """This process's variables for a user's commands in the node: `vtysh` or its like in PATH
        talks to the node's own daemons, and some shells hand HOSTNAME on."""
        variables = dict(os.environ)
        if self.daemon_files.programs.is_dir():
            variables["PATH"] = f"{self.daemon_files.programs}:{os.environ.get('PATH', os.defpath)}"
        if "HOSTNAME" in variables:
            variables["HOSTNAME"] = self.name
        return variables

    def run_tool(
        self, argv: Sequence[str], *, timeout_s: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of this machine in the node's namespace, also where the node has other
        files. Raises as `exec` does.
        """
        return self._run(argv, timeout_s, None, lambda: namespaces.enter(self.netns))

    def _run(
        self,
        argv: Sequence[str],
        timeout_s: float,
        environment: Mapping[str, str] | None,
        enter: Callable[[], None],
    ) -> subprocess.CompletedProcess[str]:
        command = Command(argv, environment)

        def run() -> subprocess.CompletedProcess[str]:
            enter()
            try:
                return command.run(timeout_s)
            except LateError:
                raise too_late(argv, self.name, timeout_s) from None
            except FileNotFoundError:
                raise InputError(f"there is no command {argv[0]!r} on this machine") from None
            except OSError as error:
                raise InputError(f"cannot run {argv[0]!r}: {error.strerror}") from None

        return namespaces.on_own_thread(run, command.end)

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the daemons that the stack may run; none before nodes are made."""
        try:
            return self.stack.programs
        except FileNotFoundError:
            return ()

    def daemons(self) -> dict[str, int]:
        """The routing daemons that run, with their processes."""
        files, netns = self.daemon_files, self.netns
        alive = {name: daemons.running_pid(name, files, netns) for name in self.programs}
        return {name: pid for name, pid in alive.items() if pid is not None}

    def processes(self) -> list[int]:
        """Ids of all processes that run in the node, its daemons included."""
        return namespaces.processes_in([self.netns.stat().st_ino])

    def kill_daemons(self, names: Iterable[str]) -> Bracket | None:
        """SIGKILL those of these routing daemons that run and wait until they are gone. Returns
        when that was; None if none ran."""
        alive = self.daemons()
        doomed = [alive[name] for name in names if name in alive]
        return processes.kill_and_wait(doomed, lambda pid: pid in self.daemons().values())

    def configure_daemons(self, configuration: Mapping[str, str]) -> None:
        """Write each daemon's configuration, by daemon name, and make the file system that the
        stack's command line and, each in a copy, the daemons see (`rocelab.linux.mounts`). Raises
        MachineError."""
        installation, view = self.installation, self.files.mounts_of(self.name)
        variables = (f"{name}={value}" for name, value in installation.environment.items())
        shell = installation.shell(self.daemon_files)
        command = ("nsenter", f"--mount={view}", "env", *variables, *shell)
        daemons.write_configuration(
            installation, self.daemon_files, configuration, self.stack.shell, command
        )
        daemons.keep_view(installation, self.daemon_files, view, self.files.machine)

    def daemon_variables(self, name: str) -> dict[str, str]:
        """The environment variables that rocelab gives a daemon."""
        memory = read_memory(self.files.root)
        return {**daemons.ENVIRONMENT, **memory.variables(name, self.daemon_files.library)}

    def try_bgpd(self, variables: Mapping[str, str]) -> str:
        """Run FRR's `bgpd --version` as bgpd will run, with these variables, and return what it
        writes to its standard error. Raises MachineError, OSError."""
        installation = self.installation
        view = mounts.create(Path(installation.root), self.daemon_files.folder, {})

        def run() -> subprocess.CompletedProcess[str]:
            mounts.enter(Path(f"/proc/self/fd/{view}"))
            return subprocess.run(
                [installation.program("bgpd"), "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=daemons.START_TIMEOUT_S,
                check=False,
                env={"PATH": os.defpath, **installation.environment, **variables},
            )

        try:
            return namespaces.on_own_thread(run).stderr
        finally:
            os.close(view)

    def start_daemons(self, names: Iterable[str]) -> None:
        """Start those of these daemons that are not running, in this order, as `up` does.

        If the one that sets the kernel's routes is not running, all are ended first, as FRR's
        watchfrr does. Raises MachineError when one does not start.
        """
        stack = self.stack
        if stack.kernel_daemon not in self.daemons():
            self.kill_daemons(stack.programs)
        for name in names:
            if name not in self.daemons():
                try:
                    self.start_daemon(name)
                except MachineError:
                    # A command that was killed while starting it may have started it.
                    if name not in self.daemons():
                        raise

    def start_daemon(self, name: str, niceness: int = 0) -> None:
        """Start one daemon and return when it has loaded its configuration.

        Raises MachineError with what the daemon printed when it does not start.
        """
        view, daemon_view = self.files.mounts_of(self.name), self.files.mounts_of(self.name, name)
        variables = self.daemon_variables(name)
        daemons.start_daemon(
            self.installation, name, self.daemon_files, self.netns, (view, daemon_view), variables
        )
        self.conclude_start(name, niceness)

    def conclude_start(self, name: str, niceness: int) -> None:
        """Return when a daemon that was started has its configuration, and its priority is set.
        Raises MachineError."""
        try:
            self.stack.await_start(name, self.daemon_files)
        except OSError as error:
            raise daemons.not_started(name, self.daemon_files, str(error)) from None
        if part := self.stack.loading(name, self.daemon_files):
            done = self.exec([*self.command_line, *part], timeout_s=daemons.START_TIMEOUT_S)
            if done.returncode != 0:
                said = (done.stdout + done.stderr).strip()
                raise daemons.not_started(name, self.daemon_files, said)
        pid = self.daemons().get(name)
        if pid is not None:
            self.stack.schedule(name, pid, niceness)

    def send(self, messages: Sequence[bytes]) -> Bracket:
        """Send the messages to the node's kernel in one batch (rtnetlink); return when it executed
        them. Raises OSError."""

        def send() -> Bracket:
            with netlink.open_socket() as channel:
                return Bracket.of(lambda: netlink.send_batch(channel, messages))

        return namespaces.inside(self.netns, send)

    def hold_supervisor(self) -> None:
        """Keep what starts the node's daemons again from doing so. Here nothing does."""

    def free_supervisor(self) -> None:
        """Let what starts the node's daemons again do so."""

    def supervisor_faults(self) -> tuple[str, ...]:
        """What `hold_supervisor` has left, empty after `free_supervisor`."""
        return ()

    def keep_ports(self, cables: Sequence[Link]) -> None:
        """Remember what the kernel forgets of the ports of these links when they go down. Nothing
        for a planned node: `raise_ports` sets what its plan says."""

    def lower_ports(self, cables: Sequence[Link]) -> Bracket:
        """Set the ports of these links down that are still there, in one batch; return when the
        kernel did."""
        indexes = [link.port(self.name).index for link in self._present(cables)]
        return self.send([wiring.set_up(index, up=False) for index in indexes])

    def raise_ports(self, cables: Sequence[Link]) -> Bracket:
        """Set the ports of these links up that are still there, with all that they had; return when
        the kernel did."""
        present = self._present(cables)
        return self.send(
            [message for link in present for message in wiring.bring_up(link, self.name)]
        )

    def _present(self, cables: Sequence[Link]) -> list[Link]:
        """The links whose port here still exists, whatever its name is now."""
        indexes = {port.index for port in self.read_ports().values()}
        return [link for link in cables if link.port(self.name).index in indexes]

    def read_ports(self) -> dict[str, links.KernelLink]:
        """The node's interfaces, by name. Raises OSError if the node is gone."""

        def read() -> dict[str, links.KernelLink]:
            with netlink.open_socket() as channel:
                return {link.name: link for link in links.read_links(channel)}

        return namespaces.inside(self.netns, read)

    def mend_ports(self, cables: Sequence[Link]) -> None:
        """Set again what a fault has changed of the ports of these links, which are up. Nothing for
        a planned node."""

    def port_faults(self, cables: Iterable[Link]) -> list[str]:
        """The problems of the ports of these links: gone, down, or without their neighbour."""

        def read() -> tuple[dict[str, links.KernelLink], set[tuple[int, str]]]:
            with netlink.open_socket() as channel:
                ports = {port.name: port for port in links.read_links(channel)}
                known = {
                    (neighbour.interface, neighbour.mac)
                    for neighbour in links.read_neighbours(channel)
                }
                return ports, known

        ports, known = namespaces.inside(self.netns, read)
        faults = []
        for cable in cables:
            near = cable.port(self.name)
            port = ports.get(near.interface)
            if port is None or port.index != near.index:
                faults.append(f"{near} is gone")
            elif not port.up:
                faults.append(f"{near} is down")
            elif (
                not wiring.is_bridged(cable) and (port.index, cable.far(self.name).mac) not in known
            ):
                faults.append(f"{near} has no entry for its neighbour")
        return faults


def too_late(argv: Sequence[str], node: str, timeout_s: float) -> MachineError:
    """The error of a command that was killed because it did not end in time."""
    return MachineError(
        f"{argv[0]!r} in {node} did not end within {timeout_s:g} s and was killed",
        "give it more with timeout_s, or start it in the background",
    )


def _bash_start_file(prompt: str, programs: Path) -> str:
    """A file in memory that runs the user's own start-up file, then sets the prompt and the path of
    the node's own `vtysh`."""
    lines = ("[ -r ~/.bashrc ] && . ~/.bashrc", f"PATH={programs}:$PATH", f"PS1='{prompt}'", "")
    descriptor = os.memfd_create("rocelab", 0)
    os.write(descriptor, "\n".join(lines).encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return f"/dev/fd/{descriptor}"


@dataclass(frozen=True, slots=True)
class VethLink:
    """A veth pair between two nodes; its state is that of its lower end."""

    link: Link
    lower: NamespaceNode
    upper: NamespaceNode

    @property
    def name(self) -> str:
        return self.link.name

    def down(self) -> None:
        """Take the lower end down: both ends lose carrier at once."""
        self.lower.keep_ports([self.link])
        self.lower.lower_ports([self.link])

    def up(self) -> None:
        """Restore the carrier."""
        self.lower.raise_ports([self.link])

    def counters(self) -> dict[str, LinkCounters]:
        """The counters of both ends, by node. Raises PortGoneError."""
        by_node = {}
        for port, node in ((self.link.a, self.lower), (self.link.b, self.upper)):
            counters = namespaces.inside(node.netns, read_counters)
            if port.interface not in counters:
                raise PortGoneError(port)
            by_node[port.node] = counters[port.interface]
        return by_node
