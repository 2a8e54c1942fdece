"""Records of labs: damaged, older or newer ones are reported and stop nothing else."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rocelab import record
from rocelab.base.errors import InputError, MachineError
from rocelab.cli import lifecycle
from rocelab.lab.inuse import turn
from rocelab.lab.lab import RunningLab
from rocelab.lab.status import Presence, known_labs
from rocelab.lab.teardown import take_down
from rocelab.record import (
    DamagedRecordError,
    LabFiles,
    Record,
    State,
    check_absent,
    locked,
    open_turn,
    read_record,
    recorded_labs,
    write_record,
)

WHOLE = Record("t-whole", "netns", State.RUNNING, 1.5, "0.1", {"name": "t-whole"}, 4026531833)


@pytest.fixture
def run_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rights_of_root: None) -> Path:
    root = tmp_path / "run"
    monkeypatch.setattr(record, "RUN_ROOT", root)
    monkeypatch.setattr("rocelab.lab.inuse.RUN_ROOT", root)
    root.mkdir()
    write_record(LabFiles("t-whole"), WHOLE)
    return root


def written() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(LabFiles("t-whole").record.read_text())
    return document


def put(root: Path, content: bytes) -> None:
    (root / "t-bad").mkdir()
    (root / "t-bad" / "record.json").write_bytes(content)


def changed(**fields: object) -> bytes:
    return json.dumps({**written(), **fields}).encode()


def test_a_record_is_read_as_it_was_written(run_root: Path) -> None:
    assert read_record("t-whole") == WHOLE
    assert written()["schema_version"] == record.SCHEMA_VERSION
    assert read_record("t-none") is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda: b"", "not JSON"),
        (lambda: b'{"lab": ', "not JSON"),
        (lambda: b"\xff\xfe", "not JSON"),
        (lambda: b"[" * 200_000, "not JSON"),
        (lambda: b"[]", "not a JSON object"),
        (lambda: b"null", "not a JSON object"),
        (lambda: changed(schema_version=3, version="9.9"), "rocelab 9.9 wrote it, with schema"),
        (lambda: changed(schema_version=None), "schema version None and not 2"),
        (lambda: changed(state="dreaming"), "state"),
        (lambda: changed(state=["running"]), "state"),
        (lambda: changed(spec=[]), "spec"),
        (lambda: changed(started_unix_s="yesterday"), "started_unix_s"),
        (lambda: changed(machine_netns=None), "machine_netns"),
        (lambda: changed(plugins=None), "plugins"),
        (lambda: changed(more=1), "more"),
    ],
)
def test_a_damaged_record_is_listed_as_such_and_taken_down(
    run_root: Path, content: Any, reason: str
) -> None:
    put(run_root, content())
    with pytest.raises(DamagedRecordError, match=reason):
        read_record("t-bad")
    bad, whole = known_labs()
    assert (bad.name, bad.state) == ("t-bad", Presence.DAMAGED)
    assert reason in str(bad.problem)
    assert (whole.name, whole.state, whole.problem) == ("t-whole", Presence.LEFT_BEHIND, None)
    with pytest.raises(InputError, match="damaged") as refused:
        RunningLab.open("t-bad")
    assert "rocelab down t-bad" in str(refused.value.hint)
    take_down("t-bad")
    assert recorded_labs() == ["t-whole"]


def test_a_lab_that_is_there_is_up_or_was_left_behind_and_the_message_says_which(
    run_root: Path,
) -> None:
    files = LabFiles("t-whole")
    with pytest.raises(InputError, match="t-whole was left behind by a command that was") as left:
        check_absent(files)
    assert "rocelab down t-whole" in str(left.value.hint)

    for folder in (files.netns, files.nodes):
        (folder / "rtsw1").mkdir(parents=True)
    with pytest.raises(InputError, match="t-whole is up already") as up:
        check_absent(files)
    assert "up --reuse" in str(up.value.hint)
    assert "drill run --keep" in str(up.value.hint)

    check_absent(LabFiles("t-none"))


def test_a_record_whose_spec_this_version_does_not_know_is_damaged(run_root: Path) -> None:
    put(run_root, changed(spec={"name": "t-bad", "unheard_of": 1}))
    with pytest.raises(InputError, match="damaged"):
        RunningLab.open("t-bad")
    take_down("t-bad")
    assert recorded_labs() == ["t-whole"]


def test_a_record_with_a_runtime_that_is_gone_says_so_and_the_lab_goes_down(run_root: Path) -> None:
    put(run_root, changed(runtime="quantum"))
    with pytest.raises(InputError, match="the runtime quantum, which is not installed here"):
        RunningLab.open("t-bad")
    with pytest.raises(MachineError, match="what the runtime quantum made besides may be left"):
        take_down("t-bad")
    assert recorded_labs() == ["t-whole"]


def test_a_record_that_is_a_folder_is_damaged(run_root: Path) -> None:
    (run_root / "t-bad" / "record.json").mkdir(parents=True)
    with pytest.raises(DamagedRecordError, match="directory"):
        read_record("t-bad")
    take_down("t-bad")
    assert recorded_labs() == ["t-whole"]


def test_a_record_that_only_root_may_read_is_no_damaged_one(
    run_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    (known,) = known_labs()
    assert (known.name, known.state, known.nodes) == ("t-whole", Presence.UNREADABLE, None)
    lifecycle.list_labs()
    said = " ".join(capsys.readouterr().out.split())
    assert "lab t-whole: only root may read what is on record of it" in said
    assert "rocelab down" not in said


def test_what_is_no_lab_in_the_folder_of_labs_is_left_alone(run_root: Path) -> None:
    for stray in ("Not A Lab", "UPPER", "a.b"):
        (run_root / stray).mkdir()
    (run_root / "t-file").write_text("")
    (run_root / "t-link").symlink_to(run_root / "t-whole")
    assert [lab.name for lab in known_labs()] == ["t-whole"]


def test_without_room_for_a_lock_file_the_folder_of_the_lab_is_locked(
    run_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def full(path: Any, flags: int, *more: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", full)
    refused = pytest.raises(InputError, match="another command")
    with locked("t-whole"), refused, locked("t-whole"):
        pass
    with pytest.raises(OSError, match="No space"), locked("t-other"):
        pass


def test_locks_are_taken_while_the_folder_of_all_labs_comes_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path / "run")
    failures: list[BaseException] = []

    def take_turns(name: str) -> None:
        try:
            for _ in range(300):
                with locked(name):
                    pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=take_turns, args=(f"t-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert not (tmp_path / "run").exists()


def test_a_turn_is_one_at_a_time_and_keeps_the_folder_it_is_in(
    tmp_path: Path, run_root: Path
) -> None:
    take_down("t-whole")
    with turn():
        with locked("t-a"):
            pass
        other = open_turn()
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)
    with locked("t-a"):
        pass
    assert not run_root.exists()


def test_who_locks_what_all_may_open_holds_nobody_up(tmp_path: Path, run_root: Path) -> None:
    with ExitStack() as held:
        for folder in (run_root, *run_root.iterdir()):
            if folder.is_dir():
                descriptor = os.open(folder, os.O_RDONLY)
                held.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        with turn(), locked("t-whole"):
            locks = [path for path in run_root.iterdir() if path.is_file()]
            assert {stat.S_IMODE(lock.stat().st_mode) for lock in locks} == {0o600}
            assert len(locks) == 2
