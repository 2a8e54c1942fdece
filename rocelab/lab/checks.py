"""What `rocelab doctor` says of one thing that a lab uses, and the check of a program."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

PROGRAM_TIMEOUT_S = 10.0
SETUP = "`make setup` installs it (Debian package {package})"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a lab uses: whether it is present, and the remedy if it is not.

    Without a `needed` thing no lab runs; without another, only its purpose is lost.
    """

    name: str
    ok: bool
    needed: bool
    found: str
    purpose: str
    remedy: str


def program_check(command: Sequence[str], package: str, purpose: str) -> Check:
    """Whether an optional program starts, with its version."""
    version = program_version(command)
    return Check(
        name=command[0],
        ok=version is not None,
        needed=False,
        found=version or "missing",
        purpose=purpose,
        remedy=SETUP.format(package=package),
    )


def program_version(command: Sequence[str]) -> str | None:
    """The version that a program prints; None if it is missing or fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return version_in(done.stdout + done.stderr) if done.returncode == 0 else None


def version_in(text: str) -> str:
    """The first version number in a program's output, or a note that the program is present."""
    match = re.search(r"\d+\.\d+(\.\d+)*(-\d[\w.~+]*)?", text)
    return match[0] if match else "present"
