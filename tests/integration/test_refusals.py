"""Machines that do not meet the needs of labs: exit 3 and one line of advice, and nothing is
left."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from rocelab.base.errors import MachineError
from rocelab.lab.adoption import adopt
from rocelab.lab.adoption.containers import RunningContainer
from rocelab.lab.lab import RunningLab
from rocelab.lab.teardown import take_down
from rocelab.linux import processes
from rocelab.linux.namespaces import check, inode_of, processes_in
from rocelab.linux.rights import CAPABILITIES, Capability
from tests.helpers.command import PROGRAM, Outcome, rocelab
from tests.helpers.long import mostly_long
from tests.helpers.waiting import RUN_LIMIT_S, wait_until
from tests.integration.test_ownership import belongings

pytestmark = pytest.mark.side_by_side

FABRIC = "fabric: {kind: clos, racks: 2, spines: 2, servers_per_rack: 1}\n"
DRILL = """
name: short
lab: it-no.yaml
traffic: {flows: 4, rate_pps: 500, warmup: 200ms, duration: 800ms}
faults: [{kind: carrier-down, at: 200ms, links: ["rtsw1:ctsw1"], lasts: 200ms}]
measure: {sustained: 100ms}
expect: {restored: true}
"""
ROOT = Path(__file__).resolve().parents[2]
CAPABILITY_VERSION_3 = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3 of include/uapi/linux/capability.h."""


