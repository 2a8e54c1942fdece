"""Quantities as text: the same in Python and in the JavaScript of pages."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from rocelab.base import quantities
from rocelab.base.quantities import Unit, axis_unit, change, formatted, tick, whole_share

ROOT = Path(__file__).parents[3]
CASES = json.loads((ROOT / "tests/data/quantities.json").read_text())
MODULE = ROOT / "rocelab/live/page/quantities.js"

AXES = json.loads((ROOT / "tests/data/axes.json").read_text())

ON_AXES = """
import { axisUnit, tick, timeTicks } from %s;
const { units, ticks } = %s;
console.log(JSON.stringify([
  units.map(([[most, unit]]) => axisUnit(most, unit)),
  ticks.map(([value]) => tick(value)),
  timeTicks([0, 2e-8, 4e-8]),
  timeTicks([0, 150]),
]));
"""

WRITTEN = """
import * as quantities from %s;
const cases = %s;
console.log(JSON.stringify(Object.entries(cases).flatMap(
  ([name, pairs]) => pairs.map(([value]) => [name, value, quantities[name](value)]))));
"""


def expected() -> list[list[object]]:
    return [[name, value, text] for name, pairs in CASES.items() for value, text in pairs]


def test_python_writes_each_case() -> None:
    written = [[name, value, getattr(quantities, name)(value)] for name, value, _ in expected()]
    assert written == expected()


def javascript(script: str, cases: object) -> object:
    """What a script prints that has the address of the module and the cases."""
    text = script % (json.dumps(MODULE.as_uri()), json.dumps(cases))
    command = ["node", "--input-type=module", "--eval", text]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_javascript_writes_each_case() -> None:
    assert javascript(WRITTEN, CASES) == expected()


def test_axes_have_one_unit_and_numbers_in_both_languages() -> None:
    units = [unit for _, unit in AXES["units"]]
    texts = [text for _, text in AXES["ticks"]]
    assert [list(axis_unit(most, Unit(unit))) for (most, unit), _ in AXES["units"]] == units
    assert [tick(value) for value, _ in AXES["ticks"]] == texts
    short, long = ["0 ns", "20 ns", "40 ns"], ["0 s", "150 s"]
    assert javascript(ON_AXES, AXES) == [units, texts, short, long]


def test_what_is_below_the_resolution_is_written_so() -> None:
    assert formatted(17.1e6, Unit.NS, 21.8e6) == "< 21.8 ms"
    assert formatted(22e6, Unit.NS, 21.8e6) == "22 ms"
    assert formatted(0, Unit.NS) == "0"


def test_memory_has_binary_prefixes_and_sizes_decimal_ones() -> None:
    assert formatted(2**20, Unit.MEMORY) == "1 MiB"
    assert formatted(2**20, Unit.BYTES) == "1.05 MB"


def test_every_unit_is_written() -> None:
    assert all(formatted(1, unit) for unit in Unit)
    assert (change(1 / 3), change(-0.07)) == ("+33.3%", "-7%")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0%"),
        (0.0042, "0.42%"),
        (0.00001, "< 0.01%"),
        (0.01, "1%"),
        (0.666, "67%"),
        (12, "1200%"),
    ],
)
def test_a_share_in_a_sentence_is_whole_but_below_1_percent(value: float, text: str) -> None:
    assert whole_share(value) == text


def test_no_share_that_is_measured_is_written_without_the_formatter() -> None:
    written = re.compile(r"\{(?![A-Z_.]+:)[^{}]+:\.\d%\}")
    files = (ROOT / "rocelab").rglob("*.py")
    assert [file.name for file in files if written.search(file.read_text())] == []
