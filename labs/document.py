"""The plan of a fabric as a JSON document: the contract of `rocelab plan --json`.

In: a `Fabric`. Out: the lines of one JSON object, one line per node, link, session and prefix, so
that plans can be compared with `diff` and the plan of a 32,256-GPU fabric is written as it is made.
The same fabric gives the same bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from labs.plan.fabric import Fabric, Link, Node, Port, Role
from labs.plan.routes import expected_width, spread


@dataclass(frozen=True, slots=True)
class Group:
    """The switches of one role and zone; ATSWs belong to no zone."""

    role: Role
    zone: int | None


@dataclass(frozen=True, slots=True)
class Width:
    """How many next hops `switches` switches of `group` must hold for a prefix."""

    group: Group
    switches: int
    width: int


def group_of(node: Node) -> Group:
    """The role and zone of a node."""
    return Group(node.role, None if node.role is Role.ATSW else node.zone)


def expected_widths(fabric: Fabric) -> Mapping[Group, tuple[Width, ...]]:
    """For the prefixes that each group originates, the ECMP width in every group that learns them.

    A Clos looks the same from each switch of a role and zone, so the prefix of the first one of a
    group stands for the others; a spread per prefix would take a minute for 2,178 of them.
    """
    first: dict[Group, str] = {}
    for node in fabric.switches:
        first.setdefault(group_of(node), node.name)
    return {group: _widths(fabric, origin) for group, origin in first.items()}


def _widths(fabric: Fabric, origin: str) -> tuple[Width, ...]:
    reached = spread(fabric, origin)
    count = Counter(
        (group_of(node), expected_width(fabric, reached[node.name]))
        for node in fabric.switches
        if node.name in reached
    )
    return tuple(Width(group, switches, width) for (group, width), switches in count.items())


def plan_document(fabric: Fabric) -> Iterator[str]:
    """The JSON text of the plan, in pieces that end with a newline."""
    yield "{\n"
    yield f'"lab": {json.dumps(fabric.name)},\n'
    yield f'"numbered": {json.dumps(fabric.numbered)},\n'
    yield from _array("nodes", map(_node, fabric.nodes))
    yield ",\n"
    yield from _array("links", map(_link, fabric.links))
    yield ",\n"
    yield from _array("sessions", map(_session, fabric.sessions))
    yield ",\n"
    yield from _array(
        "prefixes", ({"prefix": p.prefix, "origin": p.origin} for p in fabric.prefixes)
    )
    yield ",\n"
    yield from _array("ecmp", _ecmp(fabric))
    yield "\n}\n"


def _array(key: str, items: Iterable[Mapping[str, object]]) -> Iterator[str]:
    yield f'"{key}": ['
    separator = "\n"
    for item in items:
        yield separator + json.dumps(item)
        separator = ",\n"
    yield "\n]"


def _node(node: Node) -> dict[str, object]:
    return {
        "name": node.name,
        "role": node.role.value,
        "zone": group_of(node).zone,
        "asn": node.asn,
        "loopback": node.loopback,
        "hash_seed": node.hash_seed,
    }


def _port(port: Port) -> dict[str, object]:
    return {"node": port.node, "interface": port.interface, "address": port.address}


def _link(link: Link) -> dict[str, object]:
    return {
        "name": link.name,
        "a": _port(link.a),
        "b": _port(link.b),
        "rate_bps": link.rate_bps,
        "mtu": link.mtu,
    }


def _session(link: Link) -> dict[str, object]:
    return {"a": link.a.node, "b": link.b.node, "link": link.name}


def _ecmp(fabric: Fabric) -> Iterator[dict[str, object]]:
    described = {
        group: [
            {
                "role": width.group.role.value,
                "zone": width.group.zone,
                "switches": width.switches,
                "width": width.width,
            }
            for width in widths
        ]
        for group, widths in expected_widths(fabric).items()
    }
    for prefix in fabric.prefixes:
        widths = described[group_of(fabric.node(prefix.origin))]
        yield {"prefix": prefix.prefix, "origin": prefix.origin, "widths": widths}
