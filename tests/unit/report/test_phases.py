"""The renderings of a drill of jobs: the content of terminal and page, and that the page is
self-contained."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from xml.etree import ElementTree

import pytest
from rich.console import Console

from rocelab.base.documents import to_json
from rocelab.planning.fabric import Direction
from rocelab.report.answers.drill import drill_answer
from rocelab.report.document import Table
from rocelab.report.drill import drawings, drill_document
from rocelab.report.figures import figure_rows
from rocelab.report.jobs.plots import link_loads_plot, progress_plot
from rocelab.report.jobs.sections import figures_by_phase, links_table
from rocelab.report.jobs.tables import share_rows
from rocelab.report.plots import svg
from rocelab.report.renderers.page import html
from rocelab.report.renderers.terminal import print_document
from rocelab.report.repeats import repeat_tables, representative
from rocelab.results.drill import DrillResult
from rocelab.results.job import Goodput, LinkFigures, SenderGoodput, StepRecords, Times
from rocelab.results.probes import Event
from tests.helpers import report_sample
from tests.helpers.cells import plain_cells
from tests.helpers.drawing import with_drawings
from tests.helpers.phases_sample import MS, idle, of_jobs, queue, repeat, result, shared, shares
from tests.unit.report.test_renderings import Outline


def terminal(drill: DrillResult) -> str:
    out = StringIO()
    print_document(drill_document(drill), Console(file=out, width=140))
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
    assert "an &lt;ordinary&gt; CPU" in page


def test_the_page_shows_each_phase_with_its_job_its_figures_and_lab_beside_model(page: str) -> None:
    assert "Phase idle" in page
    assert "incast, 3 ranks, for 60ms, starts at 0ns, 10ms; DCQCN hpcc-dcqcn-paper" in page
    assert "queue of rtsw1:srv1-1" in page
    assert "from the last start to fair shares" in page
    assert page.count("<svg") == 2  # wide and narrow, not once more what the answer shows
    assert "There is no PFC" in page
    assert "rocelab drill run two-to-one --repeat 1" in page


def test_the_page_says_how_it_was_made_as_it_was_typed() -> None:
    typed = "rocelab drill run mine/two.yaml --repeat 1 --dilation 2000 --out 'a folder'"
    made = replace(result(), environment=replace(result().environment, command=typed))
    assert "--dilation 2000 --out &#39;a folder&#39;" in html(drill_document(made))


@pytest.mark.usefixtures("drawn")
def test_the_same_result_gives_the_same_page(page: str) -> None:
    assert html(drill_document(result())) == page


def test_a_phase_without_a_valid_run_gives_the_reason_and_no_figures() -> None:
    page = html(drill_document(result(repeat(problems=("the <clock> jumped",)))))
    assert "the &lt;clock&gt; jumped" in page
    assert "No repeat was valid" in page


def test_the_plot_of_a_modelled_phase_is_also_a_file() -> None:
    ((name, drawing),) = drawings(result())
    assert name == "shared.svg"
    ElementTree.fromstring(drawing)
    assert "sender 2, lab" in drawing


def test_the_terminal_has_the_phases_side_by_side_lab_beside_model_and_the_verdict() -> None:
    text = terminal(result())
    assert re.search(r"idle +shared", text)
    assert re.search(r"CNPs +0 +90", text)
    assert re.search(r"from the last start to fair shares +\S+ ms", text)
    assert re.search(r"shared +Deepest data queue +<= 2MB +1.9 MB +met", text)
    assert text.rstrip().endswith("two-to-one: passed")


def at_once() -> DrillResult:
    """The sample drill with a pair in addition to the incast of its second phase."""
    first, second = repeat()
    return result((first, of_jobs("shared", *second.reports, idle(), fair=shares())))


def test_the_answer_compares_every_job_of_a_phase_and_names_it() -> None:
    first, _ = repeat()
    pair, other = idle(), idle()
    of_both = result((first, of_jobs("shared", pair, other)))
    answer = drill_answer(of_both, repeat_tables(of_both))
    assert {card.title.partition(", ")[2] for card in answer.figures} == {
        "idle",
        "shared, job 1",
        "shared, job 2",
    }
    assert "in idle, alike in all jobs" in answer.sentence


def test_jobs_of_different_patterns_have_no_difference() -> None:
    mixed = at_once()
    answer = drill_answer(mixed, repeat_tables(mixed))
    assert " in idle" in answer.sentence
    assert not [card for card in answer.figures if "%" in card.spread]
    (table,) = figures_by_phase(mixed, repeat_tables(mixed)).blocks
    assert isinstance(table, Table)
    assert not [incast for _, _, incast, _ in table.rows if "%" in str(incast)]
    alone = result()
    assert "%" not in drill_answer(alone, repeat_tables(alone)).sentence


def test_jobs_at_once_have_a_column_each_on_the_terminal_and_a_section_each_on_the_page() -> None:
    text = terminal(at_once())
    assert re.search(r"idle +shared, job 1 +shared, job 2", text)
    assert re.search(r"CNPs +0 +90 +0", text)
    page = html(drill_document(at_once()))
    assert "2 jobs at the same time; the counters of switches cover all of them." in page
    assert page.index("<h3>shared, job 1</h3>") < page.index("incast, 3 ranks")
    assert page.index("<h3>shared, job 2</h3>") < page.rindex("pairs, 2 ranks")


def test_the_terminal_names_what_made_a_run_invalid() -> None:
    text = terminal(result(repeat(), repeat(problems=("a NIC stood idle",))))
    assert "1 of 2 repeats of phase idle invalid: a NIC stood idle (repeat 2)" in text


def test_a_drill_with_a_phase_never_valid_is_not_measured_unless_another_phase_failed() -> None:
    unmeasured = result(repeat(problems=("a NIC stood idle",)))
    assert unmeasured.outcome == "not measured"
    assert terminal(unmeasured).rstrip().endswith("two-to-one: not measured")
    assert '<span class="badge bad">not measured</span>' in html(drill_document(unmeasured))

    idle, _ = repeat(problems=("a NIC stood idle",))
    slow = of_jobs("shared", replace(shared(), queues=(queue(3, 1000, 90, 3_000_000),)))
    failed = result((idle, slow))
    assert failed.outcome == "failed"
    assert terminal(failed).rstrip().endswith("two-to-one: failed")


def test_a_drill_whose_phases_were_never_valid_in_one_repeat_is_not_measured() -> None:
    """In the first the jobs never came to fair shares."""
    first = repeat(30 * MS, problems=("a NIC stood idle",))
    second = (repeat()[0], of_jobs("shared", replace(shared(), problems=("a NIC stood idle",))))
    assert result(first, second).outcome == "not measured"
    assert result(first, repeat()).outcome == "failed"


def test_no_median_hides_a_repeat_that_failed_or_is_invalid() -> None:
    three = result(repeat(), repeat(30 * MS), repeat(problems=("a <NIC> stood idle",)))
    text = terminal(three)
    missed = (
        "1 of 3 repeats of phase shared failed: Time to fair shares not measured, expected <= 30ms "
        "(repeat 2)"
    )
    assert missed in text
    assert "shared: 3 valid repeats, 1 of them failed" in " ".join(text.split())
    assert re.search(r"time to fair shares +<= 30ms +not measured +not met in 1 of 3", text, re.I)
    idle, shared = repeat_tables(three)
    assert [row.outcome for row in idle.rows] == ["passed", "passed", "invalid"]
    assert [row.outcome for row in shared.rows] == ["passed", "failed", "passed"]
    assert (
        idle.columns[idle.columns.index("Bus bandwidth")] and idle.rows[0].figures[0] == "11 GB/s"
    )
    assert set(idle.rows[2].figures) == {"-"}
    page = html(drill_document(three))
    assert missed.replace("<", "&lt;") in page
    assert "1 of 3 repeats of phase idle invalid: a &lt;NIC&gt; stood idle (repeat 3)" in page
    page = plain_cells(page)
    assert '<td class="bad">failed</td>' in page
    assert '<td class="bad">invalid</td>' in page


def test_one_repeat_alone_needs_no_table_of_repeats() -> None:
    assert "Repeats of phase" not in terminal(result(repeat(30 * MS)))
    assert ">outcome<" not in html(drill_document(result(repeat(30 * MS))))


def test_jobs_at_once_that_differ_each_have_their_figure_in_a_repeat() -> None:
    first, second = repeat()
    beside = (*second.reports, idle(9.0), idle(11.0))
    tables = repeat_tables(result((first, of_jobs("shared", *beside, fair=shares()))))
    (row,) = tables[1].rows
    assert row.figures[tables[1].columns.index("Bus bandwidth")] == "9 GB/s, 11 GB/s"


def test_the_run_that_is_drawn_is_the_valid_one_nearest_the_median() -> None:
    chosen = representative(result(repeat(8 * MS), repeat(2 * MS), repeat(4 * MS)), "shared")
    assert chosen is not None
    assert chosen[0] == 3
    assert representative(result(repeat(problems=("x",))), "idle") is None


def test_figures_that_a_job_does_not_have_are_left_out_and_spreads_are_shown() -> None:
    (job,) = result(repeat(), repeat(6 * MS)).phases[1].figures
    rows = {row.name: row for row in figure_rows(job, 2)}
    assert "busbw" not in rows
    assert " to " in rows["time_to_fairness"].range
    assert rows["cnps"].range == "90"


def test_shares_that_were_not_reached_say_so() -> None:
    fair = repeat(30 * MS)[1].jobs.fair_shares
    assert fair is not None
    assert share_rows(fair)[0][1] == "not reached"


def test_the_load_of_links_between_switches_is_listed_and_drawn() -> None:
    loads = [
        LinkFigures("rtsw1:ctsw1", "rtsw-ctsw", Direction.UP, "rtsw1", 600, 2_000_000, 0.6),
        LinkFigures("rtsw1:ctsw2", "rtsw-ctsw", Direction.UP, "rtsw1", 400, 1_000_000, 0.4),
        LinkFigures("rtsw1:ctsw1", "rtsw-ctsw", Direction.DOWN, "ctsw1", 0, 1_000, 0.0),
        LinkFigures("srv1-1:rtsw1", "server-rtsw", Direction.UP, "srv1-1", 1000, 3_000_000, 1.0),
    ]
    report = replace(repeat()[0].reports[0], links=tuple(loads))
    assert links_table(report).rows == (
        ("rtsw1:ctsw1", "up", 600, 0.6),
        ("rtsw1:ctsw2", "up", 400, 0.4),
    )
    figure = link_loads_plot(report)
    assert figure is not None
    assert "rtsw1:ctsw2" in svg(figure, "loads")
    assert link_loads_plot(replace(report, links=())) is None


def test_goodput_is_a_band_with_the_faults_and_the_time_of_each_iteration_below() -> None:
    report = repeat()[0].reports[0]
    assert progress_plot(report) is None
    senders = tuple(SenderGoodput(rank, (1e9 * rank,) * 20) for rank in range(1, 9))
    faulted = replace(
        report,
        goodput=Goodput(Times(250.0 * MS, 1.0 * MS), senders),
        events=(Event(1250 * MS, "carrier-down", "begin", "rtsw1:srv1-1"),),
    )
    figure = progress_plot(faulted)
    assert figure is not None
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.texts] == ["E1"]
    assert axis.lines[1].get_xdata()[0] == 5
    warmups = report.job["warmup_iterations"]
    ends = tuple((250 * MS * place,) for place in range(1, warmups + 3))
    timed = replace(
        faulted,
        iterations=(Times(250.0 * MS, 1.0 * MS), Times(500.0 * MS, 2.0 * MS)),
        steps=StepRecords(0, ends, ends, (), (), ()),
    )
    both = progress_plot(timed)
    assert both is not None
    drawing = svg(both, "progress")
    assert "time of each iteration" in drawing
    assert "slowest to fastest" in drawing
    alone = progress_plot(replace(timed, goodput=report.goodput))
    assert alone is not None
    assert [axis.get_title(loc="left") for axis in alone.axes] == ["time of each iteration"]
    (spans,) = both.axes[1].collections
    assert [segment[0][1] for segment in spans.get_segments()] == [1, 2]


def test_every_page_and_document_of_a_drill_names_the_frr_that_ran() -> None:
    environment = replace(result().environment, frr_version="10.3")
    pages = (
        html(drill_document(replace(result(), environment=environment))),
        html(drill_document(replace(report_sample.result(), environment=environment))),
    )
    for page in pages:
        assert "<td>routing</td><td>FRR 10.3</td>" in page
    for drill in (result(), report_sample.result()):
        document = json.loads(to_json(replace(drill, environment=environment)))
        assert document["environment"]["frr_version"] == "10.3"
