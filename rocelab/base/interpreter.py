"""Runs modules of this package as programs: controller, delay line, guardian and agents.

They often run as root, started from any folder, so nothing in that folder may become their code:
plain `python -m` imports modules from there before those of the standard library. Standard library
only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rocelab.base.extras import missing
from rocelab.base.trust import use_private_caches

HOME = Path(__file__).parents[2]
"""The folder that this package is imported from."""

SAFE_PATH = "PYTHONSAFEPATH"


def module_command(module: str, *arguments: str, site: bool = True) -> list[str]:
    """The command that runs a module of this package in an interpreter like this one. It needs
    `module_environment`. Without `site` it has only the standard library and this package."""
    return [sys.executable, "-P", *(() if site else ("-S",)), "-m", module, *arguments]


def module_environment() -> dict[str, str]:
    """The environment of such a process: that of this process, with this package's folder, wherever
    it is installed, as the only additional import path."""
    return {**os.environ, "PYTHONPATH": str(HOME)}


def imported(name: str) -> ModuleType:
    """Import a library that reads settings, which may be code, from the current folder at import
    (matplotlib, numba), as if that folder were `/`. Raises MissingExtraError if it is not
    installed."""
    if name not in sys.modules:
        use_private_caches()
        here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.chdir("/")
            import_module(name)
        except ModuleNotFoundError as error:
            raise missing(error) or error from None
        finally:
            os.fchdir(here)
            os.close(here)
    return sys.modules[name]


def leave_current_folder_out() -> None:
    """Remove relative and empty entries from PATH: the programs that we start (ip, tc, tcpdump ...)
    never come from the current folder."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(filter(os.path.isabs, entries)) or os.defpath


@contextmanager
def safe_path() -> Iterator[None]:
    """Interpreters started during the block, such as multiprocessing's own, import nothing from the
    current folder (Python: PYTHONSAFEPATH)."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before
