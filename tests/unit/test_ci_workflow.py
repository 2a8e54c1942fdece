"""The steps of examples/ci/drills.yml, run by bash as a runner of GitHub Actions runs them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rocelab.base.documents import to_json
from rocelab.results.kpis import KPIS
from tests.helpers import report_sample

ROOT = Path(__file__).parents[2]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / "examples/ci/drills.yml").read_text())
STEPS = {step.get("name"): step for step in WORKFLOW["jobs"]["drill"]["steps"]}
DRILL, COMPARE = "Drill", "Compare with the baseline"
FAKE = """#!/bin/sh
mkdir -p results/link-flap
echo "### link-flap" > results/link-flap/summary.md
[ -z "$RESULT" ] || touch results/link-flap/result.json
exit $CODE
"""
"""A rocelab that ends with CODE, and has written a result if RESULT is set."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a step left: its exit code, its log, its outputs and its part of the summary."""

    code: int
    log: str
    outputs: str
    summary: str


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder of a job whose `sudo` is none."""
    sudo = tmp_path / "bin/sudo"
    sudo.parent.mkdir()
    sudo.write_text('#!/bin/sh\nexec "$@"\n')
    sudo.chmod(0o755)
    return tmp_path


def run(step: str, here: Path, **environment: str) -> Ended:
    outputs, summary = here / "outputs", here / "summary"
    for file in (outputs, summary):
        file.touch()
    done = subprocess.run(
        # As docs.github.com has it for `shell: bash`.
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[step]["run"]],
        cwd=here,
        env={
            "PATH": f"{here}/bin:/usr/bin:/bin",
            "GITHUB_OUTPUT": str(outputs),
            "GITHUB_STEP_SUMMARY": str(summary),
            "DRILL": "link-flap",
            "MUST_NOT_GET_WORSE": WORKFLOW["env"]["MUST_NOT_GET_WORSE"],
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    log = done.stdout + done.stderr
    return Ended(done.returncode, log, outputs.read_text(), summary.read_text())


@pytest.mark.parametrize(
    ("code", "has_result", "ended", "output", "said"),
    [
        (0, True, 0, "measured=yes\n", ""),
        (1, True, 1, "measured=yes\n", ""),
        (2, False, 2, "measured=yes\n", ""),
        (3, True, 0, "measured=no\n", "::warning title=link-flap could not be measured::"),
        (3, False, 3, "measured=yes\n", "::error title=this machine cannot run link-flap::"),
    ],
)
def test_what_could_not_be_measured_is_apart_from_what_cannot_run(
    here: Path, code: int, has_result: bool, ended: int, output: str, said: str
) -> None:
    fake = here / "bin/rocelab"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    result = "1" if has_result else ""
    process = run(DRILL, here, ROCELAB=str(fake), CODE=str(code), RESULT=result)
    assert (process.code, process.outputs, process.summary) == (ended, output, "### link-flap\n")
    assert process.log.startswith(said) if said else not process.log


def compare(here: Path, old: range, new: range) -> Ended:
    """Compare results of repeats; those with higher numbers lose more packets and take longer."""
    for folder, seeds in (("baseline", old), ("results", new)):
        file = here / folder / "link-flap/result.json"
        file.parent.mkdir(parents=True)
        file.write_text(to_json(report_sample.result(*map(report_sample.repeat, seeds))))
    return run(COMPARE, here, ROCELAB=str(Path(sys.executable).with_name("rocelab")))


@pytest.mark.long
def test_a_drill_that_got_slower_than_its_baseline_fails_and_the_summary_shows_both(
    here: Path,
) -> None:
    sample = compare(here, range(5), range(30, 35))
    assert sample.code == 1
    assert "::error title=link-flap got worse than its baseline::" in sample.log
    assert re.search("Full convergence +worse", sample.summary)
    assert sample.summary.endswith("link-flap: worse\n```\n")


@pytest.mark.long
def test_a_drill_that_got_faster_than_its_baseline_passes(here: Path) -> None:
    sample = compare(here, range(30, 35), range(5))
    assert (sample.code, sample.log) == (0, "")
    assert sample.summary.endswith("link-flap: passed\n```\n")


@pytest.mark.long
def test_too_few_repeats_are_no_proof_of_anything(here: Path) -> None:
    sample = compare(here, range(2), range(30, 32))
    assert sample.code == 0
    assert "::warning title=link-flap has too few valid repeats to compare::" in sample.log


def test_a_drill_without_a_baseline_says_how_to_get_one(here: Path) -> None:
    process = run(COMPARE, here, ROCELAB="false")
    assert process.code == 0
    assert "baseline/link-flap/result.json" in process.log


def test_the_gate_names_figures_and_comes_only_after_a_measurement() -> None:
    assert set(WORKFLOW["env"]["MUST_NOT_GET_WORSE"].split()) <= set(KPIS)
    assert STEPS[COMPARE]["if"] == "steps.drill.outputs.measured == 'yes'"
    assert STEPS[DRILL]["id"] == "drill"


def test_the_workflow_takes_the_version_that_it_is_of_and_the_changelog_begins_with_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert WORKFLOW["env"]["ROCELAB_REF"] == f"v{project['version']}"
    latest = re.search(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert latest is not None and latest[1] == project["version"]


def test_every_drill_of_the_workflow_ships() -> None:
    for drill in WORKFLOW["jobs"]["drill"]["strategy"]["matrix"]["drill"]:
        assert (ROOT / "scripts" / f"{drill}.yaml").is_file()
