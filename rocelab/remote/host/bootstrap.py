"""Runs on the other machine before the kit is installed: inspects it, unpacks, makes a venv.

This file is sent through stdin to the Python there, so it uses only the standard library. It takes
a verb and its arguments and prints one line of JSON after MARK. An installation is made beside its
place and renamed into it, so that it is always complete.
"""

from __future__ import annotations

import compileall
import errno
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

MARK = "rocelab: "
NO_SPACE_EXIT = 28
PROBE_TIMEOUT_S = 20
DAY_S = 86400
FOLDERS = ("kits", "venvs", "runs", "incoming")


def home() -> Path:
    """The folder of the kit, one for each user (XDG Base Directory Specification)."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "rocelab"


def venv_of(requirements_key: str) -> Path:
    """The venv for this Python and these requirements."""
    python = f"{sys.implementation.cache_tag}-{platform.machine()}"
    return home() / "venvs" / f"{requirements_key}-{python}"


def describe(kit: str, requirements_key: str) -> dict[str, object]:
    """Describe the machine, our user there, and which parts of the kit are installed."""
    home().mkdir(parents=True, exist_ok=True)
    # Their content runs as root if sudo allows it: whatever the umask, others may not write to
    # them.
    home().chmod(0o755)
    for name in FOLDERS:
        (home() / name).mkdir(exist_ok=True)
        (home() / name).chmod(0o700 if name == "runs" else 0o755)
    _sweep()
    room = os.statvfs(home())
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "home": str(home()),
        "free_bytes": room.f_bavail * room.f_frsize,
        "kit": (home() / "kits" / kit).is_dir(),
        "venv": str(venv_of(requirements_key)),
        "has_venv": venv_of(requirements_key).is_dir(),
        "uid": os.getuid(),
        "sudo": os.getuid() != 0 and may_sudo(),
    }


def _sweep() -> None:
    """Remove incomplete files of connections that broke more than a day ago."""
    halves = [*home().glob("incoming/*"), *home().glob("*/.new-*")]
    halves += [run for run in home().glob("runs/*") if not (run / "state.json").exists()]
    for path in halves:
        if time.time() - path.stat().st_mtime > DAY_S:
            shutil.rmtree(path, ignore_errors=True)
            if path.is_file():
                path.unlink()


def may_sudo() -> bool:
    """Whether sudo gives us root without asking for a password."""
    try:
        tried = subprocess.run(
            ["sudo", "-n", "true"],  # noqa: S607
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def unpack(archive: str, kit: str) -> dict[str, object]:
    """Install the kit from the uploaded zip file, then remove the file."""

    def fill(fresh: Path) -> None:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(fresh)
        # As the installing user: a run as root would leave files here that the user cannot remove.
        compileall.compile_dir(fresh, quiet=2)

    try:
        _install(home() / "kits" / kit, fill)
    finally:
        Path(archive).unlink(missing_ok=True)
    return {}


def make_venv(requirements_key: str, *requirements: str) -> dict[str, object]:
    """Make a venv with these requirements, from the machine's package index or home()/wheels."""
    wheels = home() / "wheels"
    offline = ["--no-index", "--find-links", str(wheels)] if wheels.is_dir() else []

    def fill(fresh: Path) -> None:
        wheel = pip_wheel()
        # A pip of its own takes the venv longer than all else, and nothing needs it later.
        without = [] if wheel is None else ["--without-pip"]
        _call([sys.executable, "-I", "-m", "venv", *without, str(fresh)])
        pip = ["-m", "pip"] if wheel is None else [str(wheel / "pip")]
        options = ["--no-input", "--quiet", "--disable-pip-version-check"]
        # Compiled now, as in `unpack`; root's commands can do it later, for what they import.
        later = [] if os.getuid() else ["--no-compile"]
        python = [str(fresh / "bin/python"), "-I"]
        _call([*python, *pip, "install", *options, *later, *offline, *requirements])

    _install(venv_of(requirements_key), fill)
    return {}


def pip_wheel() -> Path | None:
    """The wheel of pip that `python -m ensurepip` would install, if it is where Python's own build
    or a distribution's (--with-wheel-pkg-dir) has it. pip runs from there as from a folder."""
    import ensurepip  # only the machine that makes a venv must have it

    folders = [Path(ensurepip.__file__).parent / "_bundled"]
    chosen = sysconfig.get_config_var("WHEEL_PKG_DIR")
    if chosen:
        folders.insert(0, Path(chosen))
    wheels = [wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))]
    return wheels[0] if wheels else None


def _install(place: Path, fill: Callable[[Path], None]) -> None:
    """Make `place`, unless it exists, by renaming a folder filled by `fill`."""
    if place.is_dir():
        return
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
    fresh.chmod(0o755)
    try:
        fill(fresh)
        fresh.rename(place)
    except OSError as error:
        # Another connection may have made the same installation meanwhile.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _call(command: list[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = f"{done.stdout}\n{done.stderr}".strip()
        if os.strerror(errno.ENOSPC) in said:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), command[0])
        raise SystemExit(said[-2000:])


VERBS: dict[str, Callable[..., dict[str, object]]] = {
    "describe": describe,
    "unpack": unpack,
    "venv": make_venv,
}


def main(words: list[str]) -> None:
    """Run a verb. Exits NO_SPACE_EXIT if the disk is full, else 1 with a reason."""
    try:
        answer = VERBS[words[0]](*words[1:])
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(NO_SPACE_EXIT if error.errno in (errno.ENOSPC, errno.EDQUOT) else 1)
    sys.stdout.write(f"{MARK}{json.dumps(answer)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
