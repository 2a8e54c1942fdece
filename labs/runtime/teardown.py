"""Taking a lab down from its record alone, whatever state a killed command left it in.

In: a lab's name. Out: nothing of it is left: no process, container, namespace, interface or file.
"""

from __future__ import annotations

import os

from labs.runtime import canary, daemons, namespaces, processes
from labs.runtime.base import Progress, ProgressSink, no_progress
from labs.runtime.housing import RuntimeKind, housing_of
from labs.runtime.queues.engine import remove as remove_queues
from labs.runtime.record import (
    LabFiles,
    add_left_outside,
    locked,
    read_left_outside,
    read_record,
    remove_files,
)

CLEANUP_TIMEOUT_S = 120.0


def take_down(lab: str, progress: ProgressSink = no_progress) -> None:
    """Remove whatever the lab of that name owns, from its record alone. Idempotent.

    Raises InputError when another command works on the lab.
    """
    with locked(lab) as files:
        tear_down(files, progress)


def tear_down(files: LabFiles, progress: ProgressSink = no_progress) -> None:
    """Kill what runs in the lab's namespaces and let the namespaces go. The lock must be held."""
    inodes = _namespace_inodes(files)
    killed = 0
    while doomed := namespaces.processes_in(inodes):
        add_left_outside(files, daemons.crash_folders_of(doomed))
        processes.kill_and_wait(doomed)
        killed += len(doomed)
        progress(Progress("processes", killed, killed))
    record = read_record(files.lab)
    if record is not None:
        housing_of(RuntimeKind(record.runtime)).remove(files)
    outside = read_left_outside(files) | daemons.recorded_crash_folders(files.nodes)
    daemons.remove_crash_folders(outside)
    remove_queues(files)
    remove_files(files)
    if inodes:
        progress(Progress("interfaces", 0, 1))
        canary.await_cleanup(CLEANUP_TIMEOUT_S)
        progress(Progress("interfaces", 1, 1))


def _namespace_inodes(files: LabFiles) -> list[int]:
    if not os.path.ismount(files.netns):
        return []
    tmpfs = files.netns.stat().st_dev
    mounts = [entry.stat() for entry in files.netns.iterdir()]
    return [mount.st_ino for mount in mounts if mount.st_dev != tmpfs]
