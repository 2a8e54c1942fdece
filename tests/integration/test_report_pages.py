"""Pages of all kinds in Chromium, as a reader first sees them: short, with the answer on the first
screen and contents that stay in view; no text of a plot is too small."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from rocelab.report.renderers.page import html
from tests.helpers.drawing import with_drawings
from tests.helpers.long import mostly_long
from tests.helpers.page_samples import KINDS
from tests.helpers.replay_page import OPEN_FOLDS
from tests.helpers.textboxes import cut, overlapping, text_boxes

pytestmark = pytest.mark.side_by_side

SCREEN = ViewportSize(width=1400, height=900)
SCREENS = 3
LEAST_TEXT = 9
"""Pixels of the smallest text of a plot, on the narrowest screen."""

TOO_WIDE = """() => [...document.querySelectorAll("figure:not(#replay *), .wide, .scroll, .value")]
  .filter((part) => part.scrollWidth > part.clientWidth)
  .map((part) => part.textContent.trim().slice(0, 80))"""
"""Plots, tables and figures of cards that are wider than their place."""

LEAST_CONTRAST = 3
"""Of a text to what is behind it (WCAG 2.2, success criterion 1.4.3, large texts)."""

FAINT = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = channels(colour).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (part) => {
    for (let at = part; at; at = at.parentElement) {
      const { backgroundColor } = getComputedStyle(at);
      if ((channels(backgroundColor)[3] ?? 1) === 1) return backgroundColor;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll("body *")]
    .filter((part) => !part.closest("svg, script, style, #replay") && part.checkVisibility())
    .filter((part) => [...part.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .map((part) => {
      const [a, b] = [getComputedStyle(part).color, behind(part)].map(light);
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), part.textContent.trim()];
    });
}"""
"""The contrast of each text."""

RED_TEXTS = """() => {
  const of = (colour) => {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = colour;
    const computed = getComputedStyle(probe).color;
    probe.remove();
    return computed;
  };
  const reds = ["var(--down)", "var(--plot-c8102e, #c8102e)"].map(of);
  return [...document.querySelectorAll("main *, header *")]
    .filter((part) => !part.closest("svg, #replay") && part.checkVisibility())
    .filter((part) => {
      const { color, backgroundColor, borderLeftColor } = getComputedStyle(part);
      return [color, backgroundColor, borderLeftColor].some((colour) => reds.includes(colour));
    })
    .map((part) => part.textContent.trim());
}"""
"""Texts outside of plots and replays that have the red of what is lost or down."""

