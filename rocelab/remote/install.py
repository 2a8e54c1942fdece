"""Installs the kit on the other machine: the code that runs here, and a venv with its requirements.

An `Installed` knows how to run a command of the kit there. The code is named by a hash of its
content, so a change here is sent with the next command, and nothing is sent twice.
"""

from __future__ import annotations

import hashlib
import io
import secrets
import shlex
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

from rocelab.base.data import FOLDERS, PACKED, shipped
from rocelab.base.errors import InputError
from rocelab.base.interpreter import HOME
from rocelab.base.progress import Progress, ProgressSink
from rocelab.base.wording import shown
from rocelab.remote.answers import MACHINE, marked
from rocelab.remote.connection import Connection, Output
from rocelab.remote.errors import DiskFullError, UnfitError
from rocelab.remote.host import bootstrap

EXTRAS = ("sim", "report", "remote")
"""Installed there whatever the command is, so that all commands share an environment."""

KINDS = (".py", ".yaml", ".json", ".j2")
NO_PYTHON_EXIT = 97
SMALLEST_ROOM_BYTES = 1 << 20
LOOK_LIMIT_S = 3.0 * bootstrap.PROBE_TIMEOUT_S
"""The limit for a login shell, Python and `describe`, whose longest part is the probe of sudo."""
_MAX_DIGITS = 18
"""Digits that are read of a size: `int` refuses thousands of them."""
_FIND_PYTHON = """\
for p in python3.15 python3.14 python3.13 python3.12 python3.11 python3; do
  if "$p" -I -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
  then exec "$p" -I - "$@"; fi
done
exit 97"""


@dataclass(frozen=True, slots=True)
class Kit:
    """The kit's files, by their paths, and the requirements of its distribution."""

    content: dict[str, bytes]
    requirements: tuple[str, ...]

    @property
    def name(self) -> str:
        digest = hashlib.sha256()
        for path, data in self.content.items():
            digest.update(f"{path}\0{len(data)}\0".encode())
            digest.update(data)
        return digest.hexdigest()[:16]

    @property
    def requirements_key(self) -> str:
        return hashlib.sha256("\n".join(self.requirements).encode()).hexdigest()[:16]

    def packed(self) -> bytes:
        return zipped(self.content.items())


@dataclass(frozen=True, slots=True)
class InstalledKit:
    """The kit's location on the other machine, and our user there."""

    home: str
    kit: str
    python: str
    as_root: bool
    by_sudo: bool
    is_new: bool

    @property
    def runs(self) -> str:
        return f"{self.home}/runs"

    def command(self, *words: str) -> str:
        """A command line that runs Python there with the kit, as root if possible."""
        sudo = ["sudo", "-n"] if self.by_sudo else []
        # -P: a folder named labs in the current folder must not be imported as the kit's.
        return shlex.join([*sudo, "env", f"PYTHONPATH={self.kit}", self.python, "-P", *words])

    def supervisor(self, *words: str) -> str:
        return self.command("-m", "rocelab.remote.host.supervisor", *words)

    def rocelab(self, words: Sequence[str]) -> tuple[str, ...]:
        """The arguments for `rocelab WORDS...` with PYTHONPATH set."""
        return (self.python, "-P", "-c", "from rocelab.cli.main import main; main()", *words)


