"""The runtime `docker`: a node is a container of Docker or Podman.

A container has no network from the engine: links are moved into its namespace as into any other. It
runs nothing by itself; processes are started in it as in every runtime.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rocelab.base.progress import Progress, ProgressSink
from rocelab.lab.checks import Check, program_version
from rocelab.lab.engine import find_engine
from rocelab.lab.kind import CONTAINER_LABEL
from rocelab.lab.node import NamespaceNode
from rocelab.lab.providers.containers import (
    CAPABILITIES,
    IMAGE_RUN_FOLDER,
    WAITS,
    Containers,
    begin,
    container_node,
    engine_versions,
    find_frr,
    keep_namespace,
    remove_containers,
)
from rocelab.lab.providers.door import ContainerRuntime
from rocelab.linux.machines import HOSTS
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles
from rocelab.render.deployment import check_stack
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr.installation import ETC_FOLDER
from rocelab.routing.frr.kind import FrrMemory
from rocelab.routing.stack import Installation

_PODMAN_LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
"""Otherwise Podman raises limits beyond its own, which needs CAP_SYS_RESOURCE; some hosts refuse
that."""


@dataclass(frozen=True, slots=True)
class DockerProvider:
    """Containers of this machine's engine. `image`: one with FRR; None for rocelab's own."""

    image: str | None
    frr_memory: FrrMemory = FrrMemory.LEAN

    @property
    def kind(self) -> str:
        return "docker"

    def check(self, fabric: Fabric) -> None:
        check_stack(fabric)
        find_engine()

    def make_nodes(self, fabric: Fabric, files: LabFiles, progress: ProgressSink) -> None:
        containers = begin(files, f"rocelab-{files.lab}", self.image, progress)
        total = len(fabric.nodes)

        def make(name: str) -> None:
            containers.engine.run(*_create(files, name, containers))
            keep_namespace(files, containers, name)

        with ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1)) as pool:
            made = pool.map(make, [node.name for node in fabric.nodes])
            for done, _ in enumerate(made, start=1):
                progress(Progress("nodes", done, total))

    def installation(self, fabric: Fabric, files: LabFiles) -> Installation:
        return find_frr(fabric, files)

    def versions(self, files: LabFiles) -> Mapping[str, str]:
        return engine_versions(files)

    def gone(self, files: LabFiles) -> tuple[str, ...]:
        """None is: the lab's folder keeps their namespaces."""
        return ()

    def node(self, files: LabFiles, name: str) -> NamespaceNode:
        return container_node(files, name)

    def remove(self, files: LabFiles) -> None:
        remove_containers(files)


def _create(files: LabFiles, name: str, containers: Containers) -> list[str]:
    folder = files.node(name)
    daemon_files = DaemonFiles(folder)
    mounts = [
        f"type=bind,source={folder},target={folder},readonly",
        f"type=bind,source={files.hosts},target={HOSTS},readonly",
    ]
    if daemon_files.daemon_folder.exists():
        mounts += [
            f"type=bind,source={daemon_files.daemon_folder},target={daemon_files.daemon_folder}",
            f"type=bind,source={daemon_files.daemon_folder},target={IMAGE_RUN_FOLDER}",
            f"type=bind,source={daemon_files.etc},target={ETC_FOLDER},readonly",
        ]
    return [
        *("run", "--detach", "--name", containers.container(name), "--hostname", name),
        *("--label", f"{CONTAINER_LABEL}={containers.label}"),
        *("--network", "none", "--cap-drop", "ALL"),
        *(word for capability in CAPABILITIES for word in ("--cap-add", capability)),
        *(_PODMAN_LIMITS if containers.program == "podman" else ()),
        *(word for mount in mounts for word in ("--mount", mount)),
        *("--entrypoint", "/bin/sh", containers.image, "-c", WAITS),
    ]


def docker_check() -> Check:
    """A Docker client is there and an engine answers it."""
    client = program_version(("docker", "--version"))
    engine = client and program_version(("docker", "version", "--format", "{{.Server.Version}}"))
    return Check(
        name="Docker",
        ok=engine is not None,
        needed=False,
        found=f"engine {engine}"
        if engine
        else (client and f"client {client}, no engine answers") or "missing",
        purpose="nodes as containers; labs of namespaces run without",
        remedy="Debian packages docker.io and (since 13) docker-cli, then systemctl start docker",
    )


DOCKER = ContainerRuntime("docker", DockerProvider, lambda: [docker_check()])
