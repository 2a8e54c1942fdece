"""Reads netlab's transformed topologies: nodes, what they are, and cables with their ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rocelab.base.errors import InputError
from rocelab.base.wording import shown
from rocelab.importing.topology import DrawnLink, DrawnNode, ImportedTopology

AS_JSON = "write one with `netlab create -o json`"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def read_netlab(path: Path, data: Mapping[str, Any]) -> ImportedTopology:
    """netlab docs/outputs: `nodes` by name with a `role`, `links` with the interfaces at them."""
    nodes, links = data.get("nodes"), data.get("links")
    if not isinstance(nodes, Mapping) or not isinstance(links, list):
        raise InputError(
            f"{path} is no topology of netlab: it has no nodes and links",
            AS_JSON,
        )
    cables = []
    for link in links:
        interfaces = _list(_mapping(link).get("interfaces"))
        ends = [_text(_mapping(end).get("node")) for end in interfaces]
        ports = [_text(_mapping(end).get("ifname")) or None for end in interfaces]
        if len(ends) > 2:
            raise InputError(f"{path}: a link of {len(ends)} nodes is no cable: {', '.join(ends)}")
        if unknown := [end for end in ends if end not in nodes]:
            raise InputError(f"{path}: a link ends at {shown(unknown[0])}, which is no node")
        if len(ends) == 2:
            cables.append(DrawnLink((ends[0], ports[0]), (ends[1], ports[1])))
    return ImportedTopology(
        str(data.get("name") or path.stem),
        {name: _drawn(_mapping(node)) for name, node in nodes.items()},
        cables,
        (),
        {name: tuple(_netlab_lines(_mapping(node))) for name, node in nodes.items()},
    )


def _drawn(node: Mapping[str, Any]) -> DrawnNode:
    """netlab docs/node/roles: host, router, gateway, bridge."""
    match node.get("role") or "router":
        case "host":
            return DrawnNode(is_switch=False)
        case "router":
            return DrawnNode(is_switch=True)
        case role:
            return DrawnNode(None, f"has the role {shown(role)}, which no Clos has")


def _netlab_lines(node: Mapping[str, Any]) -> Iterator[str]:
    asn = _mapping(node.get("bgp")).get("as")
    if asn is not None:
        yield f"router bgp {asn}"
    loopback = _mapping(node.get("loopback")).get("ipv4")
    if loopback:
        yield f"ip address {loopback}"
    for interface in _list(node.get("interfaces")):
        if isinstance(address := _mapping(interface).get("ipv4"), str):
            yield f"ip address {address}"
    yield from (f"module {module}" for module in _list(node.get("module")))
