"""A command of a page that runs until Ctrl-C: pressed once its output is there, never before."""

from __future__ import annotations

import io
import shlex

import pytest

from tests.helpers.limits import LIMIT_S
from tests.machines import readme
from tests.machines.how import Run
from tests.machines.typed import Typed

ENDS_ON_CTRL_C = """
import sys, time
try:
    print({shown!r}, flush=True)
    time.sleep(3600)
except KeyboardInterrupt:
    print("interrupted")
    sys.exit(130)
"""


def problems(monkeypatch: pytest.MonkeyPatch, text: str, limit_s: float) -> tuple[str, ...]:
    monkeypatch.setattr(readme, "ACTIVATE", "true")
    monkeypatch.setattr(readme, "LIMIT_S", limit_s)
    line = f"python3 -c {shlex.quote(ENDS_ON_CTRL_C.format(shown=text))}"
    run = Run(until="is ready", code=130)
    typed = Typed("page", 1, line)
    return readme.try_command(typed, run, "", io.StringIO()).problems


def test_ctrl_c_follows_what_the_command_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems(monkeypatch, "the page is ready", LIMIT_S) == ()


def test_a_command_that_shows_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    code, missing = problems(monkeypatch, "", 0.5)
    assert code.endswith("exit code -9 instead of 130")
    assert missing == "does not show 'is ready'"
