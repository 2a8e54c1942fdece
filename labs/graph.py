"""Pictures of a fabric for people: an SVG with tiers in rows, and Mermaid text for documents.

In: a `Fabric`. Out: text. Both draw the same simplified fabric: tiers that are wide show their
first nodes, a box that counts the ones left out, and their last node; parallel links are one line
and their number is written beside the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from labs.plan.fabric import Fabric, Link, Node, Role
from labs.units import format_rate

MAX_PER_TIER = 8
"""Boxes per tier in a fabric of one zone; in a fabric of several, per zone and half as many."""

MAX_ZONES = 3
MAX_SERVERS_PER_RACK = 3

_TEMPLATES = Path(__file__).parent.parent / "templates" / "graph"

_TIER_NAMES = {
    Role.ATSW: "aggregators",
    Role.CTSW: "spines",
    Role.RTSW: "rack switches",
    Role.SERVER: "GPU servers",
}
_MERMAID_STYLES = {
    Role.ATSW: "fill:#ece6f6,stroke:#6a4fa3,color:#1f2933",
    Role.CTSW: "fill:#e1edf9,stroke:#2f6cad,color:#1f2933",
    Role.RTSW: "fill:#e0f1ec,stroke:#2b8069,color:#1f2933",
    Role.SERVER: "fill:#eef0f2,stroke:#6b7885,color:#1f2933",
}

_MARGIN = 24
_GUTTER = 168
_BOX_WIDTH = 124
_BOX_HEIGHT = 54
_PITCH = _BOX_WIDTH + 18
_ROW_GAP = 104
_ZONE_PADDING = 18
_ZONE_TITLE = 30
_ZONE_GAP = 28
_SERVER_HEIGHT = 38
_SERVER_PITCH = _SERVER_HEIGHT + 8
_SERVER_INDENT = 16
_LINE_HEIGHT = 14
_HEADER = 72
_LEGEND = 78


@dataclass(frozen=True, slots=True)
class Cell:
    """What one box stands for: a node, or (`hidden`) the nodes between two that are drawn."""

    key: str
    role: Role
    nodes: tuple[str, ...]
    lines: tuple[str, ...]
    hidden: bool


@dataclass(frozen=True, slots=True)
class ZoneCells:
    """A zone's boxes, tier by tier; a hidden zone is one box."""

    title: str
    ctsws: tuple[Cell, ...]
    rtsws: tuple[Cell, ...]
    servers: tuple[tuple[Cell, ...], ...]
    """Per box of `rtsws` the servers below it."""

    hidden: Cell | None = None


@dataclass(frozen=True, slots=True)
class Sketch:
    """The simplified fabric: what is drawn, before it has a place."""

    atsws: tuple[Cell, ...]
    zones: tuple[ZoneCells, ...]
    edges: tuple[tuple[Cell, Cell, int], ...]
    """Upper and lower box, and the links between each pair of their nodes."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with lines of text. Units: SVG user units, y grows downwards."""

    cell: Cell
    x: int
    y: int
    width: int
    height: int

    @property
    def middle(self) -> int:
        return self.x + self.width // 2

    @property
    def text(self) -> list[tuple[int, str]]:
        """Each line of text with the y of its baseline."""
        top = self.y + self.height // 2 - (len(self.cell.lines) - 1) * _LINE_HEIGHT // 2 + 4
        return [(top + i * _LINE_HEIGHT, line) for i, line in enumerate(self.cell.lines)]


@dataclass(frozen=True, slots=True)
class Wire:
    """A path in SVG's notation; dashed where it leads to nodes that are not drawn."""

    path: str
    dashed: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """The box around a zone."""

    title: str
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Caption:
    """Text in the left margin, beside a tier or between two."""

    y: int
    text: str
    strong: bool = False


