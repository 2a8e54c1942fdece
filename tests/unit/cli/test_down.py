"""`rocelab down` removes the right lab, asks before it removes all, and is idempotent."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest

from rocelab import record as records
from rocelab.record import LabFiles, Record, State, recorded_labs, write_record
from tests.unit.conftest import CommandLine

LABS = ("t-mine", "t-theirs")
AT_A_TERMINAL = """
import os, sys
from pathlib import Path
from rocelab.linux import rights
from rocelab import record
from rocelab.cli.main import main

record.RUN_ROOT = Path(sys.argv[1])
os.geteuid = lambda: 0
rights.missing_capabilities = lambda: ()
rights.is_writable = lambda path: True
main(["down", "--all"])
"""


@pytest.fixture(autouse=True)
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rights_of_root: None) -> None:
    """Two labs that have records and nothing else, on a machine of their own."""
    monkeypatch.setattr(records, "RUN_ROOT", tmp_path / "run")
    records.RUN_ROOT.mkdir()
    for name in LABS:
        write_record(LabFiles(name), Record(name, "netns", State.RUNNING, 0.0, "0.1.0", {}, 0))


def test_all_labs_are_not_taken_down_where_nobody_can_be_asked(rocelab: CommandLine) -> None:
    outcome = rocelab("down", "--all")
    assert outcome.code == 2
    assert "--all takes down 2 labs, also those of other users: t-mine, t-theirs" in outcome.err
    assert "--yes" in outcome.err
    assert recorded_labs() == list(LABS)


def test_all_labs_are_taken_down_where_it_is_said_beforehand(rocelab: CommandLine) -> None:
    outcome = rocelab("down", "--all", "--yes")
    assert outcome.code == 0
    assert [line.split(" (")[0] for line in outcome.out.splitlines()] == [
        f"lab {name} is down" for name in LABS
    ]
    assert recorded_labs() == []
    assert rocelab("down", "--all").out == "no labs\n"


@pytest.mark.parametrize(
    ("answer", "left"),
    [("y", []), pytest.param("n", list(LABS), marks=pytest.mark.long), ("", list(LABS))],
)
def test_at_a_terminal_all_labs_are_listed_and_asked_about(answer: str, left: list[str]) -> None:
    code, said = at_a_terminal(f"{answer}\n")
    assert code == 0
    assert all(name in said for name in LABS)
    assert "Take down these 2 labs?" in said
    assert recorded_labs() == left


def at_a_terminal(typed: str) -> tuple[int, str]:
    """Exit code and output of `down --all` with stdin and stdout on a terminal."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", AT_A_TERMINAL, str(records.RUN_ROOT)])
    os.write(terminal, typed.encode())
    said = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # EIO: the other end has been closed
            break
        if not chunk:
            break
        said += chunk
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), said.decode()


def test_a_lab_that_is_not_up_is_said_to_be_so_every_time(
    rocelab: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("name: absent\nfabric: {kind: clos, racks: 2, spines: 2}\n")
    for text, name in (("meta-32k", "meta-32k"), ("absent", "absent"), (file, "absent")):
        for _ in range(2):
            outcome = rocelab("down", text)
            assert (outcome.code, outcome.out, outcome.err) == (0, f"lab {name} is not up\n", "")


def test_the_lab_that_was_meant_is_named_and_left(rocelab: CommandLine) -> None:
    outcome = rocelab("down", "t-thiers")
    assert (outcome.code, outcome.out) == (0, "lab t-thiers is not up\n")
    assert "did you mean t-theirs?" in outcome.err
    assert recorded_labs() == list(LABS)


def test_a_lab_is_taken_down_by_its_file_whatever_that_says_by_now(
    rocelab: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("name: t-mine\nfabric: {kind: torus}\n")
    assert rocelab("down", file).code == 0
    assert recorded_labs() == ["t-theirs"]
