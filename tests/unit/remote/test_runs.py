"""The other machine's side of a run: its log, its supervisor, and the remains of a killed one.

The supervisor is started here as `--host` starts it there, without SSH.
"""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.remote.host import bootstrap
from rocelab.remote.host.frames import Frame, FrameKind, FrameReader
from rocelab.remote.host.runfolder import Request, RunFolder
from rocelab.remote.host.supervisor import BUSY_EXIT, GONE_EXIT, Log
from rocelab.remote.install import Kit, this_kit, zipped
from rocelab.remote.record import StartedRun, forget, remember, remembered
from tests.helpers.limits import LIMIT_S

SUPERVISOR = (sys.executable, "-m", "rocelab.remote.host.supervisor")
FRAMES = st.lists(st.builds(Frame, st.sampled_from(FrameKind), st.binary(max_size=40)), max_size=8)


@given(frames=FRAMES, cuts=st.lists(st.integers(0, 400)), lost=st.integers(0, 8))
def test_a_log_is_read_whole_in_pieces_of_any_size_and_over_a_new_connection(
    frames: list[Frame], cuts: list[int], lost: int
) -> None:
    log = b"".join(frame.encoded() for frame in frames)
    edges = sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})
    reader, read = FrameReader(), []
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        read += reader.feed(log[start:end])
        if number == lost:
            # The connection breaks: another reads on, from what was understood.
            reader = FrameReader(reader.offset)
            read += reader.feed(log[reader.offset : end])
    assert read == frames
    assert reader.offset == len(log)