def mermaid(fabric: Fabric) -> str:
    """The fabric as a Mermaid flowchart, top tier first, zones as subgraphs."""
    sketch = _sketch(fabric)
    lines = ["flowchart TB"]
    lines += [f"  {_mermaid_node(cell)}" for cell in sketch.atsws]
    for number, zone in enumerate(sketch.zones, start=1):
        cells = [zone.hidden] if zone.hidden else [*zone.ctsws, *zone.rtsws]
        cells += [cell for stack in zone.servers for cell in stack]
        lines.append(f'  subgraph zone{number}["{zone.title}"]')
        lines += [f"    {_mermaid_node(cell)}" for cell in cells]
        lines.append("  end")
    for upper, lower, count in sketch.edges:
        line = "-.-" if upper.hidden or lower.hidden else "---"
        label = f"|{count}|" if count > 1 else ""
        lines.append(f"  {upper.key} {line}{label} {lower.key}")
    lines += [f"  classDef {role.value} {style}" for role, style in _MERMAID_STYLES.items()]
    return "\n".join(lines) + "\n"


def svg(fabric: Fabric) -> str:
    """The fabric as a stand-alone SVG document, readable on light and on dark pages."""
    sketch = _sketch(fabric)
    boxes: list[Box] = []
    frames: list[Frame] = []
    trunks: list[Wire] = []

    top = _MARGIN + _HEADER
    atsw_y = top
    zone_y = top + (_BOX_HEIGHT + _ROW_GAP if sketch.atsws else 0)
    ctsw_y = zone_y + _ZONE_PADDING
    rtsw_y = ctsw_y + _BOX_HEIGHT + _ROW_GAP
    server_y = rtsw_y + _BOX_HEIGHT + _ROW_GAP // 2
    deepest = max((len(s) for zone in sketch.zones for s in zone.servers), default=0)
    lowest = server_y + deepest * _SERVER_PITCH if deepest else rtsw_y + _BOX_HEIGHT + 8
    bottom = lowest + _ZONE_TITLE

    x = _MARGIN + _GUTTER
    for zone in sketch.zones:
        columns = 1 if zone.hidden else max(len(zone.ctsws), len(zone.rtsws))
        width = columns * _PITCH - (_PITCH - _BOX_WIDTH) + 2 * _ZONE_PADDING
        frames.append(Frame(zone.title, x, zone_y, width, bottom - zone_y))
        if zone.hidden:
            boxes.append(Box(zone.hidden, x + _ZONE_PADDING, ctsw_y, _BOX_WIDTH, _BOX_HEIGHT))
        boxes += _row(zone.ctsws, ctsw_y, x, width)
        racks = _row(zone.rtsws, rtsw_y, x, width)
        boxes += racks
        for rack, stack in zip(racks, zone.servers, strict=True):
            servers = _stack(stack, rack.x, server_y)
            boxes += servers
            trunks += _trunk(rack, servers)
        x += width + _ZONE_GAP
    inner_width = x - _ZONE_GAP - _MARGIN - _GUTTER
    atsws_width = len(sketch.atsws) * _PITCH
    boxes += _row(sketch.atsws, atsw_y, _MARGIN + _GUTTER, max(inner_width, atsws_width))

    place = {box.cell.key: box for box in boxes}
    wires = [
        _wire(place[upper.key], place[lower.key])
        for upper, lower, _ in sketch.edges
        if lower.role is not Role.SERVER
    ]
    rows = {Role.ATSW: atsw_y, Role.CTSW: ctsw_y, Role.RTSW: rtsw_y, Role.SERVER: server_y}
    width = _MARGIN * 2 + _GUTTER + max(inner_width, atsws_width, 560)
    template = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("fabric.svg.j2")
    return template.render(
        title=fabric.name,
        summary=_summary(fabric),
        width=width,
        height=bottom + _LEGEND + _MARGIN,
        margin=_MARGIN,
        legend_y=bottom + 34,
        boxes=boxes,
        frames=frames,
        wires=[*wires, *trunks],
        captions=_captions(fabric, rows),
    )


