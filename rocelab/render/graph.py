"""Draws a fabric: an SVG with tiers in rows, and Mermaid text for documents.

Both draw the same `rocelab.render.sketch.Sketch`. Parallel links are one line, with their number
beside the row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rocelab.base.templates import template
from rocelab.base.units import RATE
from rocelab.fabrics.roles import Role
from rocelab.planning.fabric import Fabric, Link
from rocelab.render.sketch import Band, Edge, Sketch, SketchCell, Tier, ZoneSketch, sketch

_MERMAID_STYLES = (
    "fill:#eef0f2,stroke:#6b7885,color:#1f2933",
    "fill:#e0f1ec,stroke:#2b8069,color:#1f2933",
    "fill:#e1edf9,stroke:#2f6cad,color:#1f2933",
    "fill:#ece6f6,stroke:#6a4fa3,color:#1f2933",
)
"""Styles by tier, servers first; the same colours as in the SVG."""

_MARGIN = 24
_GUTTER = 168
_BOX_WIDTH = 124
_BOX_HEIGHT = 54
_GAP = 18
_PAIR_GAP = 4
_ROW_GAP = 104
_ZONE_PADDING = 18
_ZONE_TITLE = 30
_ZONE_GAP = 28
_SERVER_HEIGHT = 38
_SERVER_PITCH = _SERVER_HEIGHT + 8
_SERVER_INDENT = 16
_WIDE_SERVER_HEIGHT = 58
_PORT_PITCH = 26
_LINE_HEIGHT = 14
_HEADER = 72
_LEGEND = 96
_NETWORK_GAP = 16


@dataclass(frozen=True, slots=True)
class Label:
    """A small text in a box. Units: SVG user units, y grows downwards."""

    x: int
    y: int
    text: str


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with lines of text, and the ports along its upper edge."""

    cell: SketchCell
    x: int
    y: int
    width: int
    height: int
    ports: tuple[Label, ...] = ()

    @property
    def middle(self) -> int:
        return self.x + self.width // 2

    @property
    def text(self) -> list[tuple[int, str]]:
        """Each line of text with the y of its baseline."""
        top = self.y + self.height // 2 - (len(self.cell.lines) - 1) * _LINE_HEIGHT // 2 + 4
        top += 7 if self.ports else 0
        return [(top + i * _LINE_HEIGHT, line) for i, line in enumerate(self.cell.lines)]


@dataclass(frozen=True, slots=True)
class GraphWire:
    """A path in SVG's notation; dashed if it leads to nodes that are not drawn."""

    path: str
    dashed: bool
    plane: int | None = None


@dataclass(frozen=True, slots=True)
class GraphFrame:
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


@dataclass
class _Canvas:
    """The elements placed so far."""

    boxes: list[Box] = field(default_factory=list)
    frames: list[GraphFrame] = field(default_factory=list)
    trunks: list[GraphWire] = field(default_factory=list)
    rows: dict[Role, int] = field(default_factory=dict)
    """The y of each tier."""


def mermaid(fabric: Fabric) -> str:
    """The fabric as a Mermaid flowchart, top tier first, zones as subgraphs; of several networks
    each as one, with its servers."""
    lines = ["flowchart TB"]
    for number, part in enumerate(fabric.parts, start=1):
        lines.append(f'  subgraph network{number}["network {part.network_name}"]')
        lines += [f"  {line}" for line in _mermaid_lines(part, f"n{number}_")]
        lines.append("  end")
    lines += [] if fabric.parts else _mermaid_lines(fabric, "")
    roles = dict.fromkeys(cell.role for part in fabric.networks for cell in sketch(part).cells)
    lines += [f"  classDef {role.name} {_MERMAID_STYLES[role.tier]}" for role in roles]
    return "\n".join(lines) + "\n"


def _mermaid_lines(fabric: Fabric, prefix: str) -> list[str]:
    """The nodes, zones and links of a network; `prefix` begins each key."""
    drawn = sketch(fabric)
    lines = []
    for number, band in enumerate(drawn.bands, start=1):
        for index, zone in enumerate(band.zones, start=1):
            nodes = [f"{prefix}{_mermaid_node(cell)}" for cell in zone.cells]
            if zone.title is None:
                lines += [f"  {node}" for node in nodes]
                continue
            lines.append(f'  subgraph {prefix}zone{number}_{index}["{zone.title}"]')
            lines += [f"    {node}" for node in nodes]
            lines.append("  end")
    for edge in drawn.edges:
        line = "-.-" if edge.upper.hidden or edge.lower.hidden else "---"
        label = f"|{edge.links}|" if edge.links > 1 else ""
        lines.append(f"  {prefix}{edge.upper.key} {line}{label} {prefix}{edge.lower.key}")
    return lines


def _mermaid_node(cell: SketchCell) -> str:
    return f'{cell.key}["{"<br/>".join(cell.lines)}"]:::{cell.role.name}'


