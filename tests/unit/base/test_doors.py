"""Doors find what installed distributions register, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.base import doors
from rocelab.base.doors import Door
from rocelab.base.errors import InputError, MachineError

PACKAGE = """
def greet():
    return "hello"

NUMBER = 7
"""


def install(folder: Path, package: str, points: str, group: str = "rocelab.greetings") -> None:
    """Put a distribution into a folder as pip would."""
    info = folder / f"{package.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{points}\n")
    (folder / f"{package.replace('-', '_')}.py").write_text(PACKAGE)


def install_ours(folder: Path) -> None:
    install(folder, "rocelab", "plain = rocelab_greetings:greet")
    (folder / "rocelab_greetings.py").write_text(PACKAGE)


def callable_named(name: str, value: object) -> str:
    if not callable(value):
        raise TypeError("expected a function")
    return f"{name}: {value()}"


@pytest.fixture
def site_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(doors, "_folders", lambda: [str(tmp_path)])
    monkeypatch.syspath_prepend(tmp_path)
    doors._installed.cache_clear()
    yield tmp_path
    doors._installed.cache_clear()


def door() -> Door[str]:
    return Door("rocelab.greetings", "greeting", callable_named)


def test_a_door_has_what_installed_packages_register(site_folder: Path) -> None:
    install_ours(site_folder)
    install(site_folder, "lab-greetings", "warm = lab_greetings:greet")
    assert door().names == ("plain", "warm")
    assert door().find("warm") == "warm: hello"
    assert door().all() == {"plain": "plain: hello", "warm": "warm: hello"}
    assert door().origin("warm") == "lab-greetings 1.2"


def test_what_cannot_be_loaded_is_left_out_and_named(site_folder: Path) -> None:
    points = "warm = lab_greetings:greet\ncold = lab_greetings:NUMBER\nlost = lab_greetings:lost"
    install_ours(site_folder)
    install(site_folder, "lab-greetings", points)
    assert list(door().all()) == ["plain", "warm"]
    cold, lost = door().refusals()
    assert str(cold) == (
        "cold of lab-greetings 1.2 (rocelab.greetings): TypeError: expected a function"
    )
    assert lost.name == "lost"
    assert "AttributeError" in lost.reason
    with pytest.raises(InputError, match=r"greeting cold of lab-greetings 1\.2 cannot be used"):
        door().find("cold")


def test_a_name_of_two_packages_is_neithers(site_folder: Path) -> None:
    install_ours(site_folder)
    install(site_folder, "one", "warm = one:greet")
    install(site_folder, "other", "warm = other:greet")
    assert door().names == ("plain",)
    reasons = [refusal.reason for refusal in door().refusals()]
    assert reasons == ["other has that name too", "one has that name too"]
    assert door().has("warm")
    with pytest.raises(InputError, match=r"greeting warm of one 1\.2 cannot be used: other has"):
        door().find("warm")


def test_ours_keeps_its_name_and_comes_first(site_folder: Path) -> None:
    install_ours(site_folder)
    install(site_folder, "another", "plain = another:greet\nable = another:greet")
    assert door().names == ("plain", "able")
    assert door().origin("plain") is None
    (refusal,) = door().refusals()
    assert (refusal.distribution, refusal.reason) == ("another 1.2", "rocelab has that name too")


def test_an_unknown_name_is_refused_with_the_one_meant(site_folder: Path) -> None:
    install_ours(site_folder)
    install(site_folder, "lab-greetings", "warm = lab_greetings:greet")
    with pytest.raises(InputError, match="there is no greeting 'warn'") as caught:
        door().find("warn")
    assert caught.value.hint == "did you mean warm?"


def test_an_installation_older_than_its_code_is_named(site_folder: Path) -> None:
    install(site_folder, "lab-greetings", "warm = lab_greetings:greet")
    with pytest.raises(
        MachineError, match=r"older than its code: it has no rocelab\.greetings"
    ) as caught:
        door().all()
    assert caught.value.hint == "run `make setup`, or install rocelab again"


def test_neither_the_current_folder_nor_pythonpath_is_read(tmp_path: Path) -> None:
    install(tmp_path, "planted", "planted = planted:greet")
    program = "from rocelab.base.doors import _installed\nprint([*_installed()])\n"
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "rocelab.greetings" not in run.stdout
