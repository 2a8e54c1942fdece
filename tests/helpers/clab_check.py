"""Checks whether a containerlab topology can be deployed, from its file and folder.

From the parsed topology file and the names of the files next to it, it lists problems that a JSON
Schema cannot express, such as an interface that two links use.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath

from rocelab.fabrics.layout import IFNAMSIZ

_INTERFACE = re.compile(rf"[^\s/:]{{1,{IFNAMSIZ}}}")
_NODE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-._]{0,62}")

End = tuple[str, str, str | None]
"""Node, interface and MAC address of one end of a link."""


def topology_problems(document: object, files: Collection[str]) -> list[str]:
    """The problems of a topology; empty if it is valid.

    `files` are paths relative to the topology file. Supports links of two containers, in both of
    containerlab's notations.
    """
    nodes, links, defaults = _sections(document)
    if not nodes:
        return ["there is no node"]
    problems = [
        f"{name!r} cannot be a node's name" for name in nodes if not _NODE.fullmatch(str(name))
    ]
    for name, node in nodes.items():
        problems += _bind_problems(str(name), _mapping(node), files)
    ends: list[End] = []
    for number, link in enumerate(links, start=1):
        pair = _ends(link)
        if len(pair) != 2:
            problems.append(f"link {number} has {len(pair)} ends")
        ends += pair
    for node, interface, _ in ends:
        if node not in nodes:
            problems.append(f"a link ends at {node!r}, which is no node")
        elif not _INTERFACE.fullmatch(interface) or interface in (".", "..", "lo"):
            problems.append(f"{node}: {interface!r} cannot be an interface's name")
        elif interface == "eth0" and _network_mode(nodes, node, defaults) != "none":
            problems.append(f"{node}: eth0 is the management network's")
    problems += [
        f"{node}:{interface} is an end of {count} links"
        for (node, interface), count in Counter(end[:2] for end in ends).items()
        if count > 1
    ]
    macs = Counter(mac for *_, mac in ends if mac is not None)
    problems += [f"{count} ends have the MAC {mac}" for mac, count in macs.items() if count > 1]
    return problems


def _sections(
    document: object,
) -> tuple[Mapping[object, object], list[object], Mapping[object, object]]:
    topology = _mapping(_mapping(document).get("topology"))
    links = topology.get("links")
    return (
        _mapping(topology.get("nodes")),
        links if isinstance(links, list) else [],
        _mapping(topology.get("defaults")),
    )


def _mapping(value: object) -> Mapping[object, object]:
    return value if isinstance(value, dict) else {}


def _network_mode(
    nodes: Mapping[object, object], node: str, defaults: Mapping[object, object]
) -> object:
    return _mapping(nodes[node]).get("network-mode", defaults.get("network-mode"))


def _ends(link: object) -> list[End]:
    ends = _mapping(link).get("endpoints")
    return [_end(end) for end in ends] if isinstance(ends, list) else []


def _end(value: object) -> End:
    if isinstance(value, dict):
        mac = value.get("mac")
        return str(value.get("node")), str(value.get("interface")), mac and str(mac)
    node, _, interface = str(value).partition(":")
    return node, interface, None


def _bind_problems(
    name: str, node: Mapping[object, object], files: Collection[str]
) -> Iterator[str]:
    binds = node.get("binds")
    targets: Counter[str] = Counter()
    for bind in binds if isinstance(binds, list) else []:
        source, _, rest = str(bind).partition(":")
        target = rest.partition(":")[0]
        targets[target] += 1
        if PurePosixPath(source).is_absolute() or ".." in PurePosixPath(source).parts:
            yield f"{name}: {source} is outside the folder"
        elif source not in files:
            yield f"{name}: {source} is not in the folder"
        if not PurePosixPath(target).is_absolute():
            yield f"{name}: {bind!r} names no absolute path in the node"
    for target, count in targets.items():
        if count > 1:
            yield f"{name}: {target} is mounted {count} times"
