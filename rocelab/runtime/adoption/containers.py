"""The containers of a lab that containerlab deployed, as the engine describes them.

containerlab labels them: `containerlab` has the lab's name, `clab-node-name` the node's
(containerlab docs/manual/inventory.md and nodes/default_node.go). Its topology file, or its name,
is what users know it by.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rocelab.errors import InputError, MachineError
from rocelab.runtime.engine import Engine, find_engine
from rocelab.spec.source import read_source
from rocelab.wording import name_hint, shown

LAB, NODE, KIND, GROUP = "containerlab", "clab-node-name", "clab-node-kind", "clab-node-group"

MOST_CHARACTERS = 255
_NAME = re.compile(rf"[\w.-]{{1,{MOST_CHARACTERS}}}")
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""It names files here: whoever deploys a lab chooses its labels."""


@dataclass(frozen=True, slots=True)
class Container:
    """A running container that is a node: `kind` and `group` as its topology says, `pid` that of
    its first process."""

    name: str
    container: str
    image: str
    kind: str
    group: str
    pid: int

    @property
    def netns(self) -> Path:
        return Path("/proc", str(self.pid), "ns/net")

    @property
    def root(self) -> Path:
        """Its file system, as this machine reaches it."""
        return Path("/proc", str(self.pid), "root")


def find_containers(text: str) -> tuple[str, Engine, tuple[Container, ...]]:
    """The lab that a user calls `text`, the name of a lab or the path of a topology file: its name,
    its engine, and its running containers by name.

    Raises InputError if there is no such lab, MachineError if no engine answers.
    """
    lab = _lab_name(text)
    engine = find_engine()
    label = f"label={LAB}={lab}"
    found = engine.run("ps", "--quiet", "--no-trunc", "--filter", label).split()
    if not found:
        raise InputError(f"containerlab has no lab {lab} up", _others(engine, lab))
    described = json.loads(engine.run("inspect", *found))
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
    """Raises InputError, or SpecError, for a file that is no topology."""
    if not text.endswith((".yml", ".yaml")) and "/" not in text:
        if _NAME.fullmatch(text) is None:
            raise InputError(
                f"{shown(text)} is not the name of a lab", "name a topology file or a lab"
            )
        return text
    name = read_source(Path(text)).data.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MOST_CHARACTERS:
        raise InputError(
            f"{text} is no topology of containerlab: it has no name that is text",
            "name a file such as mine.clab.yml, or the lab itself",
        )
    return name


def _others(engine: Engine, lab: str) -> str:
    names = set(
        engine.run("ps", "--filter", f"label={LAB}", "--format", f'{{{{.Label "{LAB}"}}}}').split()
    )
    return name_hint(lab, names) or "deploy it with `containerlab deploy`"


def _container(described: Mapping[str, Any]) -> Container:
    labels = described["Config"]["Labels"]
    pid = described["State"]["Pid"]
    if not isinstance(pid, int) or pid <= 0:
        raise MachineError(f"container {described['Name'].lstrip('/')} does not run")
    name = labels.get(NODE) or described["Name"].lstrip("/")
    if _NODE_NAME.fullmatch(name) is None:
        raise InputError(f"{shown(name)} is not the name of a node", "letters, digits, - _ and .")
    return Container(
        name=name,
        container=described["Id"],
        image=described["Config"]["Image"],
        kind=labels.get(KIND, ""),
        group=labels.get(GROUP, ""),
        pid=pid,
    )
