"""Folders for results: an existing result stays, and an empty folder is removed."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocelab.base.errors import InputError, MachineError
from rocelab.base.outputs import (
    RESULT,
    NotPlainError,
    open_folder,
    results_folder,
    shown_if_unwritten,
)
from rocelab.base.refusal import refusal
from rocelab.cli.main import main
from rocelab.linux import settings as kernel

JOB = ("--pattern", "allreduce", "--ranks", "4", "--size", "1MB")


def test_a_result_is_overwritten_only_where_that_is_asked_for(tmp_path: Path) -> None:
    with results_folder(tmp_path):
        (tmp_path / RESULT).write_text("old")
    with (
        pytest.raises(InputError, match=r"has a result\.json already\n.*--force"),
        results_folder(tmp_path),
    ):
        raise AssertionError("not reached")
    with results_folder(tmp_path, overwrite=True):
        (tmp_path / RESULT).write_text("new")
    assert (tmp_path / RESULT).read_text() == "new"


def test_one_command_at_a_time_writes_results_to_a_folder(tmp_path: Path) -> None:
    with (
        results_folder(tmp_path, overwrite=True),
        pytest.raises(InputError, match="another command writes its results to"),
        results_folder(tmp_path, overwrite=True),
    ):
        raise AssertionError("not reached")
    with results_folder(tmp_path, overwrite=True):
        pass


WRITER = """
import sys
from pathlib import Path
from rocelab.base.outputs import open_folder
with open_folder(Path(sys.argv[1])) as folder, folder.replacing("result.json") as opened:
    opened.write(b"half")
    opened.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process amid writing a result."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        yield process
        process.kill()


def test_what_a_killed_process_left_is_removed_by_the_next_that_writes(
    writer: subprocess.Popen[str], tmp_path: Path
) -> None:
    (half,) = tmp_path.iterdir()
    others = [tmp_path / ".result.json.mine.new", tmp_path / ".report.html.0123456789abcdef.new"]
    for other in others:
        other.touch()
    writer.kill()
    writer.wait()
    assert half.read_text() == "half"
    with open_folder(tmp_path) as folder:
        folder.replace(RESULT, "whole")
    assert set(tmp_path.iterdir()) == {tmp_path / RESULT, *others}


def test_what_a_living_process_writes_stays(writer: subprocess.Popen[str], tmp_path: Path) -> None:
    with open_folder(tmp_path) as folder:
        folder.replace(RESULT, "mine")
    assert writer.communicate("")[0] == ""
    assert [path.name for path in tmp_path.iterdir()] == [RESULT]
    assert (tmp_path / RESULT).read_text() == "half", "the last one to end"


@pytest.mark.parametrize("error", [InputError("x"), KeyboardInterrupt()])
def test_folders_that_were_made_for_nothing_go_again(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), results_folder(tmp_path / "a" / "b"):
        raise error
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(type(error)), results_folder(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "evidence").mkdir()
        raise error
    assert (tmp_path / "a" / "b" / "evidence").exists()


def test_a_file_in_the_way_is_wrong_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"), results_folder(tmp_path / "file/x"):
        raise AssertionError("not reached")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_name_that_no_folder_can_have_is_wrong_input(tmp_path: Path, overwrite: bool) -> None:
    with (
        pytest.raises(InputError, match=r"results cannot be written to .*: File name too long"),
        results_folder(tmp_path / ("a" * 300), overwrite=overwrite),
    ):
        raise AssertionError("not reached")


def test_a_full_disk_is_the_machines(tmp_path: Path) -> None:
    said = f"no room for results in {tmp_path}"
    with pytest.raises(MachineError, match=said), results_folder(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path))


def test_another_full_disk_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(MachineError, match="no room for /run/elsewhere"),
        results_folder(tmp_path),
    ):
        raise OSError(errno.ENOSPC, "No space left on device", "/run/elsewhere")


def test_what_was_found_out_is_shown_where_it_can_not_be_written() -> None:
    text: list[int] = []
    with pytest.raises(MachineError), shown_if_unwritten([1], text.append):
        raise MachineError("no room")
    with shown_if_unwritten([2], text.append):
        pass
    assert text == [1]


def test_an_error_of_another_place_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), results_folder(tmp_path):
        raise FileNotFoundError(errno.ENOENT, "No such file", "/elsewhere")


def test_what_a_defect_may_have_caused_is_no_refusal() -> None:
    assert refusal(FileNotFoundError(errno.ENOENT, "No such file", "/x")) is None
    refused = refusal(PermissionError(errno.EPERM, "Operation not permitted", "/x"))
    assert refused is not None
    assert (refused.exit_code, "/x: Operation" in str(refused)) == (3, True)


