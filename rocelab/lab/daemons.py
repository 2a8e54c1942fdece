"""FRR daemons of a switch: start them, query them and read their logs.

Each daemon is a real process from Debian's or FRR's own packages. It starts in the switch's
namespaces and keeps all its files in the lab's folder, so the machine's FRR service is not
involved. A daemon with `-d` returns to its caller once its configuration is loaded: the start waits
for that. Since FRR 10 zebra loads its configuration through mgmtd, which starts before it.

Daemons run as FRR's user. Root owns the files that they read. They write in a folder of that user,
where root trusts nothing: neither that a log is a file nor that a pid file names a daemon.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import shlex
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rocelab.base.errors import MachineError
from rocelab.base.files import (
    UntrustedFileError,
    make_folder,
    read_untrusted,
    untrusted_tail,
    write_file,
)
from rocelab.base.workers import in_vain
from rocelab.lab.installation import Installation
from rocelab.linux import background, mounts, namespaces, processes
from rocelab.linux.background import LAST_LINES

DAEMONS = ("mgmtd", "zebra", "bfdd", "bgpd")
VTY_TIMEOUT_S = 30.0
VTY_STEP_S = 0.1
"""How often a wait for an answer checks whether its thread was cancelled."""
MOST_ANSWER_BYTES = 16 << 20
"""The BGP table of 252 racks by 18 paths, of 320 bytes each as JSON, takes a tenth of this."""
START_TIMEOUT_S = 60.0
"""A daemon starts in tens of milliseconds, or in seconds when hundreds start at once."""
ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "TZ": "UTC"}
"""FRR stamps its log in local time: in UTC a stamp is unambiguous, also when daylight saving time
ends."""
ETC_FOLDER = Path("/etc/frr")
STATE_FOLDER = Path("/var/lib/frr")
CRASH_FOLDER = Path("/var/tmp")  # noqa: S108 - FRR's choice, not ours
"""Paths compiled into the daemons, besides the folder of their sockets: mgmtd's and vtysh's
configuration, what zebra and mgmtd remember, and where `frr/` with crash logs is made."""
_PR_SET_NO_NEW_PRIVS = 38
_LAST_BYTES = 4096
_VTYSH = """\
#!/bin/sh
# The vtysh of this switch's FRR, for its daemons alone.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec {command} "$@"
"""
_VTYSH_CONFIGURATION = "service integrated-vtysh-config\n"

_libc = ctypes.CDLL(None)

T = TypeVar("T", dict[str, Any], list[Any])


@dataclass(frozen=True, slots=True)
class FrrFiles:
    """The files of one switch: root's, and below them those that daemons write."""

    folder: Path

    @property
    def daemon_folder(self) -> Path:
        """Owned by FRR's user: logs, pid files and sockets."""
        return self.folder / "frr"

    @property
    def etc(self) -> Path:
        """Mounted as /etc/frr for daemons and vtysh, so that they do not read the machine's."""
        return self.folder / "etc"

    @property
    def crashes(self) -> Path:
        return self.daemon_folder / "crash"

    @property
    def state(self) -> Path:
        return self.daemon_folder / "state"

    @property
    def programs(self) -> Path:
        """Owned by root: a `vtysh` that talks to this switch's daemons."""
        return self.folder / "bin"

    @property
    def library(self) -> Path:
        """Root's: what bgpd preloads (`rocelab.lab.memory`)."""
        return self.programs / "ringbuf.so"

    def configuration(self, daemon: str) -> Path:
        # mgmtd takes no path: it reads /etc/frr.
        return (self.etc if daemon == "mgmtd" else self.folder) / f"{daemon}.conf"

    def log(self, daemon: str) -> Path:
        return self.daemon_folder / f"{daemon}.log"

    def pid(self, daemon: str) -> Path:
        return self.daemon_folder / f"{daemon}.pid"

    def vty(self, daemon: str) -> Path:
        return self.daemon_folder / f"{daemon}.vty"

    def open_vty(self, daemon: str) -> int:
        """A descriptor of what is at the place of a daemon's vty socket. Raises OSError."""
        return os.open(self.vty(daemon), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)


def make_folders(files: FrrFiles) -> None:
    """Make a switch's folders if they are missing. Only its daemons may enter theirs:
    bfdd lets everybody who reaches its socket change sessions (FRR bfdd/control.c)."""
    for folder in (files.folder, files.etc, files.programs):
        make_folder(folder, exist_ok=True)
    for folder in (files.daemon_folder, files.crashes, files.state):
        make_folder(folder, 0o750, exist_ok=True)


