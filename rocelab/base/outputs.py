"""The one place that writes what users name: results, pictures, captures, pages, evidence, sweeps.

Everything is written below a folder that is held open, so that a link or another folder that is put
in its place meanwhile has no effect. A file is a new one that takes the name of an older one when
it is whole; nothing else than a plain file is ever written to or replaced. Others may not write to
files and folders, whatever the umask. What root writes for a user of sudo is that user's from the
beginning. `rocelab.base.trust` says which links root follows on the way to a folder. openat2(2)
with RESOLVE_NO_SYMLINKS refuses all of them, also root's own, such as /var/run; the walk here looks
at each component that it has opened, so that what was looked at is what is followed, on all
kernels. Existing content is not overwritten without `overwrite`, and a failed command leaves no
empty folder behind.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePath
from secrets import token_hex
from typing import BinaryIO, Self, TypeVar

from rocelab.base.errors import InputError, MachineError
from rocelab.base.files import NO_ROOM
from rocelab.base.interruption import shielded
from rocelab.base.trust import acts_for, may_lead, rights_of

RESULT, REPORT = "result.json", "report.html"
OVERWRITE = "name another place, or use --force to overwrite it"

FOLDER_MODE, FILE_MODE = 0o755, 0o644
"""At most; the umask may take more away."""

_MOST_LINKS = 40
"""MAXSYMLINKS of the kernel."""

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}

T = TypeVar("T")


class NotPlainError(OSError):
    """Something else than a plain file with one name is where a file is to be written, or a link on
    the way to it that another user could have put there."""


class Folder:
    """A folder that is held open: all its methods work in it, wherever its path leads by then.
    They raise OSError with the whole path."""

    def __init__(self, path: Path, descriptor: int, made: Sequence[tuple[int, str]] = ()) -> None:
        """`descriptor` is closed with it; `made`: the folders made for it, each as the descriptor
        of the folder that it is in and its name."""
        self.path = path
        self._descriptor = descriptor
        self._made = list(made)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let it go. Idempotent."""
        descriptors = [self._descriptor, *(above for above, _ in self._made)]
        self._descriptor, self._made = -1, []
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def __truediv__(self, name: str) -> OutputPlace:
        return OutputPlace(self.path / name, self)

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block in which no other process holds it. Raises InputError if one does."""
        with _named(self.path):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            opened = os.open(".", flags, dir_fd=self._descriptor)
        try:
            # Some file systems have no locks.
            with suppress(OSError):
                _lock(opened, self.path)
            yield
        finally:
            os.close(opened)

    def remove_made(self) -> None:
        """Remove the folders that were made for it, if they are empty."""
        for above, name in reversed(self._made):
            with suppress(OSError):
                os.rmdir(name, dir_fd=above)

    def below(self, *names: str, mode: int = FOLDER_MODE) -> Folder:
        """The folder below it, made if missing, and all on the way. Follows no link."""
        return _walked(self.path.joinpath(*names), names, os.dup(self._descriptor), mode, None)

    def names(self) -> list[str]:
        """The names in it, in order."""
        with _named(self.path):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            listed = os.open(".", flags, dir_fd=self._descriptor)
            try:
                return sorted(os.listdir(listed))  # noqa: PTH208
            finally:
                os.close(listed)

    def has(self, name: str) -> bool:
        """Whether it has anything of that name."""
        return self._status(name) is not None

    def has_folder(self, name: str) -> bool:
        """Whether it has a folder of that name."""
        status = self._status(name)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def size(self, name: str) -> int:
        """The bytes of a file."""
        with _named(self.path / name):
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_size

    def check(self, name: str) -> None:
        """Raises NotPlainError if there is something else of that name than a plain file."""
        status = self._status(name)
        if status is not None:
            _check_plain(status, self.path / name)

    def create(self, name: str, mode: int = FILE_MODE) -> BinaryIO:
        """A new file, to write."""
        with _named(self.path / name):
            return os.fdopen(self._created(name, mode, os.O_WRONLY), "wb")

    @contextmanager
    def replacing(self, name: str, mode: int = FILE_MODE) -> Iterator[BinaryIO]:
        """A new file, to write, that has the name when the block ends without an error, and takes
        it from an older one. What killed processes left of such files is removed."""
        self.check(name)
        self._remove_left(name)
        with _named(self.path / name):
            fresh, descriptor = self._fresh(name, mode)
        try:
            with _named(self.path / name), os.fdopen(descriptor, "wb") as opened:
                yield opened
                opened.flush()
                here = self._descriptor
                os.rename(fresh, name, src_dir_fd=here, dst_dir_fd=here)
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=self._descriptor)
            raise

    def _fresh(self, name: str, mode: int) -> tuple[str, int]:
        """A new file that is to replace another, and a descriptor with which it is locked."""
        while True:
            fresh = f"{_fresh_stem(name)}{token_hex(8)}.new"
            descriptor = self._created(fresh, mode, os.O_WRONLY)
            # Some file systems have no locks.
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Before it was locked, another process may have removed it.
            if os.fstat(descriptor).st_nlink:
                return fresh, descriptor
            os.close(descriptor)

    def _remove_left(self, name: str) -> None:
        """Remove the files of `_fresh` whose processes have ended: they have no lock."""
        pattern = re.compile(rf"{re.escape(_fresh_stem(name))}[0-9a-f]{{16}}\.new")
        # A folder may be writable and not readable.
        with suppress(OSError):
            for left in filter(pattern.fullmatch, self.names()):
                with suppress(OSError), self.read(left) as opened:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(left, dir_fd=self._descriptor)

    def replace(self, name: str, content: str | bytes, mode: int = FILE_MODE) -> None:
        """Write a whole file, `replacing` an older one."""
        with self.replacing(name, mode) as opened:
            opened.write(content.encode() if isinstance(content, str) else content)

    def replace_all(self, contents: Mapping[str, str | bytes]) -> None:
        """Write whole files, all of them or, if it is interrupted before all are written, none."""
        with shielded(None) as shield, ExitStack() as written, shield.lifted():
            for name, content in contents.items():
                opened = written.enter_context(self.replacing(name))
                opened.write(content.encode() if isinstance(content, str) else content)
                opened.flush()

    def append(self, name: str, mode: int = FILE_MODE) -> BinaryIO:
        """A file to read and to append to, made if missing."""
        with _named(self.path / name):
            try:
                descriptor = self._created(name, mode, os.O_RDWR | os.O_APPEND)
            except FileExistsError:
                flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                self.check(name)
                descriptor = os.open(name, flags, dir_fd=self._descriptor)
                try:
                    _check_plain(os.fstat(descriptor), self.path / name, is_one=True)
                except BaseException:
                    os.close(descriptor)
                    raise
        return os.fdopen(descriptor, "a+b")

    def read(self, name: str) -> BinaryIO:
        """A plain file, to read."""
        with _named(self.path / name):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self.check(name)
            descriptor = os.open(name, flags, dir_fd=self._descriptor)
            try:
                _check_plain(os.fstat(descriptor), self.path / name)
            except BaseException:
                os.close(descriptor)
                raise
        return os.fdopen(descriptor, "rb")

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all below it, if it is there. Follows no link."""
        status = self._status(name)
        with _named(self.path / name):
            if status is None:
                return
            if stat.S_ISDIR(status.st_mode):
                shutil.rmtree(name, dir_fd=self._descriptor)
            else:
                os.unlink(name, dir_fd=self._descriptor)

    def remove_empty(self, name: str) -> None:
        """Remove a folder in it, if it is empty."""
        with suppress(OSError):
            os.rmdir(name, dir_fd=self._descriptor)

    def sync(self) -> None:
        """Put its names on disk."""
        with _named(self.path):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            opened = os.open(".", flags, dir_fd=self._descriptor)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)

    def _status(self, name: str) -> os.stat_result | None:
        try:
            with _named(self.path / name):
                return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _created(self, name: str, mode: int, flags: int) -> int:
        owner = acts_for()
        descriptor = os.open(name, flags | _NEW, mode, dir_fd=self._descriptor)
        if owner is not None:
            # A file system without owners, such as FAT, keeps its own.
            with suppress(PermissionError):
                os.fchown(descriptor, *owner)
        return descriptor


