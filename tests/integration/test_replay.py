"""The page of a drill in Chromium, opened as a file: what it shows, how it is used, what is cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect

from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.planning.build import build_fabric
from rocelab.report.compare.document import comparison_document
from rocelab.report.drill import drill_document
from rocelab.report.renderers.page import html
from rocelab.report.replay.page import tables_script
from rocelab.report.simulation.document import simulation_document
from rocelab.results.job import StepRecords, Times
from rocelab.results.probes import Event, FaultChange
from rocelab.results.stages import DetectionCause, Resolution, Stages, SwitchStages
from rocelab.sim.events.event_spec import TimelineSpec
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
from rocelab.sim.sweep.cells import cells_of
from rocelab.sim.sweep.report import sweep_document
from rocelab.sim.sweep.sweep_spec import read_sweep
from tests.helpers import phases_sample
from tests.helpers.comparison_sample import comparison, run
from tests.helpers.drawing import with_drawings
from tests.helpers.replay_page import LIMIT_S, Opener
from tests.helpers.report_sample import LINK, MS, lab, repeat, result
from tests.helpers.textboxes import cut, overlapping, text_boxes

pytestmark = [pytest.mark.side_by_side, pytest.mark.usefixtures("drawn")]

SCREENS = [(1400, "light"), (800, "dark")]
MOSTLY_NARROW = [pytest.param(*SCREENS[0], marks=pytest.mark.long), SCREENS[1]]
"""Of pages that share their parts with one that both screens show: narrow ones cut more."""
NODES = 16
SECOND = 10**9
TIMES = [
    "3 ms",
    "2 s",
    "400 us",
    "-",
    "1.5 ms",
    "10 ms",
    "9 ms",
    "1 us",
    "2 ns",
    "70 ms",
    "5 s",
    "6 s",
]
SECONDS = [3e-3, 2, 4e-4, None, 1.5e-3, 1e-2, 9e-3, 1e-6, 2e-9, 7e-2, 5, 6]
JOBS_LINK = "rtsw1:ctsw1"
PATH = ("srv2-2:rtsw2", "rtsw2:ctsw2", LINK, "srv1-2:rtsw1")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two repeats with paths and stages, beside nothing."""
    assert set(PATH) <= {link.name for link in build_fabric(lab()).links}
    switch = SwitchStages(
        "rtsw1",
        DetectionCause.CARRIER,
        MS,
        2 * MS,
        3 * MS,
        4 * MS,
        5 * MS,
        None,
        "198.18.0.0/29",
        3,
    )
    stages = Stages(1, f"carrier-down of {LINK}", Resolution(1000, None, None), (switch,))
    runs = [
        replace(
            repeat(seed),
            stages=(stages,),
            flows=tuple(
                replace(record, path=PATH if record.flow.name in ("f4", "f10") else ())
                for record in repeat(seed).flows
            ),
        )
        for seed in (1, 2)
    ]
    page = tmp_path_factory.mktemp("page") / "report.html"
    with with_drawings():
        page.write_text(html(drill_document(result(*runs))))
    return page


@pytest.fixture(autouse=True)
def patience() -> None:
    """Of all pages: Playwright's own is 5 s."""
    expect.set_options(timeout=LIMIT_S * 1e3)


@pytest.fixture
def opener(browser: Browser, file: Path) -> Iterator[Opener]:
    yield Opener(browser, file, NODES)
    for context in browser.contexts:
        context.close()


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_no_text_is_cut_or_covered_and_nothing_else_is_loaded(
    opener: Opener, width: int, scheme: str
) -> None:
    opened = opener.at(width, scheme)
    page = opened.page
    page.locator("#flows").get_by_role("button", name="f4", exact=True).click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("scrollTo(0, 0)")  # the contents are in view, above what was scrolled to
    boxes = text_boxes(page)
    texts = [box["text"] for box in boxes]
    assert " ".join(texts).count("after E2: carrier-down of rtsw1:ctsw2 ends") == 1
    for wanted, number in (
        ("after E1: carrier-down of rtsw1:ctsw2", 1),
        ("CTSW · spines", 1),
        ("whole run", 1),
        ("f10  srv1-2 → srv2-2", 2 if width > 900 else 3),  # panels below each other
        ("Flow f4, srv2-2 → srv3-2", 1),
    ):
        assert texts.count(wanted) == number, wanted
    assert cut(boxes) == []
    assert overlapping(boxes) == []
    assert opened.requests == [opener.file.as_uri()]
    assert opened.complaints == []


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_axe_finds_nothing_serious(opener: Opener, width: int, scheme: str) -> None:
    assert serious(opener.at(width, scheme).page) == []


