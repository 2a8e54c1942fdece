"""Every example of the help does what it is an example of: those that need no lab and no files of a
user's are run, the others are held against the plan of the lab that they name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from typer.core import TyperGroup

from rocelab.cli.main import command_line
from rocelab.jobs.jobplanning import plan_job
from rocelab.jobs.options import job_from_options
from rocelab.jobs.placement import find_nic
from rocelab.lab.lab import Lab
from rocelab.observe.portcapture import ports_named
from rocelab.programs.ranks import matching_servers
from rocelab.sim.sweep.cells import cells_of
from rocelab.sim.sweep.sweep_spec import read_sweep
from tests.helpers.command import rocelab
from tests.unit.test_page_commands import problem

ROOT = Path(__file__).parents[3]
LAB = "zone-small"
"""The lab of examples that name none."""

RUN = ("predict", "schema")
LONG = ("simulate", "whatif", "longrun")
ON_LABS = ("capture", "ping", "traffic", "compare", "run")
OF_FILES = ("diagnose", "drill", "import", "reference", "requests")
"""Their files are a user's own."""


def examples(group: TyperGroup) -> Iterator[str]:
    """The command lines in the help of all commands."""
    for command in group.commands.values():
        if isinstance(command, TyperGroup):
            yield from examples(command)
        paragraphs = (command.help or "").split("\n\n")
        lines = (" ".join(text.split()) for text in paragraphs)
        yield from (line for line in lines if line.startswith("rocelab "))


EXAMPLES = tuple(dict.fromkeys(examples(command_line())))


def of(*commands: str) -> list[str]:
    return [line for line in EXAMPLES if line.split()[1] in commands]


def words(line: str) -> list[str]:
    """A line's words after the program, without what a shell does with its output."""
    return shlex.split(line.partition(" | ")[0].partition(" > ")[0])[1:]


def test_there_is_a_test_for_each() -> None:
    assert sorted(of(*RUN, *LONG, *ON_LABS, *OF_FILES, "sweep")) == sorted(EXAMPLES)
    assert len(EXAMPLES) >= 20


@pytest.mark.parametrize("line", EXAMPLES)
def test_it_has_the_options_of_its_command(line: str) -> None:
    assert problem(shlex.join(words(line)), complete=True) is None


@pytest.mark.parametrize("line", of(*RUN))
def test_it_shows_something(line: str) -> None:
    done = rocelab(*words(line))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 3


@pytest.mark.long
@pytest.mark.parametrize("line", of(*LONG))
def test_a_simulation_shows_something(line: str, tmp_path: Path) -> None:
    command = [
        str(tmp_path / word) if word.startswith("results/") else word for word in words(line)
    ]
    done = rocelab(*command)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 3


@pytest.mark.parametrize("line", of(*ON_LABS))
def test_it_fits_the_plan_of_its_lab(line: str) -> None:
    command, *rest = words(line)
    names = [word for word in rest if not word.startswith("-")]
    options = {
        name.removeprefix("--"): value
        for name, value in pairwise(rest)
        if name.startswith("--") and name not in ("--out", "--schemes")
    }
    lab = Lab.planned(LAB if rest[0].startswith("-") else names[0])
    match command:
        case "capture":
            ports = [word for word in names[1:] if ":" in word]
            assert ports
            for port in ports:
                ports_named(lab.unstarted(), port)
        case "ping":
            for server in names[1:3]:
                find_nic(lab.fabric, server)
        case "traffic":
            plan_job(lab.fabric, job_from_options(options))
        case "run":
            servers = [value for name, value in pairwise(rest) if name == "--on"]
            assert matching_servers(lab.fabric, servers)
        case "compare":
            assert len(lab.fabric.servers) > 1


def test_the_sweep_has_cells() -> None:
    (line,) = of("sweep")
    assert len(cells_of(read_sweep(ROOT / words(line)[1]))) > 1
