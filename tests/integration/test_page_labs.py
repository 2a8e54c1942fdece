"""Runs the commands of the documentation that need a lab, as they are typed.

The pages are those that `make test-machines` does not run. A page's commands run one after the
other in a folder that looks like the checkout, as root's shell would, with `sudo` or without.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest

from rocelab.lab.teardown import take_down
from tests.helpers.measured import NotMeasuredError
from tests.integration.test_page_commands import PAGES, needs_no_lab
from tests.machines import pages, readme
from tests.machines.how import NotRun, Run
from tests.machines.typed import Typed, commands

pytestmark = [pytest.mark.few_at_once, pytest.mark.long]

ROOT = Path(__file__).parents[2]


def run_here(page: str) -> list[tuple[Typed, Run]]:
    """The commands of a page that are run, and how."""
    table = pages.RUNS.get(page, {})
    typed = commands(page, (ROOT / page).read_text())
    runs = [
        (command, table.get(command.text, Run()))
        for command in typed
        if not needs_no_lab(command.text)
    ]
    return [(command, run) for command, run in runs if not isinstance(run, NotRun)]


OTHER_PAGES = [page for page in PAGES if page not in pages.PAGES and run_here(page)]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that the checkout has but results and caches, and a `sudo`, which root may
    not have."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name == ".venv" or not path.name.startswith((".", "results")):
            (folder / path.name).symlink_to(path)
    sudo = tmp_path / "bin/sudo"
    sudo.parent.mkdir()
    sudo.write_text('#!/bin/sh\nexec "$@"\n')
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sudo.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(readme, "CHECKOUT", folder)
    return folder


@pytest.mark.parametrize("page", OTHER_PAGES)
@pytest.mark.usefixtures("checkout")
def test_the_commands_of_a_page_run_one_after_the_other(page: str) -> None:
    text, log, runs = (ROOT / page).read_text(), io.StringIO(), run_here(page)
    lines = "\n".join(line for typed, run in runs for line in (*run.before, typed.text))
    try:
        for typed, run in runs:
            problems = readme.try_command(typed, run, text, log).problems
            if problems == (readme.TOO_BUSY,):
                raise NotMeasuredError([f"{typed.text}: {readme.TOO_BUSY}"])
            assert not problems, f"{page}:{typed.line}: {problems}\n{log.getvalue()}"
    finally:
        for lab in set(re.findall(r"\brocelab up (\S+)", lines)):
            take_down(Path(lab).stem)
