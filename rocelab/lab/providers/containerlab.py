"""The runtime `containerlab`: a node is a container that `containerlab deploy` makes.

containerlab gets a topology of nodes without links. As in every runtime, rocelab makes the links by
netlink, with their addresses, queues and indexes. The lab is then one of containerlab's, for
`containerlab inspect` and the like, and one of rocelab's.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from rocelab.base.errors import MachineError
from rocelab.base.files import write_file
from rocelab.base.progress import Progress, ProgressSink
from rocelab.lab.engine import find_engine, last_line
from rocelab.lab.kind import CONTAINER_LABEL
from rocelab.lab.providers.containers import (
    CAPABILITIES,
    IMAGE_RUN_FOLDER,
    WAITS,
    Containers,
    begin,
    engine_versions,
    keep_namespace,
    remove_containers,
)
from rocelab.lab.providers.docker import DockerProvider
from rocelab.lab.providers.door import ContainerRuntime
from rocelab.linux.machines import HOSTS
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles
from rocelab.render.containerlab import topology_file
from rocelab.render.deployment import check_stack
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr.installation import ETC_FOLDER

PROGRAM = "containerlab"
TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class ContainerlabProvider(DockerProvider):
    """Containers that containerlab makes with Docker."""

    @property
    def kind(self) -> str:
        return "containerlab"

    def check(self, fabric: Fabric) -> None:
        check_stack(fabric)
        _find_program()
        if find_engine().program != "docker":
            raise MachineError("containerlab needs Docker, and Docker's engine does not answer")

    def make_nodes(self, fabric: Fabric, files: LabFiles, progress: ProgressSink) -> None:
        containers = begin(files, f"clab-{files.lab}", self.image, progress)
        topology = topology_of(fabric, files, containers)
        write_file(_file(files), yaml.safe_dump(topology, sort_keys=False))
        _run(files, "deploy")
        total = len(fabric.nodes)
        for done, node in enumerate(fabric.nodes, start=1):
            keep_namespace(files, containers, node.name)
            progress(Progress("nodes", done, total))

    def versions(self, files: LabFiles) -> Mapping[str, str]:
        return {PROGRAM: _version(), **engine_versions(files)}

    def remove(self, files: LabFiles) -> None:
        if _file(files).exists():
            _run(files, "destroy", "--cleanup")
        remove_containers(files)


def topology_of(fabric: Fabric, files: LabFiles, containers: Containers) -> Mapping[str, object]:
    """The topology file: the lab's nodes, which run nothing, each with its folder mounted."""
    return {
        "name": files.lab,
        "topology": {
            "defaults": {
                "kind": "linux",
                "image": containers.image,
                "image-pull-policy": "IfNotPresent",
                "network-mode": "none",
                "privileged": False,
                "cap-add": list(CAPABILITIES),
                "labels": {CONTAINER_LABEL: containers.label},
                "entrypoint": "/bin/sh",
                "cmd": shlex.join(["-c", WAITS]),
            },
            "nodes": {
                node.name: {
                    "binds": [
                        f"{files.hosts}:{HOSTS}:ro",
                        *_binds(files.node(node.name), is_own=node.is_switch),
                    ]
                }
                for node in fabric.nodes
            },
        },
    }


def _binds(folder: Path, *, is_own: bool) -> list[str]:
    """Mounts of a node's folder, read-only, and of the folders that its daemons use, if it has its
    `own`."""
    if not is_own:
        return [f"{folder}:{folder}:ro"]
    files = DaemonFiles(folder)
    written = files.daemon_folder
    return [
        f"{folder}:{folder}:ro",
        f"{written}:{written}",
        f"{written}:{IMAGE_RUN_FOLDER}",
        f"{files.etc}:{ETC_FOLDER}:ro",
    ]


def _find_program() -> str:
    program = shutil.which(PROGRAM)
    if program is None:
        raise MachineError(
            "containerlab is not installed",
            "see https://containerlab.dev/install, or use --runtime docker",
        )
    return program


def _version() -> str:
    """The release of containerlab. Raises MachineError."""
    done = subprocess.run(
        [_find_program(), "version", "--short"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def _run(files: LabFiles, verb: str, *options: str) -> None:
    """Raises MachineError with the last line of containerlab's output."""
    command = [_find_program(), verb, "--topo", str(_file(files)), *options]
    done = subprocess.run(
        command,
        # containerlab keeps a folder in its working directory.
        cwd=files.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise MachineError(f"containerlab {verb}: {last_line(done.stderr)}")


def _file(files: LabFiles) -> Path:
    return files.root / topology_file(files.lab)


CONTAINERLAB = ContainerRuntime("containerlab", ContainerlabProvider)