def restricted(before: tuple[str, ...], *arguments: str | Path) -> Outcome:
    """The outcome of `rocelab` started by `before`."""
    return subprocess.run(
        [*before, *PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_LIMIT_S,
        cwd=ROOT,
    )


def started_without(capability: Capability) -> tuple[str, ...]:
    """A program that runs another without the capability."""
    name = capability.name.removeprefix("CAP_").lower()
    return ("setpriv", f"--bounding-set=-{name}", f"--inh-caps=-{name}")


@contextmanager
def without(capability: Capability) -> Iterator[None]:
    """This thread does not have the capability in effect (capset(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    check(libc.capget(header, data), "capget")
    # Effective, permitted and inheritable: bits 0 to 31, then bits 32 to 63.
    effective, *others = struct.unpack("=6I", data.raw)
    less = struct.pack("=6I", effective & ~(1 << capability.bit), *others)
    check(libc.capset(header, less), "capset")
    try:
        yield
    finally:
        check(libc.capset(header, data), "capset")


def in_own_mounts(prepared: str) -> tuple[str, ...]:
    """A program that runs another after a shell line has changed the mounts."""
    return ("unshare", "--mount", "sh", "-c", f'{prepared} && exec "$@"', "sh")


def assert_refused(outcome: Outcome, *said: str) -> None:
    assert outcome.returncode == 3, outcome.stderr
    first, hint = outcome.stderr.splitlines()
    assert all(part in first for part in said), first
    assert hint.startswith("  hint: ")


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[Path]:
    """The file of a lab; nothing of the lab is left when the test ends."""
    file = tmp_path / "it-no.yaml"
    file.write_text(f"name: it-no\n{FABRIC}")
    yield file
    take_down("it-no")


@pytest.mark.parametrize(
    "capability",
    [capability for capability in CAPABILITIES if capability.needed],
    ids=lambda capability: capability.name,
)
def test_without_a_capability_that_labs_need_none_is_begun(
    spec: Path, capability: Capability
) -> None:
    with without(capability):
        refused = rocelab("up", spec)
    assert_refused(refused, f"{capability.name} is missing")
    assert belongings("it-no") == []


def test_a_lab_comes_up_without_priorities_and_is_taken_down_with_all_rights_only(
    spec: Path,
) -> None:
    named = {capability.name: capability for capability in CAPABILITIES}
    up = restricted(started_without(named["CAP_SYS_NICE"]), "up", spec)
    assert up.returncode == 0, up.stderr
    assert "note: CAP_SYS_NICE is missing" in up.stdout
    lab = RunningLab.open("it-no")
    inodes = [lab.node(node.name).netns.stat().st_ino for node in lab.fabric.nodes]
    daemons = processes_in(inodes)
    for capability in (capability for capability in CAPABILITIES if capability.takes_down):
        with without(capability):
            refused = rocelab("down", "it-no")
        assert_refused(refused, capability.name)
    assert processes_in(inodes) == daemons
    assert rocelab("down", "it-no").returncode == 0
    assert belongings("it-no") == []


@pytest.mark.parametrize("place", mostly_long(("/run", "/proc/sys"), ("/proc/sys",)))
def test_where_a_place_is_read_only_no_lab_is_begun(spec: Path, place: str) -> None:
    read_only = f"mount --bind {place} {place} && mount -o remount,bind,ro {place}"
    assert_refused(restricted(in_own_mounts(read_only), "up", spec), f"{place} is read-only")
    doctor = restricted(in_own_mounts(read_only), "doctor", "--json")
    assert doctor.returncode == 3
    assert f'"name": "writable {place}",\n   "ok": false' in doctor.stdout
    assert belongings("it-no") == []


def full_disk(folder: Path, room: str = "16k") -> tuple[str, ...]:
    """A program that runs another with so much space in a folder, and lists the files there."""
    full = f"mount -t tmpfs -o size={room} tmpfs {folder}"
    kept = f'{full} && "$@"; code=$?; find {folder} -type f; exit $code'
    return ("unshare", "--mount", "sh", "-c", kept, "sh")


@pytest.mark.long
def test_a_drill_whose_result_has_no_room_shows_it(spec: Path, tmp_path: Path) -> None:
    drill = spec.with_name("short.yaml")
    drill.write_text(DRILL)
    folder = tmp_path / "full"
    folder.mkdir()
    outcome = restricted(full_disk(folder), "drill", "run", drill, "--out", folder / "out")
    assert_refused(outcome, f"no room for results in {folder}/out: No space left")
    assert "\nshort: " in outcome.stdout
    assert f"{folder}/out/report" not in outcome.stdout
    assert belongings("it-no") == []


@pytest.mark.long
@pytest.mark.parametrize(("room", "files"), [("8k", []), ("64k", ["result.json"])])
def test_results_that_have_no_room_leave_no_half_files(
    room: str, files: list[str], tmp_path: Path
) -> None:
    job = ("--pattern", "allreduce", "--ranks", "8", "--size", "1MB", "--out", tmp_path / "out")
    outcome = restricted(full_disk(tmp_path, room), "simulate", "zone-small", *job)
    assert_refused(outcome, f"no room for results in {tmp_path}/out: No space left")
    left = [line for line in outcome.stdout.splitlines() if line.startswith(f"{tmp_path}/out/")]
    assert left == [f"{tmp_path}/out/{name}" for name in files]


def is_asleep(pid: int) -> bool:
    return processes.name_of(pid) == "sleep"


def test_adopting_needs_no_right_that_process_1_has_and_root_has_not() -> None:
    (ptrace,) = (capability for capability in CAPABILITIES if capability.name == "CAP_SYS_PTRACE")
    sleep = ("sleep", "600")
    commands = {"own": ("unshare", "--net", *sleep), "the-machine-s": sleep}
    with ExitStack() as stack:
        nodes = []
        for name, command in commands.items():
            process = subprocess.Popen([*started_without(ptrace), *command])
            stack.callback(process.wait)
            stack.callback(process.kill)
            wait_until(partial(is_asleep, process.pid), f"{name} sleeps")
            nodes.append(RunningContainer(name, "", "", "linux", "", process.pid))
        with without(ptrace):
            with pytest.raises(PermissionError):
                inode_of(1)
            assert [node.name for node in adopt._with_own_namespace(nodes)[0]] == ["own"]


def test_a_container_with_more_rights_than_adopt_is_named() -> None:
    (ptrace,) = (capability for capability in CAPABILITIES if capability.name == "CAP_SYS_PTRACE")
    with subprocess.Popen(["unshare", "--net", "sleep", "600"]) as process:
        try:
            wait_until(lambda: processes.name_of(process.pid) == "sleep", "it sleeps")
            node = RunningContainer("leaf1", "", "", "linux", "", process.pid)
            with without(ptrace), pytest.raises(MachineError, match="container leaf1 has rights"):
                adopt._with_own_namespace([node])
        finally:
            process.kill()
