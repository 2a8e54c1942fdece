"""The mount namespaces of switches' daemons can be kept wherever rocelab itself runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.side_by_side

WITHIN_A_NAMESPACE = """
import ctypes, os, sys, threading
from pathlib import Path
from rocelab.linux import mounts, namespaces

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


OF_A_LAB = """
import os, sys
from pathlib import Path
from rocelab.linux import mounts, namespaces

names, cover = Path(sys.argv[1], "names"), Path(sys.argv[1], "cover")
names.write_text("machine")
cover.write_text("lab")
namespaces.mount_tmpfs(mounts.RUN)
# As on most machines: what is mounted elsewhere is seen here and the other way round.
mounts._mount(None, Path("/"), mounts.MS_REC | 1 << 20)
labs = Path(sys.argv[1], "labs")
for lab in ("ours", "theirs"):
    (labs / lab).mkdir(parents=True)
    namespaces.mount_tmpfs(labs / lab)
foreign = namespaces.on_own_thread(lambda: namespaces.create(labs / "theirs/node"))
kept = labs / "ours/kept"
mounts.keep(mounts.create_machine(labs, labs / "ours"), kept)
node = mounts.RUN / "node"
node.mkdir()
switch = labs / "ours/switch"
mounts.keep(mounts.create(mounts.SYSTEM_ROOT, node, {}, within=kept), switch)
mounts.show(switch, kept)


def read():
    mounts.enter_here(kept)
    mounts.cover(names, cover)
    mounts.cover(names, cover)
    mounted = [line.split()[4] for line in open("/proc/thread-self/mountinfo")]
    assert mounted.count(str(names)) == 1, mounted
    assert str(switch) in mounted and str(labs / "theirs") not in mounted, mounted
    return names.read_text(), os.getcwd()


def read_and_say():
    return (*namespaces.on_own_thread(read), names.read_text())


place = Path(sys.argv[1], "place")
place.mkdir()
os.chdir(place)
assert read_and_say() == ("lab", str(place), "machine")
other = names.with_name("other")
other.write_text("changed")
other.replace(names)
assert read_and_say() == ("lab", str(place), "changed")
place.rmdir()
namespaces.on_own_thread(lambda: mounts.enter_here(kept))
"""
"""A lab's mount namespace beside another lab's mounts, with a file that another covers."""


def test_a_namespace_made_on_any_cpu_can_be_kept() -> None:
    assert output_of(WITHIN_A_NAMESPACE).startswith("kept")


def test_a_lab_s_namespace_has_its_switches_and_its_own_file_also_after_it_was_replaced(
    tmp_path: Path,
) -> None:
    assert output_of(OF_A_LAB, tmp_path) == ""


def output_of(program: str, *arguments: str | Path) -> str:
    """What a program prints that ends without complaint, in a mount namespace of its own."""
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout
