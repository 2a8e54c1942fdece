"""Two results of a drill compared: significant differences, changes, and errors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.documents import to_json
from rocelab.base.statistics import least_rank_sum_p, rank_sum_p
from rocelab.report.difference import difference_document
from rocelab.report.renderers.terminal import print_document
from rocelab.results.difference import (
    DrillDiff,
    Finding,
    ValueChange,
    changes,
    compared,
    difference,
)
from rocelab.results.drill import DrillResult, summarise
from rocelab.results.expectations import parse_expectation
from tests.helpers import phases_sample, report_sample
from tests.helpers.narrow import broken, printed, too_long
from tests.unit.conftest import Outcome

MS = 10**6


def saved(folder: Path, result: DrillResult | str) -> Path:
    folder.mkdir()
    text = result if isinstance(result, str) else to_json(result)
    (folder / "result.json").write_text(text)
    return folder


def drill(*seeds: int) -> DrillResult:
    """A repeat per seed: outages are longer by that many milliseconds."""
    return report_sample.result(*map(report_sample.repeat, seeds))


@cache
def of_one(seed: int) -> str:
    """The document of a drill of one repeat."""
    return to_json(drill(seed))


@pytest.fixture(scope="module")
def diff(tmp_path_factory: pytest.TempPathFactory) -> DrillDiff:
    """Five repeats on another FRR, kernel and lab, each slower than any of the five before."""
    new = drill(*range(30, 35))
    spec = report_sample.expecting({"lost_packets": "<= 500", "restored": True})
    new = report_sample.result(*(run.probes for (run,) in new.repeats), spec=spec)
    new = replace(
        new,
        lab=new.lab | {"dilation": 2000.0},
        environment=replace(
            new.environment, frr_version="10.3", memory_bytes=24 * 2**30 + 4096, command="rocelab"
        ),
    )
    folder = tmp_path_factory.mktemp("told")
    return difference(saved(folder / "old", drill(*range(5))), saved(folder / "new", new))


def by_counting(one: list[float], other: list[float]) -> float:
    """The p-value from its definition: every way to choose the first set among all values."""
    values = [*one, *other]
    ranks = [sum(v < x for v in values) + sum(v == x for v in values) / 2 + 0.5 for x in values]
    mean = sum(ranks) * len(one) / len(values)
    seen = abs(sum(ranks[: len(one)]) - mean)
    sums = [sum(chosen) for chosen in combinations(ranks, len(one))]
    return sum(abs(s - mean) >= seen - 1e-9 for s in sums) / len(sums)


few = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=5)


@given(few, few)
def test_the_p_value_is_the_share_of_all_ways_to_deal_the_values_out(
    one: list[float], other: list[float]
) -> None:
    assert math.isclose(rank_sum_p(one, other), by_counting(one, other))


def test_published_values_of_the_test_are_met() -> None:
    # Five against five without overlap: 2 of 252 ways; three against three: 2 of 20.
    assert rank_sum_p([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert least_rank_sum_p(3, 3) == pytest.approx(0.1)
    assert least_rank_sum_p(4, 4) == pytest.approx(2 / 70)


def test_the_test_also_holds_for_a_hundred_repeats() -> None:
    assert rank_sum_p(range(100), range(100, 200)) < 1e-30
    assert rank_sum_p(range(0, 200, 2), range(1, 201, 2)) > 0.8


@pytest.mark.parametrize(
    ("old", "new", "finding", "apart"),
    [
        ([1, 2, 3, 4], [5, 6, 7, 8], Finding.HIGHER, True),
        ([5, 6, 7, 8], [1, 2, 3, 4], Finding.LOWER, True),
        ([1, 2, 3, 4], [2, 3, 4, 5], Finding.NOT_TOLD_APART, False),
        ([1, 2, 3], [5, 6, 7], Finding.TOO_FEW, True),
        ([1], [9], Finding.TOO_FEW, True),
        ([0], [0, 0], Finding.SAME, False),
        ([], [1], Finding.NOT_MEASURED, False),
    ],
)
def test_what_is_said_of_a_figure(
    old: list[float], new: list[float], finding: Finding, apart: bool
) -> None:
    assert compared(old, new)[2:] == (apart, finding)


def test_figures_verdicts_machine_drill_and_lab_are_compared(diff: DrillDiff) -> None:
    of = {figure.kpi: figure for figure in diff.figures}
    assert of["lost_packets"].finding is Finding.HIGHER
    assert of["lost_packets"].old_values == (56.0, 59.0, 62.0, 65.0, 68.0)
    assert of["lost_packets"].difference == 90
    assert of["affected_flows"].finding is Finding.SAME
    assert of["restored"].new_values == (1.0,) * 5
    changed = {verdict.kpi for verdict in diff.verdicts if verdict.changed}
    assert changed == {"affected_flows", "full_convergence", "lost_outside_events", "lost_packets"}
    assert diff.environment == (ValueChange("frr_version", "8.4.4", "10.3"),)
    assert diff.lab == (ValueChange("dilation", 5000.0, 2000.0),)
    assert ValueChange("phases[0].expect.lost_packets", "<= 50", "<= 500") in diff.drill


def test_the_terminal_has_both_sides_and_says_what_the_test_can_not(diff: DrillDiff) -> None:
    text = printed(lambda console: print_document(difference_document(diff), console), 160)
    row = next(line for line in text.splitlines() if "Packets lost" in line and "n 5" in line)
    said = "Packets lost higher +90 (+145.2%) 0.008 62 (56 to 68, n 5) 152 (146 to 158, n 5)"
    assert " ".join(row.split()) == said
    assert "FRR" in text and "10.3" in text
    assert "treats repeats as independent" in text
    assert "too few" not in text
    assert "not the same experiment" in text
    for width in (80, 60):
        assert (
            broken(lambda console: print_document(difference_document(diff), console), width)
            == set()
        )


def test_tables_fit_a_narrow_terminal(diff: DrillDiff) -> None:
    lines = too_long(lambda console: print_document(difference_document(diff), console), 60)
    assert all(line.startswith(("p: ", "old  ", "new  ", "The drill or")) for line in lines)


def test_few_repeats_are_said_to_be_too_few(tmp_path: Path) -> None:
    diff = difference(saved(tmp_path / "a", drill(1, 2)), saved(tmp_path / "b", drill(30, 31)))
    lost = next(figure for figure in diff.figures if figure.kpi == "lost_packets")
    assert (lost.finding, lost.apart) == (Finding.TOO_FEW, True)
    text = printed(lambda console: print_document(difference_document(diff), console), 160)
    assert "2 and 2 repeats are too few to distinguish a difference from chance" in text
    assert "too few repeats*" in text
    assert "Machine and software are the same." in text
    assert "not the same experiment" not in text


def test_invalid_repeats_enter_no_figure(tmp_path: Path) -> None:
    bad = report_sample.repeat(99, problems=("the clock jumped",))
    new = report_sample.result(report_sample.repeat(1), bad)
    diff = difference(saved(tmp_path / "a", drill(1)), saved(tmp_path / "b", new))
    assert (diff.new.repeats, diff.new.valid_repeats) == (2, 1)
    assert {figure.finding for figure in diff.figures} == {Finding.SAME}


def test_drills_of_jobs_are_compared_phase_by_phase(tmp_path: Path) -> None:
    old = phases_sample.result(*[phases_sample.repeat(4 * MS)] * 4)
    new = phases_sample.result(*[phases_sample.repeat(30 * MS)] * 4)
    compact = saved(tmp_path / "b", new)
    document = json.loads((compact / "result.json").read_text())
    (compact / "result.json").write_text(json.dumps(document, separators=(",", ":")))
    diff = difference(saved(tmp_path / "a", old), compact)
    of = {(figure.phase, figure.kpi): figure for figure in diff.figures}
    assert of["idle", "busbw"].finding is Finding.SAME
    assert of["shared", "time_to_fairness"].finding is Finding.NOT_MEASURED
    changed = [(verdict.phase, verdict.kpi) for verdict in diff.verdicts if verdict.changed]
    assert changed == [("shared", "time_to_fairness")]
    text = printed(lambda console: print_document(difference_document(diff), console), 160)
    assert "<= 30ms: not met, not measured" in " ".join(text.split())


def test_a_diagnosis_is_no_figure_and_a_change_of_it_is_an_expectations(tmp_path: Path) -> None:
    def found(diagnosis: str) -> DrillResult:
        idle, shared = phases_sample.repeat()
        whole = phases_sample.result((phases_sample.diagnosed(idle, diagnosis), shared))
        expected = [parse_expectation("diagnosis", "none")]
        return replace(
            whole, phases=(summarise("idle", whole.repeats, expected), *whole.phases[1:])
        )

    old, new = saved(tmp_path / "old", found("none")), saved(tmp_path / "new", found("incast a"))
    diff = difference(old, new)
    assert "diagnosis" not in {figure.kpi for figure in diff.figures}
    assert [verdict.kpi for verdict in diff.verdicts if verdict.changed] == ["diagnosis"]
    text = printed(lambda console: print_document(difference_document(diff), console), 160)
    assert "none: not met, incast a" in text


def test_where_values_differ_is_named_by_key_and_place() -> None:
    old = {"a": {"b": 1}, "faults": [{"at": 1}, {"at": 2}], "gone": True, "list": [1]}
    new = {"a": {"b": 1}, "faults": [{"at": 1}, {"at": 3}], "list": [1, 2], "more": 0}
    assert list(changes(old, new)) == [
        ValueChange("faults[1].at", 2, 3),
        ValueChange("gone", True, None),
        ValueChange("list", [1], [1, 2]),
        ValueChange("more", None, 0),
    ]


def test_the_command_takes_folders_and_files_and_always_ends_well(
    tmp_path: Path, rocelab: Callable[..., Outcome]
) -> None:
    old, new = saved(tmp_path / "a", of_one(1)), saved(tmp_path / "b", drill(30))
    outcome = rocelab("drill", "diff", old, new / "result.json")
    assert outcome.code == 0
    assert "Packets lost" in outcome.out
    outcome = rocelab("drill", "diff", old, new, "--json")
    assert outcome.code == 0
    document = json.loads(outcome.out)
    assert (document["schema_version"], document["name"]) == (1, "link-flap")
    assert document["old"]["path"] == str(old)
    assert {figure["finding"] for figure in document["figures"]} <= set(Finding)


def test_what_can_not_be_compared_is_input_that_is_wrong(
    tmp_path: Path, rocelab: Callable[..., Outcome]
) -> None:
    old = saved(tmp_path / "a", of_one(1))
    jobs = saved(tmp_path / "jobs", phases_sample.result())
    renamed = saved(tmp_path / "b", replace(drill(1), name="drain"))
    first = json.loads(of_one(1)) | {"schema_version": 1}
    (tmp_path / "first.json").write_text(json.dumps(first))
    (tmp_path / "empty").mkdir()
    for new, said in (
        (jobs, "results of different drills"),
        (renamed, f"{tmp_path / 'b'} of drain"),
        (tmp_path / "first.json", "first.json: a result document of schema version 1"),
        (tmp_path / "empty", "cannot be read: No such file or directory"),
        (tmp_path / "none.json", "none.json cannot be read"),
    ):
        outcome = rocelab("drill", "diff", old, new)
        assert outcome.code == 2
        assert said in " ".join(outcome.err.split())


@pytest.mark.parametrize(
    ("place", "junk"),
    [
        (("phases", 0, "verdicts", 0, "kpi"), "\x1b[31mnone"),
        (("phases", 0, "verdicts", 0, "observed"), "\x1b[31mnone"),
        (("phases", 0, "verdicts", 0, "expectation"), "\x1b[31m[/none]"),
        (("environment", "cpu_model"), "\x1b]52;c;UFdO\x07[/none]"),
        (("environment", "memory_bytes"), 10**400),
        (("drill", "title"), "\x1b[31m[/none]"),
        (("drill", "\x1b[31m[/none]"), 1),
        (("lab",), {}),
    ],
    ids=str,
)
def test_a_document_that_contradicts_itself_is_wrong_input_and_no_text_is_obeyed(
    tmp_path: Path,
    rocelab: Callable[..., Outcome],
    place: tuple[str | int, ...],
    junk: object,
) -> None:
    old = saved(tmp_path / "old", of_one(1))
    document = json.loads(of_one(2))
    *within, last = place
    inner = document
    for part in within:
        inner = inner[part]
    inner[last] = junk
    (tmp_path / "new.json").write_text(json.dumps(document))

    outcome = rocelab("drill", "diff", old, tmp_path / "new.json")

    assert outcome.code in (0, 2), outcome.err
    assert "Traceback" not in outcome.err
    assert "\x1b" not in outcome.out + outcome.err


def test_the_answer_names_what_differs_most_important_first(diff: DrillDiff) -> None:
    document = difference_document(diff)
    assert document.verdict is not None
    assert re.fullmatch(r"\d+ of \d+ figures differ", document.verdict.text)
    assert document.card is not None
    sentence = document.card.sentence
    assert sentence.startswith("Full convergence rose from 29.4 ms to 59.4 ms (+")
    assert "p = 0.008" in sentence
    assert "not the same experiment" in sentence
    first, *_ = document.card.figures
    assert (first.title, first.value) == ("Full convergence", "59.4 ms")
    assert first.spread.endswith("; worse")
    assert document.card.plot is not None
    drawing = document.card.plot.draw()
    assert drawing is not None
    names = [label.get_text() for label in drawing.axes[0].get_yticklabels()]
    assert names[0] == "Full convergence"
    assert "Flows affected" not in names


@pytest.mark.parametrize(
    ("old", "new", "verdict", "sentence"),
    [
        ((1, 2), (1, 2), "too few repeats", "2 and 2 repeats are too few"),
        (range(5), range(5), "no figure differs", "No figure differs beyond chance"),
        ((1,) * 5, (1,) * 5, "no figure differs", "All figures are the same"),
    ],
)
def test_what_is_not_told_apart_is_not_called_a_difference(
    tmp_path: Path, old: Iterable[int], new: Iterable[int], verdict: str, sentence: str
) -> None:
    sides = (saved(tmp_path / name, drill(*of)) for name, of in (("old", old), ("new", new)))
    document = difference_document(difference(*sides))
    assert document.verdict is not None
    assert document.card is not None
    assert document.verdict.text == verdict
    assert document.card.sentence.startswith(sentence)


def test_the_command_writes_a_page_and_overwrites_none(
    tmp_path: Path, rocelab: Callable[..., Outcome]
) -> None:
    sides = [saved(tmp_path / name, of_one(seed)) for name, seed in (("old", 1), ("new", 2))]
    out = tmp_path / "out"
    assert rocelab("drill", "diff", *sides, "--out", out).code == 0
    assert "Two results of link-flap" in (out / "report.html").read_text()
    assert json.loads((out / "result.json").read_text())["name"] == "link-flap"
    assert rocelab("drill", "diff", *sides, "--out", out).code == 2
