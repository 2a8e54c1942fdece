"""Every kind of process that a command starts, from a folder with hostile files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

from rocelab.base.errors import MachineError
from rocelab.dataplane.impairments import lineprocess
from rocelab.dataplane.impairments.program import IMPAIRMENTS
from rocelab.lab.lab import RunningLab
from rocelab.lab.teardown import take_down
from tests.helpers.hostile import fill_with_traps, sprung
from tests.helpers.waiting import RUN_LIMIT_S

pytestmark = [pytest.mark.side_by_side, pytest.mark.long]

LAB = "t-folder"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("hostile")
    fill_with_traps(made)
    (made / "lab.yaml").write_text(
        f"name: {LAB}\nfabric: {{kind: clos, racks: 2, spines: 2}}\nscheme: {{kind: resilient}}\n"
    )
    try:
        yield made
    finally:
        take_down(LAB)


def command(folder: Path, *arguments: str, codes: Container[int] = (0,)) -> str:
    """The output of the installed program, run as a user runs it."""
    program = Path(sys.executable).with_name("rocelab")
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_LIMIT_S,
    )
    assert done.returncode in codes, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def test_no_command_runs_code_of_the_folder_it_is_in(folder: Path) -> None:
    command(folder, "up", "lab.yaml")
    files = RunningLab.open(LAB).runtime.files
    # A controller, a delay line, a guardian and agents: each is a process of its own.
    command(folder, "te", LAB)
    command(folder, "fault", "inject", LAB, "delay", "link=rtsw1:ctsw1", "delay=1ms")
    assert lineprocess.is_alive(IMPAIRMENTS, files, "ctsw1") or lineprocess.is_alive(
        IMPAIRMENTS, files, "rtsw1"
    )
    # As long as a busy machine's kernel may take to report a carrier.
    command(folder, "fault", "inject", LAB, "carrier-down", "link=rtsw2:ctsw2", "lasts=3s")
    command(folder, "fault", "restore", LAB, "--all")
    job = ("--pattern", "pairs", "--ranks", "2", "--size", "64KB")
    # Its agents are what is asked of it here, not whether its run is valid.
    command(folder, "traffic", LAB, *job, codes=(0, MachineError.exit_code))
    command(folder, "exec", LAB, "rtsw1", "--", "true")
    command(folder, "evidence", LAB, "rtsw1", "--out", "bundle")
    command(folder, "down", LAB)
    assert sprung(folder) == []
