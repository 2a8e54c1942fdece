"""Files that root wrote for a user of sudo belong to that user, and no others do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocelab.cli.handover import handed_over
from rocelab.files import remove_tree

USER, GROUP = 4711, 4712

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user who typed sudo."""
    monkeypatch.setenv("SUDO_UID", str(USER))
    monkeypatch.setenv("SUDO_GID", str(GROUP))
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, USER, GROUP)
    return home


def owner(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid


def test_what_is_written_and_the_folders_made_for_it_are_the_users(home: Path) -> None:
    folder = home / "results/flap"
    with handed_over(folder):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep/result.json").write_text("{}")
    for path in (home / "results", folder, folder / "deep", folder / "deep/result.json"):
        assert owner(path) == (USER, GROUP), path


def test_what_was_there_before_stays_with_its_owner(home: Path) -> None:
    folder = home / "results"
    (folder / "old").mkdir(parents=True)
    for name in ("old/secret", "result.json", "in-place"):
        (folder / name).write_text("of root")
    with handed_over(folder):
        fresh = folder / "fresh"
        fresh.write_text("{}")
        fresh.replace(folder / "result.json")
        (folder / "in-place").write_text("{}")
        (folder / "old/new").write_text("{}")
    for name in ("result.json", "old/new"):
        assert owner(folder / name) == (USER, GROUP), name
    for path in (folder, folder / "old", folder / "old/secret", folder / "in-place"):
        assert owner(path) == (0, 0), path


def test_a_folder_that_replaces_one_of_the_users_is_the_users(home: Path) -> None:
    folder = home / "evidence"
    folder.mkdir()
    os.chown(folder, USER, GROUP)
    with handed_over(home):
        folder.rmdir()
        folder.mkdir()
    assert owner(folder) == (USER, GROUP)


def test_a_file_in_a_folder_of_root_does_not_give_the_folder(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "of-root"
    folder.mkdir()
    file = folder / "x.pcapng"
    with handed_over(file):
        file.touch()
    assert owner(file) == (USER, GROUP)
    assert owner(folder) == (0, 0)


def test_a_folder_that_a_link_replaces_meanwhile_gives_nothing_of_where_it_leads(
    home: Path, tmp_path: Path
) -> None:
    roots = tmp_path / "roots"
    (roots / "sub").mkdir(parents=True)
    (roots / "passwd").touch()
    for named in (home / "a/passwd", home / "b/sub", home / "c/deep/sub"):
        swapped = home / named.relative_to(home).parts[0]
        swapped.mkdir()
        with handed_over(named):
            swapped.rename(swapped.with_suffix(".aside"))
            swapped.symlink_to(roots if named.parent == swapped else tmp_path)
            (roots / "sub/fresh").touch()
    for path in (tmp_path, roots, *roots.rglob("*")):
        assert owner(path) == (0, 0), path


def test_the_root_is_given_to_nobody(home: Path) -> None:
    with handed_over(Path("/")):
        (home / "made").touch()
    assert owner(home / "made") == (0, 0)


def test_what_is_put_there_meanwhile_stays_with_its_owner(home: Path) -> None:
    """The folder is the user's, who may rename what others have in it."""
    folder = home / "results"
    (folder / "before").mkdir(parents=True)
    for key in (home / "key", folder / "before/key"):
        key.write_text("of root")
        key.chmod(0o600)
    with handed_over(folder):
        (home / "key").rename(folder / "key")
        (folder / "before/key").rename(folder / "renamed")
    for name in ("key", "renamed"):
        assert owner(folder / name) == (0, 0), name


def test_folders_deeper_than_any_result_harm_nothing(home: Path) -> None:
    """Nested one by one: their path is longer than the kernel takes."""
    folder = home / "results"
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with handed_over(folder):
        (folder / "result.json").write_text("{}")
    assert owner(folder / "result.json") == (USER, GROUP)
    remove_tree(folder)
    assert not folder.exists()


def test_links_give_nothing_away(home: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of root")
    folder = home / "results"
    with handed_over(folder):
        folder.mkdir()
        (folder / "symbolic").symlink_to(secret)
        (folder / "hard").hardlink_to(secret)
    assert owner(folder) == (USER, GROUP)
    assert owner(secret) == (0, 0)


def test_what_an_attempt_that_failed_has_left_is_the_users(home: Path) -> None:
    with pytest.raises(KeyboardInterrupt), handed_over(home / "out"):
        (home / "out").mkdir()
        raise KeyboardInterrupt
    assert owner(home / "out") == (USER, GROUP)
    with pytest.raises(KeyboardInterrupt), handed_over(home / "gone"):
        (home / "gone").mkdir()
        (home / "gone").rmdir()
        raise KeyboardInterrupt


def test_without_sudo_all_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID")
    file = home / "result.json"
    with handed_over(file), handed_over(None):
        file.touch()
    assert owner(file) == (0, 0)


@pytest.mark.parametrize("user", ["", "root", "-1", "\N{ARABIC-INDIC DIGIT ONE}"])
def test_a_user_of_sudo_that_is_no_number_is_none(
    user: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", user)
    file = home / "result.json"
    with handed_over(file):
        file.touch()
    assert owner(file) == (0, 0)
