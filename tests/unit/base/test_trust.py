"""Folders that code is loaded from: nobody else may write in them or replace them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.base import trust
from rocelab.base.compiling import cache_folder
from rocelab.base.trust import UntrustedFolderError, private_folder, use_private_caches
from rocelab.linux import bpf

NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")


@pytest.fixture(params=[0, 0o077, 0o777], ids=["umask 0", "umask 077", "umask 777"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def content(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def test_a_folder_of_code_is_made_for_its_user_alone(umask: int, tmp_path: Path) -> None:
    made = private_folder(tmp_path / "a" / "b")
    assert made == tmp_path.resolve() / "a" / "b"
    for folder in (made, made.parent):
        assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder(made) == made


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o1777])
def test_a_folder_of_code_that_others_may_write_in_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UntrustedFolderError, match="other users may change it"):
        private_folder(folder)


@AS_ROOT
def test_roots_code_is_safe_from_groups_but_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "of-a-group"
    folder.mkdir()
    folder.chmod(0o775)
    assert private_folder(folder)
    os.chown(folder, 0, NOBODY)
    with pytest.raises(UntrustedFolderError):
        private_folder(folder)


def test_nothing_is_made_below_a_folder_that_others_may_change(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "link").symlink_to(shared)
    for place in (shared / "a" / "b", tmp_path / "link" / "a"):
        with pytest.raises(UntrustedFolderError) as refused:
            private_folder(place)
        assert refused.value.filename == str(shared.resolve())
    assert content(shared) == []
    shared.chmod(0o1777)
    assert private_folder(shared / "a" / "b")


@AS_ROOT
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_roots_code_is_in_no_folder_of_another_user(tmp_path: Path, depth: int) -> None:
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    os.chown([folder, *folder.parents][depth], NOBODY, NOBODY)
    with pytest.raises(UntrustedFolderError, match="belongs to another user"):
        private_folder(folder)


@AS_ROOT
def test_a_file_that_was_planted_is_not_loaded(tmp_path: Path) -> None:
    planted = private_folder(tmp_path / "cache") / "search.nbi"
    planted.touch()
    os.chown(planted, NOBODY, NOBODY)
    with pytest.raises(UntrustedFolderError, match="another user"):
        private_folder(tmp_path / "cache")
    os.chown(planted, 0, 0)
    planted.chmod(0o666)
    with pytest.raises(UntrustedFolderError, match="may change"):
        private_folder(tmp_path / "cache")
    planted.unlink()
    planted.symlink_to("/etc/passwd")
    with pytest.raises(UntrustedFolderError):
        private_folder(tmp_path / "cache")


@AS_ROOT
def test_root_compiles_in_no_folder_of_another_user_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(theirs / "numba"))
    assert cache_folder(tmp_path) is None
    assert content(theirs) == []
    said = f"note: no cache in {theirs / 'numba'} ({theirs}): it belongs to another user\n"
    assert capsys.readouterr().err == said
    assert cache_folder(tmp_path) is None
    assert capsys.readouterr().err == ""


@AS_ROOT
def test_a_planted_bpf_program_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bpf, "CACHE", tmp_path / "bpf")
    (tmp_path / "bpf").mkdir()
    os.chown(tmp_path / "bpf", NOBODY, NOBODY)
    (tmp_path / "x.bpf.c").touch()
    with pytest.raises(bpf.BpfError, match="belongs to another user"):
        bpf.compiled(tmp_path / "x.bpf.c")


@AS_ROOT
def test_libraries_of_root_keep_nothing_in_folders_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    places = {"HOME": str(theirs), "MPLCONFIGDIR": str(theirs / "matplotlib")}
    monkeypatch.setattr(os, "environ", places)
    use_private_caches.__wrapped__()
    assert capsys.readouterr().err == ""
    os.chown(theirs, NOBODY, NOBODY)
    use_private_caches.__wrapped__()
    cache = str(trust.CACHE / "libraries")
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR"):
        assert places[variable] == cache
    assert capsys.readouterr().err.count("belongs to another user") == 3


@AS_ROOT
def test_temporary_files_of_root_are_in_no_folder_that_another_user_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, shared, private = (tmp_path / name for name in ("theirs", "shared", "own"))
    for folder, mode in ((theirs, 0o755), (shared, 0o1777), (private, 0o755)):
        folder.mkdir()
        folder.chmod(mode)
    os.chown(theirs, NOBODY, NOBODY)
    places = {"TMPDIR": str(theirs), "TEMP": str(shared), "TMP": str(private), "HOME": str(private)}
    monkeypatch.setattr(os, "environ", places)
    use_private_caches.__wrapped__()
    assert places == {"TEMP": str(shared), "TMP": str(private), "HOME": str(private)}
    said = f"note: no temporary file in {theirs}: it belongs to another user\n"
    assert capsys.readouterr().err == said


def test_roots_own_sudo_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell of root that was reached by sudo from root."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name in ("setgroups", "setresgid", "setresuid"):
        monkeypatch.setattr(os, name, lambda *_, name=name: pytest.fail(name))
    monkeypatch.setattr(trust, "_may_read", lambda owner, places: True)
    monkeypatch.setenv("SUDO_UID", "0")
    monkeypatch.setenv("SUDO_GID", "0")
    monkeypatch.setenv("HOME", "/somewhere")
    trust.become_sudo_user()
    assert os.environ["HOME"] == "/somewhere"