def write_configuration(
    installation: Installation,
    files: FrrFiles,
    configuration: Mapping[str, str],
    vtysh: Sequence[str],
) -> None:
    """Write a switch's configuration where its daemons, which run as the installation's user, will
    read it, and a `vtysh` that runs the command `vtysh` on their sockets."""
    make_folders(files)
    for folder in (files.daemon_folder, files.crashes, files.state):
        os.chown(folder, installation.user, installation.group, follow_symlinks=False)
    for daemon, text in configuration.items():
        write_file(files.configuration(daemon), text, mode=0o640, group=installation.group)
    write_file(files.etc / "vtysh.conf", _VTYSH_CONFIGURATION)
    command = shlex.join([*vtysh, "--vty_socket", str(files.daemon_folder)])
    write_file(files.programs / "vtysh", _VTYSH.format(command=command), mode=0o755)


def keep_view(
    installation: Installation, files: FrrFiles, view: Path, machine: Path | None = None
) -> None:
    """Make a switch's mount namespace (`rocelab.linux.mounts`), with the switch's own folders at
    the paths compiled into the daemons, and keep it by mounting it on `view`, also within
    `machine`, the mount namespace of users' programs (`rocelab.lab.hosts`), if there is one.

    Root's vtysh runs in it, and no daemon does: one that was taken over could mount programs over
    those that root executes. Raises MachineError.
    """
    places = {
        Path(installation.run_folder): files.daemon_folder,
        ETC_FOLDER: files.etc,
        STATE_FOLDER: files.state,
        CRASH_FOLDER: files.crashes,
    }
    with _own_file_system(view):
        root = Path(installation.root)
        mounts.keep(mounts.create(root, files.folder, places, within=machine), view)
        if machine is not None:
            mounts.show(view, machine)


@contextmanager
def _own_file_system(place: Path) -> Iterator[None]:
    """Raises MachineError for an OSError of the context."""
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"{place.name} gets no file system of its own: {error}",
            "`rocelab doctor` says what this machine lacks",
        ) from None


def _end_view(own: Path) -> None:
    """End the processes that a dead daemon left in its mount namespace, and the namespace."""
    if own.exists():
        inodes = {own.stat().st_ino}
        while left := namespaces.processes_in(inodes, (namespaces.MOUNTS,)):
            processes.kill_and_wait(
                left, lambda pid: namespaces.is_process_in(pid, inodes, (namespaces.MOUNTS,))
            )
        # A command that was killed may have kept nothing there yet.
        with suppress(OSError):
            namespaces.detach_mount(own)
        own.unlink()


def start_arguments(program: str, daemon: str, files: FrrFiles) -> list[str]:
    """The command that starts the daemon at `program` on the switch's files."""
    configuration = () if daemon == "mgmtd" else ("-f", str(files.configuration(daemon)))
    return [
        program,
        *("-d", *configuration, "-i", str(files.pid(daemon))),
        *("-z", str(files.daemon_folder / "zserv.api")),
        *("--vty_socket", str(files.daemon_folder), "-A", "127.0.0.1", "-P", "0"),
    ]


def start_daemon(
    installation: Installation,
    daemon: str,
    files: FrrFiles,
    netns: Path,
    views: tuple[Path, Path],
    variables: Mapping[str, str],
) -> None:
    """Start one daemon in a network namespace and, of `views`, in a copy of the first mount
    namespace that is kept as the second, with `variables` in its environment; return when it has
    loaded its configuration.

    Raises MachineError with the daemon's output when it does not start, or not in time.
    """
    arguments = start_arguments(installation.program(daemon), daemon, files)
    environment = {"PATH": os.defpath, **installation.environment, **variables}
    view, own = views
    _end_view(own)
    with _own_file_system(own):
        mounts.keep(mounts.copy(view), own)

    # No pipe: mgmtd keeps its standard error open, so that a read from a pipe would not end.
    with tempfile.TemporaryFile() as complaint:

        def start() -> subprocess.Popen[bytes]:
            namespaces.name_host(files.folder.name)
            mounts.enter(own)
            # For this thread and its children: no set-user-ID program gives a daemon more rights.
            _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaint,
                cwd=files.folder,
                env=environment,
            )

        def failure(*, timed_out: bool) -> MachineError:
            complaint.seek(0)
            said = complaint.read().decode(errors="replace")
            return not_started(daemon, files, said, timed_out=timed_out)

        with namespaces.inside(netns, start) as process:
            try:
                process.wait(START_TIMEOUT_S)
            except BaseException as error:
                # An interrupted command takes the lab down: no daemon may still be starting then.
                processes.kill_and_wait({process.pid, *_starting(daemon, netns)})
                if isinstance(error, subprocess.TimeoutExpired):
                    raise failure(timed_out=True) from None
                raise
        if process.returncode != 0:
            raise failure(timed_out=False)


