"""Nodes that are containers, in any runtime: what the lab's folder records, and their handles.

FRR's daemons are started in a container one by one, so that any image with FRR works; its entry
point is not run. A container has its folder in the lab's mounted at the same path, so
configurations, logs and sockets are where they are in every runtime; inside, only what daemons
write is writable.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rocelab.base.errors import InputError, MachineError
from rocelab.base.files import replace_file
from rocelab.base.progress import ProgressSink
from rocelab.lab.engine import ContainerEngine, find_engine
from rocelab.lab.image import built_image
from rocelab.lab.kind import CONTAINER_LABEL
from rocelab.lab.node import NamespaceNode, too_late
from rocelab.linux import namespaces, processes
from rocelab.linux.commands import Command, LateError
from rocelab.record import DamagedRecordError, LabFiles
from rocelab.routing import daemons
from rocelab.routing.frr.installation import (
    FRR_FOLDERS,
    FRR_USER,
    FrrInstallation,
    version_in,
)

if TYPE_CHECKING:
    from rocelab.planning.fabric import Fabric

CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "KILL",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SYS_ADMIN",
    "SYS_NICE",
)
"""The capabilities that FRR's daemons request (zebra/main.c, bgpd/bgp_main.c, bfdd/bfdd.c) and
those for dropping to their user. Named one by one: some hosts refuse `--privileged`."""

WAITS = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
"""A process 1 that does nothing but reap orphaned processes."""

IMAGE_RUN_FOLDER = Path("/run/frr")
"""The folder of FRR's sockets in images: Debian's and FRR's own have /var/run as a link to /run."""

_FINDS_FRR = (
    f"for folder in {' '.join(map(str, FRR_FOLDERS))}; do test -x $folder/bgpd && break; done; "
    f"id -u {FRR_USER} && id -g {FRR_USER} && "
    "echo $folder && { test -x $folder/mgmtd && echo mgmtd || echo -; } && "
    "{ command -v vtysh || echo -; } && $folder/bgpd --version"
)
_EXEC_FAILED = (125, 126, 127)
_MARK = "ROCELAB_EXEC"
"""The variable by which the processes of one `exec` are found in a container."""


@dataclass(frozen=True, slots=True)
class Containers:
    """The record of a lab's containers: their engine, the prefix of their names, their unique label
    and their image."""

    program: str
    prefix: str
    label: str
    image: str

    @property
    def engine(self) -> ContainerEngine:
        return ContainerEngine(self.program)

    def container(self, node: str) -> str:
        """What the engine calls a node."""
        return f"{self.prefix}-{node}"


