"""Pages of all kinds in Chromium, as a reader first sees them: short, with the answer on the first
screen and contents that stay in view; no text of a plot is too small."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.report.compare.document import comparison_document
from rocelab.report.document import Document
from rocelab.report.drill import drill_document
from rocelab.report.job import job_document
from rocelab.report.renderers.page import html
from rocelab.report.simulation.document import simulation_document
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
from rocelab.sim.sweep.cells import cells_of
from rocelab.sim.sweep.report import sweep_document
from rocelab.sim.sweep.sweep_spec import read_sweep
from tests.helpers import comparison_sample, phases_sample, report_sample
from tests.helpers.long import mostly_long

pytestmark = pytest.mark.side_by_side

SCREEN = ViewportSize(width=1400, height=900)
SCREENS = 3
LEAST_TEXT = 7.5
"""Pixels of the smallest text of a plot, on the narrowest screen."""

SWEEP = """\
lab: zone-1-1
job: {pattern: allreduce, ranks: 4, size: 1MB}
over:
  job.transport.qps: [1, 4]
  job.size: [1MB, 4MB]
"""
SMALLEST = """() => Math.min(...[...document.querySelectorAll("#answer svg text")]
  .map((text) => [parseFloat(getComputedStyle(text).fontSize), text.getScreenCTM()])
  .map(([size, { a, b }]) => size * Math.hypot(a, b)))"""


def simulation() -> Document:
    job = JobSpec.model_validate({"pattern": "allreduce", "ranks": 4, "size": "4MB"})
    report = simulate(load_spec(find_lab("zone-1-1")), (collective_job(job),), Options())
    return simulation_document(report)


def sweep(folder: Path) -> Document:
    file = folder / "sweep.yaml"
    file.write_text(SWEEP)
    asked = read_sweep(file)
    rows = [
        {**cell.values, "iteration_time": 1e6 * number, "busbw": 2.5, "error": None}
        | {"wall_s": 1.0, "peak_memory_bytes": 1 << 20, "warnings": None}
        for number, cell in enumerate(cells_of(asked), 1)
    ]
    return sweep_document(asked, rows)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    documents = {
        "drill": drill_document(report_sample.result()),
        "phases": drill_document(phases_sample.result()),
        "job": job_document(comparison_sample.report()),
        "comparison": comparison_document(comparison_sample.comparison()),
        "simulation": simulation(),
        "sweep": sweep(folder),
    }
    for name, document in documents.items():
        (folder / f"{name}.html").write_text(html(document))
    return {name: folder / f"{name}.html" for name in documents}


KINDS = ("drill", "phases", "job", "comparison", "simulation", "sweep")


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


@pytest.mark.parametrize("width", mostly_long([1400, 800, 390], [390]))
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_a_plot_is_small_and_no_page_is_wider_than_its_screen(
    opened: Opening, kind: str, width: int
) -> None:
    page = opened.at(kind, width)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(SMALLEST) >= LEAST_TEXT


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