def _fresh_stem(name: str) -> str:
    """What names of new files that are to replace `name` begin with."""
    return f".{name[:200]}."


def _lock(opened: int, path: Path) -> None:
    """Lock an open folder. Raises InputError if another process has; OSError."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"another command writes its results to {path} now",
            hint="name another folder, or wait until it has ended",
        ) from None


class OutputPlace:
    """A folder that is made when it is first needed: below one that is held open, or where its path
    leads then."""

    def __init__(self, path: Path, held: Folder | None = None) -> None:
        self.path = path
        self._held = held

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> OutputPlace:
        return OutputPlace(self.path / name, self._held)

    def open(self, mode: int = FOLDER_MODE) -> Folder:
        """The folder, made if missing. Raises OSError."""
        if self._held is None:
            return open_folder(self.path, make=True, mode=mode)
        return self._held.below(*self.path.relative_to(self._held.path).parts, mode=mode)


def open_folder(path: Path, *, make: bool = False, mode: int = FOLDER_MODE) -> Folder:
    """The folder at a path; with `make` it and those above it are made if missing. Raises OSError,
    NotPlainError for a link on the way that root does not follow."""
    start = "/" if path.is_absolute() else "."
    with _named(path):
        here = os.open(start, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    names = path.parts[path.is_absolute() :]
    return _walked(path, names, here, mode if make else None, _MOST_LINKS)


def _walked(
    path: Path, names: Sequence[str], here: int, mode: int | None, most_links: int | None
) -> Folder:
    """The folder that `names` lead to from the open folder `here`, which is closed. mode: of those
    that are made, None to make none. most_links: None to follow none."""
    left, links, made = list(reversed(names)), most_links or 0, list[tuple[int, str]]()
    try:
        with _named(path):
            while left:
                name = left.pop()
                entry = _entry(here, name, mode, made)
                status = os.fstat(entry)
                if stat.S_ISLNK(status.st_mode):
                    try:
                        if most_links is None or not may_lead(status, here):
                            raise NotPlainError(
                                errno.ELOOP,
                                f"{name} is a link that others than you may change",
                            )
                        if links == 0:
                            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                        target = PurePath(os.readlink("", dir_fd=entry))
                    finally:
                        os.close(entry)
                    links -= 1
                    left += reversed(target.parts[target.is_absolute() :])
                    if target.is_absolute():
                        root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                        os.close(here)
                        here = root
                    continue
                os.close(here)
                here = entry
                if not stat.S_ISDIR(status.st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, f"{name} is a file")
            return Folder(path, here, made)
    except BaseException:
        Folder(path, here, made).close()
        raise


def _entry(here: int, name: str, mode: int | None, made: list[tuple[int, str]]) -> int:
    """An entry of the open folder `here`, whatever it is; a missing one is made, and noted."""
    try:
        return os.open(name, _PATH, dir_fd=here)
    except FileNotFoundError:
        if mode is None:
            raise
    with suppress(FileExistsError):
        _make(here, name, mode)
        made.append((os.dup(here), name))
    return os.open(name, _PATH, dir_fd=here)


def _make(here: int, name: str, mode: int) -> None:
    """Make a folder; for a user of sudo with that user's rights, so that it is that user's. Where
    these do not suffice root makes it, and it stays root's."""
    owner = acts_for()
    if owner is not None:
        with suppress(PermissionError), rights_of(owner):
            os.mkdir(name, mode, dir_fd=here)
            return
    os.mkdir(name, mode, dir_fd=here)


