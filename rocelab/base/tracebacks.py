"""Where code of others raised an exception: frames of its traceback, and a sentence with the place.

Whose a frame is follows from its module; compiled code has none, and its file counts.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from traceback import walk_tb
from types import FrameType

Frame = tuple[FrameType, int]
"""A frame and the line that it was at."""


def frames_in(error: BaseException, packages: Collection[str]) -> list[Frame]:
    """The frames of the code of some packages or modules (top-level names), outermost first."""
    files = [file for package in packages for file in _files(package)]

    def is_theirs(frame: FrameType) -> bool:
        top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        path = Path(frame.f_code.co_filename)
        return top in packages or any(path.is_relative_to(file) for file in files)

    return [entry for entry in walk_tb(error.__traceback__) if is_theirs(entry[0])]


def sentence(error: BaseException, frames: Collection[Frame]) -> str:
    """`ValueError: no such ring (lab_halo.py:21)`: the exception on one line, and the last of the
    frames, if any."""
    text = " ".join(str(error).split())
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    for frame, line in [*frames][-1:]:
        said += f" ({frame.f_code.co_filename}:{line})"
    return said


def _files(package: str) -> Iterator[Path]:
    """The folders of a package that is loaded, or the file of a module."""
    module = sys.modules.get(package)
    folders = getattr(module, "__path__", None)
    file = getattr(module, "__file__", None)
    yield from map(Path, folders if folders is not None else filter(None, (file,)))
