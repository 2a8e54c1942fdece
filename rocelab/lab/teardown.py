"""Takes a lab down from its record alone, in any state that a killed command left.

No process, container, namespace, interface or file of the lab is left. A process is the lab's if it
is in the lab's namespaces; docs/runtime.md says which processes this does not find.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rocelab.base.errors import InputError, MachineError
from rocelab.base.interruption import shielded, undone
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.lab.kind import CONTAINER_LABEL
from rocelab.lab.providers import (
    NodeProvider,
    provider_of,
    recorded_provider,
)
from rocelab.linux import namespaces, netns_cleanup, processes
from rocelab.linux.rights import check_rights
from rocelab.record import DamagedRecordError, LabFiles, locked, read_record, remove_files

CLEANUP_TIMEOUT_S = 120.0
KINDS = (namespaces.NETWORK, namespaces.MOUNTS)
"""A process may leave its network namespace for a new one, even without rights if it makes a user
namespace first: it is then still in the mount namespace of its switch."""


def take_down(lab: str, progress: ProgressSink = no_progress) -> None:
    """Remove everything that the lab owns, from its record alone. Idempotent.

    Raises InputError if another command works on the lab, or it was adopted; MachineError, before
    anything is removed, if this process lacks the rights.
    """
    if LabFiles(lab).root.exists():
        check_rights(taking_down=True)
        if LabFiles(lab).is_adopted:
            raise InputError(
                f"lab {lab} was adopted: rocelab takes down only what it brought up",
                f"release it with `rocelab release {lab}`",
            )
    with locked(lab) as files, shielded(f"lab {lab} is taken down"):
        tear_down(files, progress)


def tear_down(files: LabFiles, progress: ProgressSink = no_progress) -> None:
    """Kill the processes in the lab's namespaces and remove the namespaces. The caller holds the
    lock.

    Needs no room in the lab's folder, whose file system may be full. Raises MachineError if it is
    called inside the lab, or if containers may be left.
    """
    inodes = _namespace_inodes(files)
    killed = 0

    def is_of_lab(pid: int) -> bool:
        return namespaces.is_process_in(pid, inodes, KINDS)

    while doomed := namespaces.processes_in(inodes, KINDS):
        # None runs while others are killed: daemons that see their neighbours end compute routes.
        processes.stop(doomed, is_of_lab)
        processes.kill_and_wait(doomed, is_of_lab)
        killed += len(doomed)
        progress(Progress("processes", killed, killed))
    left: DamagedRecordError | None = None
    provider, gone = _provider(files)
    try:
        provider.remove(files)
    except DamagedRecordError as error:
        left = error
    for network in (files, *files.of_networks()):
        namespaces.detach_mounts(network.bpf)
    remove_files(files)
    if inodes:
        progress(Progress("interfaces", 0, 1))
        netns_cleanup.await_cleanup(CLEANUP_TIMEOUT_S)
        progress(Progress("interfaces", 1, 1))
        undone(f"lab {files.lab} was taken down")
    if gone is not None:
        raise MachineError(
            f"lab {files.lab} is down: its processes, namespaces and links are gone; what the "
            f"runtime {gone} made besides may be left, as its package is not installed here",
            "look for it with that runtime's own tools",
        )
    if left is not None:
        raise MachineError(
            f"lab {files.lab} is down, but containers of it may be left: {left.message}",
            f"look for them with `docker ps --all --filter label={CONTAINER_LABEL}`",
        )


def _provider(files: LabFiles) -> tuple[NodeProvider, str | None]:
    """The lab's runtime, found from its other files if the record does not say; and the runtime
    that the record names, if its package is gone."""
    gone = None
    with suppress(DamagedRecordError):
        record = read_record(files.lab)
        if record is not None:
            try:
                return recorded_provider(files.lab, record.runtime), None
            except InputError:
                gone = record.runtime
    # It removes all recorded containers, or nothing if there are none.
    return provider_of("containerlab"), gone


def _namespace_inodes(files: LabFiles) -> set[int]:
    """The inodes of the lab's network and mount namespaces, whose processes are the lab's.

    Never includes those of process 1 and the network namespace that the lab was brought up from,
    whatever is mounted; the mount namespace it was brought up from cannot be mounted there
    (`rocelab.linux.mounts`). Raises MachineError if this process is in one: it would kill itself.
    """
    nodes = {**_kept(files.mounts), **_kept(files.netns)}
    with suppress(OSError):  # Process 1 may have more rights than this one.
        for kind in KINDS:
            nodes.pop(namespaces.inode_of(1, kind), None)
    with suppress(DamagedRecordError):
        if (record := read_record(files.lab)) is not None:
            nodes.pop(record.machine_netns, None)
    for inode in (namespaces.inode_of(os.getpid(), kind) for kind in KINDS):
        if inode in nodes:
            raise MachineError(
                f"this shell is in {nodes[inode]} of lab {files.lab}, which would end it",
                "leave the node, and take the lab down from outside",
            )
    return set(nodes)


def _kept(folder: Path) -> dict[int, str]:
    """The nodes whose namespaces are mounted in a folder, by inode number."""
    if not os.path.ismount(folder):
        return {}
    tmpfs = folder.stat().st_dev
    mounts = {entry: entry.stat() for entry in folder.iterdir()}
    return {status.st_ino: path.name for path, status in mounts.items() if status.st_dev != tmpfs}
