"""Fresh machines: which of this machine's variables reach them, and the reports of their steps."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.machines import readme
from tests.machines.how import Run
from tests.machines.run import NOTHING_MEASURED, STEPS, Outcome, main, summary
from tests.machines.system import PASSED_ON, SYSTEMS, Machine, package_sources


def environment(machine: Machine) -> dict[str, str]:
    """The environment of a machine's command."""
    words = machine.command("true")
    assert words[words.index("env") + 1] == "-i"
    return dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))


def test_a_machine_knows_path_home_and_where_packages_come_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in PASSED_ON:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")

    variables = environment(Machine(SYSTEMS["debian-12"], tmp_path))

    assert variables.keys() == {"HOME", "PATH", "PIP_INDEX_URL"}
    assert variables["HOME"] == "/root"


def test_a_users_path_has_no_folder_of_root(tmp_path: Path) -> None:
    variables = environment(Machine(SYSTEMS["debian-13"], tmp_path, "engineer"))
    assert variables["HOME"] == "/home/engineer"
    assert "sbin" not in variables["PATH"]


def test_sources_are_those_of_the_suite() -> None:
    lines = package_sources("trixie")
    assert [line.split()[2] for line in lines] == ["trixie", "trixie-updates", "trixie-security"]


def test_the_table_says_of_every_step_how_it_ended() -> None:
    system = SYSTEMS["debian-12"]
    _, passed, failed = summary(
        [
            Outcome(system, STEPS["drill"], None, 61.4),
            Outcome(system, STEPS["test"], "exit code 2", 700),
        ]
    )
    assert passed.startswith("debian-12   drill      61 s  passed")
    assert "FAILED: exit code 2" in failed


def test_a_step_or_system_that_is_not_there_is_an_error_of_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["run", "--cache", str(tmp_path), "--systems", "debian-12 debian-1"]
    )
    assert main() == 2
    assert "debian-1'; systems: debian-12 debian-13" in capsys.readouterr().out


@pytest.mark.parametrize(("invalid_runs", "typed"), [(0, 1), (1, 2), (3, 3)])
@pytest.mark.parametrize(
    "invalid_run", [(3, NOTHING_MEASURED), (3, "not valid because a NIC stood idle")]
)
def test_a_command_that_the_machine_could_not_carry_is_typed_again_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, invalid_run: tuple[int, str], invalid_runs: int, typed: int
) -> None:
    lines: list[str] = []

    def execute(line: str, *_: object) -> tuple[int, str]:
        lines.append(line)
        return invalid_run if len(lines) <= invalid_runs else (0, "link-flap: passed")

    monkeypatch.setattr(readme, "execute", execute)
    line = "rocelab drill run link-flap --out here"

    code, _ = readme.execute_measured(line, Run(), io.StringIO())

    assert lines == [line, *[f"{line} --force"] * (typed - 1)]
    assert code == (invalid_run[0] if invalid_runs >= typed else 0)


def test_sudo_finds_the_engine_of_the_tests_where_dockers_own_would_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    socket, default = tmp_path / "own.sock", tmp_path / "docker.sock"
    socket.touch()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{socket}")

    with readme.engine_at(default):
        assert default.resolve() == socket
    assert not default.is_symlink()

    default.write_text("the machine's own")
    with readme.engine_at(default):
        assert not default.is_symlink()
    assert default.read_text() == "the machine's own"
