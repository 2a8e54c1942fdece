"""A lab's record: the folder under /run/rocelab that names what the lab owns.

The folder is made before anything else and removed after everything else, so everything that a
killed command leaves behind can be found from it alone:

    /run/rocelab/<lab>/record.json   the spec, the runtime, who started it and how far it came
    /run/rocelab/<lab>/installation.json  what its switches run (`rocelab.routing.stack`)
    /run/rocelab/<lab>/netns/        a tmpfs whose files are the nodes' namespaces
    /run/rocelab/<lab>/mounts/       a tmpfs with the mount namespaces of programs in nodes and of
                                     the switches' daemons
    /run/rocelab/<lab>/hosts         /etc/hosts in its nodes (`rocelab.lab.hosts`)
    /run/rocelab/<lab>/remote-shell  how programs enter other nodes (`rocelab.programs.running`)
    /run/rocelab/<lab>/nodes/<node>/ root's: configurations
                            .../etc/ root's: /etc/frr of the daemons
                            .../daemons/ their user's: logs, sockets, pid files: read without
                                     trust
                            .../bin/ root's: `vtysh`, or its like, for the node's own daemons
    /run/rocelab/<lab>/bpf/          pinned programs: port queues' marker, steering/, cables/,
                                     impairments/
    /run/rocelab/<lab>/queues        which engine realises them
    /run/rocelab/<lab>/scheme        how flows are spread now
    /run/rocelab/<lab>/networks/<network>/ these three of each network after the first, and what
                                     pauses its lossless classes
    /run/rocelab/<lab>/live.json     root's: the port and the secret of its page (`rocelab.live`)
    /run/rocelab/<lab>/faults/       the active faults and the processes that restore them
    /run/rocelab/<lab>/changes       what faults did, while traffic that allows them asks for it
    /run/rocelab/<lab>/use.lock      held by who uses it; traffic.lock: by who sends beside faults
    /run/rocelab/<lab>/endpoints/    the counters of running traffic's agents
    /run/rocelab/<lab>/delay-line-*  the processes that delay packets; cable-line-*: of links.delay
    /run/rocelab/<lab>/controller    the process that pins paths; demand/ has the demands of traffic
    /run/rocelab/<lab>.lock          serialises commands on the lab
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocelab.base.errors import InputError
from rocelab.base.files import NO_ROOM, make_folder, remove_tree, replace_file
from rocelab.linux import namespaces

if TYPE_CHECKING:
    from rocelab.planning.fabric import Fabric

RUN_ROOT = Path("/run/rocelab")
LOCK_GRACE_S = 1.0
LOCK_STEP_S = 0.02

TURN = ".turn"
"""A file in the folder of all labs: the process that has it locked measures on this machine. Only
root can open it, as every locked file: a process that can open a file can lock it."""
_ATTEMPTS = 100
"""How often the folder of all labs may disappear between making and using it."""


SCHEMA_VERSION = 2
_NAME = re.compile(r"[a-z0-9-]+")


class DamagedRecordError(InputError):
    """A lab's record is unusable; the lab can still be taken down."""

    def __init__(self, lab: str, reason: str) -> None:
        super().__init__(
            f"the record of lab {lab} is damaged: {reason}",
            hint=f"take the lab down with `rocelab down {lab}`",
        )


class State(StrEnum):
    """How far a lab has come up."""

    STARTING = "starting"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Record:
    """The facts that are recorded about a lab before it is made."""

    lab: str
    runtime: str
    state: State
    started_unix_s: float
    version: str
    spec: dict[str, object]
    machine_netns: int
    """The inode number of the network namespace that the lab was brought up from."""
    plugins: list[str] = field(default_factory=list)
    """The packages that added something to rocelab then, each with its version."""


_FIELDS: dict[str, type | tuple[type, ...]] = {
    **{"lab": str, "runtime": str, "state": str, "version": str},
    **{"started_unix_s": (int, float), "spec": dict, "machine_netns": int},
    "plugins": list,
}


