"""The containers of a lab that containerlab deployed, as the engine describes them.

containerlab labels them: `containerlab` has the lab's name, `clab-node-name` the node's
(containerlab docs/manual/inventory.md and nodes/default_node.go). Its topology file, or its name,
is what users know it by.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rocelab.base.errors import InputError, MachineError
from rocelab.base.wording import name_hint, shown
from rocelab.lab.engine import ContainerEngine, find_engine
from rocelab.labfile.topology import topology_name
from rocelab.labfile.variables import UNSET

LAB, NODE, KIND, GROUP = "containerlab", "clab-node-name", "clab-node-kind", "clab-node-group"

MOST_CHARACTERS = 255
_NAME = re.compile(rf"[\w.-]{{1,{MOST_CHARACTERS}}}")
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""It names files here: whoever deploys a lab chooses its labels."""
_MADE_NAME = re.compile(r"\{\{|__git(?:Branch|Hash)__")
"""Matches what containerlab puts another text for: Go templates and its Git variables."""
_NAME_A_FILE = "name a file such as mine.clab.yml, or the lab itself"


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A running container of a lab: `kind` and `group` as its topology says, `pid` that of its
    first process. `is_sidecar`: it was started in the network of another container."""

    name: str
    container: str
    image: str
    kind: str
    group: str
    pid: int
    is_sidecar: bool = False

    @property
    def netns(self) -> Path:
        return Path("/proc", str(self.pid), "ns/net")

    @property
    def root(self) -> Path:
        """Its file system, as this machine reaches it."""
        return Path("/proc", str(self.pid), "root")


def find_containers(text: str) -> tuple[str, ContainerEngine, tuple[RunningContainer, ...]]:
    """The lab that a user calls `text`, the name of a lab or the path of a topology file: its name,
    its engine, and its running containers by name.

    Raises InputError if there is no such lab, MachineError if no engine answers.
    """
    lab = _lab_name(text)
    engine = find_engine()
    label = f"label={LAB}={lab}"
    ids = engine.run("ps", "--quiet", "--no-trunc", "--filter", label).split()
    if not ids:
        raise InputError(f"containerlab has no lab {lab} up", _others(engine, lab))
    described = json.loads(engine.run("inspect", *ids))
    nodes = tuple(sorted(map(_container, described), key=lambda node: node.name))
    for one, other in pairwise(nodes):
        if one.name == other.name:
            raise InputError(
                f"two containers of lab {lab} are node {one.name}: {one.container[:12]} and "
                f"{other.container[:12]}",
                "remove the one of another lab, or destroy one of two labs of this name",
            )
    return lab, engine, nodes


def _lab_name(text: str) -> str:
    """Raises InputError for a file that cannot be read or does not say the name."""
    if not text.endswith((".yml", ".yaml", ".gotmpl")) and "/" not in text:
        if _NAME.fullmatch(text) is None:
            raise InputError(
                f"{shown(text)} is not the name of a lab", "name a topology file or a lab"
            )
        return text
    try:
        name = topology_name(Path(text), os.environ)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{text} cannot be read: {why}", _NAME_A_FILE) from None
    if unset := UNSET.search(name):
        raise InputError(
            f"the name in {text} is that of the variable {unset[1]}, which is not set here",
            f"name the lab itself, or keep the variable: `sudo --preserve-env={unset[1]}`",
        )
    if made := _MADE_NAME.search(name):
        raise InputError(
            f"the name in {text} is made when it is deployed: {made[0]}", "name the lab itself"
        )
    if not 0 < len(name) <= MOST_CHARACTERS:
        raise InputError(f"{text} is no topology of containerlab: it has no name", _NAME_A_FILE)
    return name


def _others(engine: ContainerEngine, lab: str) -> str:
    names = set(
        engine.run("ps", "--filter", f"label={LAB}", "--format", f'{{{{.Label "{LAB}"}}}}').split()
    )
    return name_hint(lab, names) or "deploy it with `containerlab deploy`"


def _container(described: Mapping[str, Any]) -> RunningContainer:
    labels = described["Config"]["Labels"]
    pid = described["State"]["Pid"]
    if not isinstance(pid, int) or pid <= 0:
        raise MachineError(f"container {described['Name'].lstrip('/')} does not run")
    name = labels.get(NODE) or described["Name"].lstrip("/")
    if _NODE_NAME.fullmatch(name) is None:
        raise InputError(f"{shown(name)} is not the name of a node", "letters, digits, - _ and .")
    return RunningContainer(
        name=name,
        container=described["Id"],
        image=described["Config"]["Image"],
        kind=labels.get(KIND, ""),
        group=labels.get(GROUP, ""),
        pid=pid,
        is_sidecar=_network_mode(described).startswith("container:"),
    )


def _network_mode(described: Mapping[str, Any]) -> str:
    return str(described.get("HostConfig", {}).get("NetworkMode", ""))