def this_kit(extra: str | None = None) -> Kit:
    """The kit that runs here, wherever it is installed, with what an extra of it requires."""
    content = {}
    places = {"rocelab": HOME / "rocelab"}
    places |= {f"rocelab/{PACKED}/{name}": shipped(name) for name in FOLDERS}
    for place, folder in places.items():
        for path in sorted(folder.rglob("*")):
            # A report holds scripts, styles and licences of the package. What is compiled here is
            # of no use there, and a command that compiles would make another kit.
            is_ours = place == "rocelab" and "__pycache__" not in path.parts
            if (is_ours or path.suffix in KINDS) and path.is_file():
                content[f"{place}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    distribution = metadata.distribution("rocelab")
    # What importlib.metadata requires of a distribution (packaging.python.org, core metadata), and
    # what it registers (`rocelab.base.doors`).
    info = f"rocelab-{distribution.version}.dist-info"
    content[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: rocelab\nVersion: {distribution.version}\n".encode()
    )
    content[f"{info}/entry_points.txt"] = (
        distribution.read_text("entry_points.txt") or ""
    ).encode()
    # Names and versions, and what they are for: `extra == 'live'`.
    required = (requirement.partition("; ") for requirement in distribution.requires or ())
    wanted = {"", *(f"extra == '{name}'" for name in (*EXTRAS, extra))}
    return Kit(
        content,
        tuple(sorted(requirement for requirement, _, marker in required if marker in wanted)),
    )


def zipped(content: Iterable[tuple[str, bytes]]) -> bytes:
    """A zip file of this content; a path that ends in a slash is a folder."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for path, data in content:
            packed.writestr(path, data)
    return buffer.getvalue()


def ensure_installed(connection: Connection, kit: Kit, progress: ProgressSink) -> InstalledKit:
    """Install the missing parts. Raises UnfitError if the machine lacks a requirement."""
    with connection.deadline(LOOK_LIMIT_S):
        output = _bootstrap(connection, "describe", kit.name, kit.requirements_key)
    where = connection.destination
    answer = marked(MACHINE, output.out, where, "a description of the machine")
    if answer.system != "Linux":
        raise UnfitError(f"{where} runs {shown(answer.system)}: labs need Linux")
    home = answer.home
    if not answer.kit:
        packed = kit.packed()
        archive = f"{home}/incoming/{secrets.token_hex(8)}.zip"
        send(connection, packed, archive, progress, "kit")
        _bootstrap(connection, "unpack", archive, kit.name)
    if not answer.has_venv:
        progress(Progress("packages", 0, 1))
        _bootstrap(connection, "venv", kit.requirements_key, *kit.requirements)
        progress(Progress("packages", 1, 1))
    return InstalledKit(
        home=home,
        kit=f"{home}/kits/{kit.name}",
        python=f"{answer.venv}/bin/python",
        as_root=answer.uid == 0 or answer.sudo,
        by_sudo=answer.sudo,
        is_new=not (answer.kit and answer.has_venv),
    )


def _bootstrap(connection: Connection, verb: str, *arguments: str) -> Output:
    script = Path(bootstrap.__file__).read_bytes()
    command = shlex.join(["sh", "-c", _FIND_PYTHON, "rocelab", verb, *arguments])
    output = connection.run(command, stdin=script)
    where = connection.destination
    if output.exit_code == NO_PYTHON_EXIT:
        raise UnfitError(
            f"{where} has no Python 3.11 or later that can make virtual environments",
            hint="install it there: Debian 12 and Ubuntu 24.04 have it as python3-venv",
        )
    if verb == "venv" and output.exit_code not in (0, bootstrap.NO_SPACE_EXIT):
        raise UnfitError(
            f"the packages that the kit needs could not be installed on {where}:\n"
            f"{output.complaint}",
            hint="let the machine reach a Python package index (pip's settings there are used), "
            "or put wheels of them into rocelab/wheels beside the kit there",
        )
    check(connection, output, "~/.local/share/rocelab")
    return output


def check(connection: Connection, output: Output, folder: str) -> None:
    """Raise the error of a verb's exit code: DiskFullError, or UnfitError with its message."""
    if output.exit_code == bootstrap.NO_SPACE_EXIT:
        raise disk_full(connection, folder)
    if output.exit_code != 0:
        raise UnfitError(
            f"{connection.destination}: {output.complaint or f'exit code {output.exit_code}'}"
        )


def disk_full(connection: Connection, folder: str) -> DiskFullError:
    return DiskFullError(
        f"the disk of {connection.destination} is full: no room in {folder}",
        hint=f"`rocelab --host {connection.destination} runs` lists what earlier runs left there",
    )


def send(
    connection: Connection,
    data: bytes,
    place: str,
    progress: ProgressSink,
    stage: str,
) -> None:
    """Write a file there. Raises DiskFullError, and InputError for other failures."""
    try:
        with connection.watched():
            connection.sftp.putfo(
                io.BytesIO(data),
                place,
                len(data),
                lambda done, total: progress(Progress(stage, done, max(total, 1))),
            )
    except OSError as error:
        # SFTP version 3 has no code for a full disk, only "Failure" (draft-ietf-secsh-filexfer-02).
        folder = str(PurePosixPath(place).parent)
        left = connection.run(f"df -Pk {shlex.quote(folder)}").out.split()
        free_bytes = (
            int(left[-3][:_MAX_DIGITS]) * 1024 if len(left) > 3 and left[-3].isdigit() else None
        )
        if free_bytes is not None and free_bytes < len(data) + SMALLEST_ROOM_BYTES:
            raise disk_full(connection, folder) from None
        raise InputError(f"{connection.destination} takes no file at {place}: {error}") from None