def svg(fabric: Fabric) -> str:
    """The fabric as a stand-alone SVG document, readable on light and on dark pages; several
    networks one below the other, each with its servers."""
    if not fabric.parts:
        return _picture(fabric).text
    pictures = [_picture(part) for part in fabric.parts]
    width = max(picture.width for picture in pictures)
    height = sum(picture.height for picture in pictures) + _NETWORK_GAP * (len(pictures) - 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="Networks of lab {fabric.name}">'
    ]
    top = 0
    for picture in pictures:
        lines.append(picture.text.replace("<svg ", f'<svg y="{top}" ', 1).rstrip("\n"))
        top += picture.height + _NETWORK_GAP
    return "\n".join((*lines, "</svg>", ""))


@dataclass(frozen=True, slots=True)
class _Picture:
    """An SVG document and its size."""

    text: str
    width: int
    height: int


def _picture(fabric: Fabric) -> _Picture:
    drawn = sketch(fabric)
    ports = _ports(drawn)
    inner_width = max(_band_width(band, ports) for band in drawn.bands)
    canvas = _Canvas()
    bottom = _MARGIN + _HEADER
    for band in drawn.bands:
        bottom = _place_band(canvas, band, ports, bottom, inner_width)
        bottom += _ROW_GAP
    bottom -= _ROW_GAP

    place = {box.cell.key: box for box in canvas.boxes}
    stacked = {cell.key for band in drawn.bands for z in band.zones for s in z.stacks for cell in s}
    wires = _wires(place, (edge for edge in drawn.edges if edge.lower.key not in stacked))
    name = fabric.network_name
    width = _MARGIN * 2 + _GUTTER + max(inner_width, 620)
    height = bottom + _LEGEND + _MARGIN
    text = template("graph/fabric.svg.j2").render(
        title=fabric.name if name is None else f"{fabric.name}, network {name}",
        summary=_summary(fabric, drawn),
        width=width,
        height=height,
        margin=_MARGIN,
        legend_y=bottom + 34,
        boxes=canvas.boxes,
        frames=canvas.frames,
        wires=[*wires, *canvas.trunks],
        captions=_captions(fabric, canvas.rows),
        numbered_nics=bool(ports),
    )
    return _Picture(text, width, height)


def _ports(drawn: Sketch) -> dict[str, tuple[str, ...]]:
    """The NIC numbers along the upper edge of each drawn server on several switches, by its box, in
    the order of the switches above."""
    by_key: dict[str, list[str]] = {}
    for edge in drawn.edges:
        if edge.lower.role is Role.SERVER and not edge.lower.hidden:
            label = "…" if edge.upper.hidden else ",".join(map(str, edge.nics))
            by_key.setdefault(edge.lower.key, []).append(label)
    return {key: tuple(labels) for key, labels in by_key.items() if len(labels) > 1}


def _place_band(
    canvas: _Canvas, band: Band, ports: Mapping[str, Sequence[str]], top: int, inner_width: int
) -> int:
    """Place a band's boxes from `top` down. Returns the y of its lower edge."""
    framed = band.zones[0].title is not None
    y = top + (_ZONE_PADDING if framed else 0)
    bottom = y
    for tier in band.zones[0].tiers:
        canvas.rows[tier.role] = y
        bottom = y + _height(tier)
        y = bottom + _ROW_GAP
    deepest = max((len(stack) for zone in band.zones for stack in zone.stacks), default=0)
    if deepest:
        canvas.rows[Role.SERVER] = bottom + _ROW_GAP // 2
        bottom = canvas.rows[Role.SERVER] + deepest * _SERVER_PITCH - 8
    bottom += (8 + _ZONE_TITLE) if framed else 0

    x = _MARGIN + _GUTTER + (inner_width - _band_width(band, ports)) // 2
    for zone in band.zones:
        width = _zone_width(zone, ports)
        if zone.title is not None:
            canvas.frames.append(GraphFrame(zone.title, x, top, width, bottom - top))
        if zone.hidden:
            row = min(canvas.rows[tier.role] for tier in band.zones[0].tiers)
            canvas.boxes.append(Box(zone.hidden, x + _ZONE_PADDING, row, _BOX_WIDTH, _BOX_HEIGHT))
        for tier in zone.tiers:
            leaves = _row(tier, ports, canvas.rows[tier.role], x, width)
            canvas.boxes += leaves
        for leaf, stack in zip(leaves if zone.stacks else (), zone.stacks, strict=True):
            servers = _stack(stack, leaf.x, canvas.rows[Role.SERVER])
            canvas.boxes += servers
            canvas.trunks += _trunk(leaf, servers)
        x += width + _ZONE_GAP
    return bottom


def _band_width(band: Band, ports: Mapping[str, Sequence[str]]) -> int:
    gaps = _ZONE_GAP * (len(band.zones) - 1)
    return sum(_zone_width(zone, ports) for zone in band.zones) + gaps


