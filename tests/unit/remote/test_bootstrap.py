"""How the packages of a kit are installed on the other machine."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from rocelab.remote.host import bootstrap


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines of which nothing runs."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    bootstrap.describe("kit", "key")
    lines: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "_call", lines.append)
    return lines


def test_the_pip_of_a_distribution_comes_before_that_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "pip-25.0-py3-none-any.whl"
    wheel.touch()
    monkeypatch.setattr(sysconfig, "get_config_var", {"WHEEL_PKG_DIR": str(tmp_path)}.get)
    assert bootstrap.pip_wheel() == wheel


def test_packages_are_installed_by_a_pip_that_the_venv_does_not_get(
    calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "pip_wheel", lambda: tmp_path / "pip-25.0-py3-none-any.whl")
    bootstrap.make_venv("key", "numpy>=1")
    venv, install = calls
    assert "--without-pip" in venv
    assert install[1:4] == ["-I", f"{tmp_path}/pip-25.0-py3-none-any.whl/pip", "install"]
    assert install[-1] == "numpy>=1"


def test_where_no_wheel_of_pip_is_found_the_venv_gets_one(
    calls: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "pip_wheel", lambda: None)
    bootstrap.make_venv("key", "numpy>=1")
    venv, install = calls
    assert "--without-pip" not in venv
    assert install[1:5] == ["-I", "-m", "pip", "install"]
