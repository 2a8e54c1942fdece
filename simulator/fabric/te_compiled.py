"""numba for the searches of traffic engineering; without it they run as they stand.

In: a function. Out: the same, compiled on its first call or read from the cache, which is
NUMBA_CACHE_DIR, else beside the source, else the user's cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _cache_folder() -> Path | None:
    """A folder of its own for this state of the sources: numba alone does not see that a function
    which another file's function calls has changed. None where none can be written."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(here.glob("te*.py")):
        digest.update(source.read_bytes())
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    given = os.environ.get("NUMBA_CACHE_DIR")
    for parent in [Path(given)] if given else [here / "__pycache__", user / "rocelab"]:
        made = parent / f"te-{digest.hexdigest()[:16]}"
        try:
            made.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(made, os.W_OK):
            return made
    return None


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, compiled where numba is installed."""
    if importlib.util.find_spec("numba") is None:
        return function
    import numba

    folder, before = _cache_folder(), numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or "")
    try:
        made: Callable[Arguments, Result] = numba.njit(
            cache=folder is not None, error_model="numpy"
        )(function)
    finally:
        numba.config.CACHE_DIR = before
    return made