@dataclass(frozen=True, slots=True)
class LabFiles:
    """The paths of a lab's files."""

    lab: str
    network: str | None = None
    """The network that `dataplane` is of, if it is not the first of the lab."""

    @classmethod
    def of(cls, fabric: Fabric) -> LabFiles:
        """The files of a lab's fabric, or of a network of it."""
        place = fabric.place
        return cls(fabric.name, place.network if place is not None and place.number else None)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.lab):
            raise InputError(f"{self.lab!r} is not the name of a lab", "see `rocelab list`")

    @property
    def root(self) -> Path:
        return RUN_ROOT / self.lab

    @property
    def dataplane(self) -> Path:
        """The folder of the network's programs, queues and scheme: the lab's for the first."""
        return self.root if self.network is None else self.networks / self.network

    @property
    def bpf(self) -> Path:
        """A bpffs while the lab is up, with the program and maps of its queues, and below it those
        of impairments, pauses, and steering."""
        return self.dataplane / "bpf"

    @property
    def networks(self) -> Path:
        return self.root / "networks"

    def of_networks(self) -> tuple[LabFiles, ...]:
        """Those of each network after the first that has a folder."""
        try:
            names = sorted(path.name for path in self.networks.iterdir())
        except (FileNotFoundError, PermissionError):
            return ()
        return tuple(LabFiles(self.lab, name) for name in names)

    @property
    def record(self) -> Path:
        return self.root / "record.json"

    @property
    def adopted(self) -> Path:
        """The record of the containers of a lab that was adopted."""
        return self.root / "adopted.json"

    @property
    def is_adopted(self) -> bool:
        """Whether the lab was adopted, whatever else is recorded of it."""
        return self.adopted.exists()

    @property
    def netns(self) -> Path:
        return self.root / "netns"

    @property
    def mounts(self) -> Path:
        return self.root / "mounts"

    @property
    def nodes(self) -> Path:
        return self.root / "nodes"

    @property
    def faults(self) -> Path:
        return self.root / "faults"

    @property
    def lock(self) -> Path:
        return RUN_ROOT / f"{self.lab}.lock"

    def netns_of(self, node: str) -> Path:
        return self.netns / node

    def mounts_of(self, node: str, daemon: str | None = None) -> Path:
        """The mount namespace of a node's programs, or of one of its daemons: `.` is in no name."""
        return self.mounts / (node if daemon is None else f"{node}.{daemon}")

    @property
    def machine(self) -> Path:
        """The mount namespace of users' programs in the nodes (`rocelab.lab.hosts`)."""
        return self.mounts / ".machine"

    @property
    def hosts(self) -> Path:
        return self.root / "hosts"

    @property
    def remote_shell(self) -> Path:
        return self.root / "remote-shell"

    def node(self, node: str) -> Path:
        return self.nodes / node


def recorded_count(files: LabFiles) -> int:
    """The number of faults in a lab's record (`rocelab.faults.record`)."""
    return len(list(files.faults.glob("*.json")))


FAULT_KINDS = "rocelab.faults"
"""The group of entry points that register kinds of faults."""


def recorded_faults(files: LabFiles) -> Mapping[int, Mapping[str, Any]]:
    """The document of each fault in a lab's record, by its number, in their order. Reads the files
    of `rocelab.faults.record` without importing the faults."""
    faults = {}
    for path in files.faults.glob("*.json"):
        with suppress(FileNotFoundError):  # restored meanwhile
            faults[int(path.stem)] = json.loads(path.read_text())
    return dict(sorted(faults.items()))


def write_record(files: LabFiles, record: Record) -> None:
    """Write the record atomically."""
    make_folder(files.root, exist_ok=True)
    document = {"schema_version": SCHEMA_VERSION, **asdict(record)}
    replace_file(files.record, json.dumps(document, indent=1))


