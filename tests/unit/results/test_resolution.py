"""A time that is not above the resolution is written as below it, by every report alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rocelab.base.documents import to_json
from rocelab.report.difference import difference_document
from rocelab.report.drill import drill_document
from rocelab.report.junit import junit_file, junit_of
from rocelab.results.difference import difference
from rocelab.results.drill import DrillResult
from tests.helpers.documents import printed
from tests.helpers.report_sample import MS, expecting, repeat, result


def coarse(number: int) -> DrillResult:
    """A convergence of less than the resolution, 60 ms, where 1 ms was expected."""
    run = repeat(number)
    overall = replace(run.overall, resolution_ns=60 * MS)
    return result(replace(run, overall=overall), spec=expecting({"full_convergence": "<= 1ms"}))


def saved(folder: Path, drill: DrillResult) -> Path:
    folder.mkdir()
    (folder / "result.json").write_text(to_json(drill))
    return folder


def test_reports_junit_and_diff_write_a_time_below_the_resolution_alike(tmp_path: Path) -> None:
    drill = coarse(1)
    xml = junit_file(junit_of(drill, 1.0)).decode()
    assert "observed &lt; 60 ms" in xml
    text = printed(drill_document(drill))
    assert "Full convergence <= 1ms < 60 ms not met" in " ".join(text.split())
    diff = difference(saved(tmp_path / "old", drill), saved(tmp_path / "new", coarse(2)))
    (line,) = (
        line for line in printed(difference_document(diff)).splitlines() if "Full conv" in line
    )
    assert line.count("< 60 ms") == 3
