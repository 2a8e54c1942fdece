"""The content of a picture of a fabric, before layout: boxes, rows of zones, and lines.

A wide tier shows its first nodes, a box that counts the ones left out, and its last node; of many
zones the first and the last are shown. The wiring of the fabric, not its kind, decides which tiers
are drawn inside a zone and which servers below one switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import pairwise

from rocelab.fabrics.roles import Role
from rocelab.planning.fabric import Fabric, Link, Node
from rocelab.planning.zones import Division, divisions

MAX_PER_TIER = 8
"""Boxes per tier outside zones, or in the only zone; half as many in one of several zones."""

MAX_COLUMNS = 12
"""All zones are drawn if their widest tiers together have at most this many boxes."""

MAX_SERVERS = 3
"""Servers drawn below one switch or, if they are on several, in a zone."""


@dataclass(frozen=True, slots=True)
class SketchCell:
    """The content of one box: a node, or (`hidden`) the nodes between two drawn ones."""

    key: str
    role: Role
    nodes: tuple[str, ...]
    lines: tuple[str, ...]
    hidden: bool


@dataclass(frozen=True, slots=True)
class Tier:
    """A row of boxes. `beside`: whether each forms a pair with the box before it."""

    role: Role
    cells: tuple[SketchCell, ...]
    beside: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class ZoneSketch:
    """A zone or, without a title, the tiers that join the zones below: its tiers from the top.

    `stacks` are, per box of the last tier, the servers on that switch only. Servers on several
    switches are a tier of their own. A zone that is not drawn is the box `hidden`.
    """

    title: str | None
    tiers: tuple[Tier, ...]
    stacks: tuple[tuple[SketchCell, ...], ...] = ()
    hidden: SketchCell | None = None

    @property
    def cells(self) -> list[SketchCell]:
        """Every box."""
        boxes = [self.hidden] if self.hidden else []
        boxes += [cell for tier in self.tiers for cell in tier.cells]
        return boxes + [cell for stack in self.stacks for cell in stack]


@dataclass(frozen=True, slots=True)
class Band:
    """The zones of a division, side by side."""

    division: Division
    zones: tuple[ZoneSketch, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """A line between two boxes."""

    upper: SketchCell
    lower: SketchCell
    links: int
    """How many join each pair of their nodes."""

    nics: tuple[int, ...]
    """The numbers of a server's NICs at its end."""

    plane: int | None
    """The upper end's zone, if the lower end is outside it and there are other zones."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """The simplified fabric, from its top band down."""

    bands: tuple[Band, ...]
    edges: tuple[Edge, ...]

    @property
    def cells(self) -> list[SketchCell]:
        """Every box."""
        return [cell for band in self.bands for zone in band.zones for cell in zone.cells]


def sketch(fabric: Fabric) -> Sketch:
    """The sketch of a fabric."""
    parts = divisions(fabric)
    bands = tuple(_band(fabric, division) for division in parts)
    return Sketch(bands, _edges(fabric, parts, bands))


def servers_are_stacked(fabric: Fabric) -> bool:
    """Whether every server is on one switch, so that it can stand below it."""
    return all(
        len({link.b.node for link in fabric.uplinks(server.name)}) == 1 for server in fabric.servers
    )


def _band(fabric: Fabric, division: Division) -> Band:
    if not division.zones or _some_are_outside(fabric, division):
        return Band(division, (_zone(fabric, division, None, MAX_PER_TIER),))
    several = len(division.zones) > 1
    limit = MAX_PER_TIER // 2 if several else MAX_PER_TIER
    zones = division.zones
    drawn = [_zone(fabric, division, zone, limit) for zone in (zones[0], zones[-1])][: len(zones)]
    columns = max(len(tier.cells) for zone in drawn for tier in zone.tiers)
    if several and columns * len(zones) > MAX_COLUMNS and len(zones) > 2:
        return Band(division, (drawn[0], _hidden_zones(fabric, division, zones[1:-1]), drawn[-1]))
    middle = [_zone(fabric, division, zone, limit) for zone in zones[1:-1]]
    return Band(division, (drawn[0], *middle, *drawn[1:]))


def _some_are_outside(fabric: Fabric, division: Division) -> bool:
    """Whether a node of a division is in none of its zones: it has one box of all then."""
    return any(node.role in division.roles and node.zone is None for node in fabric.nodes)


def _zone(fabric: Fabric, division: Division, zone: int | None, limit: int) -> ZoneSketch:
    members = {
        role: [
            node
            for node in fabric.nodes
            if node.role is role and (zone is None or node.zone == zone)
        ]
        for role in division.roles
    }
    tiers = [_tier(fabric, role, members[role], limit) for role in division.roles if role.tier > 0]
    stacks: tuple[tuple[SketchCell, ...], ...] = ()
    servers = members.get(Role.SERVER, [])
    if servers and servers_are_stacked(fabric):
        stacks = _stacks(fabric, tiers[-1], servers)
    elif servers:
        tiers.append(_tier(fabric, Role.SERVER, servers, MAX_SERVERS))
    return ZoneSketch(f"{division.word} {zone}" if zone else None, tuple(tiers), stacks)


def _tier(fabric: Fabric, role: Role, nodes: Sequence[Node], limit: int) -> Tier:
    cells = _collapse(fabric, nodes, limit)
    homes = [_shared_with(fabric, cell) for cell in cells]
    beside = [bool(before) and before == after for before, after in pairwise(homes)]
    return Tier(role, cells, (False, *beside) if cells else ())


def _shared_with(fabric: Fabric, cell: SketchCell) -> tuple[str, ...]:
    """The pair of switches that share NICs with two ports and that the box's switch belongs to."""
    if cell.hidden or cell.role is Role.SERVER:
        return ()
    prefixes = fabric.prefixes_of[cell.nodes[0]]
    return next((prefix.origins for prefix in prefixes if len(prefix.origins) > 1), ())


