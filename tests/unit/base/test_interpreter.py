"""A command runs no code from its current folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rocelab.base.interpreter import (
    leave_current_folder_out,
    module_command,
    module_environment,
    safe_path,
)
from rocelab.sim.sweep.workerpool import worker_processes
from tests.helpers.hostile import fill_with_traps, sprung

ROOT = Path(__file__).parents[3]
MODULES = (
    ("rocelab.dataplane.controller.process", True),
    ("rocelab.remote.host.supervisor", True),
    ("rocelab.lab.management", True),
    ("rocelab.dataplane.impairments.delayline", True),
    ("rocelab.dataplane.pfc.daemon", True),
    ("rocelab.live.job", True),
    ("rocelab.sim.ahead", True),
    ("rocelab.live.shell", True),
    ("rocelab.faults.guardian", True),
    ("rocelab.agent.agent", False),
    ("rocelab.programs.supervisor", False),
)


@pytest.mark.parametrize(("module", "site"), MODULES)
def test_a_module_of_ours_runs_in_a_hostile_folder_and_with_a_hostile_pythonpath(
    module: str, site: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_with_traps(tmp_path)
    # An empty entry is the current folder.
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:.:")
    ended = subprocess.run(
        module_command(module, "nonsense", site=site),
        cwd=tmp_path,
        env=module_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    # It is ours that cannot use its arguments.
    assert str(ROOT) in ended.stderr
    assert sprung(tmp_path) == []


def test_these_are_all_modules_that_are_started() -> None:
    files = {path: path.read_text() for path in (ROOT / "rocelab").rglob("*.py")}
    named = {name for text in files.values() for name in re.findall(r'"(rocelab[.\w]+)"', text)}
    programs = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path, text in files.items()
        if 'if __name__ == "__main__"' in text
    }
    assert {module for module, _ in MODULES} == named & programs


def test_workers_of_a_sweep_import_nothing_from_the_folder_it_runs_in(tmp_path: Path) -> None:
    fill_with_traps(tmp_path)
    before = dict(os.environ)
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        with worker_processes(1) as pool:
            assert pool.executor.submit(os.getpid).result() != os.getpid()
    finally:
        os.chdir(here)
    assert sprung(tmp_path) == []
    assert dict(os.environ) == before


def test_libraries_take_no_settings_from_the_current_folder(tmp_path: Path) -> None:
    fill_with_traps(tmp_path)
    looks = (
        "import os; from rocelab.report.plots import figure_of\n"
        "from rocelab.base.compiling import numba\n"
        "figure_of(1, 1); import matplotlib; numba().core.config.reload_config()\n"
        "print(matplotlib.rcParams['text.usetex'], numba().config.CHROME_TRACE, os.getcwd())"
    )
    command = [sys.executable, "-P", "-c", looks]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == f"False  {tmp_path}\n"
    assert sprung(tmp_path) == []


def test_the_environment_is_as_before_after_a_safe_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    with safe_path():
        assert os.environ["PYTHONSAFEPATH"] == "1"
    assert os.environ["PYTHONSAFEPATH"] == ""


def test_our_own_modules_are_started_in_one_way() -> None:
    # The last one only says what a user may type.
    allowed = {
        "rocelab/base/interpreter.py",
        "rocelab/remote/host/bootstrap.py",
        "rocelab/linux/rights.py",
    }
    used = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "rocelab").rglob("*.py")
        if re.search(r"\bsys\.executable\b|\bexecutable\b.*\bsys\b", file.read_text())
    }
    assert used == allowed
    assert "-P" in module_command("x")
    assert sys.executable in module_command("x")


def test_no_program_is_taken_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "ip"
    trap.write_text("#!/bin/sh\ntouch sprung\n")
    trap.chmod(0o755)
    program = Path(sys.executable).with_name("rocelab")
    for path in (f".:{os.environ['PATH']}", f"{os.environ['PATH']}:", "bin:."):
        monkeypatch.setenv("PATH", path)
        leave_current_folder_out()
        assert all(map(os.path.isabs, os.environ["PATH"].split(":")))
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    subprocess.run([program, "doctor"], cwd=tmp_path, capture_output=True, check=False)
    assert [path.name for path in tmp_path.iterdir()] == ["ip"]
