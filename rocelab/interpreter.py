"""Our own modules as programs: controller, delay line, guardian and agents are further processes.

They often run as root, started from whatever folder the user is in, so that nothing of that folder
may become their code: `python -m` alone takes modules from there before those of the standard
library. Standard library only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

HOME = Path(__file__).parents[1]
"""The folder that our package is imported from."""

SAFE_PATH = "PYTHONSAFEPATH"


def module_command(module: str, *arguments: str, site: bool = True) -> list[str]:
    """The command that runs one of our modules in an interpreter like this one. It needs
    `module_environment`. Without `site` it has the standard library and our packages alone."""
    return [sys.executable, "-P", *(() if site else ("-S",)), "-m", module, *arguments]


def module_environment() -> dict[str, str]:
    """The environment of such a process: our own, with our packages wherever they are installed
    and no other folder to import from."""
    return {**os.environ, "PYTHONPATH": str(HOME)}


def imported(name: str) -> ModuleType:
    """A library that takes settings, which may be code, from the current folder as it is imported
    (matplotlib, numba): imported as if that were `/`."""
    if name not in sys.modules:
        here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.chdir("/")
            import_module(name)
        finally:
            os.fchdir(here)
            os.close(here)
    return sys.modules[name]


def leave_current_folder_out() -> None:
    """Take what is not absolute out of PATH, an empty entry among it: the programs that we start
    (ip, tc, tcpdump ...) are never those of whatever folder the user is in."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(filter(os.path.isabs, entries)) or os.defpath


@contextmanager
def safe_path() -> Iterator[None]:
    """Interpreters started meanwhile, which multiprocessing does without a word of ours, import
    nothing from the current folder (Python: PYTHONSAFEPATH)."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before
