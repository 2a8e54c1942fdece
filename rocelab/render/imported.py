"""Reads what others drew: topologies of containerlab, and netlab's transformed ones.

Only the shape is read: nodes, what they are, and cables. A topology of containerlab says nothing of
addresses and ASNs; the FRR configurations that it binds may, and are quoted, not followed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocelab.documents import read_text
from rocelab.errors import InputError
from rocelab.files import read_input
from rocelab.plan.fabric import Role
from rocelab.plan.shape import Drawn, Pair, tiers
from rocelab.spec.source import MAX_FILE_BYTES, read_source
from rocelab.wording import shown

HOST_KINDS = frozenset({"", "linux", "host"})
"""Kinds of containerlab whose nodes are hosts unless something says that they route."""
ROUTES = re.compile(
    r"frr|bird|quagga|gobgp|openbgpd|sonic|cumulus|vyos|srlinux|ceos", re.IGNORECASE
)
"""Matches the image or a bound file of a node that routes."""
_AS_JSON = "write one with `netlab create -o json`"
_ROLES = {role.value: role for role in Role}
_TOLD = (
    re.compile(r"^[ \t]*(router bgp \d+)", re.MULTILINE),
    re.compile(r"^[ \t]*(ip address \S+)", re.MULTILINE),
    re.compile(r"^[ \t]*(maximum-paths \d+)", re.MULTILINE),
    re.compile(r"^[ \t]*(timers bgp \d+ \d+)", re.MULTILINE),
    re.compile(r"^[ \t]*(router (?:ospf6?|isis)\b)", re.MULTILINE),
)


@dataclass(frozen=True, slots=True)
class Imported:
    """A topology: its name, its graph, and what its nodes are configured with, by node, as far as
    their files say."""

    name: str
    drawn: Drawn
    configured: Mapping[str, tuple[str, ...]]


def read_topology(path: Path) -> Imported:
    """The topology in a file: YAML of containerlab, or JSON that `netlab create -o json` wrote.

    Raises SpecError or InputError for anything else.
    """
    if path.suffix == ".json":
        return _of_netlab(path, _json(path))
    return _of_containerlab(path, read_source(path).data)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(read_text(path, _AS_JSON))
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON", _AS_JSON) from None
    if not isinstance(document, dict):
        raise InputError(f"{path} is no topology of netlab: no JSON object", _AS_JSON)
    return document


def _of_containerlab(path: Path, data: Mapping[str, Any]) -> Imported:
    topology = data.get("topology")
    if not isinstance(topology, Mapping) or not isinstance(topology.get("nodes"), Mapping):
        raise InputError(
            f"{path} is no topology of containerlab: it has no topology.nodes",
            "name a file such as mine.clab.yml",
        )
    groups = _mapping(topology.get("groups"))
    kinds, defaults = _mapping(topology.get("kinds")), _mapping(topology.get("defaults"))
    nodes = {}
    for name, written in topology["nodes"].items():
        own = _mapping(written)
        group = _mapping(groups.get(_text(own.get("group")) or _text(defaults.get("group"))))
        kind = next(
            filter(None, (_text(mapping.get("kind")) for mapping in (own, group, defaults))), ""
        )
        # containerlab docs/manual/topo-def-file.md: node, group, kind, defaults, in this order.
        nodes[name] = {**defaults, **_mapping(kinds.get(kind)), **group, **own, "kind": kind}
    cables = [_ends(path, link) for link in _list(topology.get("links"))]
    inside = [pair for pair in cables if pair is not None and set(pair) <= nodes.keys()]
    named = {
        name: _ROLES[role]
        for name, node in nodes.items()
        if (role := _text(node.get("group"))) in _ROLES
    }
    switches = {name for name, node in nodes.items() if _is_switch(node, named.get(name))}
    tier = tiers(inside, nodes.keys() - switches, switches)
    tier |= {name: role.tier for name, role in named.items()}
    ordered = {name: tier[name] for name in nodes if name in tier}
    configured = {name: _configured(path.parent, node) for name, node in nodes.items()}
    return Imported(
        str(data.get("name") or path.name.partition(".")[0]), Drawn(ordered, inside), configured
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _ends(path: Path, link: object) -> Pair | None:
    """The nodes at both ends of a link, in the brief or the extended notation; None for one that
    leads out of the lab."""
    ends = _mapping(link).get("endpoints")
    if not isinstance(ends, list) or len(ends) != 2:
        if isinstance(_mapping(link).get("type"), str):
            return None  # `type: host`, `mgmt-net` and the like have one end
        raise InputError(f"{path}: a link does not have two endpoints: {shown(link)}")
    names = [
        end.get("node") if isinstance(end, Mapping) else str(end).split(":")[0] for end in ends
    ]
    return str(names[0]), str(names[1])


def _is_switch(node: Mapping[str, Any], role: Role | None) -> bool:
    if role is not None:
        return role.is_switch
    if node["kind"] not in HOST_KINDS:
        return True
    said = [node.get("image"), *_list(node.get("binds"))]
    return any(ROUTES.search(_text(text)) for text in said)


def _configured(folder: Path, node: Mapping[str, Any]) -> tuple[str, ...]:
    """What the FRR configuration of a node says that the shape does not, or why it is not known."""
    found: list[str] = []
    for bind in _list(node.get("binds")):
        source = folder / _text(bind).split(":")[0]
        for file in (source / "frr.conf", source):
            # Not Path.is_file, which raises for a name that is too long.
            if file.suffix == ".conf" and os.path.isfile(file):  # noqa: PTH113
                found += _lines(file)
                break
    return tuple(dict.fromkeys(found))


def _lines(file: Path) -> Iterator[str]:
    try:
        text = read_input(file, MAX_FILE_BYTES).decode(errors="replace")
    except OSError as error:
        yield f"{file} cannot be read: {error.strerror}"
        return
    for pattern in _TOLD:
        yield from pattern.findall(text)


def _of_netlab(path: Path, data: Mapping[str, Any]) -> Imported:
    """netlab docs/outputs: `nodes` by name with a `role`, `links` with the interfaces at them."""
    nodes, links = data.get("nodes"), data.get("links")
    if not isinstance(nodes, Mapping) or not isinstance(links, list):
        raise InputError(
            f"{path} is no topology of netlab: it has no nodes and links",
            _AS_JSON,
        )
    cables = []
    for link in links:
        interfaces = _list(_mapping(link).get("interfaces"))
        ends = [_text(_mapping(end).get("node")) for end in interfaces]
        if len(ends) > 2:
            raise InputError(f"{path}: a link of {len(ends)} nodes is no cable: {', '.join(ends)}")
        if unknown := [end for end in ends if end not in nodes]:
            raise InputError(f"{path}: a link ends at {shown(unknown[0])}, which is no node")
        if len(ends) == 2:
            cables.append((ends[0], ends[1]))
    hosts = {name for name, node in nodes.items() if _mapping(node).get("role") == "host"}
    tier = tiers(cables, hosts, set(nodes) - hosts)
    configured = {name: tuple(_of_netlab_node(_mapping(node))) for name, node in nodes.items()}
    return Imported(
        str(data.get("name") or path.stem),
        Drawn({name: tier[name] for name in nodes if name in tier}, cables),
        configured,
    )


def _of_netlab_node(node: Mapping[str, Any]) -> Iterator[str]:
    asn = _mapping(node.get("bgp")).get("as")
    if asn is not None:
        yield f"router bgp {asn}"
    loopback = _mapping(node.get("loopback")).get("ipv4")
    if loopback:
        yield f"ip address {loopback}"
    for interface in _list(node.get("interfaces")):
        if isinstance(address := _mapping(interface).get("ipv4"), str):
            yield f"ip address {address}"
