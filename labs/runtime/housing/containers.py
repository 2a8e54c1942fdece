"""Nodes that are containers, whoever makes them: what is written down of them, and their handles.

FRR's daemons are started in a container one by one, so that any image with FRR will do, and its own
entry point is not run. A container has its folder in the lab's mounted at the same path, so
configurations, logs and sockets are where they are in every runtime.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn

from labs.errors import InputError, MachineError
from labs.plan.fabric import Fabric
from labs.runtime import daemons, namespaces
from labs.runtime.base import ProgressSink
from labs.runtime.engine import Engine, find_engine, last_line
from labs.runtime.image import built_image
from labs.runtime.node import NamespaceNode
from labs.runtime.record import LabFiles

LABEL = "org.rocelab.record"
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
"""What FRR's daemons ask for (zebra/main.c, bgpd/bgp_main.c, bfdd/bfdd.c), and what dropping to
their user takes. Named one by one: some hosts refuse what `--privileged` wants."""

WAITS = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
"""A process 1 that does nothing and buries what is left to it."""

_FINDS_FRR = (
    f"for folder in {' '.join(map(str, daemons.FRR_FOLDERS))}; do "
    "test -x $folder/bgpd && echo $folder && break; done; id -u frr; id -g frr"
)
_EXEC_FAILED = (125, 126, 127)


@dataclass(frozen=True, slots=True)
class Containers:
    """What is written down of a lab's containers: which engine has them, what their names begin
    with, the label that only they have, and what their image has for FRR. `frr_folder` is empty
    until that is known."""

    program: str
    prefix: str
    label: str
    image: str
    frr_folder: str = ""
    user: int = 0
    group: int = 0

    @property
    def engine(self) -> Engine:
        return Engine(self.program)

    def container(self, node: str) -> str:
        """What the engine calls a node."""
        return f"{self.prefix}-{node}"


@dataclass(frozen=True, slots=True)
class ContainerNode(NamespaceNode):
    """A node that is a container."""

    containers: Containers

    @property
    def container(self) -> str:
        """The container's name, as the engine's own commands take it."""
        return self.containers.container(self.name)

    def exec(
        self, argv: Sequence[str], *, timeout_s: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        done = self.containers.engine.call(("exec", self.container, *argv), timeout_s=timeout_s)
        # Docker 20 says it on the command's own output.
        said = done.stdout + done.stderr
        if done.returncode in _EXEC_FAILED and "executable file not found" in said:
            raise InputError(f"there is no command {argv[0]!r} in {self.container}")
        return done

    def become(self, argv: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
        program = self.containers.program
        terminal = ("--interactive", *(("--tty",) if os.isatty(0) else ()))
        arguments = ["exec", *terminal, *_variables(environment), self.container, *argv]
        os.execvp(program, [program, *arguments])  # noqa: S606 - the user's own program

    def daemons(self) -> dict[str, int]:
        """A daemon wrote down its id in the container; here it has another (pid_namespaces(7))."""
        here = {inner: pid for pid in self.processes() for inner in _inner_ids(pid)}
        found = {}
        for name in daemons.DAEMONS:
            try:
                pid = here[int(self.frr.pid(name).read_text())]
            except (OSError, ValueError, KeyError):
                continue
            if daemons.is_daemon(pid, name):
                found[name] = pid
        return found

    def configure_daemons(self, configuration: Mapping[str, str]) -> None:
        owner = (self.containers.user, self.containers.group)
        daemons.write_configuration(self.frr, configuration, owner)

    def start_daemon(self, name: str, niceness: int = 0) -> None:
        program = str(Path(self.containers.frr_folder, name))
        arguments = daemons.start_arguments(program, name, self.frr)
        done = self.containers.engine.call(
            ("exec", *_variables(daemons.ENVIRONMENT), self.container, *arguments)
        )
        if done.returncode != 0:
            raise MachineError(f"{name} of {self.name} did not start: {last_line(done.stderr)}")
        pid = self.daemons().get(name)
        if pid is not None:
            daemons.schedule(name, pid, niceness)


def read_containers(files: LabFiles) -> Containers:
    """What is written down of the lab's containers. Raises FileNotFoundError."""
    return Containers(**json.loads(_file(files).read_text()))


def write_containers(files: LabFiles, containers: Containers) -> None:
    """Write it down, whole or not at all."""
    fresh = _file(files).with_suffix(".new")
    fresh.write_text(json.dumps(asdict(containers)))
    fresh.replace(_file(files))


def _file(files: LabFiles) -> Path:
    return files.root / "containers.json"


def begin(files: LabFiles, prefix: str, image: str | None, progress: ProgressSink) -> Containers:
    """Write down containers that are to be made, of our image where none is named.

    Raises MachineError without an engine, or an image.
    """
    engine = find_engine()
    chosen = image or built_image(engine, progress)
    containers = Containers(engine.program, prefix, secrets.token_hex(16), chosen)
    write_containers(files, containers)
    return containers


def container_node(files: LabFiles, name: str) -> ContainerNode:
    """The handle of a node that is a container. Raises FileNotFoundError."""
    return ContainerNode(name, files, read_containers(files))


def keep_namespace(files: LabFiles, containers: Containers, node: str) -> None:
    """Mount the namespace of a node's container, which runs."""
    name = containers.container(node)
    pid = containers.engine.run("inspect", "--format", "{{.State.Pid}}", name).strip()
    namespaces.keep(Path("/proc", pid, "ns/net"), files.netns_of(node))


def find_frr(fabric: Fabric, files: LabFiles, containers: Containers) -> None:
    """Write down what the image has for FRR. Raises MachineError where it has none."""
    container = containers.container(fabric.switches[0].name)
    done = containers.engine.call(("exec", container, "/bin/sh", "-c", _FINDS_FRR))
    words = done.stdout.split()
    if len(words) != 3:
        raise MachineError(
            f"image {containers.image} has no FRR, or no user frr",
            "name another with --image, or none for one that is built here",
        )
    folder, user, group = words
    write_containers(
        files, replace(containers, frr_folder=folder, user=int(user), group=int(group))
    )


def remove_containers(files: LabFiles) -> None:
    """Remove what carries the label that was written down. Idempotent."""
    try:
        containers = read_containers(files)
    except FileNotFoundError:
        return
    engine = containers.engine
    label = f"label={LABEL}={containers.label}"
    found = engine.run("ps", "--all", "--quiet", "--no-trunc", "--filter", label).split()
    if found:
        engine.run("rm", "--force", "--volumes", *found)


def _variables(environment: Mapping[str, str]) -> list[str]:
    return [word for item in environment.items() for word in ("--env", "=".join(item))]


def _inner_ids(pid: int) -> list[int]:
    """The id that a process has in its own namespace of processes; none where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return []
    return [int(line.split()[-1]) for line in lines if line.startswith("NSpid:")]