def _check_plain(status: os.stat_result, path: Path, *, is_one: bool = False) -> None:
    """Raises NotPlainError unless it is a plain file; is_one: with one name, as it is written to in
    place."""
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    if kind is not None:
        raise NotPlainError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
    if is_one and status.st_nlink > 1:
        raise NotPlainError(errno.EINVAL, "it has other names (hard links)", str(path))


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of a block name the whole path."""
    try:
        yield
    except OSError as error:
        if error.errno is None or str(error.filename).startswith("/"):
            raise
        kind = NotPlainError if isinstance(error, NotPlainError) else OSError
        raise kind(error.errno, error.strerror, str(path)) from None


@contextmanager
def results_folder(folder: Path, *, overwrite: bool = False) -> Iterator[Folder]:
    """The folder, created if missing, for the results of the block, which holds it open.

    If the block ends by an error or a signal, the folders made for it are removed if empty. Raises
    InputError if the folder has a result already, without `overwrite`, cannot be written to, or
    another command writes its results there; MachineError if the disk is full.
    """
    with written_to(folder):
        opened = open_folder(folder, make=True)
    with opened:
        try:
            with written_to(folder), opened.held():
                check_new(opened, overwrite=overwrite)
                yield opened
        except BaseException:
            opened.remove_made()
            raise


def check_new(folder: Folder, hint: str = OVERWRITE, *, overwrite: bool = False) -> None:
    """Raises InputError if the folder has a result, without `overwrite`; OSError if something else
    than a plain file is in the place of one."""
    for name in (RESULT, REPORT):
        if folder.has(name) and not overwrite:
            raise InputError(f"{folder.path} has a {name} already", hint=hint)
        folder.check(name)


class OutputFile:
    """A file that a user names, in a folder that is held open."""

    def __init__(self, folder: Folder, name: str, *, overwrite: bool) -> None:
        self.path = folder.path / name
        self._folder, self._name, self._overwrite = folder, name, overwrite

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.close()

    def write(self, content: str | bytes) -> None:
        """Write it whole, over what is there. Raises InputError if it cannot be written."""
        with _unwritable(self.path):
            self._folder.replace(self._name, content)

    def create(self) -> BinaryIO:
        """The new file, to write piece by piece: it has its name from the start, so that what was
        written stays. Raises InputError."""
        with _unwritable(self.path):
            if self._overwrite:
                self._folder.check(self._name)
                self._folder.remove(self._name)
            return self._folder.create(self._name)


def output_file(file: Path, *, overwrite: bool, make: bool = False) -> OutputFile:
    """The file that a command is to write; with `make` in a folder that is made if missing. Raises
    InputError if it exists, without `overwrite`, is no plain file, or its folder does not exist."""
    try:
        folder = open_folder(file.parent, make=make)
    except FileNotFoundError:
        raise InputError(f"there is no folder {file.parent}", hint="make it first") from None
    except OSError as error:
        raise _cannot_be_written(file, error) from None
    try:
        with _unwritable(file):
            if file.name in ("", "..") or folder.has_folder(file.name):
                raise InputError(f"{file} is a folder", hint="name a file")
            if folder.has(file.name) and not overwrite:
                raise InputError(f"{file} is there already", hint=OVERWRITE)
            folder.check(file.name)
    except BaseException:
        folder.close()
        raise
    return OutputFile(folder, file.name, overwrite=overwrite)


@contextmanager
def _unwritable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _cannot_be_written(path, error) from None


def _cannot_be_written(path: Path, error: OSError) -> InputError:
    why = error.strerror or "unknown error"
    return InputError(f"{path} cannot be written: {why}", hint="name another file")


@contextmanager
def shown_if_unwritten(results: Sequence[T], show: Callable[[T], None]) -> Iterator[None]:
    """Show `found` if the block ends by an error: not all of it is in files."""
    try:
        yield
    except Exception:
        for result in results:
            show(result)
        raise


@contextmanager
def written_to(folder: Path) -> Iterator[None]:
    """Turn an error of writing into the folder into an InputError, or a MachineError if there is no
    room."""
    try:
        yield
    except OSError as error:
        where = Path(error.filename) if isinstance(error.filename, str) else None
        if error.errno in NO_ROOM:
            if where is not None and not where.is_relative_to(folder):
                raise MachineError(f"there is no room for {where}: {error.strerror}") from None
            raise MachineError(
                f"there is no room for results in {folder}: {error.strerror}",
                hint="make room there, or name another folder",
            ) from None
        if where is None or not (where.is_relative_to(folder) or where in folder.parents):
            raise
        which = "" if where == folder or where in folder.parents else f"{where.name}: "
        raise InputError(
            f"results cannot be written to {folder}: {which}{error.strerror}",
            hint="name another folder",
        ) from None
