"""Compiles BPF programs of a lab once, loads them through libbpf and pins them in a lab's folder.

From C source come descriptors of programs and maps. libbpf, which iproute2 brings, is called
directly, without a binding. A missing requirement (clang, libbpf, BTF, a privilege) is a
`BpfError`, so that a caller can continue without BPF.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from rocelab.base import trust
from rocelab.base.files import make_folder
from rocelab.linux import clang
from rocelab.linux.closing import Closing

CACHE = trust.CACHE / "bpf"
"""The folder of compiled programs: labs belong to root, and so do the programs that they load into
the kernel."""

_FLAGS = ("-target", "bpf", "-O2", "-g", "-Wall", "-mcpu=v3")
"""Version 3 of the instructions has atomic ones that return a value (Linux 5.12)."""


NOTHING: Mapping[str, Path] = MappingProxyType({})


class BpfError(OSError):
    """BPF programs are not available here; the text says what is missing."""


class _TestRun(ctypes.Structure):
    """struct bpf_test_run_opts of libbpf's bpf.h."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("data_in", ctypes.c_void_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_void_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    )


@cache
def _libbpf() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError:
        raise BpfError("libbpf.so.1 is missing (Debian package libbpf1)") from None
    for name in ("open_file", "find_map_by_name", "find_program_by_name"):
        getattr(library, f"bpf_object__{name}").restype = ctypes.c_void_p
    library.bpf_program__attach.restype = ctypes.c_void_p
    # libbpf would print thousands of lines about a refused program; its errno is enough.
    library.libbpf_set_print(ctypes.c_void_p())
    return library


def compiled(source: Path, included: Mapping[str, Path] = NOTHING) -> Path:
    """The object file of a C source, compiled if not cached; it may include headers of its folder.
    included: other files that it includes, by the macros that name them. Raises BpfError."""
    headers = f"-I/usr/include/{platform.machine()}-linux-gnu"
    files = [f'-D{macro}="{file}"' for macro, file in included.items()]
    try:
        return clang.compiled(
            source, (*_FLAGS, headers, *files, "-c"), CACHE, tuple(included.values())
        )
    except clang.CompileError as error:
        raise BpfError(str(error)) from None


