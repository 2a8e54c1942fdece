"""The folders that users read and copy: tables match the files, and scripts are short."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.unit.conftest import CommandLine

ROOT = Path(__file__).parents[2]
MOST_LINES = 60


@pytest.mark.parametrize("folder", ["labs", "scripts", "traffic"])
def test_the_table_of_a_folder_names_every_file(folder: str) -> None:
    named = re.findall(r"^\| \[.*?\]\((.*?)\)", (ROOT / folder / "README.md").read_text(), re.M)
    files = [path.name for path in (ROOT / folder).iterdir() if path.suffix in (".yaml", ".py")]
    assert sorted(named) == sorted(files)


def test_the_table_of_labs_has_their_sizes(rocelab: CommandLine) -> None:
    labs = json.loads(rocelab("labs", "--json").out)
    expected = [
        f"| [{lab['name']}]({lab['name']}.yaml) | {lab['kind']} | {lab['switches']:,} "
        f"| {lab['gpus']:,} |"
        for lab in labs
    ]
    text = (ROOT / "labs" / "README.md").read_text()
    assert [row for row in expected if row not in text] == []


def test_the_table_of_drills_has_their_labs_and_titles(rocelab: CommandLine) -> None:
    drills = json.loads(rocelab("drill", "list", "--json").out)
    expected = [
        f"| [{drill['name']}]({drill['name']}.yaml) "
        f"| [{drill['lab']}](../labs/{drill['lab']}.yaml) | {drill['title']} |"
        for drill in drills
    ]
    text = (ROOT / "scripts" / "README.md").read_text()
    assert [row for row in expected if row not in text] == []


@pytest.mark.parametrize("folder", ["scripts", "traffic"])
def test_no_script_is_long(folder: str) -> None:
    lines = {path.name: len(path.read_text().splitlines()) for path in (ROOT / folder).glob("*.py")}
    assert lines and max(lines.values()) <= MOST_LINES, lines
