"""The FRR that runs in a lab: where its programs are, its release and what it needs.

Finds the machine's own FRR, or the one in a folder: another system's tree, such as mmdebstrap
makes, or a folder that FRR was installed or unpacked in.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocelab.base.errors import InputError, MachineError
from rocelab.routing.files import DaemonFiles

TESTED_RELEASES = ("8.4", "10.3")
"""The releases of Debian 12 and 13: the whole suite passes on each (`make test-machines`)."""

FRR_FOLDERS = (Path("/usr/lib/frr"), Path("/usr/libexec/frr"))
FRR_USER = "frr"
VTYSH_FOLDERS = (Path("/usr/bin"), Path("/usr/local/bin"))
INSTALLED_FOLDERS = (
    *("usr/lib/frr", "usr/libexec/frr", "lib/frr", "libexec/frr", "usr/sbin", "sbin"),
    "",
)
"""Where daemons are below the folder that FRR was installed or unpacked in: Debian's and Fedora's
paths, those of `make install`, and that folder itself."""
LIBRARIES = ("libfrr.so*", "libyang.so*")
VERSION_TIMEOUT_S = 20.0
DEFAULT_RUN_FOLDER = "/var/run/frr"
ETC_FOLDER = Path("/etc/frr")
STATE_FOLDER = Path("/var/lib/frr")
CRASH_FOLDER = Path("/var/tmp")  # noqa: S108 - FRR's choice, not ours
"""Paths compiled into the daemons, besides the folder of their sockets: mgmtd's and vtysh's
configuration, what zebra and mgmtd remember, and where `frr/` with crash logs is made."""
SHELL = "vtysh"
_SHELL_CONFIGURATION = "service integrated-vtysh-config\n"


@dataclass(frozen=True, slots=True)
class FrrInstallation:
    """An FRR installation. Paths are as a daemon sees them, whose `/` is `root`."""

    version: str
    folder: str
    user: int
    group: int
    has_mgmtd: bool
    run_folder: str
    """The sockets of mgmtd, if there is one, and of its clients: it is compiled in."""

    vtysh: str
    """Empty if there is none."""

    root: str = "/"
    libraries: tuple[str, ...] = ()
    """Folders that programs need in LD_LIBRARY_PATH."""

    @property
    def stack(self) -> str:
        return "frr"

    @property
    def environment(self) -> Mapping[str, str]:
        return {"LD_LIBRARY_PATH": ":".join(self.libraries)} if self.libraries else {}

    @property
    def place(self) -> str:
        return str(Path(self.root, self.folder.lstrip("/")))

    def program(self, daemon: str) -> str:
        return str(Path(self.folder, daemon))

    def daemons(self, planned: Iterable[str]) -> tuple[str, ...]:
        """The daemons in start order, with mgmtd if this release has it: without mgmtd, zebra of
        FRR 10 waits for its configuration for ever."""
        return (*(("mgmtd",) if self.has_mgmtd else ()), *planned)

    def command(self, daemon: str, files: DaemonFiles) -> list[str]:
        # A daemon with -d returns to its caller once its configuration is loaded. Since FRR 10
        # zebra loads its configuration through mgmtd, which starts before it.
        configuration = () if daemon == "mgmtd" else ("-f", str(files.configuration(daemon)))
        return [
            self.program(daemon),
            *("-d", *configuration, "-i", str(files.pid(daemon))),
            *("-z", str(files.daemon_folder / "zserv.api")),
            *("--vty_socket", str(files.daemon_folder), "-A", "127.0.0.1", "-P", "0"),
            # Else zebra deletes a route of IPv6 and adds it again to change its next hops.
            *(("--v6-rr-semantics",) if daemon == "zebra" else ()),
        ]

    def places(self, files: DaemonFiles) -> Mapping[Path, Path]:
        return {
            Path(self.run_folder): files.daemon_folder,
            ETC_FOLDER: files.etc,
            STATE_FOLDER: files.state,
            CRASH_FOLDER: files.crashes,
        }

    def other_files(self, files: DaemonFiles) -> Mapping[Path, str]:
        return {files.etc / "vtysh.conf": _SHELL_CONFIGURATION}

    def shell(self, files: DaemonFiles) -> list[str]:
        return [self.vtysh or SHELL, "--vty_socket", str(files.daemon_folder)]

    def document(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> FrrInstallation:
        """The installation of that document."""
        return cls(**{**document, "libraries": tuple(document["libraries"])})


def find_installation(prefix: Path | None = None) -> FrrInstallation:
    """The machine's FRR, or the one in the folder `prefix`.

    Raises InputError if the folder has none; MachineError if this machine has none, or it does not
    run here.
    """
    if prefix is None or prefix.resolve() == Path("/"):
        return _own()
    folder = prefix.resolve()
    if not folder.is_dir():
        raise InputError(f"there is no folder {prefix}", hint="--frr names one that FRR is in")
    if Path(folder, "etc/passwd").is_file():
        return _system_installation(folder)
    return _installed(folder)


def frr_folder() -> Path:
    """The folder of the machine's daemons. Raises MachineError when FRR is not installed."""
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


