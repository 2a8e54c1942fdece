"""Taking labs down under difficulties: a full disk, or a foreign namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rocelab.lab.lab import Lab
from rocelab.lab.teardown import take_down
from rocelab.linux import mounts, namespaces, processes
from rocelab.routing.frr.installation import frr_owner
from tests.helpers.waiting import RUN_LIMIT_S, wait_until

pytestmark = pytest.mark.side_by_side

SPEC = "name: {name}\nfabric: {{kind: clos, racks: 1, spines: 1}}\n"


def in_private_mounts(
    program: str, *arguments: str, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    unshare = ["unshare", "--mount", "--propagation", "private", *options]
    return subprocess.run(
        [*unshare, sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_LIMIT_S,
    )


@pytest.mark.parametrize("limit", ["size=1m", "nr_inodes=400"])
def test_a_lab_goes_down_where_run_is_full(limit: str, tmp_path: Path) -> None:
    spec = tmp_path / "lab.yaml"
    spec.write_text(SPEC.format(name="t-full"))
    done = in_private_mounts(f"""
import errno, subprocess
from rocelab.lab.lab import Lab
from rocelab.linux.processes import is_running, is_stopped
from rocelab.record import RUN_ROOT, recorded_labs
from rocelab.lab.teardown import take_down

# Not on the folder of labs: whoever removes that, in any mount namespace, unmounts what is on it.
subprocess.run(["mount", "-t", "tmpfs", "-o", {limit!r}, "tmpfs", RUN_ROOT.parent], check=True)
lab = Lab.planned({str(spec)!r}).up()
pids = [pid for node in lab.fabric.switches for pid in lab.node(node.name).daemons().values()]
try:
    for number in range(10_000):
        (RUN_ROOT / f"filler-{{number}}").write_bytes(bytes(1 << 16))
except OSError as error:
    assert error.errno == errno.ENOSPC, error
try:
    (RUN_ROOT / "t-full" / "more").write_bytes(b"x")
    raise SystemExit("there is room left")
except OSError:
    pass
take_down("t-full")
assert recorded_labs() == [], recorded_labs()
# Process 1 may take its time to wait for what has ended.
left = [pid for pid in pids if is_running(pid) or is_stopped(pid)]
assert not left, left
""")
    assert done.returncode == 0, done.stderr


OTHER_NAMESPACE = """
import os, subprocess, sys
from pathlib import Path
from rocelab.base.errors import MachineError
from rocelab.linux import namespaces
from rocelab.record import LabFiles, Record, State, open_run_root, write_record
from rocelab.lab.teardown import take_down

files = LabFiles("t-not-ours")
os.close(open_run_root())
machine = Path("/proc", sys.argv[1], "ns", "net").stat().st_ino
write_record(files, Record("t-not-ours", "netns", State.RUNNING, 1.0, "0", {}, machine))
files.netns.mkdir(exist_ok=True)
namespaces.mount_tmpfs(files.netns)
namespaces.keep(Path("/proc/self/ns/net"), files.netns_of("rtsw1"))
with subprocess.Popen(["sleep", "600"]) as bystander:
    try:
        take_down("t-not-ours")
        print("down")
    except MachineError as error:
        print(error)
    print("lives" if bystander.poll() is None else "killed")
    bystander.kill()
"""


@pytest.mark.parametrize("options", [(), ("--net",)], ids=["here", "in-a-namespace"])
def test_down_never_ends_processes_of_the_machines_own_namespace(options: Sequence[str]) -> None:
    done = in_private_mounts(OTHER_NAMESPACE, "self", options=options)
    assert done.stdout.split("\n")[:2] == ["down", "lives"], done.stderr
    assert not Path("/run/rocelab/t-not-ours").exists()


def test_down_from_inside_a_node_is_refused() -> None:
    done = in_private_mounts(OTHER_NAMESPACE, str(os.getpid()), options=("--net",))
    assert done.returncode == 0, done.stderr
    assert "this shell is in rtsw1 of lab t-not-ours" in done.stdout
    assert done.stdout.splitlines()[-1] == "lives"
    down = "from rocelab.lab.teardown import take_down; take_down('t-not-ours')"
    assert in_private_mounts(down).returncode == 0
    assert not Path("/run/rocelab/t-not-ours").exists()


LEADERLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_down_ends_who_left_a_nodes_network_namespace_or_let_its_first_thread_end(
    tmp_path: Path,
) -> None:
    spec = tmp_path / "lab.yaml"
    spec.write_text(SPEC.format(name="t-left"))
    take_down("t-left")
    lab = Lab.planned(spec).up()
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        netns, view = lab.node("rtsw1").netns, lab.runtime.files.mounts_of("rtsw1", "bgpd")
        user, group = frr_owner()
        as_frr = ("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups")

        def start(*command: str) -> subprocess.Popen[bytes]:
            mounts.enter(view)
            return subprocess.Popen(command, cwd="/")

        for name, command in {
            "network": ("unshare", "--net", *as_frr, "sleep", "600"),
            "user": ("unshare", "--user", "--net", "sleep", "600"),
            "thread": (*as_frr, "/usr/bin/python3", "-c", LEADERLESS),
        }.items():
            started[name] = namespaces.inside(netns, lambda command=command: start(*command))  # type: ignore[misc]

        def run() -> subprocess.Popen[bytes]:
            lab.node("srv1-1").enter()
            return subprocess.Popen(["unshare", "--net", "--uts", "sleep", "600"])

        started["program"] = namespaces.on_own_thread(run)
        started["machine"] = subprocess.Popen(["unshare", "--net", "sleep", "600"])

        def has_left(process: subprocess.Popen[bytes]) -> bool:
            try:
                return namespaces.inode_of(process.pid) not in (
                    netns.stat().st_ino,
                    namespaces.inode_of(os.getpid()),
                )
            except OSError:
                return True

        for name, process in started.items():
            wait_until(lambda process=process: has_left(process), f"{name} has left")  # type: ignore[misc]
        assert [process.poll() for process in started.values()] == [None] * len(started)
        take_down("t-left")
        left = [name for name, process in started.items() if process.poll() is None]
        assert left == ["machine"]
    finally:
        take_down("t-left")
        for process in started.values():
            process.kill()
            process.wait()


def test_no_daemon_runs_while_those_of_its_neighbours_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "lab.yaml"
    spec.write_text(SPEC.format(name="t-still"))
    lab = Lab.planned(str(spec)).unstarted()
    kill_and_wait = processes.kill_and_wait
    stopped: list[bool] = []

    def kill(pids: Sequence[int], is_meant: Callable[[int], bool]) -> None:
        stopped.extend(map(processes.is_stopped, pids))
        kill_and_wait(pids, is_meant)

    try:
        lab.start()
        daemons = [pid for node in lab.fabric.switches for pid in lab.node(node.name).processes()]
        monkeypatch.setattr(processes, "kill_and_wait", kill)
    finally:
        lab.down()
    assert daemons
    assert len(stopped) >= len(daemons)
    assert all(stopped)
