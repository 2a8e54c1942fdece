"""Quantities as text: the same in Python and in the JavaScript of pages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from rocelab.base import quantities
from rocelab.base.quantities import Unit, change, formatted

ROOT = Path(__file__).parents[3]
CASES = json.loads((ROOT / "tests/data/quantities.json").read_text())
MODULE = ROOT / "rocelab/live/page/quantities.js"

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


def test_javascript_writes_each_case() -> None:
    script = WRITTEN % (json.dumps(MODULE.as_uri()), json.dumps(CASES))
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected()


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
