"""The page about the architecture has the packages in the order of the contract."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_layers_of_the_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = settings["tool"]["importlinter"]["contracts"][0]
    assert contract["containers"] == ["rocelab"]
    layers = [re.split(r"\s*[|:]\s*", layer) for layer in contract["layers"]]
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.split("## Packages")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert [re.findall(r"`(\w+)`", row) for row in rows] == layers


def test_every_file_it_names_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:\w+/)+[\w.]*)`", page)) - {"rocelab/_data"}  # in a wheel
    roots = (ROOT, ROOT / "rocelab")
    assert len(named) > 15
    assert [each for each in named if not any((root / each).exists() for root in roots)] == []


def test_unit_tests_have_a_folder_for_each_package() -> None:
    packages = {path.parent.name for path in (ROOT / "rocelab").glob("*/__init__.py")}
    folders = {path.parent.name for path in (ROOT / "tests" / "unit").glob("*/__init__.py")}
    assert folders == packages | {"bench"}
