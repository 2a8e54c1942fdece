"""Files that a command writes as root for the user who typed it with sudo.

The files written at the path that the user named, and the folders made for them, then belong to
that user, who can read, move and remove them. Files that existed before keep their owner, also
where the user puts them there meanwhile: the file system says when each was made.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rocelab.trust import sudo_user

MOST_DEPTH = 16
"""More than any folder of results has."""

_CLOCK_REALTIME_COARSE = 5
"""linux/time.h"""

_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_STATX_BYTES, _BTIME_AT = 256, 80
"""The size of struct statx (linux/stat.h), and the offset of the time of birth."""

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def handed_over(path: Path | None) -> Iterator[None]:
    """Give the file or folder that the block writes at `path` to the user of sudo, however the
    block ends. Does nothing without sudo or without a path.

    Only entries of root with a single name that were made since change their owner: the target of a
    link keeps its owner, and so do all on a file system that does not say when a file was made.
    """
    owner = sudo_user()
    if path is None or owner is None or os.geteuid() != 0:
        yield
        return
    place = path.absolute()
    above = next((parent for parent in place.parents if parent.is_dir()), place)
    names = place.relative_to(above).parts
    since_ns = _now_ns()
    # The folder is held open, so that a link put in its place meanwhile has no effect.
    held = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield
    finally:
        try:
            for name, within in _entries(names, held):
                # A failed attempt may have removed the entry again.
                with suppress(OSError):
                    _give(name, within, owner, since_ns)
        finally:
            os.close(held)


def _now_ns() -> int:
    """A time (CLOCK_REALTIME) before which no file is made any more, after all that were."""
    now_ns = time.time_ns()
    # File systems may stamp by a clock that goes on only a few times in 10 ms.
    while time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) < now_ns:
        time.sleep(0.001)
    return now_ns


def _entries(names: Sequence[str], within: int) -> Iterator[tuple[str, int]]:
    """The existing entries of a path below an open folder, and all below the last one, each as its
    name and the descriptor of its folder. Follows no link."""
    if not names:
        return
    with ExitStack() as opened, suppress(OSError):
        for name in names[:-1]:
            yield name, within
            within = _opened(name, within)
            opened.callback(os.close, within)
        yield from _tree(names[-1], within, MOST_DEPTH)


def _tree(name: str, within: int, depth: int) -> Iterator[tuple[str, int]]:
    """An entry and, down to a depth, all below it."""
    yield name, within
    if depth == 0:
        return
    with suppress(OSError):
        folder = _opened(name, within)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    yield from _tree(entry.name, folder, depth - 1)
        finally:
            os.close(folder)


def _opened(name: str, within: int) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=within)


def _give(name: str, within: int, owner: tuple[int, int], since_ns: int) -> None:
    """Change the owner of an entry that belongs to root and is new."""
    entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
    try:
        found = os.fstat(entry)
        is_single = found.st_nlink == 1 or stat.S_ISDIR(found.st_mode)
        if found.st_uid == 0 and is_single and _made_ns(entry) >= since_ns:
            # Of what was looked at, whatever has this name by now.
            os.chown(f"/proc/self/fd/{entry}", *owner)
    finally:
        os.close(entry)


def _made_ns(entry: int) -> int:
    """When an open entry was made (CLOCK_REALTIME), 0 if the file system does not say."""
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if _libc.statx(entry, b"", _AT_EMPTY_PATH, _STATX_BTIME, found) != 0:
        return 0
    (mask,) = struct.unpack_from("=I", found)
    seconds, nanoseconds = struct.unpack_from("=qI", found, _BTIME_AT)
    return seconds * 10**9 + nanoseconds if mask & _STATX_BTIME else 0
