"""Files that a command writes as root for the user who typed it with sudo.

The files written at the path that the user named, and the folders made for them, then belong to
that user, who can read, move and remove them. Files that existed before keep their owner.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

Entry = tuple[int, int]
"""A file system entry: its device and its inode."""
State = tuple[int, int]
"""An entry's owner and, unless it is a folder, the time of its last change."""


@contextmanager
def handed_over(path: Path | None) -> Iterator[None]:
    """Give the file or folder that the block writes at `path` to the user of sudo, however the
    block ends. Does nothing without sudo or without a path.

    Only entries of root with a single name change their owner: the target of a link keeps its
    owner.
    """
    user, group = (os.environ.get(name) for name in ("SUDO_UID", "SUDO_GID"))
    if path is None or user is None or group is None or os.geteuid() != 0:
        yield
        return
    owner = int(user), int(group)
    place = path.absolute()
    above = next((parent for parent in place.parents if parent.is_dir()), place)
    names = place.relative_to(above).parts
    # The folder is held open, so that a link put in its place meanwhile has no effect.
    held = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        before = dict(_state(name, within) for name, within in _entries(names, held))
        try:
            yield
        finally:
            for name, within in _entries(names, held):
                # A failed attempt may have removed the entry again.
                with suppress(OSError):
                    _give(name, within, owner, before)
    finally:
        os.close(held)


def _entries(names: Sequence[str], within: int) -> Iterator[tuple[str, int]]:
    """The existing entries of a path below an open folder, and all below the last one, each as its
    name and the descriptor of its folder. Follows no link."""
    if not names:
        return
    with ExitStack() as opened, suppress(OSError):
        for place, name in enumerate(names, 1):
            os.stat(name, dir_fd=within, follow_symlinks=False)
            yield name, within
            if place < len(names):
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                within = os.open(name, flags, dir_fd=within)
                opened.callback(os.close, within)
        for _, folders, files, here in os.fwalk(names[-1], dir_fd=within):
            for name in (*folders, *files):
                yield name, here


def _state(name: str, within: int) -> tuple[Entry, State]:
    found = os.stat(name, dir_fd=within, follow_symlinks=False)
    changed_ns = 0 if stat.S_ISDIR(found.st_mode) else found.st_ctime_ns
    return (found.st_dev, found.st_ino), (found.st_uid, changed_ns)


def _give(name: str, within: int, owner: tuple[int, int], before: Mapping[Entry, State]) -> None:
    """Change the owner of an entry that belongs to root and is new or changed."""
    entry, state = _state(name, within)
    if before.get(entry) == state:
        return
    found = os.stat(name, dir_fd=within, follow_symlinks=False)
    if found.st_uid == 0 and (found.st_nlink == 1 or stat.S_ISDIR(found.st_mode)):
        os.chown(name, *owner, dir_fd=within, follow_symlinks=False)
