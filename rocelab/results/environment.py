"""The machine and the software that a result came from, an `Environment` in every result."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rocelab.base.doors import plugins


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine and the software that gave the result."""

    tool_version: str
    kernel: str
    frr_version: str
    python: str
    cpu_model: str
    cpu_count: int
    memory_bytes: int
    started: str
    """UTC."""
    command: str | None = None
    """The command line as typed, None where Python called the library."""
    runtime: str | None = None
    """That of the lab, as `--runtime` names it, None without a lab."""
    runtime_versions: Mapping[str, str] = field(default_factory=dict)
    """The releases of the programs that made its nodes, and their image."""
    frr_memory: str | None = None
    """How its FRR uses memory, `lean`, `plain` or `lean, but` and the reason; None without a
    lab."""
    routing: str | None = None
    """The routing stack of the lab with its release, such as `BIRD 2.0.12`, None if that is FRR:
    frr_version is empty with another."""
    plugins: tuple[str, ...] = ()
    """The packages installed that add something to rocelab, each with its version."""

    @property
    def routing_text(self) -> str:
        """The routing stack with its release, for people."""
        return self.routing or f"FRR {self.frr_version or 'unknown'}"

    @property
    def tool_text(self) -> str:
        """rocelab's version with its plug-ins, for people: `0.2.0 with lab-faults 1.2`."""
        return " with ".join((self.tool_version, *filter(None, (", ".join(self.plugins),))))

    @property
    def runtime_text(self) -> str:
        """The runtime with its versions, for people: `docker (docker 20.10.24, image me/frr)`."""
        versions = ", ".join(f"{name} {version}" for name, version in self.runtime_versions.items())
        return f"{self.runtime or 'none'} ({versions})" if versions else self.runtime or "none"


def environment_with(frr_version: str) -> Environment:
    """This machine now, with the given FRR version."""
    return Environment(
        tool_version=version("rocelab"),
        kernel=f"{platform.system()} {platform.release()}",
        frr_version=frr_version,
        python=platform.python_version(),
        cpu_model=cpu_model(),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        started=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=typed_command(),
        plugins=plugins(),
    )


def typed_command() -> str | None:
    """The command line of this process if it is rocelab's, else None."""
    if Path(sys.argv[0]).name != "rocelab":
        return None
    return shlex.join(["rocelab", *sys.argv[1:]])


def cpu_model() -> str:
    """The processor's model name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
