"""Creates mount namespaces: the file systems that programs in a lab's nodes, a switch's daemons
and its vtysh see.

FRR's daemons have paths compiled in that no option changes: mgmtd's two sockets and the saved state
of zebra and mgmtd, mgmtd's configuration, and the folder of crash logs. In a mount namespace of its
own each switch has its own folders at these places, so nothing is shared with the machine's FRR or
with another switch. If FRR is in another system's tree, that tree is the whole file system.
Programs of users see this machine's file system, in a namespace of the lab, where one file may be
another.

`keep` keeps such a namespace. All of this runs on a thread of its own.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from rocelab.base.files import make_folders
from rocelab.linux import namespaces
from rocelab.linux.namespaces import MNT_DETACH, MS_BIND, check

CLONE_FS = 0x200
CLONE_NEWNS = 0x20000
MS_REC = 0x4000
MS_SLAVE = 1 << 19
MS_REMOUNT = 0x20
MS_NOSUID, MS_NODEV, MS_NOSYMFOLLOW = 0x2, 0x4, 0x100
_RESTRICTED = MS_NOSUID | MS_NODEV | MS_NOSYMFOLLOW
"""Mount options for folders that FRR's user writes in. A daemon starts as root and changes a
folder's owner to that user before it drops privileges (zlog_init of FRR's lib/zlog.c): it must not
follow a link that the user has put in its place. Linux 5.10 and later respect the last option."""
SYS_OPEN_TREE, SYS_MOVE_MOUNT = 428, 429
"""The same on all architectures (Linux 5.2); glibc has wrappers only since 2.36."""
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOVE_MOUNT_F_EMPTY_PATH = 0x4

NS_GET_MNTNS_ID = 0x8008B705
"""include/uapi/linux/nsfs.h."""

RUN, PROC = Path("/run"), Path("/proc")
SYSTEM_ROOT = Path("/")
_OF_KERNEL = (PROC, Path("/dev"))

_libc = ctypes.CDLL(None, use_errno=True)


def create_machine(labs: Path, kept: Path) -> int:
    """Make a mount namespace with this process's file system. Returns a descriptor of it.

    Of what is mounted below `labs` it has only `kept`: other labs' namespaces would be kept alive.
    Mount namespaces that are made within it can be mounted in it (`show`): it has a lower number.
    Raises OSError.
    """

    def make() -> int:
        _unshare()
        tree = _open_tree(SYSTEM_ROOT)
        try:
            _change_root(tree)
        finally:
            os.close(tree)
        _unmount(lambda place: labs in place.parents and place != kept)
        return os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    return namespaces.on_own_thread(make)


def keep(namespace: int, place: Path) -> None:
    """Mount a mount namespace on `place` and close its descriptor. Raises OSError."""
    try:
        namespaces.keep(Path(f"/proc/self/fd/{namespace}"), place)
    finally:
        os.close(namespace)


def show(kept: Path, within: Path) -> None:
    """Mount a kept mount namespace at the same path within another one, too. Raises OSError."""
    descriptor = os.open(kept, os.O_RDONLY | os.O_CLOEXEC)

    def mount() -> None:
        enter(within)
        _mount(Path(f"/proc/self/fd/{descriptor}"), kept, MS_BIND)

    try:
        namespaces.on_own_thread(mount)
    finally:
        os.close(descriptor)


def cover(file: Path, by: Path) -> None:
    """Let the calling thread's mount namespace have the file `by` at the path of `file`, which
    must exist. Idempotent. Raises OSError."""
    if not file.samefile(by):
        _mount(by, file, MS_BIND)


def create(
    root: Path, node: Path, places: Mapping[Path, Path], *, within: Path | None = None
) -> int:
    """Make a mount namespace. Returns a descriptor of it.

    `root` becomes its `/`: this process's own, or that of the mount namespace kept at `within`, or
    a folder there with another system. Its /run contains only `node`, the node's folder. Each of
    `places` shows a folder in `node`, if the root has such a place or it is in /run. Raises
    OSError.
    """

    def make() -> int:
        if within is not None:
            enter(within)
        _unshare()
        trees: dict[Path, int] = {}
        try:
            for origin in (root, node, *(() if root == SYSTEM_ROOT else _OF_KERNEL)):
                trees[origin] = _open_tree(origin)
            _change_root(trees[root])
            for origin in trees.keys() - {root, node}:
                _attach(trees[origin], origin)
            # It includes other nodes' namespaces, which would be kept alive.
            _unmount(lambda place: place.is_relative_to(RUN))
            check(_libc.mount(b"rocelab", os.fsencode(RUN), b"tmpfs", 0, b"mode=0755"), "mount")
            make_folders(node)
            _attach(trees[node], node)
            _restrict(node)
        finally:
            for descriptor in trees.values():
                os.close(descriptor)
        for place, source in places.items():
            if place.resolve().is_relative_to(RUN):
                make_folders(place.resolve())
            if place.is_dir():
                _mount(source, place, MS_BIND)
                _restrict(place)
        return os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    return namespaces.on_own_thread(make)


def copy(namespace: Path) -> int:
    """Make a mount namespace that begins as a kept one is. Returns a descriptor of it. What is
    mounted in one of both is not seen in the other. Raises OSError."""

    def make() -> int:
        enter(namespace)
        _unshare()
        _mount(None, SYSTEM_ROOT, MS_REC | MS_SLAVE)
        return os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    return namespaces.on_own_thread(make)


def _unshare() -> None:
    """Move the calling thread into a new mount namespace that can be mounted in its present one.

    The kernel mounts a mount namespace only in one of a lower number (fs/namespace.c, mnt_ns_loop),
    and Linux 6.18 numbers by CPU: a new namespace may have a lower number than ours, which was made
    on another CPU. Then one is made on each CPU in turn: the CPU on which ours was made gives
    higher numbers.
    """
    number = _number()
    own_cpus = os.sched_getaffinity(0)
    try:
        check(_libc.unshare(CLONE_NEWNS), "unshare")
        for cpu in sorted(os.sched_getaffinity(os.getpid())):
            if number is None or (_number() or 0) > number:
                break
            os.sched_setaffinity(0, {cpu})
            check(_libc.unshare(CLONE_NEWNS), "unshare")
    finally:
        os.sched_setaffinity(0, own_cpus)


def _number() -> int | None:
    """The kernel's number of the calling thread's mount namespace; None if unavailable."""
    with Path("/proc/thread-self/ns/mnt").open("rb") as namespace:
        try:
            answer = fcntl.ioctl(namespace, NS_GET_MNTNS_ID, bytes(8))
        except OSError:
            return None
    return int(struct.unpack("=Q", answer)[0])


def enter_scratch() -> Path:
    """Move the calling thread, which must end there, into a mount namespace of its own with an
    empty file system on `RUN`, whose path is returned. Nothing of it stays, even after SIGKILL.
    Raises OSError."""
    check(_libc.unshare(CLONE_NEWNS), "unshare")
    _mount(None, SYSTEM_ROOT, MS_REC | MS_SLAVE)
    namespaces.mount_tmpfs(RUN)
    return RUN


def show_processes() -> None:
    """Move the calling thread into a mount namespace of its own whose /proc shows the processes of
    its pid_namespaces(7). Raises OSError."""
    check(_libc.unshare(CLONE_NEWNS), "unshare")
    _mount(None, SYSTEM_ROOT, MS_REC | MS_SLAVE)
    check(_libc.mount(b"proc", os.fsencode(PROC), b"proc", 0, None), "mount proc")


def enter_here(namespace: Path) -> None:
    """Move the calling thread, which must end there, into a mount namespace, and into its present
    working directory there. Raises OSError."""
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        place = Path(f"/proc/self/fd/{here}").readlink()
        enter(namespace)
        # It may have been removed, or mounted after the namespace was made.
        if place.is_dir() and os.path.samestat(place.stat(), os.fstat(here)):
            os.chdir(place)
        else:
            os.fchdir(here)
    finally:
        os.close(here)


def enter(namespace: Path) -> None:
    """Move the calling thread, which must end there, into a mount namespace. Raises OSError."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(descriptor)
    finally:
        os.close(descriptor)