class FullDisk:
    """Takes `room` bytes, then says ENOSPC as a full disk does: in the middle of a write."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._write = os.write

    def __call__(self, descriptor: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = self._write(descriptor, data[: self.room])
        self.room -= done
        return done


@given(payloads=st.lists(st.binary(min_size=1, max_size=30), max_size=6), room=st.integers(0, 200))
def test_a_full_disk_leaves_whole_frames_and_the_number_of_bytes_lost(
    payloads: list[bytes], room: int
) -> None:
    disk = FullDisk(room)
    with TemporaryDirectory() as folder:
        path = Path(folder, "log")
        log = Log(path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rocelab.remote.host.supervisor.os.write", disk)
            for payload in payloads:
                log.write(FrameKind.OUT, payload)
        seen = path.read_bytes()
        # The reserve is given up here.
        log.end(3)
        assert path.read_bytes().startswith(seen)
        frames = list(FrameReader().feed(path.read_bytes()))
    kept = b"".join(frame.payload for frame in frames if frame.kind is FrameKind.OUT)
    lost = sum(int(frame.payload) for frame in frames if frame.kind is FrameKind.LOST)
    assert b"".join(payloads)[: len(kept)] == kept
    assert len(kept) + lost == sum(map(len, payloads))
    assert frames[-1] == Frame(FrameKind.EXIT, b"3")


def make_run(root: Path, *command: str, files: dict[str, bytes] | None = None) -> RunFolder:
    folder = RunFolder(root)
    root.mkdir()
    request = Request(
        command=command,
        words=("status",),
        folder="work",
        outputs=("work/results",),
        environment={"GREETING": "hello"},
        client="here",
    )
    sent = {"request.json": request.encoded().encode()}
    sent |= {f"files/{name}": data for name, data in (files or {}).items()}
    folder.archive.write_bytes(zipped(sent.items()))
    return folder


def ask(verb: str, folder: RunFolder | Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    root = folder.root if isinstance(folder, RunFolder) else folder
    return subprocess.run(
        [*SUPERVISOR, verb, str(root), *words], capture_output=True, check=False, timeout=LIMIT_S
    )


def followed(folder: RunFolder, offset: int = 0) -> list[Frame]:
    return list(FrameReader(offset).feed(ask("follow", folder, str(offset)).stdout))


def text_of(frames: list[Frame], kind: FrameKind) -> str:
    return b"".join(frame.payload for frame in frames if frame.kind is kind).decode()


def test_a_run_gives_its_output_its_exit_code_and_the_files_it_wrote(tmp_path: Path) -> None:
    script = (
        "cat in; echo $GREETING >&2; echo new > made; mkdir -p results; echo r > results/r; exit 5"
    )
    sent = {"work/in": b"input\n", "work/old": b"as it was"}
    folder = make_run(tmp_path / "run", "sh", "-c", script, files=sent)
    assert ask("start", folder).returncode == 0
    frames = followed(folder)
    assert text_of(frames, FrameKind.OUT) == "input\n"
    assert text_of(frames, FrameKind.ERR) == "hello\n"
    assert frames[-1] == Frame(FrameKind.EXIT, b"5")
    assert json.loads(folder.written.read_text()) == {"work/made": 4, "work/results/r": 2}
    state = folder.read_state()
    assert state is not None
    assert state.exit_code == 5
    # Whoever comes back later reads on from where they were.
    offset = len(frames[0].encoded())
    assert followed(folder, offset) == frames[1:]
    assert ask("remove", folder).returncode == 0
    assert not folder.root.exists()


def test_a_command_that_is_not_there_is_an_error_of_the_start(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "/no/such/command")
    outcome = ask("start", folder)
    assert outcome.returncode == 1
    assert b"/no/such/command" in outcome.stderr or b"No such file" in outcome.stderr


def test_ctrl_c_reaches_the_command_and_a_run_is_not_removed_before_it_ends(
    tmp_path: Path,
) -> None:
    script = "trap 'echo interrupted; exit 130' INT; mkfifo gate; echo ready; read x < gate"
    folder = make_run(tmp_path / "run", "sh", "-c", script)
    assert ask("start", folder).returncode == 0
    with subprocess.Popen(
        [*SUPERVISOR, "follow", str(folder.root), "0"], stdout=subprocess.PIPE
    ) as following:
        assert following.stdout is not None
        reader, frames = FrameReader(), []
        while not frames:
            frames += reader.feed(os.read(following.stdout.fileno(), 1 << 12))
        assert ask("remove", folder).returncode == BUSY_EXIT
        assert ask("interrupt", folder).returncode == 0
        frames += reader.feed(following.stdout.read())
    assert text_of(frames, FrameKind.OUT) == "ready\ninterrupted\n"
    assert frames[-1] == Frame(FrameKind.EXIT, b"130")


def test_a_run_whose_supervisor_was_killed_is_told_from_one_that_goes_on(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "sh", "-c", "echo $$ $PPID; exec sleep infinity")
    assert ask("start", folder).returncode == 0
    listed = ask("list", tmp_path).stdout.decode()
    assert json.loads(listed.removeprefix(bootstrap.MARK))[0]["alive"] is True
    until = time.monotonic() + LIMIT_S
    while not (frames := list(FrameReader().feed(folder.log.read_bytes()))):
        assert time.monotonic() < until
        os.sched_yield()
    command, supervisor = map(int, frames[0].payload.split())
    os.kill(supervisor, signal.SIGKILL)
    os.kill(command, signal.SIGKILL)
    assert ask("follow", folder, "0").returncode == GONE_EXIT
    assert ask("interrupt", folder).returncode == GONE_EXIT
    listed = ask("list", tmp_path).stdout.decode()
    assert json.loads(listed.removeprefix(bootstrap.MARK))[0]["alive"] is False
    assert ask("remove", folder).returncode == 0


def test_a_kit_that_came_half_is_never_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    look = bootstrap.describe("abc", "def")
    assert (look["kit"], look["has_venv"]) == (False, False)
    whole = Kit({"pack/__init__.py": b"X = 1\n"}, ()).packed()
    half = tmp_path / "half.zip"
    half.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(zipfile.BadZipFile):
        bootstrap.unpack(str(half), "abc")
    assert bootstrap.describe("abc", "def")["kit"] is False
    assert list((bootstrap.home() / "kits").iterdir()) == []
    good = tmp_path / "good.zip"
    good.write_bytes(whole)
    bootstrap.unpack(str(good), "abc")
    assert bootstrap.describe("abc", "def")["kit"] is True
    assert (bootstrap.home() / "kits/abc/pack/__init__.py").read_text() == "X = 1\n"
    assert not good.exists()


def test_what_was_half_sent_is_swept_a_day_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    bootstrap.describe("abc", "def")
    home = bootstrap.home()
    old, new = home / "incoming/old.zip", home / "incoming/new.zip"
    half, run = home / "kits/.new-xyz", home / "runs/20300101T000000-abcd"
    kept = home / "runs/20300101T000000-ef01"
    for folder in (half, run, kept):
        folder.mkdir()
    (kept / "state.json").write_text("{}")
    for path in (old, new):
        path.write_bytes(b"PK")
    for path in (old, half, run, kept):
        os.utime(path, (0, 0))
    bootstrap.describe("abc", "def")
    assert [path.exists() for path in (old, new, half, run, kept)] == [0, 1, 0, 0, 1]


def test_a_kit_is_named_by_its_content() -> None:
    one = Kit({"a.py": b"1"}, ("x",))
    assert one.name == Kit({"a.py": b"1"}, ("y",)).name
    assert one.name != Kit({"a.py": b"2"}, ("x",)).name
    assert one.name != Kit({"b.py": b"1"}, ("x",)).name
    assert one.requirements_key != Kit({"a.py": b"1"}, ("y",)).requirements_key


def test_what_runs_there_is_what_runs_here() -> None:
    kit = this_kit()
    with zipfile.ZipFile(io.BytesIO(kit.packed())) as packed:
        names = set(packed.namelist())
    assert {
        "rocelab/remote/host/supervisor.py",
        "rocelab/_data/labs/tiny.yaml",
        "rocelab/live/page/shared.css",
        "rocelab/live/page/vendor/d3-LICENSE",
        "rocelab/dataplane/bpf/common.h",
        "rocelab/dataplane/bpf/queues.bpf.c",
        "rocelab/_data/scripts/link-flap.yaml",
        "rocelab/_data/templates/frr/bgpd.conf.j2",
        "rocelab/_data/traffic/inference.yaml",
        "rocelab/testkit/plugin.py",
    } <= names
    assert not [name for name in names if name.startswith("tests/") or name.endswith(".pyc")]
    (points,) = [name for name in kit.content if name.endswith(".dist-info/entry_points.txt")]
    assert b"rocelab.testkit.plugin" in kit.content[points]
    assert any(requirement.startswith("pydantic") for requirement in kit.requirements)
    assert not any("pytest" in requirement for requirement in kit.requirements)


def test_what_is_compiled_here_is_not_sent_and_makes_no_other_kit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocelab.remote.install.HOME", tmp_path)
    cache = tmp_path / "rocelab/sim/__pycache__/numba-0123"
    cache.mkdir(parents=True)
    (tmp_path / "rocelab/sim/run.py").touch()
    before = this_kit()
    (cache / "run.step-1.py311.nbi").touch()
    assert this_kit() == before
    assert "rocelab/sim/run.py" in before.content


def test_a_run_begun_here_is_remembered_with_its_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    begun = StartedRun("20300101T000000-abcd", "me@vm", ("home/me/results", "tmp/x.pcapng"))
    assert remembered(begun.run) is None
    remember(begun)
    assert remembered(begun.run) == begun
    forget(begun.run)
    assert remembered(begun.run) is None