def _sketch(fabric: Fabric) -> Sketch:
    zones = sorted({node.zone for node in fabric.nodes if node.zone is not None})
    limit = MAX_PER_TIER if len(zones) == 1 else MAX_PER_TIER // 2
    atsws = _collapse(fabric, _nodes(fabric, Role.ATSW), MAX_PER_TIER)
    shown = zones if len(zones) <= MAX_ZONES else [zones[0], zones[-1]]
    pictures = [_zone_cells(fabric, zone, limit) for zone in shown]
    if len(shown) < len(zones):
        pictures.insert(1, _hidden_zones(fabric, zones[1:-1]))
    cells = [
        *atsws,
        *(
            cell
            for zone in pictures
            for cell in (
                *((zone.hidden,) if zone.hidden else ()),
                *zone.ctsws,
                *zone.rtsws,
                *(server for stack in zone.servers for server in stack),
            )
        ),
    ]
    return Sketch(atsws, tuple(pictures), _edges(fabric.links, cells))


def _zone_cells(fabric: Fabric, zone: int, limit: int) -> ZoneCells:
    racks = _collapse(fabric, _nodes(fabric, Role.RTSW, zone), limit)
    below: dict[str, list[Node]] = {}
    for server in _nodes(fabric, Role.SERVER, zone):
        below.setdefault(fabric.uplinks(server.name)[0].b.node, []).append(server)
    stacks: list[tuple[Cell, ...]] = []
    for rack in racks:
        servers = [server for name in rack.nodes for server in below.get(name, ())]
        if rack.hidden:
            stacks.append((_hidden(servers),) if servers else ())
        else:
            stacks.append(_collapse(fabric, servers, MAX_SERVERS_PER_RACK))
    spines = _collapse(fabric, _nodes(fabric, Role.CTSW, zone), limit)
    return ZoneCells(f"AI zone {zone}", spines, racks, tuple(stacks))


def _hidden_zones(fabric: Fabric, zones: Sequence[int]) -> ZoneCells:
    inside = [node for node in fabric.nodes if node.zone in zones and node.role is not Role.ATSW]
    names = tuple(node.name for node in inside)
    switches = sum(node.is_switch for node in inside)
    lines = (f"{switches:,} switches", f"{len(inside) - switches:,} servers")
    cell = Cell("more_zones", Role.CTSW, names, lines, hidden=True)
    title = f"{len(zones)} more zone{'s' if len(zones) > 1 else ''}"
    return ZoneCells(title, (), (), (), cell)


def _nodes(fabric: Fabric, role: Role, zone: int | None = None) -> list[Node]:
    return [n for n in fabric.nodes if n.role is role and zone in (None, n.zone)]


def _collapse(fabric: Fabric, nodes: Sequence[Node], limit: int) -> tuple[Cell, ...]:
    if len(nodes) <= limit:
        return tuple(_cell(fabric, node) for node in nodes)
    first, middle, last = nodes[: limit - 2], nodes[limit - 2 : -1], nodes[-1]
    return (
        *(_cell(fabric, node) for node in first),
        _hidden(middle),
        _cell(fabric, last),
    )


def _cell(fabric: Fabric, node: Node) -> Cell:
    details = (
        (f"AS {node.asn}", fabric.prefixes_of[node.name][0].prefix)
        if node.is_switch
        else (fabric.nics(node.name)[0].ip,)
    )
    lines = (node.name, *details)
    return Cell(node.name.replace("-", "_"), node.role, (node.name,), lines, hidden=False)


def _hidden(nodes: Sequence[Node]) -> Cell:
    key = f"{nodes[0].name}_to_{nodes[-1].name}".replace("-", "_")
    names = tuple(node.name for node in nodes)
    return Cell(key, nodes[0].role, names, (f"… {len(nodes):,} more",), hidden=True)


