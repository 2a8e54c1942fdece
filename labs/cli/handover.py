"""Files that a command writes as root for the user who typed it with sudo.

In: the path that the user named. Out: what was written there, and the folders that were made for
it, belong to that user, who can then read, move and remove them. What was there before does not.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

Entry = tuple[int, int]
"""An entry of a file system: its device and its inode."""
State = tuple[int, int]
"""An entry's owner, and of what is no folder when it was changed last."""


@contextmanager
def handed_over(path: Path | None) -> Iterator[None]:
    """Give what the block writes at `path`, a file or a folder, to the user of sudo, however it
    ends; nothing without sudo or without a path.

    Only what belongs to root and has one name is given: a link that leads elsewhere keeps its
    target's owner.
    """
    user, group = (os.environ.get(name) for name in ("SUDO_UID", "SUDO_GID"))
    if path is None or user is None or group is None or os.geteuid() != 0:
        yield
        return
    owner = int(user), int(group)
    place = path.absolute()
    missing = [each for each in (place, *place.parents) if not os.path.lexists(each)]
    before = dict(_state(name, within) for name, within in _entries(place))
    try:
        yield
    finally:
        for name, within in chain(((each, None) for each in missing), _entries(place)):
            # What an attempt that failed has removed again is not there.
            with suppress(FileNotFoundError):
                _give(name, within, owner, before)


def _entries(place: Path) -> Iterator[tuple[str | Path, int | None]]:
    """The place and all below it, by name and the descriptor of its folder."""
    if not os.path.lexists(place):
        return
    yield place, None
    if place.is_dir() and not place.is_symlink():
        for _, folders, files, within in os.fwalk(place):
            for name in (*folders, *files):
                yield name, within


def _state(name: str | Path, within: int | None) -> tuple[Entry, State]:
    found = os.stat(name, dir_fd=within, follow_symlinks=False)
    changed_ns = 0 if stat.S_ISDIR(found.st_mode) else found.st_ctime_ns
    return (found.st_dev, found.st_ino), (found.st_uid, changed_ns)


def _give(
    name: str | Path, within: int | None, owner: tuple[int, int], before: Mapping[Entry, State]
) -> None:
    """Change the owner of an entry that is root's and was not there before as it is now."""
    entry, state = _state(name, within)
    if before.get(entry) == state:
        return
    found = os.stat(name, dir_fd=within, follow_symlinks=False)
    if found.st_uid == 0 and (found.st_nlink == 1 or stat.S_ISDIR(found.st_mode)):
        os.chown(name, *owner, dir_fd=within, follow_symlinks=False)