def _own() -> FrrInstallation:
    return _described(frr_folder(), VTYSH_FOLDERS)


def _described(
    folder: Path, vtysh_folders: Sequence[Path], libraries: Sequence[str] = ()
) -> FrrInstallation:
    """The installation whose daemons are in `folder` and run with this machine's user."""
    environment = {"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {}
    said = _version_text((str(folder / "bgpd"), "--version"), environment)
    user, group = frr_owner()
    return FrrInstallation(
        version=version_in(said),
        folder=str(folder),
        user=user,
        group=group,
        has_mgmtd=(folder / "mgmtd").exists(),
        run_folder=run_folder_in(said),
        vtysh=_first_vtysh(vtysh_folders),
        libraries=tuple(libraries),
    )


def _system_installation(root: Path) -> FrrInstallation:
    """FRR of another system, whose whole tree is below `root`: programs, libraries and users."""

    def inside(folder: Path) -> Path:
        return root / folder.relative_to("/")

    folder = next((folder for folder in FRR_FOLDERS if (inside(folder) / "bgpd").exists()), None)
    if folder is None:
        raise InputError(
            f"the system in {root} has no FRR",
            hint=f"install it there: chroot {root} apt-get install frr",
        )
    user, group = _ids_in(root)
    said = _version_text(("chroot", str(root), str(folder / "bgpd"), "--version"), {})
    vtysh = next(
        (place / "vtysh" for place in VTYSH_FOLDERS if (inside(place) / "vtysh").exists()), ""
    )
    return FrrInstallation(
        version=version_in(said),
        folder=str(folder),
        user=user,
        group=group,
        has_mgmtd=(inside(folder) / "mgmtd").exists(),
        run_folder=run_folder_in(said),
        vtysh=str(vtysh),
        root=str(root),
    )


def _installed(prefix: Path) -> FrrInstallation:
    """FRR that was installed or unpacked in `prefix`, and runs with this machine's C library."""
    folders = (Path(prefix, name) for name in INSTALLED_FOLDERS)
    folder = next((folder for folder in folders if (folder / "bgpd").exists()), None)
    if folder is None:
        raise InputError(
            f"there is no FRR in {prefix}",
            hint="name a folder that has bgpd and zebra, or one that has them in usr/lib/frr",
        )
    libraries = sorted(
        {str(file.parent) for library in LIBRARIES for file in prefix.rglob(library)}
    )
    return _described(folder, (prefix / "usr/bin", prefix / "bin", folder), libraries)


def _first_vtysh(folders: Iterable[Path]) -> str:
    return next((str(folder / "vtysh") for folder in folders if (folder / "vtysh").exists()), "")


def _ids_in(root: Path) -> tuple[int, int]:
    """User and group id of FRR's user in another system. Raises InputError where it has none."""
    ids = []
    for file in ("etc/passwd", "etc/group"):
        for line in Path(root, file).read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == FRR_USER:
                ids.append(int(rest.split(":")[1]))
    if len(ids) != 2:
        raise InputError(
            f"the system in {root} has no user and group {FRR_USER}",
            hint="its FRR package makes them",
        )
    return ids[0], ids[1]


def _version_text(command: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """A daemon's output for `--version`. Raises MachineError if it does not start."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
            env={"PATH": f"{os.defpath}:/usr/sbin:/sbin", **environment},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"{' '.join(command)} does not run: {error}") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or f"it ends with {done.returncode}").splitlines()[-1]
        raise MachineError(
            f"{' '.join(command)} does not run: {said}",
            "packages of another release need its C library: give --frr a whole system, such as "
            "that of `mmdebstrap --variant=minbase --include=frr trixie PREFIX`",
        )
    return done.stdout


def version_in(said: str) -> str:
    """`8.4.4` of `bgpd version 8.4.4` and of `FRRouting 8.4.4`; `unknown` of anything else."""
    match = re.match(r"(?:\w+ version|FRRouting) ([\w.+~-]{1,64})", said)
    return match[1] if match else "unknown"


def run_folder_in(said: str) -> str:
    """The compiled-in folder of sockets, from the configure options that a daemon prints (FRR
    configure.ac): `runstatedir` since FRR 10; before that `localstatedir` was this folder
    itself."""
    options = dict(re.findall(r"--(runstatedir|localstatedir)=([^'\s]+)", said))
    if "runstatedir" in options:
        return f"{options['runstatedir'].removesuffix('/frr')}/frr"
    if "localstatedir" in options:
        state = options["localstatedir"]
        return state if state.endswith("/frr") else f"{state}/run/frr"
    return DEFAULT_RUN_FOLDER


def release_of(version: str) -> str:
    """`10.3` of `10.3.1` and of `10.3-dev`."""
    match = re.match(r"\d+\.\d+", version)
    return match[0] if match else version


def untested(version: str) -> str | None:
    """The warning for a release that the suite has not run with; None if it has."""
    if release_of(version) in TESTED_RELEASES:
        return None
    return (
        f"FRR {version} is untested: rocelab is tested with {' and '.join(TESTED_RELEASES)}; "
        "what is read from its logs (the stages of a convergence) may be missing"
    )