def _stacks(
    fabric: Fabric, leaves: Tier, servers: Sequence[Node]
) -> tuple[tuple[SketchCell, ...], ...]:
    below: dict[str, list[Node]] = {}
    for server in servers:
        below.setdefault(fabric.uplinks(server.name)[0].b.node, []).append(server)
    stacks: list[tuple[SketchCell, ...]] = []
    for leaf in leaves.cells:
        members = [server for name in leaf.nodes for server in below.get(name, ())]
        if leaf.hidden:
            stacks.append((_hidden(members),) if members else ())
        else:
            stacks.append(_collapse(fabric, members, MAX_SERVERS))
    return tuple(stacks)


def _hidden_zones(fabric: Fabric, division: Division, zones: Sequence[int]) -> ZoneSketch:
    inside = [node for node in fabric.nodes if node.role in division.roles and node.zone in zones]
    names = tuple(node.name for node in inside)
    switches = sum(node.is_switch for node in inside)
    lines = (f"{switches:,} switches", f"{len(inside) - switches:,} servers")
    word = division.counted(len(zones)).partition(" ")[2]
    key = f"more_{word.replace(' ', '_')}"
    cell = SketchCell(key, division.roles[0], names, lines, hidden=True)
    return ZoneSketch(f"{len(zones)} more {word}", (), (), cell)


def _collapse(fabric: Fabric, nodes: Sequence[Node], limit: int) -> tuple[SketchCell, ...]:
    if len(nodes) <= limit:
        return tuple(_cell(fabric, node) for node in nodes)
    first, middle, last = nodes[: limit - 2], nodes[limit - 2 : -1], nodes[-1]
    return (*(_cell(fabric, node) for node in first), _hidden(middle), _cell(fabric, last))


def _cell(fabric: Fabric, node: Node) -> SketchCell:
    if node.is_switch:
        widest = min(
            (prefix.prefix for prefix in fabric.prefixes_of[node.name]),
            key=lambda prefix: ip_network(prefix).prefixlen,
        )
        lines: tuple[str, ...] = (node.name, f"AS {node.asn}", widest)
    else:
        lines = (node.name, fabric.nics(node.name)[0].ip)
    return SketchCell(_key(node.name), node.role, (node.name,), lines, hidden=False)


def _hidden(nodes: Sequence[Node]) -> SketchCell:
    names = tuple(node.name for node in nodes)
    key = _key(f"{names[0]}_to_{names[-1]}")
    return SketchCell(key, nodes[0].role, names, (f"… {len(nodes):,} more",), hidden=True)


def _key(name: str) -> str:
    return name.replace("-", "_")


def _edges(
    fabric: Fabric, divisions: Iterable[Division], bands: Iterable[Band]
) -> tuple[Edge, ...]:
    cells = [cell for band in bands for zone in band.zones for cell in zone.cells]
    cell_of = {name: cell for cell in cells for name in cell.nodes}
    division_of = {role: division for division in divisions for role in division.roles}
    nic_of = {
        link.name: nic.number
        for cell in cells
        if cell.role is Role.SERVER and not cell.hidden
        for nic in fabric.nics(cell.nodes[0])
        for link in nic.links
    }
    joined: dict[tuple[str, str], list[Link]] = {}
    for link in fabric.links:
        ends = cell_of[link.b.node].key, cell_of[link.a.node].key
        if ends[0] != ends[1]:
            joined.setdefault(ends, []).append(link)
    edges = []
    for links in joined.values():
        upper, lower = cell_of[links[0].b.node], cell_of[links[0].a.node]
        above = division_of[upper.role]
        crosses = lower.role not in above.roles and len(above.zones) > 1
        edges.append(
            Edge(
                upper,
                lower,
                max(Counter((link.a.node, link.b.node) for link in links).values()),
                tuple(sorted({nic_of[link.name] for link in links if link.name in nic_of})),
                fabric.node(links[0].b.node).zone if crosses else None,
            )
        )
    return tuple(edges)