@dataclass(frozen=True, slots=True)
class ContainerNode(NamespaceNode):
    """A node that is a container: `container` is its name or its id, for the engine's commands."""

    engine: ContainerEngine
    container: str

    def exec(
        self, argv: Sequence[str], *, timeout_s: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        mark = f"{_MARK}={secrets.token_hex(16)}"
        program = self.engine.program
        command = Command([program, "exec", "--env", mark, self.container, *argv])
        try:
            done = command.run(timeout_s)
        except BaseException as error:
            # The engine's program was killed, and what it started in the container was not.
            processes.kill_and_wait(self._marked(mark))
            if isinstance(error, LateError):
                raise too_late(argv, self.container, timeout_s) from None
            raise
        # Docker 20 writes it to standard output.
        said = done.stdout + done.stderr
        if done.returncode in _EXEC_FAILED and "executable file not found" in said:
            raise InputError(f"there is no command {argv[0]!r} in {self.container}")
        return done

    def _marked(self, mark: str) -> list[int]:
        """The processes in the container that were started with that variable, and their
        children."""
        return [pid for pid in self.processes() if mark in processes.environment_of(pid)]

    def become(self, argv: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
        program = self.engine.program
        terminal = ("--interactive", *(("--tty",) if os.isatty(0) else ()))
        arguments = ["exec", *terminal, *_variables(environment), self.container, *argv]
        os.execvp(program, [program, *arguments])  # noqa: S606 - the user's own program

    def daemons(self) -> dict[str, int]:
        """A pid file has the id inside the container; here the process has another
        (pid_namespaces(7))."""
        here = {inner: pid for pid in self.processes() for inner in _inner_ids(pid)}
        pids = {}
        for name in self.programs:
            inner = daemons.written_pid(name, self.daemon_files)
            pid = None if inner is None else here.get(inner)
            if pid is not None and daemons.is_daemon(pid, name, self.daemon_files):
                pids[name] = pid
        return pids

    def configure_daemons(self, configuration: Mapping[str, str]) -> None:
        installation, files = self.installation, self.daemon_files
        shell = installation.shell(files)
        daemons.write_configuration(installation, files, configuration, self.stack.shell, shell)

    def try_bgpd(self, variables: Mapping[str, str]) -> str:
        bgpd = self.installation.program("bgpd")
        command = ("exec", *_variables(variables), self.container, bgpd, "--version")
        return self.engine.call(command).stderr

    def start_daemon(self, name: str, niceness: int = 0) -> None:
        arguments = self.installation.command(name, self.daemon_files)
        try:
            done = self.engine.call(
                ("exec", *_variables(self.daemon_variables(name)), self.container, *arguments),
                timeout_s=daemons.START_TIMEOUT_S,
            )
        except MachineError:
            raise daemons.not_started(name, self.daemon_files, "", timed_out=True) from None
        if done.returncode != 0:
            raise daemons.not_started(name, self.daemon_files, done.stderr)
        self.conclude_start(name, niceness)


def read_containers(files: LabFiles) -> Containers:
    """Read the record of a lab's containers. Raises FileNotFoundError, DamagedRecordError."""
    try:
        return Containers(**json.loads(_file(files).read_text()))
    except (ValueError, TypeError):
        raise DamagedRecordError(files.lab, f"{_file(files)} names no containers") from None


def write_containers(files: LabFiles, containers: Containers) -> None:
    """Write the record of a lab's containers atomically."""
    replace_file(_file(files), json.dumps(asdict(containers)))


def _file(files: LabFiles) -> Path:
    return files.root / "containers.json"


def begin(files: LabFiles, prefix: str, image: str | None, progress: ProgressSink) -> Containers:
    """Record the containers before they are made, with rocelab's own image by default.

    Raises MachineError if there is no engine or no image.
    """
    engine = find_engine()
    chosen = image or built_image(engine, progress)
    containers = Containers(engine.program, prefix, secrets.token_hex(16), chosen)
    write_containers(files, containers)
    return containers


def container_node(files: LabFiles, name: str) -> ContainerNode:
    """The handle of a node that is a container. Raises FileNotFoundError."""
    containers = read_containers(files)
    return ContainerNode(name, files, containers.engine, containers.container(name))


def engine_versions(files: LabFiles) -> dict[str, str]:
    """The release of the engine of a lab's containers, and their image. Raises MachineError."""
    containers = read_containers(files)
    release = containers.engine.run("version", "--format", "{{.Server.Version}}").strip()
    return {containers.program: release, "image": containers.image}


def keep_namespace(files: LabFiles, containers: Containers, node: str) -> None:
    """Mount the namespace of a node's running container."""
    name = containers.container(node)
    pid = containers.engine.run("inspect", "--format", "{{.State.Pid}}", name).strip()
    namespaces.keep(Path("/proc", pid, "ns/net"), files.netns_of(node))


def find_frr(fabric: Fabric, files: LabFiles) -> FrrInstallation:
    """The FRR in the image of running containers. Raises MachineError if there is none."""
    containers = read_containers(files)
    container = containers.container(fabric.switches[0].name)
    done = containers.engine.call(("exec", container, "/bin/sh", "-c", _FINDS_FRR))
    installation = installation_in(done.stdout)
    if installation is None:
        raise MachineError(
            f"image {containers.image} has no FRR, or no user {FRR_USER}",
            "name another with --image, or none for one that is built here",
        )
    return installation


def installation_in(said: str) -> FrrInstallation | None:
    """The FRR of an image, from the output of `_FINDS_FRR` in it; None if it has none."""
    lines = said.splitlines()
    if len(lines) < 6:
        return None
    user, group, folder, mgmtd, vtysh = lines[:5]
    version = "\n".join(lines[5:])
    return FrrInstallation(
        version=version_in(version),
        folder=folder,
        user=int(user),
        group=int(group),
        has_mgmtd=mgmtd == "mgmtd",
        run_folder=str(IMAGE_RUN_FOLDER),
        vtysh="" if vtysh == "-" else vtysh,
    )


def remove_containers(files: LabFiles) -> None:
    """Remove every container with the recorded label. Idempotent."""
    try:
        containers = read_containers(files)
    except FileNotFoundError:
        return
    engine = containers.engine
    label = f"label={CONTAINER_LABEL}={containers.label}"
    ids = engine.run("ps", "--all", "--quiet", "--no-trunc", "--filter", label).split()
    if ids:
        engine.run("rm", "--force", "--volumes", *ids)


def _variables(environment: Mapping[str, str]) -> list[str]:
    return [word for item in environment.items() for word in ("--env", "=".join(item))]


def _inner_ids(pid: int) -> list[int]:
    """The id of a process in its innermost pid namespace; none if it has ended."""
    return [int(number) for number in processes.status_of(pid).get("NSpid", "").split()[-1:]]
