"""Where compiled functions are kept, so that only the first process that needs them compiles.

In: the sources that a set of functions is made of. Out: a decorator of numba's that keeps what it
compiles in NUMBA_CACHE_DIR, else beside the sources, else in the user's cache folder
(XDG_CACHE_HOME, ~/.cache); where none of them is the user's own, every process compiles anew. What
is kept is loaded as code: nobody loads what another user may have written. numba is imported on
use.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import ParamSpec, TypeVar, cast

from rocelab.files import make_folders
from rocelab.interpreter import imported

LOCK = "lock"
"""In a folder of machine code, a file that only its user may open: whoever may open what is locked
could hold us up."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def numba() -> ModuleType:
    """numba, which then looks for no settings in the current folder: it does at its import and
    whenever it compiles (numba/core/config.py)."""
    found = imported("numba")
    found.core.config._config_fname = os.devnull
    return found


def cache_folder(sources: Sequence[Path]) -> Path | None:
    """A folder for this state of the sources, which are in one folder: numba alone does not see
    that a function which another file's function calls has changed. None where none is ours alone.
    """
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.read_bytes())
    here = sources[0].parent
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    given = os.environ.get("NUMBA_CACHE_DIR")
    for parent in [Path(given)] if given else [here / "__pycache__", user / "rocelab"]:
        made = parent / f"numba-{digest.hexdigest()[:16]}"
        try:
            make_folders(made)
            if _is_ours_alone(made):
                return made
        except OSError:
            continue
    return None


def _is_ours_alone(folder: Path) -> bool:
    """Whether it is a folder of this process's user, in which nobody else may write."""
    found = folder.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    is_ours = found.st_uid == os.geteuid() and not found.st_mode & others
    return stat.S_ISDIR(found.st_mode) and is_ours


def compiled_in(
    folder: Path | None, function: Callable[Arguments, Result], signature: object = None
) -> Callable[Arguments, Result]:
    """`function` as machine code, kept in `folder`; made or read at once where the types of its
    arguments are given as numba's `signature`, else on the first call. Processes that want the
    same at once wait for the one that makes it."""
    compiler = numba()
    before = compiler.config.CACHE_DIR
    compiler.config.CACHE_DIR = str(folder or "")
    try:
        make = compiler.njit(signature, cache=folder is not None, error_model="numpy")
        with _in_turn(folder):
            return cast(Callable[Arguments, Result], make(function))
    finally:
        compiler.config.CACHE_DIR = before


@contextmanager
def _in_turn(folder: Path | None) -> Iterator[None]:
    if folder is None:
        yield
        return
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder / LOCK, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
