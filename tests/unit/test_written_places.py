"""What is written where users say: no link, pipe or swapped folder leads it elsewhere, and whose it
is."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocelab.base import trust
from rocelab.base.errors import InputError
from rocelab.base.outputs import RESULT, NotPlainError, open_folder, output_file, results_folder
from rocelab.cli.main import main
from rocelab.sim.sweep.store import JOURNAL, TABLE, open_journal
from rocelab.sim.sweep.workerpool import worker_processes

USER, GROUP, STRANGER = 4711, 4712, 4713
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user who typed sudo."""
    monkeypatch.setenv("SUDO_UID", str(USER))
    monkeypatch.setenv("SUDO_GID", str(GROUP))
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, USER, GROUP)
    return home


@pytest.fixture(params=[0, 0o022, 0o077], ids=["umask 0", "umask 022", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def owner(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid


def linked(link: Path, target: Path, user: int) -> Path:
    link.symlink_to(target)
    os.chown(link, user, user, follow_symlinks=False)
    return link


def refused(*words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


TRAPS: dict[str, Callable[[Path, Path], object]] = {
    "a link": lambda place, secret: place.symlink_to(secret),
    "a pipe": lambda place, secret: os.mkfifo(place),
    "a device": lambda place, secret: os.mknod(place, 0o600 | 0o020000, os.makedev(1, 3)),
    "a socket": lambda place, secret: socket.socket(socket.AF_UNIX).bind(str(place)),
}


@pytest.mark.parametrize("kind", TRAPS)
def test_nothing_but_a_plain_file_is_overwritten(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "a device" and os.geteuid() != 0:
        pytest.skip("only root makes devices")
    monkeypatch.chdir(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("of root")
    (tmp_path / "folder").mkdir()
    for name in ("x.svg", "folder/result.json", f"folder/{TABLE}"):
        TRAPS[kind](Path(name), secret)
    refused("graph", "tiny", "-o", "x.svg", "--force")
    assert f"it is {kind}, not a regular file" in capsys.readouterr().err
    with pytest.raises(InputError, match=kind), results_folder(Path("folder"), overwrite=True):
        raise AssertionError("not reached")
    Path("folder/result.json").unlink()
    with pytest.raises(InputError, match=kind), open_journal(Path("folder")):
        raise AssertionError("not reached")
    assert secret.read_text() == "of root"


def test_a_file_with_another_name_is_replaced_and_never_written_to(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of root")
    for name in ("x", JOURNAL):
        (tmp_path / name).hardlink_to(secret)
    with output_file(tmp_path / "x", overwrite=True) as file:
        file.write("new")
    assert (tmp_path / "x").read_text() == "new"
    with open_folder(tmp_path) as folder, pytest.raises(NotPlainError, match="other names"):
        folder.append(JOURNAL)
    with pytest.raises(InputError, match="other names"), open_journal(tmp_path):
        raise AssertionError("not reached")
    assert secret.read_text() == "of root"


def test_a_folder_that_is_swapped_while_a_command_runs_changes_nothing(tmp_path: Path) -> None:
    roots, out, aside = tmp_path / "roots", tmp_path / "out", tmp_path / "aside"
    (roots / "evidence").mkdir(parents=True)
    (roots / "evidence/secret").touch()
    with results_folder(out) as folder, open_journal(out) as journal:
        out.rename(aside)
        out.symlink_to(roots)
        folder.replace(RESULT, "{}")
        folder.remove("evidence")
        with (folder / "evidence" / "1-loss").open() as bundle:
            bundle.replace("index.json", "{}")
        journal.folder.replace(TABLE, b"")
    assert sorted(path.name for path in aside.iterdir()) == [
        JOURNAL, "evidence", RESULT, TABLE,
    ]  # fmt: skip
    assert (aside / "evidence/1-loss/index.json").read_text() == "{}"
    assert [path.name for path in roots.rglob("*")] == ["evidence", "secret"]


def test_a_folder_below_a_held_one_is_reached_by_no_link(tmp_path: Path) -> None:
    (tmp_path / "evidence").symlink_to(tmp_path)
    with open_folder(tmp_path) as folder, pytest.raises(NotPlainError, match="is a link"):
        folder.below("evidence", "deep")


@AS_ROOT
@pytest.mark.parametrize(("user", "is_followed"), [(0, True), (USER, True), (STRANGER, False)])
def test_root_follows_links_of_its_own_and_of_the_user_of_sudo(
    home: Path, tmp_path: Path, user: int, is_followed: bool
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    linked(home / "results", data, user)
    if is_followed:
        with results_folder(home / "results/run") as folder:
            folder.replace(RESULT, "{}")
        assert (data / "run" / RESULT).exists()
        return
    with pytest.raises(InputError, match="results is a link that others than you may change"):
        results_folder(home / "results/run").__enter__()
    with pytest.raises(InputError, match="is a link"):
        output_file(home / "results/x.svg", overwrite=True)
    assert list(data.iterdir()) == []


@AS_ROOT
@pytest.mark.parametrize("change", [{"mode": 0o1777}, {"mode": 0o777}, {"user": STRANGER}])
def test_root_follows_no_link_in_a_folder_that_others_may_write_in(
    home: Path, tmp_path: Path, change: dict[str, int]
) -> None:
    data, shared = tmp_path / "data", tmp_path / "shared"
    for folder in (data, shared, shared / "own"):
        folder.mkdir()
    linked(shared / "results", data, 0)
    linked(shared / "own/results", data, 0)
    shared.chmod(change.get("mode", 0o755))
    os.chown(shared, change.get("user", 0), 0)
    with pytest.raises(NotPlainError):
        open_folder(shared / "results")
    # The sticky bit protects a folder of root's in it.
    if change.get("mode") == 0o1777:
        open_folder(shared / "own/results").close()
    else:
        with pytest.raises(NotPlainError):
            open_folder(shared / "own/results")


def test_a_plain_users_own_links_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: USER)
    (tmp_path / "data").mkdir()
    (tmp_path / "results").symlink_to("data")
    (tmp_path / "loop").symlink_to("loop")
    with results_folder(tmp_path / "results/../results/run") as folder:
        folder.replace(RESULT, "{}")
    assert (tmp_path / "data/run" / RESULT).exists()
    with pytest.raises(InputError, match="Too many levels"):
        results_folder(tmp_path / "loop/run").__enter__()


@AS_ROOT
def test_what_root_writes_for_a_user_of_sudo_is_that_users_from_the_beginning(home: Path) -> None:
    (home / "old").write_text("of root")
    with results_folder(home / "a/b") as folder:
        with folder.replacing(RESULT) as opened:
            (fresh,) = (home / "a/b").iterdir()
            assert owner(fresh) == (USER, GROUP)
            opened.write(b"{}")
        folder.append(JOURNAL).close()
        folder.create("x.pcapng").close()
        folder.below("evidence", "rtsw1").close()
    for path in (home / "a", *(home / "a").rglob("*")):
        assert owner(path) == (USER, GROUP), path
    assert owner(home / "old") == (0, 0)


@AS_ROOT
def test_a_file_in_a_folder_of_root_does_not_give_the_folder(home: Path, tmp_path: Path) -> None:
    roots = tmp_path / "roots"
    roots.mkdir(mode=0o755)
    with output_file(roots / "made/x.svg", overwrite=False, make=True) as file:
        file.write("x")
    assert owner(roots / "made/x.svg") == (USER, GROUP)
    assert {owner(roots), owner(roots / "made")} == {(0, 0)}


@AS_ROOT
@pytest.mark.parametrize(
    "user",
    ["", "root", "-1", "\N{ARABIC-INDIC DIGIT ONE}", f"{2**32 - 1}", f"{2**32}", "9" * 5000],
)
def test_a_user_of_sudo_that_is_no_number_of_one_is_none(
    user: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", user)
    with output_file(home / "x", overwrite=False) as file:
        file.write("x")
    assert owner(home / "x") == (0, 0)


def test_others_may_write_to_nothing_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    with results_folder(tmp_path / "a/b") as folder:
        folder.replace(RESULT, "{}")
        folder.append(JOURNAL).close()
        folder.create("x").close()
        folder.below("c").close()
    for path in (tmp_path / "a").rglob("*"):
        most = 0o755 if path.is_dir() else 0o644
        assert path.stat().st_mode & 0o777 == most & ~umask, path


def test_of_several_files_all_are_written_or_none(tmp_path: Path) -> None:
    class Unwritable(str):
        def encode(self, *_: object) -> bytes:
            raise KeyboardInterrupt

    with open_folder(tmp_path) as folder:
        with pytest.raises(KeyboardInterrupt):
            folder.replace_all({"a": "1", "b": Unwritable("2")})
        assert folder.names() == []
        folder.replace_all({"a": "1", "b": "2"})
        assert folder.names() == ["a", "b"]


@AS_ROOT
def test_a_command_that_needs_no_root_runs_with_the_rights_of_the_user_of_sudo(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust, "_may_read", lambda owner, places: True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            trust.become_sudo_user()
            Path("/proc/self/clear_refs").write_text("5")
            said = f"{os.getresuid()} {os.getresgid()} {os.getgroups()} {os.environ['HOME']}"
            os.write(writing, said.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == f"{(USER,) * 3} {(GROUP,) * 3} [{GROUP}] /nonexistent"
    os.waitpid(child, 0)


@AS_ROOT
def test_root_stays_where_its_user_could_not_read_the_program(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "roots").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path / "roots")
    trust.become_sudo_user()
    assert os.getresuid() == (0, 0, 0)


def test_workers_of_a_sweep_have_no_semaphores_that_a_kill_would_leave() -> None:
    with worker_processes(2) as pool:
        pids = {pool.executor.submit(os.getpid).result() for _ in range(2)} | {os.getpid()}
        for pid in pids:
            assert "/dev/shm/sem" not in Path(f"/proc/{pid}/maps").read_text()


def test_a_workers_error_is_its_callers() -> None:
    with worker_processes(1) as pool:
        with pytest.raises(ValueError, match="invalid literal"):
            pool.executor.submit(int, "x").result()
        assert pool.executor.submit(int, "1").result() == 1
