"""CONTRIBUTING.md has the licence of every package that pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_dependency_and_no_other_package_is_listed_with_its_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = chain(project["dependencies"], *project["optional-dependencies"].values())
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## Licences")[1]
    rows = re.findall(r"^\| (?!package \|)([a-z].*) \| \S.* \|$", text, re.M)
    listed = [name for row in rows for name in re.sub(r" \(.*?\)", "", row).split(", ")]
    assert sorted(listed) == sorted(
        {re.split(r"[<>=]", requirement)[0].lower() for requirement in asked}
    )