def _enter(descriptor: int) -> None:
    # A thread that shares its root and working directory with others may not (setns(2)).
    check(_libc.unshare(CLONE_FS), "unshare")
    check(_libc.setns(descriptor, CLONE_NEWNS), "setns")


def _change_root(tree: int) -> None:
    """Make a tree the root of the calling thread's mount namespace, and detach everything else.

    A process that enters a namespace is at the namespace's root, not at its creator's (chroot(2)):
    so the tree becomes the namespace's root, not only the thread's.
    """
    descriptor = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(descriptor)
    finally:
        os.close(descriptor)
    # Later unmounts of the machine propagate here, so that nothing is kept in use.
    _mount(None, SYSTEM_ROOT, MS_REC | MS_SLAVE)
    _attach(tree, SYSTEM_ROOT)
    os.fchdir(tree)
    _mount(None, Path(), MS_REC | MS_SLAVE)
    check(_libc.pivot_root(b".", b"."), "pivot_root")
    # The old root lies on the new one now (pivot_root(2)).
    check(_libc.umount2(b".", MNT_DETACH), "umount /")
    os.chdir("/")


def _unmount(is_doomed: Callable[[Path], bool]) -> None:
    """Unmount in the calling thread's mount namespace what is mounted on such paths."""
    points = []
    with Path("/proc/thread-self/mountinfo").open("rb") as lines:
        for line in lines:
            point = re.sub(rb"\\(\d{3})", lambda code: bytes([int(code[1], 8)]), line.split()[4])
            if is_doomed(Path(os.fsdecode(point))):
                points.append(point)
    for point in points:
        # A mount below another goes with it.
        _libc.umount2(point, MNT_DETACH)


def _open_tree(path: Path) -> int:
    """A copy of all that is mounted at and below a path, mounted nowhere yet."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE
    descriptor = int(_libc.syscall(SYS_OPEN_TREE, AT_FDCWD, os.fsencode(path), flags))
    check(min(descriptor, 0), f"open_tree {path}")
    return descriptor


def _attach(tree: int, place: Path) -> None:
    arguments = (tree, b"", AT_FDCWD, os.fsencode(place), MOVE_MOUNT_F_EMPTY_PATH)
    check(_libc.syscall(SYS_MOVE_MOUNT, *arguments), f"move_mount {place}")


def _restrict(place: Path) -> None:
    _mount(None, place, MS_REMOUNT | MS_BIND | _RESTRICTED)


def _mount(source: Path | None, target: Path, flags: int) -> None:
    origin = None if source is None else os.fsencode(source)
    check(_libc.mount(origin, os.fsencode(target), None, flags, None), f"mount {target}")