SMALLEST = """() => Math.min(
  ...[...document.querySelectorAll("main figure:not(#replay *) svg text")]
  .filter((text) => text.checkVisibility())
  .map((text) => [parseFloat(getComputedStyle(text).fontSize), text.getScreenCTM()])
  .map(([size, { a, b }]) => size * Math.hypot(a, b)))"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    with with_drawings():
        for name, document in KINDS.items():
            (folder / f"{name}.html").write_text(html(document()))
    return {name: folder / f"{name}.html" for name in KINDS}


@pytest.fixture
def opened(browser: Browser, pages: dict[str, Path]) -> Iterator[Opening]:
    yield Opening(browser, pages)
    for context in browser.contexts:
        context.close()


class Opening:
    """Opens a page as a reader does, with everything folded."""

    def __init__(self, browser: Browser, pages: dict[str, Path]) -> None:
        self.browser, self.pages = browser, pages

    def at(self, kind: str, width: int = 1400, scheme: Literal["light", "dark"] = "light") -> Page:
        screen = ViewportSize(width=width, height=SCREEN["height"])
        page = self.browser.new_context(viewport=screen, color_scheme=scheme).new_page()
        page.goto(self.pages[kind].as_uri())
        return page


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_below_three_screens_and_its_answer_on_the_first(
    opened: Opening, kind: str
) -> None:
    page = opened.at(kind)
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height < SCREENS * SCREEN["height"]
    box = page.locator("#answer").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= SCREEN["height"]
    assert page.locator("#answer .sentence").inner_text().endswith(".")
    assert page.locator("#answer .card").count() <= 4


@pytest.mark.parametrize(
    "screen",
    mostly_long(
        [(width, scheme) for width in (1400, 800, 390) for scheme in ("light", "dark")],
        [(390, "dark")],
    ),
)
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_a_page_is_cut_or_covered(
    opened: Opening, kind: str, screen: tuple[int, Literal["light", "dark"]]
) -> None:
    page = opened.at(kind, *screen)
    page.evaluate(OPEN_FOLDS)
    boxes = text_boxes(page)
    assert boxes
    assert cut(boxes) == []
    assert overlapping(boxes) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", mostly_long([1400, 800, 390], [390]))
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_a_plot_is_small_and_nothing_is_wider_than_its_place(
    opened: Opening, kind: str, width: int
) -> None:
    page = opened.at(kind, width)
    page.evaluate(OPEN_FOLDS)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(SMALLEST) >= LEAST_TEXT
    assert page.evaluate(TOO_WIDE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["drill", "phases", "difference"])
def test_every_text_of_a_page_stands_out(
    opened: Opening, kind: str, scheme: Literal["light", "dark"]
) -> None:
    page = opened.at(kind, scheme=scheme)
    page.evaluate(OPEN_FOLDS)
    contrasts = page.evaluate(FAINT)
    assert page.locator(".badge").inner_text() in [text for _, text in contrasts]
    assert [text for contrast, text in contrasts if contrast < LEAST_CONTRAST] == []


def test_contents_stay_in_view_and_open_what_they_lead_to(opened: Opening) -> None:
    page = opened.at("drill")
    link = page.get_by_role("navigation").get_by_role("link", name="How to reproduce")
    link.click()
    fold = page.locator("details", has=page.locator("#how-to-reproduce"))
    page.wait_for_function("document.getElementById('how-to-reproduce').closest('details').open")
    assert fold.get_attribute("open") is not None
    box = page.get_by_role("navigation").bounding_box()
    assert box is not None
    assert 0 <= box["y"] < 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_dark_page_has_no_white_slab(opened: Opening, kind: str) -> None:
    page = opened.at(kind, scheme="dark")
    fills = page.evaluate(
        """() => [...document.querySelectorAll("#answer, #answer figure, #answer svg")]
          .map((part) => getComputedStyle(part).backgroundColor)"""
    )
    assert not {"rgb(255, 255, 255)", "rgb(245, 247, 249)"} & set(fills)
    fill = "getComputedStyle(document.querySelector('#answer svg path')).fill"
    assert page.evaluate(fill) != "rgb(255, 255, 255)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_red_is_for_what_is_lost_or_down_and_not_for_what_failed(
    opened: Opening, scheme: Literal["light", "dark"]
) -> None:
    page = opened.at("drill", scheme=scheme)
    page.evaluate(OPEN_FOLDS)
    expect(page.locator(".badge")).to_have_text("failed")
    expect(page.locator("td.bad").first).to_contain_text("not met")
    assert page.evaluate(RED_TEXTS) == []


def test_a_long_silence_of_a_simulation_leaves_its_plot_room(opened: Opening) -> None:
    page = opened.at("stall")
    texts = texts_of(page)
    assert "before this nothing was sent for 5 ms" in texts
    expect(page.locator("#answer .sentence")).to_contain_text("nothing was sent for 5 ms")
    assert texts_of(opened.at("failure")).count("time, us") == 1


def texts_of(page: Page) -> list[str]:
    texts: list[str] = page.locator("#answer .at-wide svg text").all_text_contents()
    return [text.strip() for text in texts]


def test_a_drill_begins_with_its_worst_event_and_a_storm_with_a_map(opened: Opening) -> None:
    drill = texts_of(opened.at("drill"))
    assert "after E1, ms, lab" in drill
    assert drill.count("lost") == 1
    storm = opened.at("storm")
    names = texts_of(storm)
    assert [name for name in names if name.startswith("E")] == [f"E{n}" for n in range(1, 9)]
    assert storm.locator("#answer .sentence").inner_text().startswith("E3, the worst of 8 events")
    keys = storm.locator("section", has=storm.locator("#events")).locator("tbody tr")
    expect(keys).to_have_count(8)
    expect(keys.nth(2)).to_contain_text("E3")
    expect(keys.nth(2)).to_contain_text("power-loss of ctsw1, blackhole of rtsw1:ctsw2 and 1 more")


def test_a_table_of_events_has_names_and_not_their_texts_again(opened: Opening) -> None:
    page = opened.at("storm")
    page.evaluate(OPEN_FOLDS)
    rows = page.locator("section", has=page.locator("#flows-out")).locator("tbody tr")
    assert rows.count() > 8
    assert {row.split("\t")[2] for row in rows.all_inner_texts()} <= {f"E{n}" for n in range(1, 9)}


@pytest.mark.parametrize("kind", ["what-if", "long-run"])
def test_a_page_of_failures_has_its_jobs_in_view_without_what_is_0(
    opened: Opening, kind: str
) -> None:
    page = opened.at(kind)
    assert page.locator("details table").count() == 0
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_be_visible()
    if kind == "long-run":
        return
    expect(page.locator("section", has=page.locator("table"))).to_contain_text("0 in every row")


def test_phases_are_columns_with_the_difference_to_the_first(opened: Opening) -> None:
    page = opened.at("phases")
    table = page.locator("section", has=page.locator("[id^=figures-by-phase]"))
    expect(table).to_be_visible()
    assert table.locator("th").all_inner_texts()[1:] == ["idle", "shared"]
    expect(table).to_contain_text("0 in every phase")