def not_started(
    daemon: str, files: FrrFiles, complaint: str, *, timed_out: bool = False
) -> MachineError:
    """The error of a daemon that did not start, with what it printed and the end of its log."""
    said = [line for line in complaint.strip().splitlines() if line.strip()][-LAST_LINES:]
    logged = last_log_lines(daemon, files)
    late_s = START_TIMEOUT_S if timed_out else None
    return MachineError(
        background.not_started(
            f"{daemon} of {files.folder.name}", dict.fromkeys((*said, *logged)), late_s
        ),
        f"its configuration was {files.configuration(daemon)}"
        + ("; a busy machine may need longer: try again" if timed_out else ""),
    )


def _starting(daemon: str, netns: Path) -> list[int]:
    """The processes of a daemon in a namespace, whether or not it has written its pid file yet."""
    pids = namespaces.processes_in([netns.stat().st_ino])
    return [pid for pid in pids if processes.name_of(pid) == daemon]


def schedule(daemon: str, pid: int, niceness: int) -> None:
    """Set a daemon's niceness; bfdd instead runs before everything else."""
    if daemon == "bfdd":
        run_on_time(pid)
    elif niceness:
        set_niceness(pid, niceness)


def set_niceness(pid: int, niceness: int) -> None:
    """Set the niceness of every thread of a process, if it still lives."""
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), niceness)
        # If the scheduler groups processes by session, niceness counts only within a group.
        group = Path(f"/proc/{pid}/autogroup")
        if group.exists():
            group.write_text(str(niceness))
    except (FileNotFoundError, ProcessLookupError):
        return


def run_on_time(pid: int) -> None:
    """Schedule every thread of a process before all ordinary ones (SCHED_RR, sched(7)) and before
    the senders (`rocelab.linux.priority`), whose turns of 100 ms are longer than a BFD interval.

    For bfdd: in a real switch the line cards run BFD without delay; here a neighbour that got no
    CPU for three intervals would count as dead. Changes nothing if the machine does not allow it
    (CAP_SYS_NICE).
    """
    above_senders = os.sched_param(os.sched_get_priority_min(os.SCHED_RR) + 1)
    with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, above_senders)


def running_pid(daemon: str, files: FrrFiles, netns: Path) -> int | None:
    """Process id of a daemon that is alive, or None.

    `netns` is the switch's namespace: FRR's user writes pid files, and may name any process. Raises
    PermissionError without the right to see where a process of that user is (CAP_SYS_PTRACE).
    """
    pid = written_pid(daemon, files)
    if pid is None or not is_daemon(pid, daemon, files):
        return None
    try:
        is_inside = Path(f"/proc/{pid}/ns/net").stat().st_ino == netns.stat().st_ino
    except PermissionError:
        raise
    except OSError:
        return None
    return pid if is_inside else None


def written_pid(daemon: str, files: FrrFiles) -> int | None:
    """The process id in a daemon's pid file, as seen in the daemon's own namespace; None if there
    is none."""
    try:
        return int(read_untrusted(files.pid(daemon), most_bytes=32))
    except (OSError, ValueError):
        return None


def _runs_as_owner(pid: int, files: FrrFiles) -> bool:
    """Whether all four user ids of a process are that of the daemons' folder's owner."""
    try:
        owner = files.daemon_folder.stat().st_uid
    except OSError:
        return False
    return {int(user) for user in processes.status_of(pid).get("Uid", "").split()} == {owner}


def is_daemon(pid: int, daemon: str, files: FrrFiles) -> bool:
    """Whether that process is alive, has the daemon's name and runs as the owner of the daemons'
    folder."""
    try:
        # proc(5): "pid (command) state ..."; a killed daemon is a zombie until it is reaped.
        command, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").partition(") ")
    except OSError:
        return False
    is_alive = command.endswith(f"({daemon}") and not rest.startswith("Z")
    return is_alive and _runs_as_owner(pid, files)


def last_log_line(daemon: str, files: FrrFiles) -> str:
    """The last line a daemon logged, or a note that it logged nothing."""
    lines = last_log_lines(daemon, files)
    return lines[-1] if lines else "(nothing logged)"