def read_record(lab: str) -> Record | None:
    """The record of a lab, or None if there is none.

    Raises DamagedRecordError if this version cannot have written it, PermissionError for a user who
    may not read it.
    """
    try:
        document = json.loads(LabFiles(lab).record.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise
    except OSError as error:
        raise DamagedRecordError(lab, error.strerror or str(error)) from None
    except (ValueError, RecursionError):
        raise DamagedRecordError(lab, "it is not JSON") from None
    if not isinstance(document, dict):
        raise DamagedRecordError(lab, "it is not a JSON object")
    version = document.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        whose = (
            f"rocelab {document.get('version')}" if document.get("version") else "something else"
        )
        raise DamagedRecordError(
            lab, f"{whose} wrote it, with schema version {version} and not {SCHEMA_VERSION}"
        )
    wrong = [name for name, kind in _FIELDS.items() if not isinstance(document.get(name), kind)]
    if wrong or document.keys() != _FIELDS.keys() or document["state"] not in set(State):
        what = ", ".join(wrong) or ", ".join(document.keys() ^ _FIELDS.keys()) or "state"
        raise DamagedRecordError(lab, f"fields are missing, unknown or of another kind: {what}")
    return Record(**{**document, "state": State(document["state"])})


def made_nodes(files: LabFiles) -> int | None:
    """The number of a lab's nodes that exist; None for a user who may not see them."""
    try:
        # A management network has a namespace but is no node; that of an adopted node may be gone.
        return sum(
            namespace.exists() and files.node(namespace.name).exists()
            for namespace in files.netns.iterdir()
        )
    except FileNotFoundError:  # where another command takes it down
        return 0
    except PermissionError:
        return None


def check_absent(files: LabFiles) -> None:
    """Raises InputError if there is a lab of this name, or what a killed command left of one. The
    caller holds the lab's lock."""
    if not files.root.exists():
        return
    record = read_record(files.lab)
    if record is not None and record.state is State.RUNNING and made_nodes(files):
        raise InputError(
            f"lab {files.lab} is up already",
            hint="`rocelab up --reuse` and `rocelab drill run --keep` use it as it runs, if it has "
            f"the same spec, `rocelab drill run --lab {files.lab}` in any case; `rocelab down "
            f"{files.lab}` takes it down",
        )
    raise left_behind(files.lab)


def not_up(lab: str, hint: str | None = None) -> InputError:
    """The error for a lab that is not up, with what to do. `hint`: what to do if nothing of it
    is here, by default to bring it up."""
    files = LabFiles(lab)
    if not files.root.exists():
        return InputError(f"lab {lab} is not up", hint or f"bring it up with `rocelab up {lab}`")
    try:
        record = read_record(lab)
    except DamagedRecordError as error:
        return error
    if record is not None and record.state is State.STARTING and is_locked(files.lock):
        return InputError(f"lab {lab} is still coming up", "wait until `rocelab up` has ended")
    return left_behind(lab)


def left_behind(lab: str) -> InputError:
    """The error for what a killed command left of a lab."""
    return InputError(
        f"lab {lab} was left behind by a command that was killed",
        f"remove what is left of it with `rocelab down {lab}`",
    )


def recorded_labs() -> list[str]:
    """Names of the labs that have a folder, running or left behind, in order."""
    try:
        with os.scandir(RUN_ROOT) as entries:
            return sorted(
                entry.name
                for entry in entries
                if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            )
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextmanager
def locked(lab: str) -> Iterator[LabFiles]:
    """Hold the lab's lock. Raises InputError when another command holds it.

    The child of a killed command may hold it until its exec: this waits for that.
    """
    files = LabFiles(lab)
    deadline = time.monotonic() + LOCK_GRACE_S
    while True:
        path, descriptor = _open_lock(files)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() < deadline:
                time.sleep(LOCK_STEP_S)
                continue
            raise InputError(
                f"another command is working on lab {lab}",
                hint="wait for it to end, or stop it, and try again",
            ) from None
        if is_still_at(descriptor, path):
            break
        os.close(descriptor)
    try:
        yield files
    finally:
        if not files.root.exists():
            files.lock.unlink(missing_ok=True)
            _remove_run_root_if_unused()
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a command holds the lock, found without taking it (proc_locks(5))."""
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        return False
    locks = Path("/proc/locks").read_text().splitlines()
    return any("FLOCK" in line and f":{inode} " in line for line in locks)


def remove_files(files: LabFiles) -> None:
    """Remove the lab's mounts and folder, the record last. Idempotent."""
    for folder in (files.netns, files.mounts):
        while os.path.ismount(folder):
            namespaces.detach_mount(folder)
    for folder in (files.nodes, files.netns, files.mounts):
        remove_tree(folder)
    remove_tree(files.root)


def open_run_root() -> int:
    """A descriptor of the folder of all labs, which is made if it is missing. Raises OSError.

    The last lab that goes down removes the folder, so that it may disappear at any moment.
    """
    for _ in range(_ATTEMPTS):
        with suppress(FileNotFoundError):
            make_folder(RUN_ROOT, exist_ok=True)
            return os.open(RUN_ROOT, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(RUN_ROOT))


def _open_lock(files: LabFiles) -> tuple[Path, int]:
    """Open the file to lock: the lab's lock file or, if there is no room for one, the lab's
    folder. Raises OSError."""
    for _ in range(_ATTEMPTS):
        os.close(open_run_root())
        with suppress(FileNotFoundError):
            try:
                flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
                return files.lock, os.open(files.lock, flags, 0o600)
            except OSError as error:
                if error.errno not in NO_ROOM or not files.root.is_dir():
                    raise
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                return files.root, os.open(files.root, flags)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(files.lock))


def is_still_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`: its last holder may have removed it."""
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def open_turn() -> int:
    """A descriptor of the file whose lock is the turn. Raises OSError."""
    for _ in range(_ATTEMPTS):
        os.close(open_run_root())
        with suppress(FileNotFoundError):
            return os.open(RUN_ROOT / TURN, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), TURN)


def _remove_run_root_if_unused() -> None:
    """Remove the folder of all labs, unless a lab is in it or a process has the turn."""
    turn = RUN_ROOT / TURN
    with suppress(OSError):
        if turn.exists():
            descriptor = os.open(turn, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                turn.unlink()
            finally:
                os.close(descriptor)
        RUN_ROOT.rmdir()
