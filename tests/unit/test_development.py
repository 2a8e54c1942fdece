"""What contributors' tools read: pinned versions in step with pyproject.toml, hooks, workflows."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
MOST_LOOSE = 145
"""Test modules that mypy checks less strictly than the code. Lower it; never raise it."""
LOCK = (ROOT / "requirements-dev.txt").read_text()
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def pinned() -> dict[str, list[str]]:
    """The versions of each package in the lock file; several where systems differ."""
    pinned: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([a-z0-9.-]+)==(\S+)", LOCK, re.M):
        pinned.setdefault(name, []).append(version)
    return pinned


def test_the_lock_file_has_an_allowed_version_of_all_that_the_project_asks_for() -> None:
    versions = pinned()
    for text in chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        asked = Requirement(text)
        of_it = versions.get(canonicalize_name(asked.name), [])
        assert of_it, f"{text}: `make lock`"
        assert all(asked.specifier.contains(requirement) for requirement in of_it), (
            f"{text}: `make lock`"
        )


def test_the_lock_file_has_nothing_that_the_project_no_longer_asks_for() -> None:
    asked = chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    names = {canonicalize_name(Requirement(text).name) for text in asked}
    blocks = re.findall(r"^([a-z0-9.-]+)==(?:.*\n)((?:    .*\n)*)", LOCK, re.M)
    assert {name for name, block in blocks if "rocelab (pyproject.toml)" in block} == names


def test_the_lock_file_names_no_host_and_has_a_hash_of_every_package() -> None:
    assert not re.search(r"://|^-|--(index-url|find-links|trusted-host)", LOCK, re.M)
    assert len(re.findall(r"^\S+==.* \\\n    --hash=sha256:", LOCK, re.M)) == len(
        re.findall(r"^\S+==", LOCK, re.M)
    )


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_pins_its_actions_and_calls_what_is_there(path: Path) -> None:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        for step in job.get("steps", ()):
            assert re.fullmatch(r"[\w/-]+@v\d+(\.\d+)*", step.get("uses", "a/b@v1"))
            for file in re.findall(r"(?:\./|tests/|requirements)[\w/.-]+", step.get("run", "")):
                assert (ROOT / file).exists(), file


def test_a_hook_refuses_a_subject_of_73_characters() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    (hook,) = (entry for entry in repository["hooks"] if entry["id"] == "subject")
    pattern = re.compile(hook["entry"], re.M)
    body = "\n\nWhy, in lines " + "of any length " * 9
    assert pattern.search("x" * 73 + body)
    assert not pattern.search("x" * 72 + body)


def test_fragments_of_the_changelog_are_of_a_kind_that_there_is() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = "|".join(kind["directory"] for kind in settings["type"])
    names = {path.name for path in (ROOT / "changes").iterdir()} - {"README.md"}
    assert [name for name in names if not re.fullmatch(rf"\+[\w-]+\.({kinds})\.md", name)] == []
    assert re.findall(r"^\| `(\w+)`", (ROOT / "changes/README.md").read_text(), re.M) == (
        kinds.split("|")
    )
    assert settings["start_string"] in (ROOT / "CHANGELOG.md").read_text()


def test_tests_that_are_typed_less_strictly_only_become_fewer() -> None:
    overrides = [part for part in SETTINGS["tool"]["mypy"]["overrides"] if "tests." in str(part)]
    loose = [name for part in overrides for name in part["module"]]
    assert len(loose) <= MOST_LOOSE
    assert not [name for name in loose if not (ROOT / f"{name.replace('.', '/')}.py").is_file()]
