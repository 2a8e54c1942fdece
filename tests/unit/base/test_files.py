"""Files have the requested modes, and files that others put in their place are not read."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocelab.base import files
from rocelab.base.compiling import cache_folder
from rocelab.base.documents import read_text
from rocelab.base.errors import InputError
from rocelab.base.files import (
    NotTextError,
    UntrustedFileError,
    append_file,
    make_folder,
    make_folders,
    read_untrusted,
    remove_tree,
    replace_file,
    replacing,
    scratch_folder,
    text_of,
    untrusted_size,
    untrusted_tail,
    write_file,
)
from rocelab.dataplane.impairments import delayline
from rocelab.jobs.flow_files import read_flow_file
from rocelab.linux import clang
from rocelab.remote.host import bootstrap


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_modes_are_those_that_are_named_under_any_umask(umask: int, tmp_path: Path) -> None:
    make_folder(tmp_path / "a")
    make_folders(tmp_path / "b" / "c", 0o700)
    write_file(tmp_path / "w", "x", 0o640)
    replace_file(tmp_path / "r", b"x")
    append_file(tmp_path / "p", "x", 0o600)
    assert [mode(tmp_path / name) for name in "abwrp"] == [0o755, 0o700, 0o640, 0o644, 0o600]
    assert mode(tmp_path / "b" / "c") == 0o700


def test_the_counts_of_a_delay_line_are_not_others_to_write(umask: int, tmp_path: Path) -> None:
    counts = delayline._counts(tmp_path / "line.lateness")
    counts[1] = 7
    assert mode(tmp_path / "line.lateness") == 0o644
    assert delayline.read_lateness(tmp_path / "line").late == 7
    assert delayline._counts(tmp_path / "line.lateness").tolist() == [0, 7, 0, 0]


def test_folders_of_code_are_not_others_to_write(
    umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source.py"
    source.write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    kept = cache_folder(source.parent)
    bootstrap.describe("kit", "key")
    assert kept is not None
    for folder in (kept, kept.parent, bootstrap.home(), *bootstrap.home().iterdir()):
        assert not mode(folder) & 0o022, folder


def test_compiled_code_is_kept_in_no_folder_that_others_can_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source.py").write_text("")
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "link").symlink_to(shared)
    for place in (shared / "numba", tmp_path / "link" / "numba"):
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(place))
        shared.chmod(0o777)
        assert cache_folder(tmp_path) is None
        shared.chmod(0o1777)
        kept = cache_folder(tmp_path)
        assert kept is not None
        assert kept.parent == shared.resolve() / "numba"
    assert kept is not None
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o777)
    assert cache_folder(tmp_path) is None
    place.parent.unlink()
    place.parent.symlink_to(place.parent)
    assert cache_folder(tmp_path) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_roots_compiled_code_is_kept_below_no_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "home" / "numba"))
    (tmp_path / "home").mkdir()
    assert cache_folder(tmp_path) is not None
    os.chown(tmp_path / "home", 65534, 65534)
    assert cache_folder(tmp_path) is None


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    replace_file(file, "old")
    replace_file(file, b"new")
    assert file.read_text() == "new"
    file.with_name("folder").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(file.with_name("folder"), "newer")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "record.json"]


def test_only_a_regular_file_is_read_where_others_write(tmp_path: Path) -> None:
    secret, log = tmp_path / "secret", tmp_path / "log"
    secret.write_text("secret")
    assert read_untrusted(secret, 2, 3) == b"cre"
    assert untrusted_size(secret) == 6
    assert untrusted_tail(secret, 2) == b"et"
    assert untrusted_tail(secret, 9, after=4) == b"et"
    makers: tuple[Callable[[], None], ...] = (
        log.mkdir,
        lambda: os.mkfifo(log),
        lambda: log.symlink_to(secret),
    )
    for make in makers:
        make()
        with pytest.raises(UntrustedFileError, match="not a regular file"):
            read_untrusted(log)
        log.rmdir() if log.is_dir() else log.unlink()
    with pytest.raises(FileNotFoundError):
        read_untrusted(log)


HOLD_A_LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_file_under_a_lease_is_not_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("text")
    command = [sys.executable, "-c", HOLD_A_LEASE, str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UntrustedFileError, match="under a lease"):
            read_untrusted(log)
        holder.kill()
    assert read_untrusted(log) == b"text"


def test_a_file_is_replaced_through_no_file_that_somebody_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, file = tmp_path / "secret", tmp_path / "out.prom"
    secret.write_text("only root reads this")
    monkeypatch.setattr(files, "token_hex", lambda _: "known")
    planted = tmp_path / ".out.prom.known.new"
    planted.symlink_to(secret)
    with pytest.raises(FileExistsError):
        replace_file(file, "metrics")
    assert secret.read_text() == "only root reads this"


def test_a_folder_is_removed_however_deep_somebody_made_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("of root")
    folder = tmp_path / "frr"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    here = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove_tree(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    remove_tree(folder)


def test_scratch_files_of_a_killed_command_are_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "kept").mkdir(parents=True)
    (tmp_path / "x-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "x-file").touch()
    (tmp_path / "other-1").mkdir()
    if os.geteuid() == 0:
        (tmp_path / "x-stranger").mkdir()
        os.chown(tmp_path / "x-stranger", 4711, 4711)
    before = sorted(tmp_path.iterdir())
    (tmp_path / "x-killed" / "below").mkdir(parents=True)
    with scratch_folder("x-", tmp_path) as used, scratch_folder("x-", tmp_path) as other:
        assert used.is_dir() and other.is_dir()
        assert not (tmp_path / "x-killed").exists()
        assert mode(used) == 0o700
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "elsewhere" / "kept").exists()
    for error in (FileNotFoundError, BlockingIOError, KeyboardInterrupt):
        with pytest.raises(error), scratch_folder("x-", tmp_path):
            raise error
    assert sorted(tmp_path.iterdir()) == before


def test_a_compiler_has_its_files_where_only_its_user_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, source, cache = tmp_path / "clang", tmp_path / "a.c", tmp_path / "cache"
    program.write_text('#!/bin/sh\nfor file; do :; done\necho "$TMPDIR" > "$file"\n')
    program.chmod(0o755)
    source.touch()
    (cache / "new-killed").mkdir(parents=True)
    for folder in (cache, cache / "new-killed"):
        folder.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    made = clang.compiled(source, ("-c",), cache)
    assert Path(made.read_text()).parent == cache.resolve()
    assert [*cache.iterdir()] == [made]


def test_a_file_that_could_not_be_written_whole_is_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "table"
    file.write_text("old")
    with pytest.raises(RuntimeError), replacing(file) as opened:
        opened.write(b"half")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
    assert file.read_text() == "old"


def test_text_of_a_user_has_a_byte_order_mark_or_none() -> None:
    assert text_of("a: ä\n".encode("utf-8-sig")) == text_of("a: ä\n".encode()) == "a: ä\n"


@pytest.mark.parametrize(
    ("content", "message", "line"),
    [
        ("a: 1\n".encode("utf-16"), "UTF-16 text", None),
        ("\ufeffa: 1\n".encode("utf-16-be"), "UTF-16 text", None),
        (b"a\0b", "a binary file", None),
        (b"a: 1\nb: \xe4\n", "not UTF-8 text", 2),
    ],
)
def test_what_is_no_text_is_said_with_what_to_do(
    content: bytes, message: str, line: int | None
) -> None:
    with pytest.raises(NotTextError, match=message) as error:
        text_of(content)
    assert error.value.hint
    assert error.value.line == line


def test_a_document_and_a_list_of_flows_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "flows.txt"
    file.write_bytes("1\n0 1 3 100 1000 2.0\n".encode("utf-8-sig"))
    assert read_text(file, "").startswith("1")
    assert read_flow_file(file).size_bytes.tolist() == [1000]
    file.write_bytes("1\n0 1 3 100 1000 2.0\n".encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16 text"):
        read_text(file, "")
    with pytest.raises(InputError, match="UTF-16 text"):
        read_flow_file(file)