class LoadedObject(Closing):
    """An object file in the kernel: `close` releases it and its descriptors, pins stay."""

    def __init__(self, file: Path, max_entries: Mapping[str, int]) -> None:
        """Load `file` with its maps of these sizes. Raises BpfError."""
        self._library = _libbpf()
        opened = self._library.bpf_object__open_file(os.fsencode(file), None)
        if not opened:
            raise BpfError(f"libbpf does not open {file}: {_reason()}")
        self._object = ctypes.c_void_p(opened)
        try:
            for name, entries in max_entries.items():
                self._library.bpf_map__set_max_entries(self._map(name), entries)
            if self._library.bpf_object__load(self._object) != 0:
                raise BpfError(f"this kernel ({os.uname().release}) refuses it: {_reason()}")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the object. Pinned or attached parts stay in the kernel."""
        self._library.bpf_object__close(self._object)

    def descriptor(self, name: str) -> int:
        """The descriptor of a map or a program."""
        if pointer := self._map(name):
            return int(self._library.bpf_map__fd(pointer))
        program = self._library.bpf_object__find_program_by_name(self._object, name.encode())
        return int(self._library.bpf_program__fd(ctypes.c_void_p(program)))

    def pin(self, names: Iterable[str], folder: Path) -> None:
        """Keep maps and programs in the kernel under their names in a folder of a bpffs.

        Raises BpfError.
        """
        for name in names:
            if self._library.bpf_obj_pin(self.descriptor(name), os.fsencode(folder / name)) != 0:
                raise BpfError(f"{folder / name} cannot be pinned: {_reason()}")

    def attach(self, name: str, pin: Path) -> None:
        """Attach a tracing program to the kernel's function that its section names, as long as the
        link is pinned. Raises BpfError."""
        program = self._library.bpf_object__find_program_by_name(self._object, name.encode())
        link = self._library.bpf_program__attach(ctypes.c_void_p(program))
        if not link:
            raise BpfError(f"{name} cannot be attached: {_reason()}")
        link = ctypes.c_void_p(link)
        try:
            if self._library.bpf_link__pin(link, os.fsencode(pin)) != 0:
                raise BpfError(f"{pin} cannot be pinned: {_reason()}")
            self._library.bpf_link__disconnect(link)
        finally:
            self._library.bpf_link__destroy(link)

    def _map(self, name: str) -> ctypes.c_void_p:
        pointer = self._library.bpf_object__find_map_by_name(self._object, name.encode())
        return ctypes.c_void_p(pointer)


def mount(folder: Path) -> None:
    """Make `folder` a bpffs, unless it is one already. Raises BpfError."""
    make_folder(folder, 0o700, exist_ok=True)
    if os.path.ismount(folder):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"rocelab", os.fsencode(folder), b"bpf", 0, b"mode=0700") != 0:
        raise BpfError(f"a bpffs cannot be mounted: {_reason()}")


def pinned(path: Path) -> int:
    """A descriptor of the object pinned at a path. Raises BpfError."""
    descriptor = _libbpf().bpf_obj_get(os.fsencode(path))
    if descriptor < 0:
        raise BpfError(f"nothing is pinned at {path}: {_reason()}")
    return int(descriptor)


def set_element(descriptor: int, key: bytes, value: bytes) -> None:
    """Write an element of a map. Raises BpfError."""
    if _libbpf().bpf_map_update_elem(descriptor, key, value, ctypes.c_uint64(0)) != 0:
        raise BpfError(f"a map refuses its element: {_reason()}")


def element(descriptor: int, key: bytes, value_bytes: int) -> bytes | None:
    """The value (`value_bytes` long) of a key in a map, None if missing."""
    value = ctypes.create_string_buffer(value_bytes)
    if _libbpf().bpf_map_lookup_elem(descriptor, key, value) != 0:
        return None
    return value.raw


def remove_element(descriptor: int, key: bytes) -> None:
    """Remove an element of a map, if present. Raises BpfError."""
    if _libbpf().bpf_map_delete_elem(descriptor, key) != 0 and ctypes.get_errno() != errno.ENOENT:
        raise BpfError(f"a map keeps its element: {_reason()}")


def keys(descriptor: int, key_bytes: int) -> list[bytes]:
    """The keys of a hash map. If one is removed meanwhile, the walk restarts."""
    library = _libbpf()
    entries: dict[bytes, None] = {}
    following = ctypes.create_string_buffer(key_bytes)
    last: bytes | None = None
    while library.bpf_map_get_next_key(descriptor, last, following) == 0:
        last = following.raw
        entries[last] = None
    return list(entries)


def run(program: int) -> None:
    """Run a program of type `syscall` once. Raises BpfError."""
    options = _TestRun(sz=ctypes.sizeof(_TestRun))
    if _libbpf().bpf_prog_test_run_opts(program, ctypes.byref(options)) != 0:
        raise BpfError(f"a program does not run: {_reason()}")


def _reason() -> str:
    return os.strerror(ctypes.get_errno())


class _MapInfo(ctypes.Structure):
    """The first fields of struct bpf_map_info (include/uapi/linux/bpf.h)."""

    _fields_ = tuple(
        (name, ctypes.c_uint32) for name in ("type", "id", "key_size", "value_size", "max_entries")
    )


def max_entries(descriptor: int) -> int:
    """The size of a map, in entries; of a ring buffer in bytes. Raises BpfError."""
    info, size = _MapInfo(), ctypes.c_uint32(ctypes.sizeof(_MapInfo))
    if _libbpf().bpf_obj_get_info_by_fd(descriptor, ctypes.byref(info), ctypes.byref(size)) != 0:
        raise BpfError(f"a map gives no information about itself: {_reason()}")
    return int(info.max_entries)


class Pinned(Closing):
    """A lab's pinned objects, by name."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        """Raises BpfError if one is not pinned in `folder`."""
        self._pinned: dict[str, int] = {}
        try:
            for name in names:
                self._pinned[name] = pinned(folder / name)
        except BaseException:
            Pinned.close(self)
            raise

    def __getitem__(self, name: str) -> int:
        """The descriptor of an object."""
        return self._pinned[name]

    def close(self) -> None:
        """Close the descriptors; pins and ports keep the objects."""
        while self._pinned:
            os.close(self._pinned.popitem()[1])
