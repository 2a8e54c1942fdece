"""A run's folder on the other machine: its request, its files, its state.

    request.zip    the upload: request.json, and files/ with the input files request.json   the
    command, its folder and its terminal files/         a mirror of the sender's file system, with
    only the files that the command needs log            all output, and the exit code (`frames`)
    control        a pipe that the run's supervisor reads as long as it lives state.json     what
    `rocelab runs` shows written.json   the files that the command made or changed, written when it
    has ended

Standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

INTERRUPT = b"INT\n"


@dataclass(frozen=True, slots=True)
class Request:
    """What the sender asked for."""

    command: tuple[str, ...]
    words: tuple[str, ...]
    """The command line as typed, for display."""
    folder: str
    """The folder in which it runs, below files/."""
    outputs: tuple[str, ...]
    """The outputs to bring back, below files/: files, or folders with all their content."""
    environment: Mapping[str, str]
    client: str
    out_is_terminal: bool = False
    err_is_terminal: bool = False
    columns: int = 80
    rows: int = 24

    def encoded(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run, without reading its log."""

    run: str
    words: tuple[str, ...]
    client: str
    started_unix_s: float
    ended_unix_s: float | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths in the folder of a run."""

    root: Path

    @property
    def archive(self) -> Path:
        return self.root / "request.zip"

    @property
    def files(self) -> Path:
        return self.root / "files"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def control(self) -> Path:
        return self.root / "control"

    @property
    def reserve(self) -> Path:
        """Reserved disk space, freed to record how the run ended."""
        return self.root / "reserve"

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def written(self) -> Path:
        return self.root / "written.json"

    def unpack(self) -> Request:
        """Unpack and read the request. Raises OSError, and ValueError if it is damaged."""
        with zipfile.ZipFile(self.archive) as packed:
            packed.extractall(self.root)
        self.archive.unlink()
        return self.request()

    def request(self) -> Request:
        fields = json.loads((self.root / "request.json").read_text())
        listed = {name: tuple(fields[name]) for name in ("command", "words", "outputs")}
        return Request(**{**fields, **listed})

    def read_state(self) -> RunState | None:
        """The state; None if the run never began."""
        try:
            fields = json.loads(self.state.read_text())
        except (OSError, ValueError):
            return None
        return RunState(**{**fields, "words": tuple(fields["words"])})

    def write_state(self, state: RunState) -> None:
        """Write the state atomically."""
        fresh = self.state.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(state)))
        fresh.replace(self.state)

    def has_supervisor(self) -> bool:
        """Whether the run's supervisor lives: only it holds the reading end of `control`."""
        try:
            os.close(os.open(self.control, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    def snapshot(self) -> dict[str, tuple[int, int]]:
        """Size and modification time (ns) of every regular file below files/, by its path there."""
        snapshot = {}
        for folder, _, names in os.walk(self.files):
            for name in names:
                path = Path(folder, name)
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    place = path.relative_to(self.files).as_posix()
                    snapshot[place] = (status.st_size, status.st_mtime_ns)
        return snapshot

    def write_written(self, before: Mapping[str, tuple[int, int]]) -> None:
        """Record the files that are new or changed since `before`, with sizes."""
        now = self.snapshot()
        written = {path: size for path, (size, _) in now.items() if before.get(path) != now[path]}
        self.written.write_text(json.dumps(written))

    def hand_over(self, user: int, group: int) -> None:
        """Change the owner to the user who will fetch and remove it."""
        for folder, folders, names in os.walk(self.root):
            for name in (*folders, *names):
                os.chown(Path(folder, name), user, group, follow_symlinks=False)
        os.chown(self.root, user, group)

    def remove(self) -> None:
        shutil.rmtree(self.root)
