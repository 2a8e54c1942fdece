"""Debian systems as folders: minimal, with git and make, like a fresh machine.

`fresh_machine` makes a folder with a system's files. Commands run in it with their own root,
processes and mounts. It shares this machine's kernel and network, and uses this machine's package
mirrors and Python index.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

ENTER = Path(__file__).with_name("enter.sh")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MIRROR = "http://deb.debian.org/debian"
SECURITY_MIRROR = "http://deb.debian.org/debian-security"

PATHS = {
    "root": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "user": "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games",
}
"""PATH of a login, from Debian's /etc/profile."""

PASSED_ON = (
    *("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"),
    *("PIP_CERT", "PIP_PROXY", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT"),
)
"""Variables with the sources of packages, the only ones that are passed on."""

LOCAL_SETTINGS = ("etc/resolv.conf", "etc/pip.conf", "usr/local/share/ca-certificates")
"""Files of this machine for name resolution and for trust in package indexes."""


class MissingError(Exception):
    """A requirement is missing on this machine; the text says what to do."""


@dataclass(frozen=True, slots=True)
class System:
    """A release of Debian."""

    name: str
    suite: str


SYSTEMS = {
    system.name: system
    for system in (System("debian-12", "bookworm"), System("debian-13", "trixie"))
}


@dataclass(frozen=True, slots=True)
class Machine:
    """A system's files, and its user: root, or a user with sudo."""

    system: System
    root: Path
    user: str = "root"

    @property
    def home(self) -> Path:
        """The user's home, as the machine sees it."""
        return Path("/root") if self.user == "root" else Path("/home", self.user)

    def outside(self, path: Path) -> Path:
        """A file of the machine, as this machine sees it."""
        return self.root / path.relative_to("/")

    def command(self, script: str) -> list[str]:
        """The command line that runs a shell script inside, in the user's home."""
        environment = {
            "HOME": str(self.home),
            "PATH": PATHS["root" if self.user == "root" else "user"],
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
        }
        become: tuple[str, ...] = ()
        if self.user != "root":
            become = ("setpriv", "--reuid", self.user, "--regid", self.user, "--init-groups")
        return [
            *("unshare", "--mount", "--propagation", "private", "--pid", "--uts", "--ipc"),
            *("--fork", "--kill-child", "bash", str(ENTER), str(self.root), self.system.name),
            *("env", "-i", *(f"{name}={value}" for name, value in environment.items())),
            *(*become, "bash", "-c", f"cd && {script}"),
        ]

    def start(self, script: str, log: BinaryIO) -> subprocess.Popen[bytes]:
        """Run a script inside; all its processes end with it, or with this process."""
        return subprocess.Popen(
            self.command(script), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    def run(self, script: str) -> None:
        """Run a script inside that must succeed. Raises MissingError with its last lines."""
        done = subprocess.run(
            self.command(script), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip().splitlines()
            raise MissingError("\n".join([f"in {self.system.name}: {script}: failed", *said[-5:]]))


def fresh_machine(system: System, cache: Path, name: str, *, user: str = "root") -> Machine:
    """A system's unused files. Raises MissingError."""
    archive = base_archive(system, cache)
    root = cache / name
    remove(root)
    root.mkdir()
    root.chmod(0o755)
    _must(["tar", "-C", str(root), "--numeric-owner", "-xpf", str(archive)])
    for setting in LOCAL_SETTINGS:
        _take_along(Path("/", setting), root / setting)
    certificate = _pip_certificate()
    if certificate is not None:
        _take_along(certificate, root / certificate.relative_to("/"))
    (root / "etc/hosts").write_text(f"{Path('/etc/hosts').read_text()}\n127.0.1.1 {system.name}\n")
    machine = Machine(system, root, user)
    if user != "root":
        Machine(system, root).run(
            "apt-get -q update && apt-get -q -y install --no-install-recommends sudo"
            f" && useradd --create-home --shell /bin/bash {user}"
            f" && echo '{user} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{user}"
        )
    return machine


def remove(root: Path) -> None:
    """Remove a machine's files. They have mounts only in the machine's own namespaces."""
    if root.is_dir():
        shutil.rmtree(root)


def base_archive(system: System, cache: Path) -> Path:
    """The archive of a system, made by mmdebstrap if the cache does not have it."""
    sources = package_sources(system.suite)
    recipe = ["mmdebstrap", "--variant=minbase", "--include=git,make", f"--keyring={KEYRING}"]
    digest = hashlib.blake2s(repr((recipe, sources)).encode(), digest_size=6).hexdigest()
    archive = cache / f"{system.name}-{digest}.tar"
    if archive.exists():
        return archive
    if shutil.which("mmdebstrap") is None or not KEYRING.exists():
        raise MissingError(
            "mmdebstrap or Debian's keyring is missing: "
            "apt-get install --no-install-recommends mmdebstrap debian-archive-keyring"
        )
    cache.mkdir(parents=True, exist_ok=True)
    partial = archive.with_suffix(".part.tar")
    _must([*recipe, system.suite, str(partial), *sources])
    partial.rename(archive)
    return archive


def package_sources(suite: str) -> list[str]:
    """Lines of sources.list for a suite, with this machine's mirrors for Debian.

    A machine without a Debian mirror (Ubuntu) uses Debian's own.
    """
    listing = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    pairs = (line.split(" ", 1) for line in listing.stdout.splitlines())
    sources = {label: mirror for mirror, label in pairs}
    mirror = sources.get("Debian", MIRROR)
    security = sources.get("Debian-Security", SECURITY_MIRROR)
    return [
        f"deb {mirror} {suite} main",
        f"deb {mirror} {suite}-updates main",
        f"deb {security} {suite}-security main",
    ]


def _pip_certificate() -> Path | None:
    """The file of certificates that pip trusts on this machine."""
    listing = subprocess.run(
        ["python3", "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    for line in listing.stdout.splitlines():
        name, _, value = line.partition("=")
        if name.rpartition(".")[2] == "cert":
            return Path(value.strip("'\""))
    return None


def _take_along(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _must(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise MissingError(f"{command[0]} failed: {said}")