def _edges(links: Iterable[Link], cells: Iterable[Cell]) -> tuple[tuple[Cell, Cell, int], ...]:
    cell_of = {name: cell for cell in cells for name in cell.nodes}
    counts: dict[tuple[str, str], dict[tuple[str, str], int]] = {}
    drawn: dict[tuple[str, str], tuple[Cell, Cell]] = {}
    for link in links:
        upper, lower = cell_of[link.b.node], cell_of[link.a.node]
        if upper is lower:
            continue
        ends = upper.key, lower.key
        drawn[ends] = upper, lower
        pairs = counts.setdefault(ends, {})
        pair = link.b.node, link.a.node
        pairs[pair] = pairs.get(pair, 0) + 1
    return tuple((*drawn[ends], max(pairs.values())) for ends, pairs in counts.items())


def _row(cells: Sequence[Cell], y: int, x: int, width: int) -> list[Box]:
    """Boxes of equal size, centred in the `width` that starts at `x`."""
    start = x + (width - len(cells) * _PITCH + _PITCH - _BOX_WIDTH) // 2
    return [
        Box(cell, start + i * _PITCH, y, _BOX_WIDTH, _BOX_HEIGHT) for i, cell in enumerate(cells)
    ]


def _stack(cells: Sequence[Cell], x: int, y: int) -> list[Box]:
    width = _BOX_WIDTH - _SERVER_INDENT
    return [
        Box(cell, x + _SERVER_INDENT, y + i * _SERVER_PITCH, width, _SERVER_HEIGHT)
        for i, cell in enumerate(cells)
    ]


def _wire(upper: Box, lower: Box) -> Wire:
    path = f"M{upper.middle} {upper.y + upper.height}L{lower.middle} {lower.y}"
    return Wire(path, upper.cell.hidden or lower.cell.hidden)


def _trunk(rack: Box, servers: Iterable[Box]) -> list[Wire]:
    """From a rack switch down its left edge to each server of the stack below it."""
    x = rack.x + _SERVER_INDENT // 2
    return [
        Wire(
            f"M{x} {rack.y + rack.height}V{server.y + server.height // 2}H{server.x}",
            rack.cell.hidden or server.cell.hidden,
        )
        for server in servers
    ]


def _captions(fabric: Fabric, rows: dict[Role, int]) -> list[Caption]:
    captions = []
    for role, y in rows.items():
        count = len(_nodes(fabric, role))
        if count == 0:
            continue
        middle = y + (_SERVER_HEIGHT if role is Role.SERVER else _BOX_HEIGHT) // 2
        name = "Server" if role is Role.SERVER else role.value.upper()
        captions.append(Caption(middle - 2, name, strong=True))
        captions.append(Caption(middle + 14, f"{_TIER_NAMES[role]}: {count:,}"))
        above = [link for link in fabric.links if fabric.node(link.a.node).role is role]
        if above:
            gap = _ROW_GAP // 4 if role is Role.SERVER else _ROW_GAP // 2
            captions.append(Caption(y - gap + 4, _links_per_pair(above)))
    return captions


def _links_per_pair(links: Iterable[Link]) -> str:
    pairs: dict[tuple[str, str], int] = {}
    rates_bps = set()
    for link in links:
        pair = link.a.node, link.b.node
        pairs[pair] = pairs.get(pair, 0) + 1
        rates_bps.add(link.rate_bps)
    counts = sorted(set(pairs.values()))
    count = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{count} x {'/'.join(map(format_rate, sorted(rates_bps)))} per pair"


def _summary(fabric: Fabric) -> str:
    zones = len({node.zone for node in fabric.nodes})
    return " · ".join(
        [
            f"{zones} AI zone{'s' if zones > 1 else ''}",
            f"{len(fabric.switches):,} switches",
            f"{len(fabric.servers):,} servers",
            f"{len(fabric.sessions):,} switch-to-switch links",
            "numbered links" if fabric.numbered else "unnumbered links",
        ]
    )


def _mermaid_node(cell: Cell) -> str:
    return f'{cell.key}["{"<br/>".join(cell.lines)}"]:::{cell.role.value}'