def serious(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds of that impact, with the elements."""
    return [
        (violation["id"], [node["html"][:200] for node in violation["nodes"]][:3])
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
    ]


def test_the_slider_goes_through_time_by_the_keyboard(opener: Opener) -> None:
    opened = opener.at()
    expect(opened.instant).to_have_text(f"At 0.00 ms: carrier-down of {LINK} begins")
    assert opened.red() > 50
    opened.slider.focus()
    opened.slider.press("ArrowLeft")
    expect(opened.instant).to_contain_text("before the first event")
    expect(opened.page.locator("#state")).to_have_text("All is as before the first event.")
    assert opened.red() == 0
    opened.slider.press("PageDown")
    opened.slider.press("PageDown")
    opened.slider.press("PageDown")
    expect(opened.instant).to_contain_text(f"after carrier-down of {LINK} begins")
    expect(opened.page.locator("#state")).to_contain_text("3 flows lose packets")
    expect(opened.page.locator("#happenings [aria-current]")).to_contain_text("first packet")
    expect(opened.slider).to_have_attribute("aria-valuetext", opened.instant.inner_text())
    opened.slider.press("End")
    expect(opened.instant).to_contain_text(f"after carrier-down of {LINK} ends")
    assert opened.red() == 0
    assert opened.complaints == []


def test_the_nodes_have_the_state_of_the_instant(opener: Opener) -> None:
    page = opener.at().page
    expect(page.get_by_role("button", name="ctsw2: degraded")).to_be_visible()
    expect(page.get_by_role("button", name="rtsw3: as planned")).to_be_visible()
    repair = page.locator("#happenings li", has_text="carrier-down is undone")
    repair.get_by_title("Show the fabric at this instant").click()
    expect(page.get_by_role("button", name="ctsw2: degraded")).to_be_visible()
    page.get_by_role("button", name="Event before").click()
    expect(page.locator("#state")).to_contain_text("rtsw3: 3 routes missing or narrower")
    expect(page.get_by_role("button", name="rtsw3: degraded")).to_be_visible()


def test_a_flow_that_is_picked_has_its_path_and_its_own_plots(opener: Opener) -> None:
    opened = opener.at()
    page = opened.page
    table = page.locator("#flows")
    table.get_by_role("button", name="f4", exact=True).click()
    expect(page.locator("#labels [data-path]")).to_have_count(5)
    expect(page.locator("#of")).to_have_text("Flow f4, srv2-2 → srv3-2")
    expect(page.locator("#path-note")).to_contain_text(", ".join(PATH))
    expect(table.get_by_role("button", name="f4", exact=True)).to_be_focused()
    page.get_by_role("button", name="All flows").click()
    expect(page.locator("#labels [data-path]")).to_have_count(0)
    table.get_by_role("button", name="f1", exact=True).click()
    expect(page.locator("#path-note")).to_have_text("Its path is not in this result.")
    assert opened.complaints == []


def test_flows_are_sorted_filtered_and_found_by_a_link_that_they_crossed(opener: Opener) -> None:
    page = opener.at().page
    names = page.locator("#flows tbody button")
    assert names.all_inner_texts() == ["f10", "f4", "f1"]
    page.locator("#flows thead").get_by_role("button", name="flow").click()
    assert names.all_inner_texts() == ["f10", "f4", "f1"]
    page.locator("#flows thead").get_by_role("button", name="flow").click()
    assert names.all_inner_texts() == ["f1", "f4", "f10"]
    page.get_by_label("only affected").uncheck()
    expect(page.locator("#flows-shown")).to_have_text("24 of 24 flows")
    page.get_by_role("searchbox").fill("srv2-2")
    expect(page.locator("#flows-shown")).to_have_text("6 of 24 flows")
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="ctsw2: degraded").click()
    assert names.all_inner_texts() == ["f4", "f10"]


def test_a_drag_zooms_both_plots_and_the_slider_and_a_double_click_shows_the_whole_run(
    opener: Opener,
) -> None:
    opened = opener.at()
    page, slider = opened.page, opened.slider
    whole = (slider.get_attribute("min"), slider.get_attribute("max"))
    plot = page.locator("#plots .u-over").last
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 20, steps=4)
    page.mouse.up()
    expect(slider).not_to_have_attribute("min", whole[0] or "")
    low, high = (float(slider.get_attribute(name) or "nan") for name in ("min", "max"))
    assert high - low == pytest.approx(0.2 * 6e9, rel=0.05)
    expect(opened.instant).to_contain_text("after")
    track = slider.bounding_box()
    assert track is not None
    assert track["x"] + 8 == pytest.approx(box["x"], abs=2)
    assert track["width"] - 16 == pytest.approx(box["width"], abs=2)
    plot.dblclick()
    expect(slider).to_have_attribute("min", whole[0] or "")
    assert opened.complaints == []


def test_a_table_is_sorted_by_a_heading_and_filtered_by_words(plain: Page) -> None:
    rows = plain.locator("tbody tr")

    def numbers() -> list[int]:
        return [int(text) for text in rows.locator("td:nth-child(3)").all_inner_texts()]

    time = plain.get_by_role("columnheader", name="time")
    assert numbers() == list(range(len(TIMES)))
    time.get_by_role("button").click()
    expect(time).to_have_attribute("aria-sort", "descending")
    without = TIMES.index("-")
    by_time = [
        index
        for _, index in sorted(
            (seconds, index) for index, seconds in enumerate(SECONDS) if seconds is not None
        )
    ]
    assert numbers() == [*reversed(by_time), without]
    plain.keyboard.press("Enter")
    expect(time).to_have_attribute("aria-sort", "ascending")
    assert numbers() == [*by_time, without]
    plain.get_by_role("columnheader", name="name").get_by_role("button").click()
    expect(time).not_to_have_attribute("aria-sort", "ascending")
    assert numbers() == list(range(len(TIMES)))
    words = plain.get_by_role("searchbox", name="rows with")
    words.fill("SRV-1")
    assert rows.filter(visible=True).count() == 1 + sum(10 <= n < 20 for n in range(len(TIMES)))
    expect(plain.get_by_role("status")).to_have_text(f"3 of {len(TIMES)} rows")
    words.fill("")
    assert rows.filter(visible=True).count() == len(TIMES)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("28.4 ms", 0.0284),
        ("1,234.5 us", 0.0012345),
        ("< 2 min", 120),
        ("35.21 GB/s", 35.21e9),
        ("64 kB", 64e3),
        ("36%", 36),
        ("12 B", 12),
        ("-3", -3),
        ("1e-05", 1e-5),
        ("-", None),
        ("never", None),
    ],
)
def test_a_quantity_is_sorted_by_its_unit(plain: Page, text: str, value: float | None) -> None:
    assert plain.evaluate("text => module_tables.quantity(text)", text) == (
        value if value is None else pytest.approx(value)
    )


@pytest.fixture(scope="module")
def plain(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page with a table to sort."""
    file = tmp_path_factory.mktemp("plain") / "page.html"
    cells = "".join(
        f"<tr><td>srv-{number}</td><td>{time}</td><td>{number}</td></tr>"
        for number, time in enumerate(TIMES)
    )
    heads = '<th>name</th><th class="n">time</th><th class="n">number</th>'
    file.write_text(
        f'<!DOCTYPE html><table class="sortable"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{cells}</tbody></table><script>{tables_script()}</script>"
    )
    page = browser.new_page()
    page.goto(file.as_uri())
    yield page
    page.close()


def test_a_long_time_has_hundredths_of_a_second(opener: Opener) -> None:
    written = "[59.9e9, 61.25e9, -179.5e9, 7e11].map(module_format.moment)"
    moments = opener.at().page.evaluate(written)
    assert moments == ["59.90 s", "61.25 s", "-179.50 s", "12 min"]


def test_another_repeat_is_shown(opener: Opener) -> None:
    page = opener.at().page
    expect(page.locator("#flows tbody tr").first).to_contain_text("28")
    page.get_by_label("run").select_option("repeat 2")
    expect(page.locator("#flows tbody tr").first).to_contain_text("29")


def test_without_a_script_and_in_print_the_tables_and_figures_say_it(opener: Opener) -> None:
    page = opener.at(scripts=False).page
    expect(page.locator("#replay")).to_be_hidden()
    # Each for screens of two widths.
    expect(page.locator("figure svg")).to_have_count(2 * 5)
    expect(page.get_by_role("cell", name="carrier-down of rtsw1:ctsw2 ends").first).to_be_visible()
    printed = opener.at().page
    printed.emulate_media(media="print")
    expect(printed.locator("#replay")).to_be_hidden()
    row = printed.locator("table.sortable tbody tr").first
    row.evaluate("row => { row.hidden = true; }")  # as the filter does
    expect(row).to_be_visible()
    boxes = text_boxes(printed)
    assert cut(boxes) == []
    assert overlapping(boxes) == []


@pytest.fixture(scope="module")
def jobs_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two phases of jobs, with a fault and timed iterations in the first."""
    drill = phases_sample.result()
    idle, shared = drill.repeats[0]
    assert idle.jobs is not None
    report = idle.jobs.reports[0]
    link = FaultChange(3 * SECOND, "carrier-down", True, JOBS_LINK, (JOBS_LINK,), dark=True)
    event = Event(3 * SECOND, "carrier-down", "begin", JOBS_LINK, faults=(link,))
    warmups = report.job["warmup_iterations"]
    ends = tuple((second * SECOND,) for second in (*range(-warmups, 0), 1, 2, 5, 6))
    timed = replace(
        report,
        iterations=tuple(Times(took * SECOND, took * SECOND / 250) for took in (1, 1, 3, 1)),
        steps=StepRecords(0, ends, ends, (), (), ()),
        events=(event,),
        fidelity=replace(report.fidelity, elapsed_s=7.0),
    )
    run = replace(idle, jobs=replace(idle.jobs, reports=(timed,)))
    page = tmp_path_factory.mktemp("jobs") / "report.html"
    with with_drawings():
        page.write_text(html(drill_document(replace(drill, repeats=((run, shared),)))))
    return page


@pytest.mark.parametrize(("width", "scheme"), MOSTLY_NARROW)
def test_a_page_of_jobs_shows_their_fabric_and_iterations_and_nothing_is_cut(
    browser: Browser, jobs_file: Path, width: int, scheme: str
) -> None:
    opener = Opener(browser, jobs_file, 5)
    opened = opener.at(width, scheme)
    page = opened.page
    expect(opened.instant).to_have_text(f"At 3.00 s: carrier-down of {JOBS_LINK} begins")
    assert opened.red() > 50
    expect(page.locator("#plots figcaption").last).to_contain_text("time of each iteration")
    expect(page.locator("#clock")).to_contain_text("250 times slower")
    expect(page.locator("#flows")).to_be_hidden()
    page.get_by_label("run").select_option("shared, repeat 1")
    expect(opened.instant).to_contain_text("nothing was broken")
    expect(page.locator("#happenings")).to_be_hidden()
    assert page.locator("#state").evaluate("list => list.scrollHeight <= list.clientHeight")
    assert opened.red() == 0
    boxes = text_boxes(page)
    assert [box["text"] for box in boxes].count("goodput of each sender") == 1  # in the answer only
    assert cut(boxes) == []
    assert overlapping(boxes) == []
    assert opened.requests == [jobs_file.as_uri()]
    assert opened.complaints == []
    page.context.close()


ONE_ITERATION = """() => module_series.plotsOf({
  jobs: [
    {
      name: "a job", interval_ns: 1e7, rates_in: "GB/s", rates: [25, 50, 12.5],
      iterations: [[5e6, 3e7]],
    },
  ],
  dilation: 250, rates_are: "goodput",
}, null).map(({ title, data }) => [title, data])"""


def test_the_last_iteration_is_drawn_to_its_end_in_a_unit_that_fits(
    browser: Browser, jobs_file: Path
) -> None:
    page = Opener(browser, jobs_file, 5).at().page
    rates, times = page.evaluate(ONE_ITERATION)
    assert rates == ["goodput, GB/s, modelled", [[0, 0.01, 0.02], [25, 50, 12.5]]]
    assert times == [
        "time of each iteration, from its begin to its end, us, modelled",
        [[0.005, 0.03], [100, 100]],
    ]
    assert page.evaluate("module_quantities.timeTicks([0, 2e-5, 4e-5])") == [
        "0 us",
        "20 us",
        "40 us",
    ]
    page.context.close()


@pytest.fixture(scope="module")
def simulated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A link fails under a job of 16 ranks, and is there again before its end."""
    job = {"pattern": "allreduce", "ranks": 16, "size": "1GB"}
    events = (parse_event(f"fail {JOBS_LINK} at 5ms for 2s"),)
    report = simulate(
        load_spec(find_lab("zone-1-1")),
        [collective_job(JobSpec.model_validate(job))],
        Options(timeline=TimelineSpec(events=events)),
    )
    page = tmp_path_factory.mktemp("simulated") / "report.html"
    page.write_text(html(simulation_document(report)))
    return page


@pytest.mark.parametrize(("width", "scheme"), MOSTLY_NARROW)
def test_a_page_of_a_simulation_shows_where_its_bytes_went_and_what_failed(
    browser: Browser, simulated_file: Path, width: int, scheme: str
) -> None:
    opened = Opener(browser, simulated_file, NODES).at(width, scheme)
    page = opened.page
    expect(opened.instant).to_have_text(f"At 5.0 ms: fail of link {JOBS_LINK} begins")
    assert opened.red() > 50
    expect(page.locator("#state")).to_contain_text(f"fail of link {JOBS_LINK}")
    expect(page.locator("#loads")).to_contain_text("bytes of the jobs")
    expect(page.locator("#clock")).to_be_hidden()
    expect(page.get_by_label("only affected")).to_be_hidden()
    flows = page.locator("#flows")
    expect(flows.locator("#flows-are")).to_contain_text("All 16 flows")
    page.get_by_role("searchbox", name="name, server").fill("srv1-2 rtsw2")
    expect(page.locator("#flows-shown")).to_have_text("1 of 16 flows")
    flows.locator("tbody button").click()
    expect(page.locator("#of")).to_contain_text("srv1-2:2 → srv2-1:1: 1.88 GB, its slowest")
    expect(page.locator("#path-note")).to_contain_text("its path while all links are up")
    expect(page.locator("#labels [data-path]")).to_have_count(5)
    page.get_by_role("button", name="Event after").click()
    happening = page.locator("#happenings [aria-current]")
    expect(happening).to_contain_text("is avoided where another way is left")
    page.get_by_role("button", name="Event after").click()
    expect(page.locator("#state")).to_have_text("All is as before the first event.")
    assert opened.red() == 0
    page.evaluate("scrollTo(0, 0)")  # the contents are in view, above what was scrolled to
    boxes = text_boxes(page)
    assert "all transfers on the wire" in " ".join(box["text"] for box in boxes)
    assert cut(boxes) == []
    assert overlapping(boxes) == []
    assert serious(page) == []
    assert opened.requests == [simulated_file.as_uri()]
    assert opened.complaints == []
    page.context.close()


def test_switches_that_join_zones_are_all_in_the_picture(browser: Browser, tmp_path: Path) -> None:
    """They are wider together than the folded zones below them."""
    lab = tmp_path / "lab.yaml"
    fabric = {"kind": "clos", "zones": 2, "racks": 8, "spines": 2, "atsws": 30}
    lab.write_text(json.dumps({"name": "wide", "fabric": fabric}))
    job = JobSpec.model_validate({"pattern": "allreduce", "ranks": 4, "size": "1MB"})
    page_file = tmp_path / "report.html"
    report = simulate(load_spec(lab), [collective_job(job)], Options())
    page_file.write_text(html(simulation_document(report)))
    page = Opener(browser, page_file, nodes=32).at(800).page
    assert cut(text_boxes(page)) == []
    page.context.close()


@pytest.fixture(scope="module")
def compared_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight cells: the links of two spines are loaded unevenly or evenly."""
    page = tmp_path_factory.mktemp("compared") / "report.html"
    page.write_text(
        html(
            comparison_document(
                comparison(
                    lambda cell: (run(30, 10) if cell.scheme.kind == "ecmp" else run(20, 20),)
                )
            )
        )
    )
    return page


@pytest.mark.parametrize(("width", "scheme"), MOSTLY_NARROW)
def test_a_page_of_a_comparison_shows_what_links_carried_in_the_cell_that_is_chosen(
    browser: Browser, compared_file: Path, width: int, scheme: str
) -> None:
    opened = Opener(browser, compared_file, 8).at(width, scheme)
    page = opened.page
    expect(page.locator("#of")).to_contain_text("ecmp, 1 QP, contiguous: busbw")
    for hidden in ("#slider", "#plots", "#earlier", "#happenings", "#clock"):
        expect(page.locator(hidden)).to_be_hidden()
    page.get_by_label("cell").select_option("spray, 4 QPs, fragmented")
    expect(page.locator("#of")).to_contain_text("spray, 4 QPs, fragmented: busbw")
    expect(page.locator("#of")).to_contain_text("MMR 1.00")
    expect(page.locator("#loads")).to_contain_text("all cells by one scale")
    expect(page.locator("#flows-are")).to_contain_text("All 4 flows")
    page.locator("#flows tbody button").first.click()
    expect(page.locator("#of")).to_contain_text("srv1-1:1 → srv1-2:1")
    expect(page.locator("#path-note")).to_contain_text("by the kernels' tables then: srv1-1:rtsw1")
    expect(page.locator("#labels [data-path]")).to_have_count(3)
    expect(page.get_by_label("only affected")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    boxes = text_boxes(page)
    assert cut(boxes) == []
    assert overlapping(boxes) == []
    assert serious(page) == []
    assert opened.requests == [compared_file.as_uri()]
    assert opened.complaints == []
    page.context.close()


@pytest.fixture(scope="module")
def swept_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the sweep that ships, with the same figures for every cell."""
    sweep = read_sweep(Path(__file__).parents[2] / "examples" / "uplinks.yaml")
    costs = {"wall_s": 1.0, "peak_memory_bytes": 10**8, "error": None}
    rows = [{**cell.values, "busbw": 35.5, **costs} for cell in cells_of(sweep)]
    page = tmp_path_factory.mktemp("swept") / "report.html"
    page.write_text(html(sweep_document(sweep, rows)))
    return page


@pytest.mark.parametrize(("width", "scheme"), MOSTLY_NARROW)
def test_a_row_of_a_sweep_leads_to_the_command_that_makes_the_page_of_its_cell(
    browser: Browser, swept_file: Path, width: int, scheme: str
) -> None:
    opened = Opener(browser, swept_file, 0).at(width, scheme)
    page = opened.page
    expect(page.locator("#cell-3")).to_be_hidden()
    page.get_by_role("link", name="cell 3", exact=True).click()
    expect(page.locator("#cell-3")).to_be_visible()
    expect(page.locator("#cell-3")).to_contain_text("--out results/cell-3")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("scrollTo(0, 0)")  # the contents are in view, above what was scrolled to
    boxes = text_boxes(page)
    assert cut(boxes) == []
    assert overlapping(boxes) == []
    assert serious(page) == []
    assert {url.partition("#")[0] for url in opened.requests} == {swept_file.as_uri()}
    assert opened.complaints == []
    page.context.close()
