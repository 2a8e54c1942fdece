"""A comparison computed by hand: its matrix, its figures, its document and its renderings."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
from rich.console import Console

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError, SpecError
from rocelab.base.quantities import bandwidth
from rocelab.cli.main import main
from rocelab.drills.compare import run as comparing
from rocelab.drills.compare.figures import Expected, cell_figures, status_of
from rocelab.lab.lab import Lab, RunningLab
from rocelab.planning.build import plan
from rocelab.planning.fabric import Direction
from rocelab.record import LabFiles
from rocelab.report.compare.cells import link_matrix, name_of
from rocelab.report.compare.document import comparison_document
from rocelab.report.compare.recorded import recorded
from rocelab.report.compare.text import anomalies, repeatability
from rocelab.report.renderers.page import html
from rocelab.report.renderers.terminal import print_document
from rocelab.results.comparison import (
    Status,
    from_json,
)
from tests.helpers.cells import plain_cells
from tests.helpers.comparison_sample import asked, comparison, packets, report, run
from tests.helpers.documents import with_columns
from tests.helpers.job_sample import ENVIRONMENT
from tests.helpers.narrow import broken


def test_a_comparison_has_its_lab_for_itself_and_says_the_fabric_that_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel without hash seeds runs another fabric than was planned."""
    lab = Lab.planned("tiny")
    hashing = lab.spec.hashing.model_copy(update={"seed": 0})
    ran = RunningLab(plan(lab.spec.model_copy(update={"hashing": hashing})))
    users: list[str] = []

    @contextmanager
    def in_use(files: LabFiles, what: str) -> Iterator[None]:
        users.append(what)
        yield

    monkeypatch.setattr(comparing, "_lab_up", lambda *_: nullcontext(ran))
    monkeypatch.setattr(comparing, "in_use", in_use)
    monkeypatch.setattr(comparing, "environment_of", lambda _: ENVIRONMENT)
    assert comparing.compare(lab, []).lab["hashing"]["seed"] == 0
    assert users == ["a comparison"]


def test_every_scheme_meets_every_number_of_queue_pairs_and_placement() -> None:
    diagnosis = asked()
    assert len({(cell.scheme.kind, cell.qps, cell.placement) for cell in diagnosis}) == 8
    assert [cell.scheme.kind for cell in diagnosis] == ["ecmp"] * 4 + ["spray"] * 4
    assert diagnosis[1].title == "ecmp, 4 QPs, contiguous"
    assert {cell.job.ranks for cell in diagnosis} == {16}
    assert {cell.job.size for cell in diagnosis} == {8_000_000}
    assert all(cell.job.transport.qps == cell.qps for cell in diagnosis)


def test_receivers_take_packets_in_any_order_where_the_scheme_reorders_and_only_there() -> None:
    diagnosis = asked(schemes="ecmp,flowlet,spray,te")
    orders = {cell.scheme.kind: cell.job.transport.out_of_order for cell in diagnosis}
    assert orders == {"ecmp": False, "flowlet": True, "spray": True, "te": False}


@pytest.mark.parametrize(
    ("lists", "says"),
    [
        ({"qps": "1,1"}, "different items"),
        ({"qps": "1,,4"}, "different items"),
        ({"qps": "four"}, "whole numbers"),
        ({"qps": "0"}, "--qps"),
        ({"schemes": "ecmp,spary"}, "did you mean spray"),
        ({"placement": "scattered"}, "--placement"),
    ],
)
def test_a_list_that_can_not_be_compared_is_refused(lists: dict[str, str], says: str) -> None:
    with pytest.raises((InputError, SpecError)) as refused:
        asked(**lists)
    assert says in str(refused.value)


def test_the_balance_of_a_run_is_of_the_data_that_was_counted_beside_random_hashing() -> None:
    made = run()
    up, down = made.tiers
    assert up.all_links.mmr == down.all_links.mmr == 1.5
    assert up.all_links.jfi == pytest.approx(80**2 / (4 * 2000))
    assert up.random is not None
    assert (up.random.flows, up.random.links) == (8, 4)
    assert [link.packets for link in made.links if link.link == "rtsw1:ctsw2"] == [10, 10]


def test_bandwidth_and_ratio_are_the_jobs_own() -> None:
    source = report()
    made = run()
    assert len(made.busbw_gbs) == 3
    median = sorted(made.busbw_gbs)[1]
    assert median == pytest.approx(source.headline("busbw").modelled.median)
    assert sorted(made.jct_ratio)[1] == pytest.approx(source.headline("jct_ratio").modelled.median)


