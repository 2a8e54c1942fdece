"""Which container engine is used: one that answers, not one that is only installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.base.errors import MachineError
from rocelab.lab.engine import ContainerEngine, find_engine

DOCKER_20 = """#!/bin/sh
# Docker 20.10 of Debian 12 without its daemon.
[ "$1" = info ] && exit 0
echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock." >&2
exit 1
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the only programs that there are."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_a_docker_whose_daemon_does_not_run_is_no_engine(programs: Path) -> None:
    (programs / "docker").write_text(DOCKER_20)
    (programs / "docker").chmod(0o755)
    with pytest.raises(MachineError, match="Cannot connect to the Docker daemon") as caught:
        find_engine()
    assert "docker.io" in str(caught.value)


def test_podman_is_used_where_docker_does_not_answer(programs: Path) -> None:
    (programs / "docker").write_text(DOCKER_20)
    (programs / "podman").write_text("#!/bin/sh\nexit 0\n")
    for name in ("docker", "podman"):
        (programs / name).chmod(0o755)
    assert find_engine().program == "podman"


def test_a_program_in_a_container_may_print_any_bytes(programs: Path) -> None:
    (programs / "docker").write_text("#!/bin/sh\nprintf '\\377'\n")
    (programs / "docker").chmod(0o755)
    assert ContainerEngine("docker").call(("exec", "leaf1", "x")).stdout == "\ufffd"
