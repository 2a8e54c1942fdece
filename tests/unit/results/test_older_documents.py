"""Documents of rocelab 0.1: all that is in them is read, and shown and compared as today's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocelab.base.documents import to_json
from rocelab.diagnose.diagnose import diagnose_report
from rocelab.report.compare.document import comparison_document
from rocelab.report.drill import drill_document
from rocelab.report.renderers.page import html
from rocelab.report.simulation.document import simulation_document
from rocelab.results import comparison, diagnosis, drill, job, simulation
from rocelab.results.difference import difference

OLDER = Path(__file__).parents[2] / "data" / "documents-0.1"
READERS: dict[str, Callable[[str], Any]] = {
    "comparison": comparison.from_json,
    "diagnosis": diagnosis.from_json,
    "drill": drill.from_json,
    "simulation": simulation.from_json,
    "traffic": job.from_json,
}


def document(name: str) -> Any:
    return json.loads((OLDER / f"{name}.json").read_text())


def older(name: str) -> Any:
    return READERS[name]((OLDER / f"{name}.json").read_text())


def missing(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Where a value of the old document is not in the new one."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            yield from missing(value, new.get(key, "no such key"), f"{place}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from missing(*pair, f"{place}[{number}]")
    elif old != new:
        yield f"{place}: {old!r} became {new!r}"


@pytest.mark.parametrize("name", READERS)
def test_nothing_of_an_older_document_is_lost(name: str) -> None:
    assert list(missing(document(name), json.loads(to_json(older(name))))) == []


def test_a_change_of_a_key_is_found() -> None:
    assert list(missing({"a": [{"b": 1}]}, {"a": [{"c": 1}]})) == [
        ".a[0].b: 1 became 'no such key'"
    ]


def test_older_results_have_pages() -> None:
    assert "carrier-down" in html(drill_document(older("drill")))
    assert "E-ECMP" not in html(comparison_document(older("comparison")))
    assert "allreduce" in html(simulation_document(older("simulation")))


def test_an_older_job_is_diagnosed_as_it_was() -> None:
    old, (new, _) = older("diagnosis"), diagnose_report(older("traffic"))
    # The wording of the evidence may differ, not its numbers.
    assert replace(new.verdict, evidence=old.verdict.evidence) == old.verdict
    was, now = (
        re.findall(r"\d[\d.,]*", str(diagnosis.verdict.evidence)) for diagnosis in (old, new)
    )
    assert now == was != []
    assert (new.others, new.typical) == (old.others, old.typical)


def test_an_older_drill_is_compared_with_another() -> None:
    file = OLDER / "drill.json"
    diff = difference(file, file)
    assert (diff.environment, diff.drill, diff.lab) == ((), (), ())
    assert {figure.finding for figure in diff.figures} <= {"same", "too few repeats"}
