"""The BIRD that runs in a lab: that of this machine, where its programs are and its release."""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocelab.base.errors import InputError, MachineError
from rocelab.routing.files import DaemonFiles

PATH = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
USER = "bird"
SHELL = "birdc"
CAPABILITIES = "net_admin,net_bind_service,net_raw"
"""For routes, for BGP's port, and for sockets that are bound to a port of the switch."""
INSTALL = "install it with `apt-get install bird2`, or leave routing.stack out"
VERSION_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class BirdInstallation:
    """BIRD's programs. Paths are this machine's."""

    version: str
    folder: str
    user: int
    group: int
    command_line: str
    setpriv: str

    @property
    def stack(self) -> str:
        return "bird"

    @property
    def root(self) -> str:
        return "/"

    @property
    def place(self) -> str:
        return self.folder

    @property
    def environment(self) -> Mapping[str, str]:
        return {}

    def program(self, daemon: str) -> str:
        return str(Path(self.folder, daemon))

    def daemons(self, planned: Iterable[str]) -> tuple[str, ...]:
        return tuple(planned)

    def command(self, daemon: str, files: DaemonFiles) -> list[str]:
        # BIRD's own -u writes the pid file as root, into a folder of its user: a link there would
        # be followed. So it never is root.
        rights = ",".join(f"+{name}" for name in CAPABILITIES.split(","))
        return [
            *(self.setpriv, f"--reuid={self.user}", f"--regid={self.group}", "--clear-groups"),
            *(f"--{kind}-caps=-all,{rights}" for kind in ("inh", "ambient")),
            *("--", self.program(daemon), "-c", str(files.configuration(daemon))),
            *("-s", str(files.control(daemon)), "-P", str(files.pid(daemon))),
        ]

    def places(self, files: DaemonFiles) -> Mapping[Path, Path]:
        return {}

    def other_files(self, files: DaemonFiles) -> Mapping[Path, str]:
        return {}

    def shell(self, files: DaemonFiles) -> list[str]:
        return [self.command_line, "-s", str(files.control("bird"))]

    def document(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> BirdInstallation:
        """The installation of that document."""
        return cls(**document)


def find_installation(prefix: Path | None) -> BirdInstallation:
    """This machine's BIRD. Raises MachineError if it has none; InputError for a folder, which is
    one of FRR."""
    if prefix is not None:
        raise InputError(
            f"--frr names {prefix}, and the lab's switches run BIRD",
            "leave --frr out, or routing.stack",
        )
    program, command_line, setpriv = (_found(name) for name in ("bird", SHELL, "setpriv"))
    try:
        user, group = pwd.getpwnam(USER).pw_uid, grp.getgrnam(USER).gr_gid
    except KeyError:
        raise MachineError(f"there is no user {USER}", INSTALL) from None
    folder = str(Path(program).parent)
    return BirdInstallation(_version(program), folder, user, group, command_line, setpriv)


def _found(program: str) -> str:
    path = shutil.which(program, path=PATH)
    if path is None:
        raise MachineError(f"BIRD needs {program}, which is not installed", INSTALL)
    return path


def _version(program: str) -> str:
    try:
        done = subprocess.run(
            (program, "--version"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
            env={"PATH": os.defpath},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"{program} does not run: {error}") from None
    return version_in(done.stdout + done.stderr)


def version_in(said: str) -> str:
    """`2.0.12` of `BIRD version 2.0.12`; `unknown` of anything else."""
    match = re.search(r"BIRD version ([\w.+~-]{1,64})", said)
    return match[1] if match else "unknown"