def last_log_lines(daemon: str, files: FrrFiles) -> list[str]:
    """The last few lines that a daemon logged."""
    try:
        last = untrusted_tail(files.log(daemon), _LAST_BYTES).decode(errors="replace")
    except OSError:
        return []
    lines = last.splitlines()[-LAST_LINES:]
    # A log line must not write control characters to the reader's terminal.
    return [
        "".join(character if character.isprintable() else "?" for character in line)
        for line in lines
    ]


class UnreadableAnswerError(OSError):
    """A daemon's answer has the wrong shape: the daemon may have been taken over."""

    def __init__(self, files: FrrFiles, daemon: str, why: str) -> None:
        super().__init__(f"the answer of {daemon} of {files.folder.name} cannot be read: {why}")


def vty_command(
    files: FrrFiles, daemon: str, *commands: str, timeout_s: float = VTY_TIMEOUT_S
) -> str:
    """A daemon's answer to the last of `commands`, over vtysh's own socket (FRR lib/vty.c).

    Raises OSError when the daemon is not there or has not answered them all within `timeout_s`, and
    when the thread was cancelled (`rocelab.base.workers`).
    """
    return _vty_answers(files, daemon, commands, timeout_s)[-1]


def vty_configure(files: FrrFiles, daemon: str, *lines: str) -> None:
    """Change a running daemon's configuration; its file stays as it is.

    Raises OSError as `vty_command` does, MachineError with the first line that the daemon refused,
    after all have been sent.
    """
    answers = _vty_answers(files, daemon, ("configure terminal", *lines))
    for line, answer in zip(lines, answers[1:], strict=True):
        if answer.lstrip().startswith("%"):
            raise MachineError(
                f"{daemon} of {files.folder.name} does not take `{line}`: {answer.strip()}"
            )


def _vty_answers(
    files: FrrFiles, daemon: str, commands: Sequence[str], timeout_s: float = VTY_TIMEOUT_S
) -> list[str]:
    # One deadline for all: with a limit per read, a slow daemon could send byte by byte for ever.
    deadline_s = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as vty:
        vty.settimeout(timeout_s)
        _connect(vty, files, daemon)
        answers = []
        for line in ("enable", *commands):
            vty.sendall(line.encode() + b"\0")
            answers.append(_read_answer(vty, deadline_s).decode(errors="replace"))
    return answers[1:]


def vty_json(
    files: FrrFiles,
    daemon: str,
    command: str,
    shape: type[T],
    timeout_s: float = VTY_TIMEOUT_S,
) -> T:
    """The answer to a `show ... json` command, of that type; an empty answer is an empty value.

    Raises OSError as `vty_command` does, UnreadableAnswerError for anything else.
    """
    text = vty_command(files, daemon, command, timeout_s=timeout_s)
    try:
        parsed = json.loads(text) if text.strip() else shape()
    except (ValueError, RecursionError):
        raise UnreadableAnswerError(files, daemon, "it is not JSON") from None
    if not isinstance(parsed, shape):
        wanted = "object" if shape is dict else "array"
        raise UnreadableAnswerError(files, daemon, f"it is no {wanted}")
    return parsed


def _connect(vty: socket.socket, files: FrrFiles, daemon: str) -> None:
    """Connect to a daemon's socket. Raises OSError."""
    descriptor = files.open_vty(daemon)
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            raise UntrustedFileError(errno.ENOTSOCK, "is not a socket", f"{daemon}.vty")
        vty.connect(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _read_answer(vty: socket.socket, deadline_s: float) -> bytearray:
    """Read until the three zero bytes and the status byte that end every answer."""
    data = bytearray()
    while len(data) < 4 or data[-4:-1] != b"\0\0\0":
        _await_bytes(vty, deadline_s)
        chunk = vty.recv(1 << 16)
        if not chunk:
            raise ConnectionError("the daemon closed its vty socket")
        data += chunk
        if len(data) > MOST_ANSWER_BYTES:
            raise ConnectionError("the daemon's answer does not end")
    return data[:-4]


def _await_bytes(vty: socket.socket, deadline_s: float) -> None:
    """Return when there is something to read. Raises OSError at the deadline or when cancelled."""
    poll = select.poll()
    poll.register(vty, select.POLLIN)
    while not in_vain():
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the daemon's answer does not come in time")
        if poll.poll(min(left_s, VTY_STEP_S) * 1000):
            return
    raise InterruptedError("nobody waits for the daemon's answer any more")
