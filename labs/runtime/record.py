"""A lab's record: the folder under /run/rocelab that names what the lab owns.

The folder is made before anything else and removed after everything else, so whatever a killed
command leaves behind can be found from it and from nothing else:

    /run/rocelab/<lab>/record.json   the spec, the runtime, who started it and how far it came
    /run/rocelab/<lab>/netns/        a tmpfs whose files are the nodes' namespaces
    /run/rocelab/<lab>/nodes/<node>/ configurations, logs, sockets and pid files
    /run/rocelab/<lab>/bpf/          pinned programs: the port queues' marker, steering/ and wire/
    /run/rocelab/<lab>/queues        which engine realises them
    /run/rocelab/<lab>/scheme        how flows are spread now
    /run/rocelab/<lab>/faults/       what is broken on purpose, how it is mended and who broke it
    /run/rocelab/<lab>/endpoints/    what the agents of running traffic have counted
    /run/rocelab/<lab>/delay-line-*  the processes that delay packets
    /run/rocelab/<lab>/controller    the process that pins paths, and demand/ what it knows of jobs
    /run/rocelab/<lab>/outside       what killed daemons leave elsewhere, for `down` to remove
    /run/rocelab/<lab>.lock          serialises commands on the lab
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from labs.errors import InputError
from labs.runtime import namespaces

RUN_ROOT = Path("/run/rocelab")


class State(StrEnum):
    """How far a lab has come."""

    STARTING = "starting"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Record:
    """What is written down about a lab before it is made."""

    lab: str
    runtime: str
    state: State
    started_unix_s: float
    version: str
    spec: dict[str, object]


@dataclass(frozen=True, slots=True)
class LabFiles:
    """Where a lab's files are."""

    lab: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9-]+", self.lab):
            raise InputError(f"{self.lab!r} is not the name of a lab", "see `rocelab list`")

    @property
    def root(self) -> Path:
        return RUN_ROOT / self.lab

    @property
    def record(self) -> Path:
        return self.root / "record.json"

    @property
    def netns(self) -> Path:
        return self.root / "netns"

    @property
    def nodes(self) -> Path:
        return self.root / "nodes"

    @property
    def left_outside(self) -> Path:
        return self.root / "outside"

    @property
    def lock(self) -> Path:
        return RUN_ROOT / f"{self.lab}.lock"

    def netns_of(self, node: str) -> Path:
        return self.netns / node

    def node(self, node: str) -> Path:
        return self.nodes / node


def write_record(files: LabFiles, record: Record) -> None:
    """Write the record so that a reader sees the old one or the new one, never half."""
    files.root.mkdir(parents=True, exist_ok=True)
    fresh = files.record.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(record), indent=1))
    fresh.replace(files.record)


def read_record(lab: str) -> Record | None:
    """The record of a lab, or None where there is none or it was never finished."""
    try:
        fields = json.loads(LabFiles(lab).record.read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None
    return Record(**{**fields, "state": State(fields["state"])})


def recorded_labs() -> list[str]:
    """Names of the labs that have a folder, running or left behind, in order."""
    if not RUN_ROOT.is_dir():
        return []
    return sorted(entry.name for entry in RUN_ROOT.iterdir() if entry.is_dir())


@contextmanager
def locked(lab: str) -> Iterator[LabFiles]:
    """Hold the lab's lock. Raises InputError when another command holds it."""
    files = LabFiles(lab)
    RUN_ROOT.mkdir(mode=0o755, exist_ok=True)
    while True:
        descriptor = os.open(files.lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise InputError(
                f"another command is working on lab {lab}",
                hint="wait for it to end, or stop it, and try again",
            ) from None
        if _is_still_at(descriptor, files.lock):
            break
        os.close(descriptor)
    try:
        yield files
    finally:
        if not files.root.exists():
            files.lock.unlink(missing_ok=True)
            _remove_if_empty(RUN_ROOT)
        os.close(descriptor)


def add_left_outside(files: LabFiles, paths: Iterable[Path]) -> None:
    """Write down what processes about to be killed keep outside the lab's folder."""
    with files.left_outside.open("a") as file:
        file.writelines(f"{path}\n" for path in paths)


def read_left_outside(files: LabFiles) -> set[Path]:
    """What this or an earlier `down` of the lab has written down."""
    try:
        return {Path(line) for line in files.left_outside.read_text().splitlines()}
    except FileNotFoundError:
        return set()


def remove_files(files: LabFiles) -> None:
    """Remove the lab's mounts and folder, the record last. Idempotent."""
    while os.path.ismount(files.netns):
        namespaces.detach_mount(files.netns)
    for folder in (files.nodes, files.netns):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(files.root, ignore_errors=True)


def _is_still_at(descriptor: int, path: Path) -> bool:
    """Whether the file we locked is still the one at `path`: its last holder may remove it."""
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
