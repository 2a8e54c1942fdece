"""A function in a Python process of its own: for its memory, its compiled code and its CPU time."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def apart(
    function: Callable[..., Any], *arguments: object, environment: Mapping[str, str] | None = None
) -> Any:  # noqa: ANN401
    """What a function of a module returns in a new process; arguments and result are JSON.

    Raises CalledProcessError, which has the process's errors.
    """
    module, name = function.__module__, function.__qualname__
    if module == "__main__":
        module = str(sys.modules["__main__"].__spec__.name)  # type: ignore[union-attr]
    program = (
        f"import json, sys; from {module} import {name}; "
        f"json.dump({name}(*json.loads(sys.argv[1])), sys.stdout)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **(environment or {})},
    )
    return json.loads(done.stdout)


def cpu_s() -> float:
    """CPU time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak_bytes() -> int:
    """The most resident memory of this process so far; getrusage would include its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
