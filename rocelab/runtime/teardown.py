"""Taking a lab down from its record alone, whatever state a killed command left it in.

In: a lab's name. Out: nothing of it is left: no process, container, namespace, interface or file.
A process is the lab's by its namespaces; docs/runtime.md says which can not be found so.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rocelab.errors import MachineError
from rocelab.interruption import shielded, undone
from rocelab.kernel import namespaces, netns_cleanup, processes
from rocelab.kernel.rights import check_rights
from rocelab.progress import Progress, ProgressSink, no_progress
from rocelab.runtime.providers import NodeProvider, RuntimeKind, provider_of
from rocelab.runtime.queues.engine import remove as remove_queues
from rocelab.runtime.record import DamagedRecordError, LabFiles, locked, read_record, remove_files

CLEANUP_TIMEOUT_S = 120.0
KINDS = (namespaces.NETWORK, namespaces.MOUNTS)
"""A process may leave its network namespace for one of its own, without any rights where it makes a
user namespace first: it stays in the mount namespace of its switch then."""


def take_down(lab: str, progress: ProgressSink = no_progress) -> None:
    """Remove whatever the lab of that name owns, from its record alone. Idempotent.

    Raises InputError when another command works on the lab, MachineError, with all of it left as
    it is, where this process has not the rights to remove it.
    """
    if LabFiles(lab).root.exists():
        check_rights(taking_down=True)
    with locked(lab) as files, shielded(f"lab {lab} is taken down"):
        tear_down(files, progress)


def tear_down(files: LabFiles, progress: ProgressSink = no_progress) -> None:
    """Kill what runs in the lab's namespaces and let the namespaces go. The lock must be held.

    Needs no room in the lab's folder, whose file system may be full. Raises MachineError where it
    is called inside the lab, or where containers may be left.
    """
    inodes = _namespace_inodes(files)
    killed = 0
    while doomed := namespaces.processes_in(inodes, KINDS):
        processes.kill_and_wait(doomed, lambda pid: namespaces.is_process_in(pid, inodes, KINDS))
        killed += len(doomed)
        progress(Progress("processes", killed, killed))
    left: DamagedRecordError | None = None
    try:
        _provider(files).remove(files)
    except DamagedRecordError as error:
        left = error
    remove_queues(files)
    remove_files(files)
    if inodes:
        progress(Progress("interfaces", 0, 1))
        netns_cleanup.await_cleanup(CLEANUP_TIMEOUT_S)
        progress(Progress("interfaces", 1, 1))
        undone(f"lab {files.lab} was taken down")
    if left is not None:
        from rocelab.runtime.providers.containers import LABEL

        raise MachineError(
            f"lab {files.lab} is down, but containers of it may be left: {left.message}",
            f"look for them with `docker ps --all --filter label={LABEL}`",
        )


def _provider(files: LabFiles) -> NodeProvider:
    """The lab's runtime; by what else is written down where its record does not say."""
    with suppress(DamagedRecordError, ValueError):
        record = read_record(files.lab)
        if record is not None:
            return provider_of(RuntimeKind(record.runtime))
    # It removes whatever containers are written down, and nothing where there are none.
    return provider_of(RuntimeKind.CONTAINERLAB)


def _namespace_inodes(files: LabFiles) -> set[int]:
    """The lab's namespaces, of network and of mounts, whose processes are the lab's.

    Those of process 1 and the one that the lab was brought up from are never among them, whatever
    is mounted; a mount namespace that it was brought up from can not be (`rocelab.kernel.mounts`).
    Raises MachineError where this process itself is in one: it would end before it is done.
    """
    nodes = {**_kept(files.mounts), **_kept(files.netns)}
    with suppress(OSError):  # Process 1 may have more rights than we have.
        for kind in KINDS:
            nodes.pop(namespaces.inode_of(1, kind), None)
    with suppress(DamagedRecordError):
        if (record := read_record(files.lab)) is not None:
            nodes.pop(record.machine_netns, None)
    for own in (namespaces.inode_of(os.getpid(), kind) for kind in KINDS):
        if own in nodes:
            raise MachineError(
                f"this shell is in {nodes[own]} of lab {files.lab}, which would end it",
                "leave the node, and take the lab down from outside",
            )
    return set(nodes)


def _kept(folder: Path) -> dict[int, str]:
    """The nodes whose namespaces are mounted in a folder, by inode number."""
    if not os.path.ismount(folder):
        return {}
    tmpfs = folder.stat().st_dev
    mounts = {entry: entry.stat() for entry in folder.iterdir()}
    return {each.st_ino: path.name for path, each in mounts.items() if each.st_dev != tmpfs}
