"""Creates a lab's files with explicit modes, and reads files that daemons write without trust.

Modes do not depend on the umask: FRR's user must reach its folder under 077, and no other user may
write below /run/rocelab under 000. A node's `frr` folder belongs to FRR's user, who may put
anything there; root reads only regular files of that user from it. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import AnyStr, BinaryIO

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

FOLDER_MODE = 0o755
FILE_MODE = 0o644
MOST_BYTES = 256 << 20
"""The most bytes read at once from a file of another user."""
MOST_LINE = 1000
"""The most characters of a line in such a file; a daemon's own lines are much shorter."""


class UntrustedFileError(OSError):
    """A file of the wrong kind: a link, a device, another user's file, or one under a lease."""


class TooLargeError(OSError):
    """A file that exceeds the limit of its kind."""


class NotTextError(ValueError):
    """What is not UTF-8 text. The message says what it is; hint: what to do; line: where, or
    None."""

    def __init__(self, message: str, hint: str, line: int | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.line = line


def make_folder(folder: Path, mode: int = FOLDER_MODE, *, exist_ok: bool = False) -> None:
    """Make one folder; an existing one keeps its mode. Raises OSError."""
    try:
        folder.mkdir(mode)
    except FileExistsError:
        if not exist_ok:
            raise
        # If it has been removed meanwhile, its user gets the error.
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(folder.stat().st_mode):
                raise
        return
    folder.chmod(mode)


def make_folders(folder: Path, mode: int = FOLDER_MODE) -> None:
    """Make a folder and its missing parents. Raises OSError."""
    for above in reversed(folder.parents):
        make_folder(above, mode, exist_ok=True)
    make_folder(folder, mode, exist_ok=True)


def write_file(
    file: Path, content: str | bytes, mode: int = FILE_MODE, group: int | None = None
) -> None:
    """Write a file; mode and group (if not None) are set before it has any content. Raises
    OSError."""
    # Not blocking: a pipe in its place would wait for a reader.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(file, flags, mode & 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        if group is not None:
            os.fchown(descriptor, -1, group)
        os.fchmod(descriptor, mode)
        opened.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(file: Path, mode: int = FILE_MODE) -> Iterator[BinaryIO]:
    """A file to write that replaces `file` atomically when the block ends without an error. It is
    always a new file, also in a folder where others may write. Raises OSError."""
    fresh = file.with_name(f".{file.name}.{token_hex(8)}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(fresh, flags, mode & 0o600), "wb") as opened:
            os.fchmod(opened.fileno(), mode)
            yield opened
        fresh.replace(file)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise


def replace_file(file: Path, content: str | bytes, mode: int = FILE_MODE) -> None:
    """Write a whole file, `replacing` an existing one. Raises OSError."""
    with replacing(file, mode) as opened:
        opened.write(content.encode() if isinstance(content, str) else content)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all below it on its file system, however deep; what cannot be removed
    stays. Follows no link.

    A folder of another user may be nested deeper than Python's `shutil.rmtree` can go before 3.13.
    """
    subprocess.run(
        ["/bin/rm", "-rf", "--one-file-system", "--", folder],
        check=False,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextmanager
def scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A folder for the block, in `parent` or where temporary ones are. Those of the same prefix
    that killed commands of this user left there are removed. Raises OSError."""
    place = Path(tempfile.gettempdir()) if parent is None else parent
    for left in place.glob(f"{prefix}*"):
        with suppress(OSError):
            descriptor = _hold(left)
            if os.fstat(descriptor).st_uid == os.geteuid():
                remove_tree(left)
            os.close(descriptor)
    folder, descriptor = _held_folder(prefix, place)
    try:
        yield folder
    finally:
        remove_tree(folder)
        os.close(descriptor)


def _held_folder(prefix: str, place: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        # Another command may have held it first, to remove it.
        with suppress(FileNotFoundError, BlockingIOError):
            descriptor = _hold(folder)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)


def _hold(folder: Path) -> int:
    """A descriptor of a folder that no other process holds. Raises OSError; BlockingIOError if one
    does."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def append_file(file: Path, text: str, mode: int = FILE_MODE) -> int:
    """Append to a file, created if missing. Returns its size. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, mode), "ab") as opened:
        opened.write(text.encode())
        return opened.tell()


def open_input(file: Path) -> BinaryIO:
    """Open for reading a file that a user or another file names.

    Raises OSError, also if it is not a regular file: a pipe may never begin, a device never end.
    """
    # A pipe without a writer would hold open(2).
    flags = os.O_NONBLOCK | os.O_NOCTTY
    opened = open(file, "rb", opener=lambda path, mode: os.open(path, mode | flags))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        opened.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(file))
    return opened


def read_input(file: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """The content of such a file. Raises as `open_input`, and TooLargeError for a larger file."""
    with open_input(file) as opened:
        # None of a file of /proc that has nothing now.
        content = opened.read(most_bytes + 1) or b""
    if len(content) > most_bytes:
        reason = f"it is larger than {most_bytes:,} bytes"
        raise TooLargeError(errno.EFBIG, reason, str(file))
    return content


def text_of(content: bytes) -> str:
    """The text of a file that a user wrote: UTF-8, with or without the byte order mark that
    spreadsheets and editors of Windows write. Raises NotTextError."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise NotTextError("UTF-16 text", "save it as UTF-8")
    if b"\0" in content:
        raise NotTextError("a binary file; expected text", "is it the right file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise NotTextError("not UTF-8 text", "save it as UTF-8", line) from None


def open_untrusted(file: Path) -> BinaryIO:
    """Open for reading a file in a folder whose owner, another user, may put anything there.

    Raises UntrustedFileError if it is not a regular file of that owner or the owner has a lease on
    it (fcntl(2), F_SETLEASE), OSError as open(2).
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(file, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise UntrustedFileError(error.errno, "is not a regular file", str(file)) from None
        if error.errno == errno.EWOULDBLOCK:
            raise UntrustedFileError(error.errno, "is under a lease", str(file)) from None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedFileError(errno.EINVAL, "is not a regular file", str(file))
        if status.st_uid != file.parent.stat().st_uid:
            raise UntrustedFileError(errno.EPERM, "belongs to another user", str(file))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_untrusted(file: Path, offset: int = 0, most_bytes: int = MOST_BYTES) -> bytes:
    """Read at most `most_bytes` of such a file, from `offset` on. Raises as `open_untrusted`."""
    with open_untrusted(file) as opened:
        opened.seek(offset)
        return opened.read(most_bytes)


def untrusted_tail(file: Path, most_bytes: int, after: int = 0) -> bytes:
    """The last `most_bytes` of such a file, of what is after the offset `after`. Raises as
    `open_untrusted`."""
    return read_untrusted(file, max(after, untrusted_size(file) - most_bytes), most_bytes)


def untrusted_size(file: Path) -> int:
    """The size of such a file. Raises as `open_untrusted`."""
    with open_untrusted(file) as opened:
        return os.fstat(opened.fileno()).st_size


def untrusted_lines(text: AnyStr) -> list[AnyStr]:
    """The lines of what was read from such a file, without longer ones than any of a daemon: some
    expressions take hours for one of a megabyte."""
    return [line for line in text.splitlines() if len(line) <= MOST_LINE]
