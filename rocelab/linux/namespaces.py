"""Creates and enters network namespaces, and finds the processes in network or mount namespaces.

A thread enters a namespace, never the process: `inside` runs a function on a thread of its own that
ends there, so no other thread is ever in a foreign namespace.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from rocelab.base.interruption import shielded

Result = TypeVar("Result")

CLONE_NEWNET = 0x40000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWPID = 0x20000000
MS_BIND = 0x1000
MS_PRIVATE = 1 << 18
MNT_DETACH = 0x2
NETWORK, MOUNTS = "net", "mnt"
"""Kinds of namespaces, by their names in /proc (proc_pid_ns(5))."""

_libc = ctypes.CDLL(None, use_errno=True)


def check(outcome: int, what: str) -> None:
    """Raises OSError if a call of libc did not return 0."""
    if outcome != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")


def enter(netns: Path | int) -> None:
    """Move the calling thread into a namespace, by path or open descriptor.

    Call it only on a thread that will end there or in a process that will stay there.
    """
    if isinstance(netns, int):
        check(_libc.setns(netns, CLONE_NEWNET), "setns")
        return
    descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        check(_libc.setns(descriptor, CLONE_NEWNET), f"setns {netns}")
    finally:
        os.close(descriptor)


def on_own_thread(
    function: Callable[[], Result], give_up: Callable[[], object] = lambda: None
) -> Result:
    """What `function` returns when called on a thread that ends with it. Raises what it raises.

    `give_up` is called if a signal interrupts the wait, which then continues until `function`
    returns.
    """
    outcome: list[Result] = []
    failure: list[BaseException] = []
    is_over = threading.Event()

    def body() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            failure.append(error)
        finally:
            is_over.set()

    thread = threading.Thread(target=body, name="netns")
    with shielded(None) as shield:
        thread.start()
        try:
            with shield.lifted():
                # Not join(): when interrupted it takes a running thread for one that has ended
                # (bpo-45274).
                is_over.wait()
        except BaseException:
            # An interrupted caller cleans up next: `function` must not add to that any more.
            give_up()
            raise
        finally:
            thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def inside(netns: Path | int, function: Callable[[], Result]) -> Result:
    """What `function` returns when called inside `netns`, on a thread of its own.

    Raises OSError if the namespace cannot be entered, and what `function` raises.
    """

    def visit() -> Result:
        enter(netns)
        return function()

    return on_own_thread(visit)


@contextmanager
def opened(netns_of: Mapping[str, Path]) -> Iterator[Mapping[str, int]]:
    """A descriptor of each namespace, by the same names, closed at the end. Raises OSError."""
    with ExitStack() as stack:
        descriptors = {}
        for name, path in netns_of.items():
            descriptors[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, descriptors[name])
        yield descriptors


def inside_each(netns_of: Mapping[str, int], function: Callable[[str], None]) -> None:
    """Call `function(name)` inside each namespace in turn, all on one thread of its own.

    Raises what `function` raises, or OSError if a namespace cannot be entered.
    """

    given_up = threading.Event()

    def visit_all() -> None:
        for name, descriptor in netns_of.items():
            if given_up.is_set():
                return
            enter(descriptor)
            function(name)

    on_own_thread(visit_all, given_up.set)


def unshare() -> None:
    """Move the calling thread into a new namespace. Raises OSError."""
    check(_libc.unshare(CLONE_NEWNET), "unshare")


def unshare_processes() -> None:
    """Let the next child of this process be process 1 of a new pid_namespaces(7): all its
    descendants end with it, whatever they do. Raises OSError."""
    check(_libc.unshare(CLONE_NEWPID), "unshare")


def name_host(name: str) -> None:
    """Give the calling thread and what it starts a host name of their own (uts_namespaces(7)): the
    machine keeps its name. Raises OSError."""
    check(_libc.unshare(CLONE_NEWUTS), "unshare")
    encoded = os.fsencode(name)
    check(_libc.sethostname(encoded, len(encoded)), "sethostname")


def create(mount_point: Path) -> int:
    """Make a namespace and keep it alive by mounting it on `mount_point`. Returns a descriptor of
    it.

    The calling thread ends up inside the new namespace. Raises OSError.
    """
    mount_point.touch(mode=0o600, exist_ok=False)
    unshare()
    source = b"/proc/thread-self/ns/net"
    check(_libc.mount(source, os.fsencode(mount_point), None, MS_BIND, None), "mount")
    return os.open(mount_point, os.O_RDONLY | os.O_CLOEXEC)


def keep(namespace: Path, mount_point: Path) -> None:
    """Keep the namespace of another process alive by mounting it on `mount_point`. Raises
    OSError."""
    mount_point.touch(mode=0o600, exist_ok=False)
    source, target = os.fsencode(namespace), os.fsencode(mount_point)
    check(_libc.mount(source, target, None, MS_BIND, None), "mount")


def detach_mount(path: Path) -> None:
    """Unmount `path` and everything below it. Raises OSError."""
    check(_libc.umount2(os.fsencode(path), MNT_DETACH), f"umount {path}")


def detach_mounts(path: Path) -> None:
    """Unmount all that is mounted on `path`, each with everything below it. Raises OSError."""
    while os.path.ismount(path):
        detach_mount(path)


def mount_tmpfs(path: Path) -> None:
    """Mount an empty tmpfs on `path` that only root may read. Mounts below it do not propagate to
    other mount namespaces, as a mounted mount namespace must not (mount_namespaces(7)). Raises
    OSError."""
    check(_libc.mount(b"rocelab", os.fsencode(path), b"tmpfs", 0, b"mode=0700"), "mount tmpfs")
    check(_libc.mount(None, os.fsencode(path), None, MS_PRIVATE, None), "mount tmpfs")


def is_process_in(pid: int, inodes: Collection[int], kinds: Sequence[str] = (NETWORK,)) -> bool:
    """Whether a process exists and one of its namespaces of these kinds has one of these inode
    numbers, which are unique over all kinds."""
    with suppress(OSError):
        return any(inode_of(pid, kind) in inodes for kind in kinds)
    # It is gone, or its first thread has ended before others and is in no namespace.
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                if any(inode_of(int(thread.name), kind) in inodes for kind in kinds):
                    return True
    return False


def are_in_one(pid: int, other: int) -> bool:
    """Whether two processes are in the same network namespace, also where this one may not ask for
    their namespaces: process 1 may have more rights.

    Files of /proc/PID/net are their namespace's, with inode numbers of their own
    (fs/proc/proc_net.c), and no right is needed to see them. Raises OSError if one is gone.
    """
    one, another = (Path(f"/proc/{process}/net/dev").stat() for process in (pid, other))
    return one.st_ino == another.st_ino


def inode_of(pid: int, kind: str = NETWORK) -> int:
    """The inode number of the namespace of a process or thread. Raises OSError, PermissionError for
    a process with rights that this one lacks (ptrace(2), PTRACE_MODE_READ_FSCREDS)."""
    return Path(f"/proc/{pid}/ns/{kind}").stat().st_ino


def processes_in(inodes: Iterable[int], kinds: Sequence[str] = (NETWORK,)) -> list[int]:
    """Ids of the processes with a namespace of these kinds and one of these inode numbers."""
    wanted = set(inodes)
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    return [pid for pid in pids if is_process_in(pid, wanted, kinds)]
