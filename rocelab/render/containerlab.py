"""Renders a fabric for containerlab: a topology file and, beside it, the files that its nodes
mount.

`<lab>.clab.yml` binds files by relative paths, so the folder can be copied to any machine and
deployed there.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocelab.base.templates import template
from rocelab.render.deployment import Deployment


def topology_file(lab: str) -> str:
    """The name of a lab's topology file, by which containerlab finds it in a folder."""
    return f"{lab}.clab.yml"


def container_name(lab: str, node: str) -> str:
    """containerlab's name for the container of a node."""
    return f"clab-{lab}-{node}"


def topology_text(deployment: Deployment, *, brief: bool = False) -> str:
    """The topology file. `brief`: for clabernetes, whose links have no MAC addresses and which
    connects nodes to a network of its own."""
    switches = [container for container in deployment.containers if container.files]
    return template("containerlab/topology.clab.yml.j2").render(
        deployment=deployment,
        brief=brief,
        switches=len(switches),
        servers=len(deployment.containers) - len(switches),
        file_name=topology_file(deployment.name),
        an_example=container_name(deployment.name, switches[0].name),
    )


def mounted_files(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """Path and text of every file that a node mounts."""
    for container in deployment.containers:
        for path, text in container.files.items():
            yield container.source(path), text
