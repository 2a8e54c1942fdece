"""How commands name a running lab: by its name or by its file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rocelab import record as records
from rocelab.base.errors import InputError, SpecError
from rocelab.cli.arguments import running_lab, running_or_planned
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.providers.netns import NetnsProvider
from rocelab.labfile.load import load_spec
from rocelab.planning.build import build_fabric
from rocelab.record import LabFiles, Record, State, write_record
from rocelab.routing.frr.installation import FrrInstallation
from rocelab.routing.stack import write_installation
from tests.helpers.command_lines import Command, commands
from tests.unit.conftest import CommandLine

TEXT = "name: t-file\nfabric: {kind: clos, racks: 4, spines: 2}\n"
ON_A_RUNNING_LAB = [
    command
    for command in commands()
    if "lab" in command.parameters and "is up" in command.parameters["lab"].help
]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of its own, whose user is root."""
    monkeypatch.setattr(records, "RUN_ROOT", tmp_path / "run")
    records.RUN_ROOT.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def up(file: Path) -> str:
    """A lab of that file which is up, as far as records say."""
    spec = load_spec(file)
    dumped = spec.model_dump(mode="json")
    write_record(
        LabFiles(spec.name), Record(spec.name, "netns", State.RUNNING, 0.0, "0.1.0", dumped, 0)
    )
    for folder in (LabFiles(spec.name).netns, LabFiles(spec.name).nodes):
        (folder / "rtsw1").mkdir(parents=True)
    return spec.name


def test_most_commands_of_a_running_lab_are_seen() -> None:
    names = {command.words for command in ON_A_RUNNING_LAB}
    assert {("status",), ("exec",), ("shell",), ("vtysh",), ("capture",), ("traffic",)} <= names
    assert {("health",), ("evidence",), ("cli",), ("fault", "inject"), ("scheme",)} <= names


@pytest.mark.parametrize("command", ON_A_RUNNING_LAB, ids=lambda command: " ".join(command.words))
def test_every_command_finds_a_running_lab_by_its_file(
    rocelab: CommandLine, file: Path, command: Command, tmp_path: Path
) -> None:
    line = command.line(lab=str(file), **outputs(command, tmp_path))
    outcome = rocelab(*line)
    assert outcome.code == 2
    assert outcome.err == (
        f"rocelab {' '.join(command.words)}: lab t-file is not up\n"
        f"  hint: bring it up with `rocelab up {file}`\n"
    )


@pytest.mark.parametrize("command", ON_A_RUNNING_LAB, ids=lambda command: " ".join(command.words))
def test_every_command_on_a_lab_that_is_nowhere_names_the_one_that_was_meant(
    rocelab: CommandLine, up: str, command: Command, tmp_path: Path
) -> None:
    outcome = rocelab(*command.line(lab="t-fiel", **outputs(command, tmp_path)))
    assert outcome.code == 2
    assert outcome.err == (
        f"rocelab {' '.join(command.words)}: lab t-fiel is not up\n  hint: did you mean t-file?\n"
    )


@pytest.mark.parametrize("command", ON_A_RUNNING_LAB, ids=lambda command: " ".join(command.words))
def test_every_command_on_a_lab_that_was_left_behind_says_how_to_remove_it(
    rocelab: CommandLine, up: str, command: Command, tmp_path: Path
) -> None:
    LabFiles("t-left").root.mkdir()
    outcome = rocelab(*command.line(lab="t-left", **outputs(command, tmp_path)))
    assert outcome.code == 2
    assert outcome.err == (
        f"rocelab {' '.join(command.words)}: "
        "lab t-left was left behind by a command that was killed\n"
        "  hint: remove what is left of it with `rocelab down t-left`\n"
    )


def outputs(command: Command, folder: Path) -> dict[str, str]:
    names = {"folder", "file"} & set(command.parameters)
    return {name: str(folder / name) for name in names if command.parameters[name].required}


def test_a_file_names_the_lab_that_was_brought_up_from_it(up: str, file: Path) -> None:
    assert (
        RunningLab.open(file).fabric == RunningLab.open(up).fabric == build_fabric(load_spec(file))
    )
    lab = running_or_planned(str(file))
    assert isinstance(lab, RunningLab)
    assert lab.name == up


