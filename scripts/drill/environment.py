"""The machine and the software that a result came from.

In: this machine. Out: an `Environment`, which every result carries.
"""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from labs.runtime.daemons import frr_folder
from scripts.drill.result import Environment


def read_environment() -> Environment:
    """This machine, now. `cpu_count` is the CPUs this process may use.

    Raises MachineError when FRR is not installed.
    """
    return Environment(
        tool_version=version("rocelab"),
        kernel=f"{platform.system()} {platform.release()}",
        frr_version=_frr_version(),
        python=platform.python_version(),
        cpu_model=cpu_model(),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        started=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def _frr_version() -> str:
    """`8.4.4` of `bgpd version 8.4.4`."""
    asked = [str(frr_folder() / "bgpd"), "--version"]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False).stdout
    words = answer.split()
    return words[2] if words[1:2] == ["version"] and len(words) > 2 else "unknown"


def cpu_model() -> str:
    """What the processor calls itself."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
