"""FRR daemons of a switch: start them, ask them, and read what they last said.

Each daemon is a real process from Debian's or FRR's own packages, started in the switch's
namespace with every file of its own in the lab's folder, so the machine's FRR service is not
involved. A daemon with `-d` returns to its caller once its configuration is loaded: that is the
event a start waits for.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labs.errors import MachineError

FRR_FOLDERS = (Path("/usr/lib/frr"), Path("/usr/libexec/frr"))
FRR_USER = "frr"
CRASH_FOLDER = Path("/var/tmp/frr")  # noqa: S108 - FRR's choice, not ours
DAEMONS = ("zebra", "bfdd", "bgpd")
VTY_TIMEOUT_S = 30.0
ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "TZ": "UTC"}
"""FRR stamps its log in local time: in UTC a stamp is an instant, also when clocks change."""


@dataclass(frozen=True, slots=True)
class FrrFiles:
    """Where one switch's daemons keep their files."""

    folder: Path

    def configuration(self, daemon: str) -> Path:
        return self.folder / f"{daemon}.conf"

    def log(self, daemon: str) -> Path:
        return self.folder / f"{daemon}.log"

    def pid(self, daemon: str) -> Path:
        return self.folder / f"{daemon}.pid"

    def crash(self, daemon: str) -> Path:
        """Where it is written which folder FRR made for the daemon's crash log."""
        return self.folder / f"{daemon}.crash"

    def vty(self, daemon: str) -> Path:
        return self.folder / f"{daemon}.vty"


def frr_folder() -> Path:
    """Where FRR's daemons are. Raises MachineError when FRR is not installed."""
    for folder in FRR_FOLDERS:
        if (folder / "bgpd").exists():
            return folder
    raise MachineError("FRR is not installed", "install it with `make setup` (Debian package frr)")


def frr_owner() -> tuple[int, int]:
    """User and group id that FRR's daemons run as. Raises MachineError when there is none."""
    try:
        return pwd.getpwnam(FRR_USER).pw_uid, grp.getgrnam(FRR_USER).gr_gid
    except KeyError:
        raise MachineError(
            f"there is no user {FRR_USER}", "install FRR with `make setup`"
        ) from None


def write_configuration(
    files: FrrFiles, configuration: Mapping[str, str], owner: tuple[int, int]
) -> None:
    """Write a switch's configuration where its daemons, which run as `owner` (user and group id),
    will read it."""
    user, group = owner
    files.folder.mkdir(parents=True, exist_ok=True)
    os.chown(files.folder, user, group)
    for daemon, text in configuration.items():
        files.configuration(daemon).write_text(text)


def start_arguments(program: str, daemon: str, files: FrrFiles) -> list[str]:
    """The command that starts a daemon, which is at `program`, on its own files."""
    return [
        program,
        *("-d", "-f", str(files.configuration(daemon)), "-i", str(files.pid(daemon))),
        *("--vty_socket", str(files.folder), "-A", "127.0.0.1", "-P", "0"),
        *zebra_socket_arguments(daemon, files),
    ]


def start_daemon(daemon: str, files: FrrFiles, niceness: int = 0) -> None:
    """Start one daemon in the calling thread's namespace and return when it has loaded its
    configuration. Raises MachineError with what the daemon printed when it does not start.
    """
    arguments = start_arguments(str(frr_folder() / daemon), daemon, files)
    with subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=files.folder,
        env={"PATH": os.defpath, **ENVIRONMENT},
    ) as process:
        with files.crash(daemon).open("a") as record:
            record.write(f"{CRASH_FOLDER / f'{daemon}.{process.pid}'}\n")
        _, complaint = process.communicate()
    if process.returncode != 0:
        raise MachineError(
            f"{daemon} of {files.folder.name} did not start: {complaint.strip()[-500:]}",
            f"its configuration is checked by `{arguments[0]} -C -f {files.configuration(daemon)}`",
        )
    pid = running_pid(daemon, files)
    if pid is not None:
        schedule(daemon, pid, niceness)


def schedule(daemon: str, pid: int, niceness: int) -> None:
    """Have a daemon stand back as far as is asked, or before everything else where it is bfdd."""
    if daemon == "bfdd":
        run_on_time(pid)
    elif niceness:
        set_niceness(pid, niceness)


def crash_folders_of(pids: Iterable[int]) -> set[Path]:
    """FRR's folders outside the lab's own that these running processes use.

    FRR keeps a folder per process for crash logs at a fixed place, named after the process that
    was started and not after the daemon that this became, and removes it only when the daemon ends
    by itself (FRR lib/zlog.c). Its files are mapped, which is where it can be read from.
    """
    found = set()
    for pid in pids:
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            maps = Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            continue
        if name in DAEMONS:
            # One that is killed as it starts has made its folder, and mapped no file of it yet.
            found.add(CRASH_FOLDER / f"{name}.{pid}")
        for line in maps.splitlines():
            path = line.partition("/")[2]
            if f"/{path}".startswith(f"{CRASH_FOLDER}/"):
                found.add(Path(f"/{path}").parent)
    return found