@pytest.mark.parametrize(("user", "advice"), [(0, "root lacks a right here"), (1000, "with sudo")])
def test_root_is_not_told_to_use_sudo(
    user: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    refused = refusal(PermissionError(errno.EACCES, "Permission denied", "/x"))
    assert refused is not None
    assert advice in (refused.hint or "")
    assert ("sudo" in (refused.hint or "")) == (user != 0)


def test_a_lack_of_memory_is_a_refusal() -> None:
    for error in (MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")):
        refused = refusal(error)
        assert refused is not None
        assert "memory" in refused.message
        assert "`ulimit -v`" in (refused.hint or "")


def test_simulate_asks_before_it_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def code(*more: str) -> object:
        with pytest.raises(SystemExit) as ended:
            main(["simulate", "tiny", *JOB, "--out", str(tmp_path), *more])
        return ended.value.code

    assert code() == 0
    before = (tmp_path / RESULT).read_text()
    assert code() == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / RESULT).read_text() == before
    assert code("--force") == 0


def test_a_table_of_flows_overwrites_nothing_and_its_place_is_looked_at_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(place: Path, *more: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["simulate", "tiny", *JOB, "--flows", str(place), *more])
        assert ended.value.code == (0 if more else 2)
        return capsys.readouterr().err

    table, folder = tmp_path / "flows.csv", tmp_path / "folder.csv"
    table.write_text("my only copy")
    folder.mkdir()
    assert "is there already" in refused(table)
    assert table.read_text() == "my only copy"
    assert "is a folder" in refused(folder)
    assert "there is no folder" in refused(tmp_path / "none" / "flows.csv")
    refused(table, "--force")
    assert table.read_text().startswith("job,")


def test_a_lab_does_without_settings_that_an_older_kernel_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "SETTINGS", tmp_path)
    present = tmp_path / "ipv4/ip_forward"
    present.parent.mkdir()
    present.write_text("0")
    for name in kernel.OPTIONAL:
        kernel.write_settings({name: "1", "ipv4/ip_forward": "1"})
    assert present.read_text() == "1"
    with pytest.raises(MachineError, match="fib_multipath_hash_policy"):
        kernel.write_settings({"ipv4/fib_multipath_hash_policy": "1"})
    with pytest.raises(MachineError, match=r"ipv6/conf/all/forwarding\n.*numbered do without"):
        kernel.write_settings({"ipv6/conf/all/forwarding": "1"})


@pytest.mark.parametrize(("links", "leads"), [(40, True), (41, False)])
def test_as_many_links_lead_to_a_folder_as_for_the_kernel(
    tmp_path: Path, links: int, leads: bool
) -> None:
    target = tmp_path.resolve() / "folder"
    target.mkdir()
    for number in range(links):
        link = tmp_path.resolve() / f"link{number}"
        link.symlink_to(target)
        target = link
    if leads:
        with open_folder(target) as folder:
            folder.create("x").close()
        assert (tmp_path / "folder" / "x").exists()
        return
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        open_folder(target)


def a_link(place: Path) -> None:
    place.symlink_to(place.with_name("secret"))


def a_pipe(place: Path) -> None:
    os.mkfifo(place)


def a_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(place))


def a_folder(place: Path) -> None:
    place.mkdir()


@pytest.mark.parametrize("kind", [a_link, a_pipe, a_socket, a_folder])
@pytest.mark.parametrize("method", ["append", "read", "replace"])
def test_what_is_no_plain_file_is_neither_opened_nor_replaced_and_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Callable[[Path], None],
    method: str,
) -> None:
    kind(tmp_path / "name")
    secret = tmp_path / "secret"
    secret.write_text("x")
    opened: list[int] = []
    with open_folder(tmp_path) as folder:
        monkeypatch.setattr(os, "open", noting(os.open, opened))
        arguments = ("new",) if method == "replace" else ()
        with pytest.raises(NotPlainError, match=f"it is {kind.__name__.replace('_', ' ')}, not"):
            getattr(folder, method)("name", *arguments)
    # Opening may be enough to change something, as with a device.
    assert all(flags & os.O_CREAT for flags in opened)
    assert secret.read_text() == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["name", "secret"]


def noting(open_: Callable[..., int], flags_seen: list[int]) -> Callable[..., int]:
    def opens(path: str, flags: int, *arguments: object, **keys: object) -> int:
        flags_seen.append(flags)
        return open_(path, flags, *arguments, **keys)

    return opens
