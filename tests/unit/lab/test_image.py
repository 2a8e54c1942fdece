"""The image of containers: the tools that build it, and those that set-up installs."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from rocelab.base.errors import MachineError
from rocelab.base.interruption import ending
from rocelab.base.progress import Progress
from rocelab.lab import image
from rocelab.lab.engine import ContainerEngine
from rocelab.linux import processes
from tests.helpers.waiting import wait_until

SETUP = Path(__file__).resolve().parents[3] / "setup.sh"


class EmptyEngine(ContainerEngine):
    """An engine that has no image."""

    def __init__(self) -> None:
        super().__init__("docker")

    def call(self, *_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "")


def build() -> None:
    def ignored(_: Progress) -> None:
        pass

    image.built_image(EmptyEngine(), ignored)


def test_a_machine_without_debians_keys_says_which_package_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "KEYRING", tmp_path / "keyring.gpg")
    with pytest.raises(MachineError, match=r"without .*debian-archive-keyring") as caught:
        build()
    assert "make setup" in str(caught.value)


def test_a_machine_without_mmdebstrap_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="without mmdebstrap"):
        build()


def test_an_image_that_takes_too_long_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "KEYRING", tmp_path)
    monkeypatch.setattr(image, "_RECIPE", ("sh", "-c", "sleep infinity"))
    monkeypatch.setattr(image, "BUILD_TIMEOUT_S", 0.05)
    with pytest.raises(MachineError, match="was not built within"):
        build()


@pytest.mark.usefixtures("hears_signals")
def test_a_build_that_is_interrupted_leaves_no_process_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scratch, pid = tmp_path / "scratch", tmp_path / "pid"
    scratch.mkdir()
    begun = 'mkdir "$TMPDIR/root"; sleep infinity & echo $! >"$0"; kill -TERM $PPID; wait'
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(image, "KEYRING", tmp_path)
    monkeypatch.setattr(image, "_RECIPE", ("sh", "-c", begun, str(pid)))
    with pytest.raises(SystemExit) as end, ending():
        build()
    assert end.value.code == 143
    assert capfd.readouterr().err == "terminated: removed the partly built image\n"
    assert list(scratch.iterdir()) == []
    # It has closed its files, which is shortly before its end.
    wait_until(lambda: not processes.is_alive(int(pid.read_text())))


def test_set_up_installs_what_the_message_names(tmp_path: Path) -> None:
    functions, _, _ = SETUP.read_text().partition("\nmapfile ")
    script = tmp_path / "setup.sh"
    keyring = str(image.KEYRING)
    assert keyring in functions
    script.write_text(
        functions.replace(keyring, str(tmp_path / "keyring.gpg")).replace(
            "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin", ""
        )
        + "\nnewest_python() { true; }\nPATH=$1\nmissing_packages\n"
    )

    done = subprocess.run(
        ["/bin/bash", script, tmp_path], capture_output=True, text=True, check=True
    )

    assert {"mmdebstrap", "debian-archive-keyring"} <= set(done.stdout.split())
