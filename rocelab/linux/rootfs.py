"""Opens files below another root, such as a container's, whose links may point anywhere.

Source: openat2(2); include/uapi/linux/openat2.h.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10
_OPEN_HOW = struct.Struct("=QQQ")

_libc = ctypes.CDLL(None, use_errno=True)


def open_below(root: Path, path: str, flags: int) -> int:
    """Open `path` as a process whose root folder is `root` would: neither `..` nor a symbolic link
    leads out of it. Raises OSError."""
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        how = _OPEN_HOW.pack(flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
        descriptor = _libc.syscall(_SYS_OPENAT2, folder, os.fsencode(path), how, len(how))
    finally:
        os.close(folder)
    if descriptor < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno), path)
    return int(descriptor)
