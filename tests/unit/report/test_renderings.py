"""The terminal tables and the page: their content, and that the page is self-contained."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from xml.etree import ElementTree

import pytest
from rich.console import Console

from rocelab.report.drill import drill_document
from rocelab.report.figures import figure_rows
from rocelab.report.plots import MAX_FLOWS, fib_timeline, link_loads, loss_timeline, merged, svg
from rocelab.report.probes.sections import fib_rows, flow_rows
from rocelab.report.renderers.page import html
from rocelab.report.renderers.terminal import print_document
from rocelab.report.repeats import repeat_tables, representative
from rocelab.results.convergence import Outage
from rocelab.results.drill import DrillResult, FigureSummary
from rocelab.results.health import HealthReport, SliReport
from tests.helpers.cells import plain_cells
from tests.helpers.drawing import with_drawings
from tests.helpers.report_sample import MS, expecting, repeat, result

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Outline(HTMLParser):
    """Which tags stay open, every id, and every attribute that could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.note(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def note(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name in {"src", "href", "xlink:href", "srcset", "data"} and value:
                self.loads.append(value)


def terminal(drill: DrillResult, width: int = 120) -> str:
    out = StringIO()
    print_document(drill_document(drill), Console(file=out, width=width))
    return out.getvalue()


@pytest.fixture(scope="module")
def page() -> str:
    with with_drawings():
        return html(drill_document(result()))


def test_the_page_is_well_formed_and_loads_nothing(page: str) -> None:
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert all(target.startswith("#") for target in outline.loads)
    assert {target[1:] for target in outline.loads} <= set(outline.ids)
    assert "default-src 'none'" in page
    assert "@import" not in page
    assert re.findall(r"url\((?!#)", page) == []
    addresses = set(re.findall(r"https?://(?!www\.w3\.org/)[^\"'\s<]+", page))
    assert addresses == {"https://d3js.org", "https://github.com/leeoniya/uPlot"}  # comments


def test_the_page_shows_the_headline_the_verdicts_and_four_plots(page: str) -> None:
    assert page.count("<svg") == 2 * 4  # each also for phones
    assert "29.4 ms" in page
    assert "28.4 ms to 31.4 ms" in page
    assert "not met" in page
    assert "carrier-down of rtsw1:ctsw2" in page
    assert ">Limits</h2>" in page
    assert "rocelab drill run link-flap --repeat 3" in page


def test_every_section_is_in_the_contents(page: str) -> None:
    targets = re.findall(r'<li><a href="#([^"]+)">', page)
    assert targets == re.findall(r'<h2 id="([^"]+)"', page)
    assert len(targets) == page.count("<h2") == 11


def test_text_from_outside_is_escaped(page: str) -> None:
    assert "an &lt;ordinary&gt; CPU" in page
    assert "<ordinary>" not in page


@pytest.mark.usefixtures("drawn")
def test_the_same_result_gives_the_same_page(page: str) -> None:
    assert html(drill_document(result())) == page


def test_a_page_without_a_valid_repeat_gives_the_reason_and_no_figures() -> None:
    page = html(drill_document(result(repeat(1, problems=("the <clock> jumped",)))))
    assert "the &lt;clock&gt; jumped" in page
    assert "<svg" not in page
    assert "28.4 ms" not in page


def test_what_does_not_apply_or_was_not_seen_is_said_and_not_drawn() -> None:
    one = repeat(1)
    runs = tuple(replace(run, polarizations=()) for run in one.hashing)
    plain = replace(one, fib=(), hashing=runs)
    assert fib_timeline(plain) is None
    assert link_loads(()) is None
    page = html(drill_document(result(plain)))
    assert "No change of any switch" in page
    assert "Not applicable: in this fabric" in page
    assert page.count("<svg") == 2 * 3
    assert "Not applicable: in this fabric no flow has two choices" in terminal(result(plain))


def test_every_plot_is_xml_that_names_what_it_shows(page: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    words = (
        "after E1, ms, lab",
        "srv2-2",
        "after E2: carrier-down",
        "shared: MMR 3.33",
    )
    # Each plot, and then the same for phones.
    repeated = [word for word in words for _ in range(2)]
    for drawing, word in zip(drawings, repeated, strict=True):
        ElementTree.fromstring(drawing)
        assert word in drawing


def test_of_very_many_links_a_curve_is_drawn_and_of_very_many_flows_the_worst() -> None:
    one = repeat(1)
    run = one.hashing[0]
    figure = link_loads([replace(run, loads=run.loads * 5)])
    assert figure is not None
    assert "80 links, busiest first" in svg(figure, "loads")
    strips = svg(loss_timeline(replace(one, flows=one.flows * 3)), "loss")
    assert strips.count(" → srv") == MAX_FLOWS
    assert strips.count("28 lost") == 3


def test_outages_that_a_pixel_cannot_tell_apart_are_drawn_as_one() -> None:
    spans = [(0, 5), (8, 12), (100, 101), (900, 950)]
    assert merged(spans, 10, 0, 500) == [(0, 18), (100, 110)]
    assert merged(spans, 1, 0, 1000) == spans


@pytest.mark.long
def test_a_plot_of_very_many_single_losses_is_below_2_mb() -> None:
    one = repeat(1)
    first = one.flows[0]
    losses = tuple(Outage(at * 2 * MS, at * 2 * MS + MS, 1, 0) for at in range(2000))
    measured = replace(first.measurement, outages=losses, lost=2000)
    flows = (replace(first, measurement=measured),) * MAX_FLOWS
    assert len(svg(loss_timeline(replace(one, flows=flows)), "loss")) < 2_000_000


def test_reading_results_does_not_wait_for_matplotlib() -> None:
    code = "import rocelab.report.drill, sys\nsys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_terminal_says_what_was_lost_where_flows_landed_and_the_verdict() -> None:
    text = terminal(result())
    assert re.search(r"Full convergence +29.4 ms +28.4 ms to 31.4 ms +5.1% +3", text)
    assert re.search(r"Packets lost +<= 50 +68 +not met", text)
    assert re.search(r"rtsw-ctsw up +shared .* 3.33 ", text)
    assert "21 of 24 flows were not affected" in text
    assert text.rstrip().endswith("link-flap: failed")


def test_one_repeat_has_no_spread_columns() -> None:
    text = terminal(result(repeat(1)))
    assert "median" not in text
    assert re.search(r"Full convergence +28.4 ms\s*\n", text)


def test_the_terminal_names_what_made_a_repeat_invalid() -> None:
    text = terminal(result(repeat(1), repeat(2, problems=("a sender lagged 40 ms",))))
    assert "1 of 2 repeats invalid: a sender lagged 40 ms (repeat 2)" in text
    assert re.search(r"^ +2 +invalid +- +- ", text, re.MULTILINE)


def test_reasons_that_differ_in_their_figures_alone_are_named_once() -> None:
    late = (f"not valid because f{n} left {n}.5 ms late" for n in (1, 2, 3))
    drill = result(*(repeat(n, problems=(text,)) for n, text in enumerate(late, 1)))
    (table,) = repeat_tables(drill)
    assert table.invalid_line == (
        "3 of 3 repeats invalid: f1 left 1.5 ms late (repeat 1, alike in 2, 3)"
    )


def three() -> DrillResult:
    """One of three repeats meets the expectations: the second loses too many packets, the third is
    invalid."""
    fewer = expecting({"lost_packets": "<= 60", "restored": True})
    return result(repeat(1), repeat(2), repeat(4, problems=("the <clock> jumped",)), spec=fewer)


def test_no_median_hides_a_repeat_that_failed() -> None:
    text = terminal(three())
    assert "failed: Packets lost 62, expected <= 60 (repeat 2)" in text
    assert "Overall, 2 valid of 3 repeats, 1 of them failed" in text
    assert re.search(r"^ +1 +passed .* 59 +yes", text, re.MULTILINE)
    assert re.search(r"^ +2 +failed .* 62 +yes", text, re.MULTILINE)
    assert re.search(r"Packets lost +<= 60 +62 +not met in 1 of 2", text)
    assert re.search(r"Restored +true +yes +met", text)


def test_the_page_has_every_repeat_with_why_it_failed_or_is_invalid() -> None:
    page = plain_cells(html(drill_document(three())))
    assert "2 valid of 3 repeats, 1 of them failed" in page
    assert "1 of 3 repeats failed: Packets lost 62, expected &lt;= 60 (repeat 2)" in page
    assert "1 of 3 repeats invalid: the &lt;clock&gt; jumped (repeat 3)" in page
    assert "<td>Packets lost 62, expected &lt;= 60</td>" in page
    assert "<td>the &lt;clock&gt; jumped</td>" in page
    assert page.count("expectation not met in 1 of 2") == 1


def test_a_figure_that_a_valid_repeat_did_not_measure_says_how_many_did() -> None:
    stuck = replace(repeat(2), overall=replace(repeat(2).overall, full_convergence_ns=None))
    drill = result(repeat(1), stuck)
    assert re.search(r"Full convergence +28.4 ms +1 of 2", terminal(drill))
    assert "n = 1 of 2" in html(drill_document(drill))


def test_a_truth_says_in_how_many_repeats_it_held() -> None:
    stuck = replace(repeat(2), overall=replace(repeat(2).overall, restored=False))
    assert re.search(r"Restored +in 1 of 2", terminal(result(repeat(1), stuck)))
    assert '<td>Restored</td><td class="n">in 1 of 2</td>' in plain_cells(
        html(drill_document(result(repeat(1), stuck)))
    )


def test_shares_have_a_percent_sign_rates_no_exponent_and_evidence_a_link() -> None:
    slis = (
        SliReport("queue_depth", "of the buffer", 0.8, 1.96e-05, "rtsw1 to ctsw1", 1, 0, 0, ()),
        SliReport("link_loss", "packets", 0.0, 5e6, "rtsw1 to ctsw1", 1, 3, 1, ()),
    )
    folders = ("/tmp/out/evidence/1-link_loss", "/elsewhere")
    health = HealthReport("zone-small", 0, 1, 1, 4, slis, (), 0.1, folders)
    page = html(drill_document(result(replace(repeat(1), health=health))))
    assert "&lt; 0.01% of the buffer" in page
    assert "5,000,000 packets" in page
    assert "1,000,000 packets/s" in page
    assert '<a href="evidence/1-link_loss/">evidence/1-link_loss</a>, /elsewhere.' in page


def test_breaches_of_slis_are_amber_for_no_drill_fails_by_them() -> None:
    slis = (
        SliReport("carrier", "losses of carrier", 0.0, 1.0, "rtsw1", 1, 3, 1, ()),
        SliReport("link_loss", "packets", 0.0, 0.0, None, None, 0, 0, ()),
    )
    health = HealthReport("zone-small", 0, 1, 1, 4, slis, (), 0.1, ())
    page = plain_cells(html(drill_document(result(replace(repeat(1), health=health)))))
    table = page[page.index('<h2 id="health">') : page.index('<h2 id="link-loads">')]
    assert '<td class="n caution">3</td>' in table
    assert "1 loss of carrier" in table
    assert 'class="n bad"' not in table and 'class="bad"' not in table


def test_one_repeat_alone_needs_no_table_of_repeats() -> None:
    alone = result(repeat(1))
    assert not alone.passed
    assert "Repeats" not in terminal(alone)
    assert "failed:" not in terminal(alone)
    assert ">Repeats</h2>" not in html(drill_document(alone))
    assert ">Repeats</h2>" in html(drill_document(result(repeat(1), repeat(2))))


def test_an_expectation_of_which_nothing_was_measured_is_not_said_to_be_missed() -> None:
    text = terminal(result(repeat(1, problems=("a sender lagged",))))
    assert re.search(r"Packets lost +<= \d+ +not measured +not measured", text)
    assert "not met" not in text


def test_the_repeat_that_is_shown_is_the_valid_one_nearest_the_median() -> None:
    chosen = representative(
        result(repeat(9), repeat(1), repeat(4), repeat(5, problems=("x",))), "link-flap"
    )
    assert chosen is not None
    assert chosen[0] == 3
    assert representative(result(repeat(1, problems=("x",))), "link-flap") is None


def test_rows_are_per_flow_and_event_worst_first_and_per_switch_and_event() -> None:
    one = repeat(1)
    assert [row[3] for row in flow_rows(one)] == [28, 25, 6]
    row = next(row for row in fib_rows(one) if row[1] == "ctsw2")
    assert row[2:5] == ("1 x 1→none", 1, 3 * MS)


def test_a_figure_that_was_not_measured_says_so() -> None:
    nothing = FigureSummary({}, {}, {"full_convergence": 1, "restored": 1})
    rows = {row.name: row for row in figure_rows(nothing, 1)}
    assert rows.keys() == {"full_convergence", "restored"}
    assert {row.value for row in rows.values()} == {"not measured"}
    assert {row.counted for row in rows.values()} == {"0 of 1"}
