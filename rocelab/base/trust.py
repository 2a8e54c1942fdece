"""Says who may change a folder, for whom a command runs, and where root may load code from.

Root that writes or loads below a folder of another user can be led elsewhere: that user puts a link
or another folder in its place. So root follows only links that nobody else could have put there
(`rocelab.base.outputs`), and loads code only from folders that nobody else can write to
(`private_folder`). Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import stat
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

CACHE = Path("/var/cache/rocelab")
"""Root's own folder of caches."""

_PR_SET_DUMPABLE = 4
"""linux/prctl.h"""

_NO_ID = 2**32 - 1
"""(uid_t) -1: system calls take it for "leave as it is"."""

_libc = ctypes.CDLL(None, use_errno=True)


class UntrustedFolderError(OSError):
    """A folder in which another user may replace what root or this process's user has put there."""


def sudo_user() -> tuple[int, int] | None:
    """The user and group of who typed the command with sudo; None without sudo, which sets both."""
    texts = tuple(os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID"))
    if not all(text.isascii() and text.isdecimal() and len(text) <= 10 for text in texts):
        return None
    user, group = map(int, texts)
    return (user, group) if max(user, group) < _NO_ID else None


def private_folder(folder: Path, mode: int = 0o700) -> Path:
    """A folder to load code from, such as a cache of compiled code: made if missing, with its
    missing parents. Returns its path without links.

    Nobody but root and this process's user may write in it, in any folder above it or in what it
    holds; above it a folder with the sticky bit, such as /tmp, counts as one where nobody may. For
    root a group other than root's counts as others; a user's group is that user's choice. Raises
    UntrustedFolderError, before anything is made, with what others may change; OSError.
    """
    real, missing = _checked_path(folder)
    for place in reversed(missing):
        try:
            place.mkdir(mode)
        except FileExistsError:  # Another process was faster.
            _check(place, is_above=False)
        else:
            # Whatever the umask and the default access list of the folder above are.
            place.chmod(mode)
    with os.scandir(real) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                _check(Path(entry.path), is_above=False)
    return real


def _checked_path(folder: Path) -> tuple[Path, list[Path]]:
    """A folder's path without links, and what is missing of it. Raises as `private_folder`."""
    real = Path(os.path.realpath(folder))
    places = [real, *real.parents]
    missing = [place for place in places if not os.path.lexists(place)]
    for place in places[len(missing) :]:
        _check(place, is_above=place != real)
    return real, missing


@cache
def use_private_caches() -> None:
    """Let the libraries of a process of root keep their caches and find their settings, which they
    load code from (matplotlib), in `CACHE` where others may change what is in the folders of
    the environment or of HOME; and temporary files, also of compilers that it starts, where they
    are by default. Says so on stderr."""
    if os.geteuid() != 0:
        return
    home = Path.home()
    for variable, folder in (
        ("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache"),
        ("XDG_CONFIG_HOME", os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"),
        ("MPLCONFIGDIR", os.environ.get("MPLCONFIGDIR")),
    ):
        try:
            if folder is not None:
                _checked_path(Path(folder))
        except OSError as error:
            os.environ[variable] = str(CACHE / "libraries")
            not_used(Path(str(folder)), error)
    for variable in ("TMPDIR", "TEMP", "TMP"):
        try:
            if os.environ.get(variable):
                # Below a folder with the sticky bit, such as /tmp.
                _checked_path(Path(os.environ[variable], "x"))
        except OSError as error:
            not_used(Path(os.environ.pop(variable)), error, "temporary file")


def not_used(folder: Path, error: OSError, what: str = "cache") -> None:
    """Say on stderr, once, that this process has no cache, or other file, there, and why."""
    where = "" if error.filename in (None, str(folder)) else f" ({error.filename})"
    _report_once(f"note: no {what} in {folder}{where}: {error.strerror}\n")


@cache
def _report_once(text: str) -> None:
    sys.stderr.write(text)


def _check(place: Path, *, is_above: bool) -> None:
    """Raises UntrustedFolderError if others may change what is in a place. OSError."""
    status = place.lstat()
    user = os.geteuid()
    if status.st_uid not in (0, user):
        raise UntrustedFolderError(errno.EPERM, "it belongs to another user", str(place))
    groups = {0} if user == 0 else None
    if stat.S_ISLNK(status.st_mode) or _others_may_write(status, groups, is_above=is_above):
        raise UntrustedFolderError(errno.EPERM, "other users may change it", str(place))


def _others_may_write(
    status: os.stat_result, groups: Collection[int] | None, *, is_above: bool
) -> bool:
    """Whether others than the owner may write, or a group that is none of `groups` (None: all may).
    is_above: only what lies below is asked for, which the sticky bit protects."""
    if is_above and status.st_mode & stat.S_ISVTX:
        return False
    of_group = status.st_mode & stat.S_IWGRP and groups is not None and status.st_gid not in groups
    return bool(status.st_mode & stat.S_IWOTH or of_group)


def acts_for() -> tuple[int, int] | None:
    """The user and group to whom what this process writes belongs: of sudo, if it is root's."""
    return sudo_user() if os.geteuid() == 0 else None


def may_lead(link: os.stat_result, folder: int) -> bool:
    """Whether a process follows a symbolic link in an open folder on its way to an output. Root
    does where the link belongs to root or to the user of sudo and nobody else may write in its
    folder, or replace one above it: so not in /tmp. Others may follow all that the kernel does."""
    if os.geteuid() != 0:
        return True
    users, groups = (set(numbers) | {0} for numbers in zip(*[acts_for() or (0, 0)], strict=True))
    if link.st_uid not in users:
        return False
    here, is_above = os.dup(folder), False
    try:
        while True:
            status = os.fstat(here)
            if status.st_uid not in users:
                return False
            if _others_may_write(status, groups, is_above=is_above):
                return False
            above = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here, is_above = above, True
            if os.path.samestat(status, os.fstat(here)):
                return True
    finally:
        os.close(here)


@contextmanager
def rights_of(owner: tuple[int, int]) -> Iterator[None]:
    """A block in which this thread has a user's rights to files, and makes files of that user
    (setfsuid(2))."""
    user, group = map(ctypes.c_uint, owner)
    group_before, user_before = _libc.setfsgid(group), _libc.setfsuid(user)
    try:
        yield
    finally:
        _libc.setfsuid(user_before)
        _libc.setfsgid(group_before)


def become_sudo_user() -> None:
    """Give up root's rights under sudo, for those of the user who typed it, whose HOME is taken.

    Root's stay where that user could not read this program or the current folder, as after `sudo
    -s` in root's own; what is written is the user's anyway.
    """
    owner = acts_for()
    if owner is None or owner[0] == 0:
        return
    user, group = owner
    try:
        entry = pwd.getpwuid(user)
        home, name = entry.pw_dir, entry.pw_name
        groups = os.getgrouplist(name, group)
    except KeyError:
        home, name, groups = "/nonexistent", str(user), [group]
    if not _may_read(owner, (__file__, os.__file__, sys.prefix, ".")):
        return
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    # /proc/self is root's after a change of the user.
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    os.environ.update(HOME=home, USER=name, LOGNAME=name)


def _may_read(owner: tuple[int, int], places: Iterable[str]) -> bool:
    """Whether a user can open all of these."""
    # Root's group would open more.
    groups = os.getgroups()
    os.setgroups([])
    try:
        with rights_of(owner):
            for place in places:
                os.close(os.open(place, os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return False
    finally:
        os.setgroups(groups)
    return True
