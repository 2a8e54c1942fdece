"""Where compiled functions are kept, so that only the first process that needs them compiles.

In: the sources that a set of functions is made of. Out: a decorator of numba's that keeps what it
compiles in NUMBA_CACHE_DIR, else beside the sources, else in the user's cache folder; where none of
them can be written, every process compiles anew. numba is imported on use.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def cache_folder(sources: Sequence[Path]) -> Path | None:
    """A folder for this state of the sources, which are in one folder: numba alone does not see
    that a function which another file's function calls has changed. None where none can be written.
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
            made.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(made, os.W_OK):
            return made
    return None


def compiled_in(
    folder: Path | None, function: Callable[Arguments, Result], signature: object = None
) -> Callable[Arguments, Result]:
    """`function` as machine code, kept in `folder`; made or read at once where the types of its
    arguments are given as numba's `signature`, else on the first call."""
    import numba

    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or "")
    try:
        make = numba.njit(signature, cache=folder is not None, error_model="numpy")
        return cast(Callable[Arguments, Result], make(function))
    finally:
        numba.config.CACHE_DIR = before
