"""Draws the layers of the packages, as import-linter's contracts in pyproject.toml have them.

An SVG and no Mermaid, which a page of the site would have to load from elsewhere.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
WIDTH = 470
"""Of a column; its unit, as that of all below, is the SVG's."""
LETTER, PADDING = 7.2, 14
HEIGHT, STEP, BETWEEN, MARGIN = 22, 30, 8, 24
STYLE = """\
  text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2933; }
  .name { text-anchor: middle; }
  .title { font-weight: 600; }
  rect { fill: #e1edf9; stroke: #2f6cad; }
  .page { fill: #f5f7fa; stroke: none; }"""


def layers_svg() -> str:
    """The picture: the packages on the left, on the right the modules of those that have layers."""
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    whole, *parts = (contract for contract in contracts if contract["type"] == "layers")
    left = list(_column(MARGIN, [whole]))
    right = list(_column(2 * MARGIN + WIDTH, parts))
    width = 3 * MARGIN + 2 * WIDTH
    height = max(y for y, _ in (*left, *right)) + HEIGHT + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            'aria-label="The layers of the packages">',
            f"<style>\n{STYLE}\n</style>",
            f'<rect class="page" width="{width}" height="{height}" rx="10"/>',
            *(element for _, element in (*left, *right)),
            "</svg>\n",
        ]
    )


def _column(x: int, contracts: Sequence[dict[str, list[str]]]) -> Iterator[tuple[int, str]]:
    """The elements of contracts one below the other, each with its y."""
    y = MARGIN
    for contract in contracts:
        (container,) = contract["containers"]
        yield y, f'<text class="title" x="{x}" y="{y + 15}">{container}</text>'
        y += STEP
        for layer in contract["layers"]:
            gap = BETWEEN if "|" in layer else 0
            for names in _lines(re.split(r"\s*[|:]\s*", layer)):
                yield from ((y, element) for element in _boxes(x, y, names, gap))
                y += HEIGHT
            y += STEP - HEIGHT
        y += MARGIN


def _lines(names: Sequence[str]) -> list[list[str]]:
    """The names of a layer, in as many lines as they need."""
    lines: list[list[str]] = [[]]
    for name in names:
        if sum(map(_width, (*lines[-1], name))) > WIDTH:
            lines.append([])
        lines[-1].append(name)
    return lines


def _boxes(x: float, y: int, names: Sequence[str], gap: int) -> Iterator[str]:
    """Boxes beside each other, which fill the column."""
    free = WIDTH - sum(map(_width, names)) - gap * (len(names) - 1)
    for name in names:
        width = _width(name) + free / len(names)
        yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT}"/>'
        yield f'<text class="name" x="{x + width / 2:.1f}" y="{y + 15}">{name}</text>'
        x += width + gap


def _width(name: str) -> float:
    return len(name) * LETTER + PADDING
