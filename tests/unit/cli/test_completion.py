"""Shell completion: labs and nodes for every command that takes one, in bash and in zsh."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rocelab import record as records
from rocelab.cli.main import command_line
from rocelab.labfile.catalog import LABS, find_lab, shipped_names
from rocelab.labfile.load import load_spec
from rocelab.record import LabFiles, Record, State, write_record

PROGRAM = Path(sys.executable).with_name("rocelab")
LAB = "zone-small"


@dataclass(frozen=True)
class Place:
    """A parameter of a command, and the words of both."""

    command: Any
    parameter: Any
    words: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.words)


def places(*metavars: str) -> list[Place]:
    """Parameters of commands that are shown so in help."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[Place]:
        for name, child in getattr(command, "commands", {}).items():
            yield from below(child, (*words, name))
        for parameter in command.params:
            word = (parameter.metavar or "").strip("[].")
            if word in metavars:
                yield Place(command, parameter, (*words, str(parameter.name)))

    return list(below(command_line(), ()))


def completed(place: Place, text: str, *line: str) -> list[str]:
    context = place.command.make_context("rocelab", list(line), resilient_parsing=True)
    return [item.value for item in place.parameter.shell_complete(context, text)]


@pytest.fixture(autouse=True)
def lab_that_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RUN_ROOT", tmp_path / "run")
    records.RUN_ROOT.mkdir()
    spec = load_spec(find_lab(LAB))
    dumped = spec.model_dump(mode="json")
    write_record(LabFiles(LAB), Record(LAB, "netns", State.RUNNING, 0.0, "0.1.0", dumped, 0))
    for folder in (LabFiles(LAB).netns, LabFiles(LAB).nodes):
        (folder / "rtsw1").mkdir(parents=True)


@pytest.mark.parametrize("place", places("LAB"), ids=str)
def test_a_lab_is_completed_wherever_one_is_named(place: Place) -> None:
    words = completed(place, "zone-s")
    assert words == [LAB]


@pytest.mark.parametrize("place", places("NODE", "SRC", "DST", "SERVER"), ids=str)
def test_a_node_of_that_lab_is_completed_wherever_one_is_named(place: Place) -> None:
    assert "srv1-1" in completed(place, "srv1", LAB)
    assert completed(place, "srv1", "no-such-lab") == []


def test_a_port_is_completed_by_its_node_and_then_by_its_name() -> None:
    place = next(place for place in places("PORT") if place.parameter.name == "ports")
    assert "rtsw1" in completed(place, "rts", LAB)
    assert completed(place, "rtsw1:ctsw2", LAB) == ["rtsw1:ctsw2", "rtsw1:ctsw2-2"]
    assert completed(place, "nosuch:", LAB) == []


def test_files_of_ones_own_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("labs", "scripts", "traffic"):
        (tmp_path / folder).mkdir()
        for name in ("mine", "$(id)", "-o"):
            (tmp_path / folder / f"{name}.yaml").touch()
    monkeypatch.chdir(tmp_path)
    for line in ("rocelab plan", "rocelab drill run", "rocelab simulate tiny --job"):
        diagnosis = asked_of("bash", f"{line} ", len(line.split()))
        assert "mine" in diagnosis.split()
        # What a shell would run stands in no line that it completes.
        assert "$" not in diagnosis
    assert asked_of("bash", "rocelab plan mi", 2).split() == ["mine"]


def test_commands_that_take_labs_and_nodes_are_seen() -> None:
    assert len(places("LAB")) > 20
    assert len(places("NODE", "SRC", "DST", "SERVER")) >= 8


def asked_of(shell: str, line: str, word: int) -> str:
    """The program's answer to a shell."""
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(word), "_TYPER_COMPLETE_ARGS": line}
    environment = {**os.environ, **asked, "_ROCELAB_COMPLETE": f"complete_{shell}"}
    return subprocess.run([PROGRAM], env=environment, capture_output=True, text=True).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_program_answers_shells(shell: str) -> None:
    labs = asked_of(shell, "rocelab plan zone-", 2)
    for name in shipped_names(LABS):
        assert (name in labs) == name.startswith("zone-")
    assert "ctsw1" in asked_of(shell, "rocelab ping tiny cts", 3)


def test_what_is_installed_for_bash_completes_there(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": f"{PROGRAM.parent}:{os.defpath}"}
    run = partial(subprocess.run, env=environment, capture_output=True, text=True)
    installed = run(["bash", "-c", "rocelab --install-completion; exit $?"])
    assert installed.returncode == 0, installed.stderr
    assert ".bash_completions/rocelab.sh" in (tmp_path / ".bashrc").read_text()
    script = """
        source ~/.bashrc; COMP_WORDS=(rocelab plan zone-sm); COMP_CWORD=2
        _rocelab_completion rocelab; echo "${COMPREPLY[@]}"
    """
    assert run(["bash", "-c", script]).stdout == f"{LAB}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_for_either_shell_is_shown(shell: str) -> None:
    environment = {**os.environ, "_ROCELAB_COMPLETE": f"source_{shell}"}
    process = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True)
    assert process.returncode == 0
    assert f"_ROCELAB_COMPLETE=complete_{shell}" in process.stdout