def test_packets_on_other_links_than_predicted_are_counted() -> None:
    assert run(30, 10, Expected(packets(30, 10), ())).misplaced_packets == 0
    assert run(30, 10, Expected(packets(20, 20), ())).misplaced_packets == 4 * 10
    assert run(30, 10).misplaced_packets is None


def test_rates_are_per_second_of_the_modelled_network() -> None:
    source = report()
    transport = replace(source.roce, out_of_order=300, retransmitted=30)
    made = run(transport=transport)
    figures = cell_figures([made], 400e9)
    assert figures is not None
    seconds = made.job_time.modelled_ns / 1e9
    assert figures.out_of_order_pps == pytest.approx(300 / seconds)
    assert figures.retransmission_pps == pytest.approx(30 / seconds)
    assert figures.out_of_order_share == pytest.approx(300 / source.roce.data_packets)
    assert figures.goodput_share == pytest.approx(figures.busbw_gbs.median / 50)


def test_a_run_the_machine_could_not_carry_is_left_out_where_another_is_valid() -> None:
    bad = run(40, 0, problems=("not valid because of the test",))
    figures = cell_figures([run(), bad], 400e9)
    assert figures is not None
    assert figures.tiers[0].mmr == 1.5
    assert figures.busbw_gbs.n == 3
    status, reason = status_of([run(), bad], 2)
    assert status is Status.MEASURED
    assert reason == "1 of 2 runs left out: not valid because of the test"


def test_a_cell_without_a_valid_run_keeps_its_figures_and_is_marked() -> None:
    bad = run(40, 0, problems=("not valid because of the test",))
    assert status_of([bad], 1) == (Status.INVALID, "not valid because of the test")
    figures = cell_figures([bad], 400e9)
    assert figures is not None
    assert (figures.tiers[0].mmr, figures.tiers[0].unused) == (2.0, 2)
    assert status_of([run(errors=("queue pair 3 failed",))], 1)[0] is Status.FAILED
    assert status_of([run()], 1) == (Status.MEASURED, None)


def test_a_cell_whose_runs_ended_early_says_how_many_are_missing_and_why() -> None:
    assert status_of([], 3, "no way to rtsw4") == (Status.NOT_RUN, "no way to rtsw4")
    status, reason = status_of([run()], 3, "no way to rtsw4")
    assert (status, reason) == (Status.MEASURED, "2 of 3 runs not made: no way to rtsw4")


def test_every_run_of_a_repeated_cell_is_listed_with_why_it_does_not_count() -> None:
    bad = run(40, 0, problems=("the <clock> jumped",))
    twice = replace(comparison(lambda _: (run(), bad)), repeats=2)
    rows = with_columns(comparison_document(twice), "run", "outcome")
    assert len(rows) == 2 * len(twice.cells)
    assert [(row["run"], row["outcome"], row["why"]) for row in rows[:2]] == [
        ("1", "valid", ""),
        ("2", "invalid", "the <clock> jumped"),
    ]
    first = with_columns(comparison_document(twice), "MMR", "BusBW")[0]
    assert first[""] == "1 of 2 runs"
    assert first["why"] == "1 of 2 runs left out: the <clock> jumped"
    assert "ecmp, 1 QP, contiguous: run 2 of 2 does not count: the <clock> jumped" in anomalies(
        twice
    )
    page = plain_cells(html(comparison_document(twice)))
    assert page.count("<td>invalid</td><td>the &lt;clock&gt; jumped</td>") == len(twice.cells)
    assert with_columns(comparison_document(comparison()), "run", "outcome") == []


def test_a_document_reads_back_into_the_same_comparison() -> None:
    document = comparison(refused="spray")
    assert from_json(to_json(document)) == document
    with pytest.raises(InputError, match="schema version"):
        from_json(to_json(replace(document, schema_version=99)))


def test_a_scheme_that_does_not_run_here_is_a_row_that_says_why() -> None:
    document = comparison(refused="spray")
    loads = with_columns(comparison_document(document), "MMR", "BusBW")
    rows = [row for row in loads if row["Load Balancing Config"] == "Packet spray"]
    assert len(rows) == 4
    assert {(row[""], row["why"]) for row in rows} == {("not run", "no <eBPF> here")}
    assert {row["BusBW"] for row in rows} == {"-"}
    page = html(comparison_document(document))
    assert "no &lt;eBPF&gt; here" in page
    assert "<eBPF>" not in page
    assert len(anomalies(document)) == 4


