"""Routing daemons of a switch, whatever their stack: start them, find them and read their logs.

Each daemon is a real process from a distribution's or its project's own packages. It starts in the
switch's namespaces and keeps all its files in the lab's folder, so the machine's own service is not
involved. The command that starts a daemon ends once its configuration is loaded: the start waits
for that.

Daemons run as their stack's user. Root owns the files that they read. They write in a folder of
that user, where root trusts nothing: neither that a log is a file nor that a pid file names a
daemon.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rocelab.base.errors import MachineError
from rocelab.base.files import (
    make_folder,
    read_untrusted,
    untrusted_tail,
    write_file,
)
from rocelab.linux import background, mounts, namespaces, processes
from rocelab.linux.background import LAST_LINES
from rocelab.routing.files import DaemonFiles
from rocelab.routing.stack import Installation

START_TIMEOUT_S = 60.0
"""A daemon starts in tens of milliseconds, or in seconds when hundreds start at once."""
ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "TZ": "UTC"}
"""Daemons stamp their logs in local time: in UTC a stamp is unambiguous, also when daylight saving
time ends."""
_PR_SET_NO_NEW_PRIVS = 38
_LAST_BYTES = 4096
_SHELL = """\
#!/bin/sh
# The {shell} of this switch's routing daemons.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec {command} "$@"
"""

_libc = ctypes.CDLL(None)


def make_folders(files: DaemonFiles) -> None:
    """Make a switch's folders if they are missing. Only its daemons may enter theirs:
    FRR's bfdd lets everybody who reaches its socket change sessions (bfdd/control.c)."""
    for folder in (files.folder, files.etc, files.programs):
        make_folder(folder, exist_ok=True)
    for folder in (files.daemon_folder, files.crashes, files.state):
        make_folder(folder, 0o750, exist_ok=True)


def write_configuration(
    installation: Installation,
    files: DaemonFiles,
    configuration: Mapping[str, str],
    shell: str,
    command: Sequence[str],
) -> None:
    """Write a switch's configuration where its daemons, which run as the installation's user, will
    read it, and the program `shell`, which runs that command."""
    make_folders(files)
    for folder in (files.daemon_folder, files.crashes, files.state):
        os.chown(folder, installation.user, installation.group, follow_symlinks=False)
    for daemon, text in configuration.items():
        write_file(files.configuration(daemon), text, mode=0o640, group=installation.group)
    for path, text in installation.other_files(files).items():
        write_file(path, text)
    script = _SHELL.format(shell=shell, command=shlex.join(command))
    write_file(files.programs / shell, script, mode=0o755)


def keep_view(
    installation: Installation, files: DaemonFiles, view: Path, machine: Path | None = None
) -> None:
    """Make a switch's mount namespace (`rocelab.linux.mounts`), with the switch's own folders at
    the paths compiled into the daemons, and keep it by mounting it on `view`, also within
    `machine`, the mount namespace of users' programs (`rocelab.lab.hosts`), if there is one.

    Root's command line runs in it, and no daemon does: one that was taken over could mount programs
    over those that root executes. Raises MachineError.
    """
    with _own_file_system(view):
        root = Path(installation.root)
        mounts.keep(
            mounts.create(root, files.folder, installation.places(files), within=machine), view
        )
        if machine is not None:
            mounts.show(view, machine)


@contextmanager
def _own_file_system(place: Path) -> Iterator[None]:
    """Raises MachineError for an OSError of the context."""
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"{place.name} cannot get its own file system: {error}",
            "run `rocelab doctor` for what this machine lacks",
        ) from None


def _end_view(path: Path) -> None:
    """End the processes that a dead daemon left in its mount namespace, and the namespace."""
    if path.exists():
        inodes = {path.stat().st_ino}
        while left := namespaces.processes_in(inodes, (namespaces.MOUNTS,)):
            processes.kill_and_wait(
                left, lambda pid: namespaces.is_process_in(pid, inodes, (namespaces.MOUNTS,))
            )
        # A command that was killed may have kept nothing there yet.
        with suppress(OSError):
            namespaces.detach_mount(path)
        path.unlink()


def start_daemon(
    installation: Installation,
    daemon: str,
    files: DaemonFiles,
    netns: Path,
    views: tuple[Path, Path],
    variables: Mapping[str, str],
) -> None:
    """Start one daemon in a network namespace and, of `views`, in a copy of the first mount
    namespace that is kept as the second, with `variables` in its environment; return when it has
    loaded its configuration.

    Raises MachineError with the daemon's output when it does not start, or not in time.
    """
    arguments = installation.command(daemon, files)
    environment = {"PATH": os.defpath, **installation.environment, **variables}
    view, daemon_view = views
    _end_view(daemon_view)
    with _own_file_system(daemon_view):
        mounts.keep(mounts.copy(view), daemon_view)

    # No pipe: mgmtd keeps its standard error open, so that a read from a pipe would not end.
    with tempfile.TemporaryFile() as complaint:

        def start() -> subprocess.Popen[bytes]:
            namespaces.name_host(files.folder.name)
            mounts.enter(daemon_view)
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
    daemon: str, files: DaemonFiles, complaint: str, *, timed_out: bool = False
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


def run_on_time(pid: int, *, but_the_first: bool = False) -> None:
    """Schedule every thread of a process, or all `but_the_first`, before all ordinary ones
    (SCHED_RR, sched(7)) and before the senders (`rocelab.linux.priority`), whose turns of 100 ms
    are longer than a BFD interval.

    For BFD: in a real switch the line cards run BFD without delay; here a neighbour that got no
    CPU for three intervals would count as dead. Changes nothing if the machine does not allow it
    (CAP_SYS_NICE).
    """
    first = pid if but_the_first else None
    above_senders = os.sched_param(os.sched_get_priority_min(os.SCHED_RR) + 1)
    with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            if int(thread.name) != first:
                os.sched_setscheduler(int(thread.name), os.SCHED_RR, above_senders)


def running_pid(daemon: str, files: DaemonFiles, netns: Path) -> int | None:
    """Process id of a daemon that is alive, or None.

    `netns` is the switch's namespace: the daemons' user writes pid files, and may name any process.
    Raises PermissionError without the right to see where a process of that user is
    (CAP_SYS_PTRACE).
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


def written_pid(daemon: str, files: DaemonFiles) -> int | None:
    """The process id in a daemon's pid file, as seen in the daemon's own namespace; None if there
    is none."""
    try:
        return int(read_untrusted(files.pid(daemon), most_bytes=32))
    except (OSError, ValueError):
        return None


def _runs_as_owner(pid: int, files: DaemonFiles) -> bool:
    """Whether all four user ids of a process are that of the daemons' folder's owner."""
    try:
        owner = files.daemon_folder.stat().st_uid
    except OSError:
        return False
    return {int(user) for user in processes.status_of(pid).get("Uid", "").split()} == {owner}


def is_daemon(pid: int, daemon: str, files: DaemonFiles) -> bool:
    """Whether that process is alive, has the daemon's name and runs as the owner of the daemons'
    folder."""
    try:
        # proc(5): "pid (command) state ..."; a killed daemon is a zombie until it is reaped.
        command, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").partition(") ")
    except OSError:
        return False
    is_alive = command.endswith(f"({daemon}") and not rest.startswith("Z")
    return is_alive and _runs_as_owner(pid, files)


def last_log_line(daemon: str, files: DaemonFiles) -> str:
    """The last line a daemon logged, or a note that it logged nothing."""
    lines = last_log_lines(daemon, files)
    return lines[-1] if lines else "(nothing logged)"


def last_log_lines(daemon: str, files: DaemonFiles) -> list[str]:
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
