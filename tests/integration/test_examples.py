"""The suites of examples/, run as their users run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.measured import INVALID, measured

pytestmark = [pytest.mark.few_at_once, pytest.mark.long]

ROOT = Path(__file__).parents[2]
Ran = subprocess.CompletedProcess[str]


@pytest.mark.parametrize("file", sorted(path.name for path in (ROOT / "examples").glob("test_*")))
def test_an_example_passes(file: str, tmp_path: Path) -> None:
    options = ("-p", "no:cacheprovider", "--rocelab-require", "--rocelab-evidence", str(tmp_path))

    def run() -> Ran:
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, f"examples/{file}"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            # A summary line has its reason where there is room.
            env=os.environ | {"COLUMNS": "1000"},
            check=False,
        )

    ran = measured(run, problems_of_suite)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def problems_of_suite(ran: Ran) -> tuple[str, ...]:
    """Why runs do not count, if tests failed for no other reason."""
    failures = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if not failures or any("InvalidRunError" not in line for line in failures):
        return ()
    return tuple(line.strip(" E") for line in ran.stdout.splitlines() if INVALID in line)