def test_a_file_that_has_changed_since_names_its_lab_and_says_so(
    up: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert running_lab(str(file)).name == up
    assert capsys.readouterr().err == ""
    file.write_text(TEXT.replace("racks: 4", "racks: 6"))
    assert len(running_lab(str(file)).fabric.nodes) == 10
    said = capsys.readouterr().err
    assert said == f"note: {file} differs from what runs; this is lab {up} as it was brought up\n"


@pytest.mark.parametrize("text", [TEXT.replace("racks: 4", "racks: 0"), "name: t-file\n"])
def test_a_file_that_is_no_longer_valid_names_its_lab_and_says_so(
    up: str, file: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    assert running_lab(str(file)).name == up
    assert isinstance(running_or_planned(str(file)), RunningLab)
    assert f"{file} has errors now (`rocelab plan {file}` lists them)" in capsys.readouterr().err


def test_the_name_of_a_running_lab_wins_over_a_file_of_that_name(
    up: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(up).write_text("name: another\nfabric: {kind: clos, racks: 2, spines: 2}\n")
    assert RunningLab.open(up).name == up


def test_a_file_without_a_name_is_refused_with_its_problems(file: Path) -> None:
    file.write_text("fabric: {kind: clos, racks: 0, spines: 2}\n")
    with pytest.raises(SpecError, match=r"name: missing"):
        RunningLab.open(file)


def test_a_lab_that_is_not_up_and_whose_file_is_wrong_says_what_is_wrong(file: Path) -> None:
    file.write_text(TEXT.replace("racks: 4", "racks: 0"))
    with pytest.raises(SpecError, match=r"fabric.racks"):
        RunningLab.open(file)


def test_a_name_of_the_catalog_that_is_not_up_says_how_to_bring_it_up() -> None:
    with pytest.raises(InputError, match="lab tiny is not up") as caught:
        RunningLab.open("tiny")
    assert caught.value.hint == "bring it up with `rocelab up tiny`"


def test_where_no_lab_is_up_a_name_that_is_nowhere_says_how_to_bring_one_up() -> None:
    with pytest.raises(InputError, match="lab absent is not up") as caught:
        RunningLab.open("absent")
    assert caught.value.hint == "none is: bring one up with `rocelab up LAB`"


@pytest.mark.parametrize(
    ("line", "keys"),
    [(("--dilation", "7"), "dilation differs"), (("--runtime", "docker"), "runtime differs")],
)
def test_a_lab_that_is_up_otherwise_than_asked_is_not_reused(
    rocelab: CommandLine,
    file: Path,
    up: str,
    line: tuple[str, ...],
    keys: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rocelab.linux.settings.seeds_supported", lambda: True)
    monkeypatch.setattr(
        "rocelab.dataplane.steering.Steering.read_scheme", lambda self: load_spec(file).scheme
    )
    outcome = rocelab("up", file, "--reuse", *line)
    assert outcome.code == 2
    assert f"lab t-file is up, but not as asked: {keys}" in outcome.err
    assert "rocelab down t-file" in outcome.err


def test_reuse_takes_no_frr_that_it_would_not_compare(rocelab: CommandLine, file: Path) -> None:
    outcome = rocelab("up", file, "--reuse", "--frr", "/")
    assert outcome.code == 2
    assert "leave --image and --frr out" in outcome.err


@pytest.fixture
def runs_8_4(up: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The lab that is up, with FRR 8.4.4; the folder /opt/10.3 has another one."""
    installation = FrrInstallation("8.4.4", "/usr/lib/frr", 1, 1, False, "/run/frr", "")
    write_installation(LabFiles(up).root, installation)
    monkeypatch.setattr(
        "rocelab.routing.frr.stack.find_installation",
        lambda folder: (
            replace(installation, version=folder.name) if folder.name != "frr" else installation
        ),
    )
    return up


@pytest.mark.parametrize("line", [("compare", "t-file"), ("drill", "run", "drill.yaml", "--keep")])
@pytest.mark.usefixtures("runs_8_4")
def test_a_lab_that_is_up_with_another_frr_than_the_one_asked_for_is_refused(
    rocelab: CommandLine, file: Path, line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    file.with_name("drill.yaml").write_text(
        f"name: d\nlab: {file.name}\ntraffic: {{flows: 2, rate_pps: 1000, duration: 4s}}\n"
        'faults: [{kind: carrier-down, at: 1s, link: "rtsw1:ctsw1", lasts: 1s}]\n'
    )
    monkeypatch.chdir(file.parent)
    monkeypatch.setattr(
        "rocelab.dataplane.steering.Steering.read_scheme", lambda self: load_spec(file).scheme
    )
    outcome = rocelab(*line, "--frr", "/opt/10.3")
    assert outcome.code == 2
    assert (
        "lab t-file is up with FRR 8.4.4 of /usr/lib/frr, not with the one in /opt/10.3"
        in outcome.err
    )
    assert "rocelab down t-file" in outcome.err


@pytest.mark.usefixtures("runs_8_4")
def test_a_lab_that_is_up_with_the_frr_asked_for_is_used() -> None:
    for folder in (None, Path("/opt/frr")):
        assert isinstance(running_or_planned("t-file", folder), RunningLab)


def test_a_planned_lab_runs_the_frr_that_was_chosen(file: Path) -> None:
    lab = running_or_planned(str(file), Path("/opt/10.3"))
    assert isinstance(lab, Lab)
    assert lab.provider == NetnsProvider(Path("/opt/10.3"))