def _zone_width(zone: ZoneSketch, ports: Mapping[str, Sequence[str]]) -> int:
    widest = max((_tier_width(tier, ports) for tier in zone.tiers), default=_BOX_WIDTH)
    return widest + (2 * _ZONE_PADDING if zone.title else 0)


def _tier_width(tier: Tier, ports: Mapping[str, Sequence[str]]) -> int:
    boxes = sum(_width(cell, ports) for cell in tier.cells)
    gaps = sum(_PAIR_GAP if beside else _GAP for beside in tier.beside[1:])
    return max(boxes + gaps, _BOX_WIDTH)


def _width(cell: SketchCell, ports: Mapping[str, Sequence[str]]) -> int:
    return max(_BOX_WIDTH, len(ports.get(cell.key, ())) * _PORT_PITCH + 12)


def _height(tier: Tier) -> int:
    return _WIDE_SERVER_HEIGHT if tier.role is Role.SERVER else _BOX_HEIGHT


def _row(tier: Tier, ports: Mapping[str, Sequence[str]], y: int, x: int, width: int) -> list[Box]:
    """A tier's boxes, centred in the `width` that starts at `x`, pairs close together."""
    at = x + (width - _tier_width(tier, ports)) // 2
    row: list[Box] = []
    for cell, beside in zip(tier.cells, tier.beside, strict=True):
        if row:
            at += _PAIR_GAP if beside else _GAP
        texts = ports.get(cell.key, ())
        box_width = _width(cell, ports)
        first = at + (box_width - (len(texts) - 1) * _PORT_PITCH) // 2
        labels = [Label(first + i * _PORT_PITCH, y + 12, text) for i, text in enumerate(texts)]
        row.append(Box(cell, at, y, box_width, _height(tier), tuple(labels)))
        at += box_width
    return row


def _stack(cells: Sequence[SketchCell], x: int, y: int) -> list[Box]:
    width = _BOX_WIDTH - _SERVER_INDENT
    return [
        Box(cell, x + _SERVER_INDENT, y + i * _SERVER_PITCH, width, _SERVER_HEIGHT)
        for i, cell in enumerate(cells)
    ]


def _wires(place: Mapping[str, Box], edges: Iterable[Edge]) -> list[GraphWire]:
    """Lines from box to box, at a server on several switches from its ports, one after another."""
    wires = []
    used: Counter[str] = Counter()
    for edge in edges:
        upper, lower = place[edge.upper.key], place[edge.lower.key]
        end = lower.ports[used[edge.lower.key]].x if lower.ports else lower.middle
        used[edge.lower.key] += 1
        path = f"M{upper.middle} {upper.y + upper.height}L{end} {lower.y}"
        wires.append(GraphWire(path, edge.upper.hidden or edge.lower.hidden, edge.plane))
    return wires


def _trunk(leaf: Box, servers: Iterable[Box]) -> list[GraphWire]:
    """The wires from a switch down its left edge to each server of the stack below it."""
    x = leaf.x + _SERVER_INDENT // 2
    return [
        GraphWire(
            f"M{x} {leaf.y + leaf.height}V{server.y + server.height // 2}H{server.x}",
            leaf.cell.hidden or server.cell.hidden,
        )
        for server in servers
    ]


def _captions(fabric: Fabric, rows: Mapping[Role, int]) -> list[Caption]:
    count = Counter(node.role for node in fabric.nodes)
    above: dict[Role, list[Link]] = {}
    for link in fabric.links:
        above.setdefault(fabric.node(link.a.node).role, []).append(link)
    captions = []
    bottom = 0
    for role, y in rows.items():
        middle = y + (_SERVER_HEIGHT if role is Role.SERVER else _BOX_HEIGHT) // 2
        captions.append(Caption(middle - 2, role.title, strong=True))
        captions.append(Caption(middle + 14, f"{role.members}: {count[role]:,}"))
        if role in above:
            captions.append(Caption((bottom + y) // 2 + 4, _links_per_pair(above[role])))
        bottom = y + _BOX_HEIGHT
    return captions


def _links_per_pair(links: Sequence[Link]) -> str:
    pairs = Counter((link.a.node, link.b.node) for link in links)
    rates_bps = {link.rate_bps for link in links}
    counts = sorted(set(pairs.values()))
    count = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{count} x {'/'.join(map(RATE.written, sorted(rates_bps)))} per pair"


def _summary(fabric: Fabric, drawn: Sketch) -> str:
    divided = [band.division for band in reversed(drawn.bands) if band.division.zones]
    return " · ".join(
        [
            *(division.counted(len(division.zones)) for division in divided),
            f"{len(fabric.switches):,} switches",
            f"{len(fabric.servers):,} servers",
            f"{len(fabric.trunks):,} switch-to-switch links",
            "numbered links" if fabric.numbered else "unnumbered links",
        ]
    )
