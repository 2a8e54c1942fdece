"""A container engine, Docker or Podman, through its command line, which is the same in both.

Arguments are passed as a list; no command goes through a shell of this machine.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.base.errors import MachineError
from rocelab.linux.commands import Command, LateError

ENGINES = ("docker", "podman")
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """A running engine."""

    program: str

    def run(self, *arguments: str, timeout_s: float = TIMEOUT_S) -> str:
        """The engine's standard output. Raises MachineError with its standard error."""
        done = self.call(arguments, timeout_s=timeout_s)
        if done.returncode != 0:
            raise MachineError(f"{self.program} {arguments[0]}: {last_line(done.stderr)}")
        return done.stdout

    def call(
        self,
        arguments: Sequence[str],
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> subprocess.CompletedProcess[str]:
        """The engine's output, standard error and exit status. Raises MachineError if it hangs."""
        try:
            return Command([self.program, *arguments]).run(timeout_s)
        except LateError:
            raise MachineError(
                f"{self.program} {arguments[0]} takes longer than {timeout_s:.0f} s",
                f"check with `{self.program} info` says",
            ) from None


def find_engine() -> ContainerEngine:
    """Docker if its engine answers, else Podman. Raises MachineError if neither does."""
    complaints = []
    for program in ENGINES:
        if shutil.which(program) is None:
            complaints.append(f"{program} is not installed")
            continue
        engine = ContainerEngine(program)
        # Not `info`: in Docker 20.10 it exits with 0 even if the daemon does not answer.
        answer = engine.call(("version",))
        if answer.returncode == 0:
            return engine
        complaints.append(f"{program}: {last_line(answer.stderr)}")
    raise MachineError(
        f"there is no container engine: {'; '.join(complaints)}",
        "install and start one (Debian packages docker.io or podman); the runtime netns needs none",
    )


def last_line(text: str) -> str:
    """The last line of a program's output, without the hint where to find help."""
    lines = [line for line in text.splitlines() if line.strip() and "--help'" not in line]
    return lines[-1] if lines else "no reason given"
