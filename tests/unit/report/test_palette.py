"""One colour has one meaning on a page: the plots of pages are asked for their colours."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from rocelab.report import palette
from rocelab.report.palette import CATEGORIES, DARK, LOST
from rocelab.report.renderers.page import html
from tests.helpers.drawing import with_drawings
from tests.helpers.page_samples import KINDS

DRAWING = re.compile(r"<svg.*?</svg>", re.DOTALL)
COLOUR = re.compile(r"var\(--plot-[0-9a-f]{6}, (#[0-9a-f]{6})\)")
PLAIN = re.compile(r"(?<!, )#[0-9a-f]{6}\b")
SVG = "{http://www.w3.org/2000/svg}"
ENTRY = re.compile(r"<text[^>]*>([^<]*)</text>")
NEUTRAL = {palette.INK, palette.MUTED, palette.GRID, palette.PAPER}


def legend(drawing: str) -> dict[str, set[str]]:
    """What the key of a plot says of each colour: a mark of it stands before its text."""
    meanings: dict[str, set[str]] = {}
    colours: set[str] = set()
    for group in ElementTree.fromstring(drawing).iter(f"{SVG}g"):
        for part in group.iter() if "legend_" in group.get("id", "") else ():
            colours |= set(COLOUR.findall(part.get("style", "") + part.get("fill", ""))) - NEUTRAL
            if part.tag == f"{SVG}text":
                for colour in colours:
                    meanings.setdefault(colour, set()).add((part.text or "").strip())
                colours = set()
    return meanings


@pytest.fixture(scope="module", params=KINDS)
def drawings(request: pytest.FixtureRequest) -> list[str]:
    with with_drawings():
        return DRAWING.findall(html(KINDS[request.param]()))


def test_a_colour_means_one_thing_on_a_page(drawings: list[str]) -> None:
    meanings: dict[str, set[str]] = {}
    for drawing in drawings:
        for colour, texts in legend(drawing).items():
            if colour not in CATEGORIES:  # these are told apart by their names alone
                meanings.setdefault(colour, set()).update(texts)
    assert {colour: texts for colour, texts in meanings.items() if len(texts) > 1} == {}


def test_red_is_for_lost_packets_alone(drawings: list[str]) -> None:
    for drawing in drawings:
        if LOST in COLOUR.findall(drawing):
            words = " ".join(ENTRY.findall(drawing))
            assert "lost" in words or "outage of each flow" in words


def test_every_colour_of_a_plot_is_of_the_palette_or_a_map(drawings: list[str]) -> None:
    for drawing in drawings:
        assert set(COLOUR.findall(drawing)) <= set(DARK)
        if "over the mean" not in drawing:  # a map of loads, in its own scale
            assert set(PLAIN.findall(COLOUR.sub("", drawing))) <= {"#000000"}


def test_no_two_meanings_have_one_colour_in_light_or_dark() -> None:
    assert len(set(DARK.values())) == len(DARK)
    assert len(set(CATEGORIES)) == len(CATEGORIES)
