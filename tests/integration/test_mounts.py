"""The mount namespaces of switches' daemons can be kept wherever rocelab itself runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.side_by_side

WITHIN_A_NAMESPACE = """
import ctypes, os, sys, threading
from pathlib import Path
from rocelab.kernel import mounts, namespaces

libc = ctypes.CDLL(None, use_errno=True)
cpus = os.sched_getaffinity(0)


def on(cpu, function):
    def pinned():
        os.sched_setaffinity(0, {cpu})
        done.append(function())

    done = []
    thread = threading.Thread(target=pinned)
    thread.start()
    thread.join()
    return done[0]


def fresh_number():
    assert libc.unshare(mounts.CLONE_FS | mounts.CLONE_NEWNS) == 0
    return mounts._number() or 0


highest = max(cpus, key=lambda cpu: on(cpu, fresh_number))
os.sched_setaffinity(0, {highest})
fresh_number()
os.sched_setaffinity(0, cpus)
mounts._mount(None, Path("/"), mounts.MS_REC | namespaces.MS_PRIVATE)
namespaces.mount_tmpfs(mounts.RUN)
node = mounts.RUN / "node"
node.mkdir()
for cpu in sorted(cpus):
    made = on(cpu, lambda: mounts.create(mounts.SYSTEM_ROOT, node, {}))
    namespaces.keep(Path(f"/proc/self/fd/{made}"), mounts.RUN / f"view{cpu}")
print("kept", len(cpus))
"""
"""In a mount namespace made on the CPU whose namespaces have the highest numbers."""


def test_a_namespace_made_on_any_cpu_can_be_kept() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHIN_A_NAMESPACE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("kept")