def recorded_crash_folders(nodes: Path) -> set[Path]:
    """The folders of all daemons ever started below a lab's folder of nodes."""
    files = nodes.glob("*/*.crash")
    return {Path(line) for file in files for line in file.read_text().splitlines()}


def remove_crash_folders(folders: Iterable[Path]) -> None:
    """Remove FRR's folders of daemons that have ended."""
    for folder in folders:
        if folder.parent == CRASH_FOLDER:
            shutil.rmtree(folder, ignore_errors=True)


def set_niceness(pid: int, niceness: int) -> None:
    """Set the niceness of every thread of a process; of none where it has ended meanwhile."""
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), niceness)
        # Where the scheduler groups processes by session, niceness counts within a group only.
        group = Path(f"/proc/{pid}/autogroup")
        if group.exists():
            group.write_text(str(niceness))
    except (FileNotFoundError, ProcessLookupError):
        return


def run_on_time(pid: int) -> None:
    """Schedule every thread of a process before all ordinary ones (SCHED_RR, sched(7)) and before
    the senders (`traffic.priority`), whose turns of 100 ms are longer than a BFD interval.

    For bfdd: in a switch BFD is the line cards' work, which waits for nobody, and here a neighbour
    that got no CPU for three intervals would be taken for dead. Where the machine does not allow it
    (CAP_SYS_NICE) nothing changes.
    """
    above_senders = os.sched_param(os.sched_get_priority_min(os.SCHED_RR) + 1)
    with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, above_senders)


def zebra_socket_arguments(daemon: str, files: FrrFiles) -> tuple[str, ...]:
    """How a daemon is told where zebra's own socket is."""
    if daemon == "bfdd":
        return ("-z", str(files.folder / "zserv.api"), "--bfdctl", str(files.folder / "bfdd.sock"))
    return ("-z", str(files.folder / "zserv.api"))


def running_pid(daemon: str, files: FrrFiles) -> int | None:
    """Process id of a daemon that is alive, or None."""
    try:
        pid = int(files.pid(daemon).read_text())
    except (OSError, ValueError):
        return None
    return pid if is_daemon(pid, daemon) else None


def is_daemon(pid: int, daemon: str) -> bool:
    """Whether that process is alive and the daemon."""
    try:
        # proc(5): "pid (command) state ..."; a killed daemon is a zombie until it is reaped.
        command, _, rest = Path(f"/proc/{pid}/stat").read_text().partition(") ")
    except OSError:
        return False
    return command.endswith(f"({daemon}") and not rest.startswith("Z")


def last_log_line(daemon: str, files: FrrFiles) -> str:
    """The last line a daemon logged, or a note that it logged nothing."""
    try:
        lines = files.log(daemon).read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "(nothing logged)"


def vty_command(
    files: FrrFiles, daemon: str, *commands: str, timeout_s: float = VTY_TIMEOUT_S
) -> str:
    """What a daemon answers to the last of `commands`, over vtysh's own socket (FRR lib/vty.c).

    Raises OSError when the daemon is not there or is silent for `timeout_s`.
    """
    return _vty_answers(files, daemon, commands, timeout_s)[-1]


def vty_configure(files: FrrFiles, daemon: str, *lines: str) -> None:
    """Change a running daemon's configuration; its file stays as it is.

    Raises OSError as `vty_command` does, MachineError with the first line that the daemon refused,
    once all have been given.
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
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as vty:
        vty.settimeout(timeout_s)
        vty.connect(str(files.vty(daemon)))
        answers = []
        for line in ("enable", *commands):
            vty.sendall(line.encode() + b"\0")
            answers.append(_read_answer(vty).decode(errors="replace"))
    return answers[1:]


def vty_json(files: FrrFiles, daemon: str, command: str) -> dict[str, Any]:
    """The parsed answer to a `show ... json` command. Raises OSError as `vty_command` does."""
    parsed = json.loads(vty_command(files, daemon, command) or "{}")
    return parsed if isinstance(parsed, dict) else {}


def _read_answer(vty: socket.socket) -> bytes:
    """Read until the three zero bytes and the status byte that end every answer."""
    data = b""
    while len(data) < 4 or data[-4:-1] != b"\0\0\0":
        chunk = vty.recv(1 << 16)
        if not chunk:
            raise ConnectionError("the daemon closed its vty socket")
        data += chunk
    return data[:-4]


def vtysh_path() -> str:
    """Where vtysh is. Raises MachineError when it is not installed."""
    path = shutil.which("vtysh")
    if path is None:
        raise MachineError("vtysh is not installed", "install FRR with `make setup`")
    return path