def test_an_invalid_cell_is_marked_in_every_table_and_not_dropped() -> None:
    bad = (run(problems=("not valid because of the test",)),)
    document = comparison(lambda cell: bad if cell.scheme.kind == "spray" else (run(),))
    by_scheme = with_columns(comparison_document(document), "Packet spray")
    assert {row["Packet spray"][-1] for row in by_scheme} == {"*"}
    assert not any("*" in row[name_of("ecmp")] for row in by_scheme)
    assert "*: invalid, see Anomalies" in html(comparison_document(document))
    names, links, values = link_matrix(document, "contiguous", "rtsw-ctsw", Direction.UP)
    assert names == ["ecmp, 1 QP", "ecmp, 4 QPs", "spray, 1 QP*", "spray, 4 QPs*"]
    assert dict(zip(links, values[0], strict=True))["rtsw1:ctsw1"] == 1.5


def test_the_page_stands_alone_and_follows_the_drafts_order() -> None:
    page = html(comparison_document(comparison()))
    assert page == html(comparison_document(comparison()))
    document, _, scripts = page.partition('<script type="application/json"')
    assert not re.search(r"""(src|href)=["'](?!https://datatracker|[#])""", document)
    assert "default-src 'none'" in document
    assert "<script src" not in scripts
    parts = (
        "DUT identification",
        "Test topology",
        "Test configuration",
        "Host configuration",
        "Test results",
        "Anomalies",
        "Repeatability statement",
    )
    places = [page.index(f"{number}. {part}") for number, part in enumerate(parts, 1)]
    assert places == sorted(places)
    template = ("Load Balancing Config", "MMR", "JFI", "OOO Rate", "Retx Rate", "Effective Goodput")
    header = page[page.index("<th>Load Balancing Config") :]
    places = [header.index(name) for name in template]
    assert places == sorted(places)
    assert page.count("<svg") == 2 * 4


def test_the_page_draws_what_links_carried_in_each_cell_that_ran() -> None:
    recording = recorded(comparison(lambda cell: (run(25, 15) if cell.qps == 1 else run(20, 20),)))
    assert recording is not None
    assert [run.title for run in recording.runs[:3]] == [
        "ecmp, 1 QP, contiguous",
        "ecmp, 4 QPs, contiguous",
        "ecmp, 1 QP, fragmented",
    ]
    figures = comparison().cells[0].figures
    assert figures is not None
    assert f": busbw {bandwidth(figures.busbw_gbs.median)}, JCT ratio" in recording.runs[0].about
    assert "MMR 1.25 (rtsw-ctsw up)" in recording.runs[0].about
    numbers = {link["name"]: number for number, link in enumerate(recording.links)}
    for run_of_cell, packets_up in zip(recording.runs[:2], (25, 20), strict=True):
        assert run_of_cell.loads[2 * numbers["rtsw1:ctsw1"]] == packets_up
        assert sum(run_of_cell.loads) == 2 * 2 * 40
    refused = recorded(comparison(refused="spray"))
    assert refused is not None
    assert [run.title[:4] for run in refused.runs] == ["ecmp"] * 4


def test_a_comparison_without_any_figures_still_renders() -> None:
    document = comparison(lambda _: (), refused="ecmp")
    none = replace(
        document,
        cells=tuple(
            replace(cell, status=Status.NOT_RUN, reason="no", figures=None, runs=())
            for cell in document.cells
        ),
    )
    assert repeatability(none) == "Nothing was measured."
    assert "<svg" not in html(comparison_document(none))
    print_document(comparison_document(none), Console(file=io.StringIO(), width=160))


def test_the_terminal_shows_each_placement_and_number_of_queue_pairs() -> None:
    out = io.StringIO()
    print_document(comparison_document(comparison(refused="spray")), Console(file=out, width=160))
    text = out.getvalue()
    assert "fragmented placement, 4 QPs per pair" in text
    assert text.count("ECMP (baseline)") == 4
    assert "not run" in text


def test_a_narrow_terminal_shows_names_whole() -> None:
    document = comparison(refused="spray")
    for width in (80, 60):
        assert (
            broken(lambda console: print_document(comparison_document(document), console), width)
            == set()
        )


def test_the_repeatability_statement_gives_the_spread() -> None:
    assert repeatability(comparison()).startswith("3 iterations of each. Coefficient of variation")


def test_the_command_refuses_what_does_not_fit_before_it_touches_anything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", "zone-1-1", "--schemes", "ecmp", "--qps", "x"])
    assert ended.value.code == 2
    assert "whole numbers" in capsys.readouterr().err


def test_the_page_says_whether_the_lab_had_lossless_classes() -> None:
    lossy = comparison()
    assert "There is no PFC" in html(comparison_document(lossy))
    queues = {**lossy.lab["queues"], "pfc": {"classes": [3]}}
    lossless = html(comparison_document(replace(lossy, lab={**lossy.lab, "queues": queues})))
    assert "There is no PFC" not in lossless
    assert "Lossless classes pause their senders" in lossless
