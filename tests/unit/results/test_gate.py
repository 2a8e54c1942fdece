"""Whether a drill's new result is worse: directions, the number of figures, too few repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError
from rocelab.report.gate import gate_document
from rocelab.report.renderers.terminal import print_document
from rocelab.results.difference import FigureDiff, Finding, compared, difference
from rocelab.results.drill import EndedEarly, read_drill_result
from rocelab.results.gate import Gate, GateOutcome, gate, gated_figures
from tests.helpers import report_sample
from tests.helpers.documents import printed
from tests.helpers.narrow import broken, too_long

LOW, HIGH = (1.0, 2.0, 3.0, 4.0, 5.0), (6.0, 7.0, 8.0, 9.0, 10.0)


def figure(kpi: str, old: Sequence[float], new: Sequence[float]) -> FigureDiff:
    gap, p_value, apart, finding = compared(old, new)
    return FigureDiff(
        None, None, kpi, "", tuple(old), tuple(new), 0, 0, None, None, gap, p_value, apart, finding
    )


def outcomes(*figures: FigureDiff) -> list[GateOutcome]:
    return [gated.outcome for gated in gated_figures(figures)]


def compare(folder: Path, old: range, new: range, *kpis: str) -> Gate:
    paths = []
    for name, seeds in (("old", old), ("new", new)):
        path = folder / name / "result.json"
        path.parent.mkdir()
        path.write_text(to_json(report_sample.result(*map(report_sample.repeat, seeds))))
        paths.append(path)
    return gate(difference(*paths), kpis)


def test_more_of_what_is_better_low_is_worse_and_less_of_it_is_not() -> None:
    assert outcomes(figure("lost_packets", LOW, HIGH)) == [GateOutcome.WORSE]
    assert outcomes(figure("lost_packets", HIGH, LOW)) == [GateOutcome.PASSED]


def test_less_of_what_is_better_high_is_worse() -> None:
    assert outcomes(figure("busbw", HIGH, LOW)) == [GateOutcome.WORSE]
    assert outcomes(figure("busbw", LOW, HIGH)) == [GateOutcome.PASSED]


def test_more_figures_need_a_smaller_p_value() -> None:
    nearly = figure("lost_packets", (1.0, 2.0, 3.0, 4.0, 6.0), (5.0, 7.0, 8.0, 9.0, 10.0))
    assert nearly.p_value == pytest.approx(4 / 252)
    alike = figure("affected_flows", LOW, (1.5, 1.6, 3.5, 3.6, 4.5))
    assert outcomes(nearly, alike, alike)[0] is GateOutcome.WORSE  # below 0.05 / 3
    assert outcomes(nearly, alike, alike, alike)[0] is GateOutcome.PASSED  # above 0.05 / 4


def test_a_figure_that_is_told_apart_leaves_the_others_a_larger_limit() -> None:
    first, second = figure("lost_packets", LOW, HIGH), figure("full_convergence", LOW, HIGH)
    assert [gated.threshold for gated in gated_figures([first, second])] == [0.025, 0.05]


def test_too_few_repeats_and_an_unmeasured_figure_can_not_be_told() -> None:
    few, missing = figure("lost_packets", LOW[:3], HIGH[:3]), figure("lost_packets", LOW, ())
    assert missing.finding is Finding.NOT_MEASURED
    assert outcomes(few) == outcomes(missing) == [GateOutcome.UNKNOWN]
    (gated,) = gated_figures([few])
    assert gated.why == "3 and 3 repeats are too few"


def test_equal_values_are_no_difference_however_few() -> None:
    assert outcomes(figure("lost_packets", (2.0,), (2.0,))) == [GateOutcome.PASSED]


def test_a_drill_is_worse_if_a_figure_is(tmp_path: Path) -> None:
    worse = compare(tmp_path, range(5), range(30, 35), "lost_packets")
    assert worse.outcome is GateOutcome.WORSE
    assert [gated.difference.kpi for gated in worse.figures] == ["lost_packets"]


@pytest.mark.parametrize(
    ("failed", "outcome"), [(True, GateOutcome.WORSE), (False, GateOutcome.PASSED)]
)
def test_a_new_drill_that_the_lab_ended_is_worse_and_an_interrupted_one_is_not(
    tmp_path: Path, failed: bool, outcome: GateOutcome
) -> None:
    compare(tmp_path, range(5), range(5))
    old, new = _paths(tmp_path)
    ended = replace(read_drill_result(new), ended_early=EndedEarly("no routes", failed))
    (new / "result.json").write_text(to_json(ended))
    result = gate(difference(old, new))
    assert result.outcome is outcome
    assert "the new drill ended early: no routes" in printed(gate_document(result))


def test_without_names_the_figures_are_those_that_the_drill_expects(tmp_path: Path) -> None:
    result = compare(tmp_path, range(5), range(30, 35))
    expected = {verdict.kpi for verdict in difference(*_paths(tmp_path)).verdicts}
    assert {gated.difference.kpi for gated in result.figures} <= expected
    assert result.figures


def _paths(folder: Path) -> tuple[Path, Path]:
    return folder / "old", folder / "new"


def test_a_figure_that_the_results_do_not_have_is_refused_with_those_they_have(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match="no figure nope") as refused:
        compare(tmp_path, range(2), range(2), "nope")
    assert "lost_packets" in (refused.value.hint or "")


def test_the_table_of_a_gate_fits_a_narrow_terminal(tmp_path: Path) -> None:
    document = gate_document(compare(tmp_path, range(1, 5), range(31, 35)))
    for width in (80, 60):
        assert broken(lambda console: print_document(document, console), width) == set()
        assert too_long(lambda console: print_document(document, console), width) == []
