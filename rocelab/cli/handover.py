"""Files that a command writes as root for the user who typed it with sudo.

In: the path that the user named. Out: what was written there, and the folders that were made for
it, belong to that user, who can then read, move and remove them. What was there before does not.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
    above = next((each for each in place.parents if each.is_dir()), place)
    names = place.relative_to(above).parts
    # Held open: a link that is put in its place meanwhile leads nowhere.
    held = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        before = dict(_state(name, within) for name, within in _entries(names, held))
        try:
            yield
        finally:
            for name, within in _entries(names, held):
                # What an attempt that failed has removed again is not there.
                with suppress(OSError):
                    _give(name, within, owner, before)
    finally:
        os.close(held)


def _entries(names: Sequence[str], within: int) -> Iterator[tuple[str, int]]:
    """The entries of a path below an open folder, as many as there are, and all below the last,
    each by name and the descriptor of its folder. No link is followed."""
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
    """Change the owner of an entry that is root's and was not there before as it is now."""
    entry, state = _state(name, within)
    if before.get(entry) == state:
        return
    found = os.stat(name, dir_fd=within, follow_symlinks=False)
    if found.st_uid == 0 and (found.st_nlink == 1 or stat.S_ISDIR(found.st_mode)):
        os.chown(name, *owner, dir_fd=within, follow_symlinks=False)
