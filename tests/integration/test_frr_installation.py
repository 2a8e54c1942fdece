"""The FRR that a lab's switches run, which shares nothing with the machine's or another switch's.
The same tests are for every tested release: they run with the installed one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from rocelab.base.errors import InputError, MachineError
from rocelab.faults.kinds.daemon_crash import DaemonCrash
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.providers import provider_of
from rocelab.lab.status import read_status
from rocelab.lab.teardown import take_down
from rocelab.labfile.model import LabSpec
from rocelab.linux import processes
from rocelab.observe.environment import environment_of, read_environment
from rocelab.planning.build import plan
from rocelab.routing import daemons
from rocelab.routing.frr.installation import FrrInstallation, find_installation
from rocelab.routing.frr.kind import FrrMemory
from rocelab.routing.frr.memory import Memory
from rocelab.routing.frr.stack import FRR
from tests.helpers.waiting import wait_until, wait_until_whole

pytestmark = pytest.mark.side_by_side

LAB = "it-frr"
SPEC = LabSpec.model_validate(
    {"name": LAB, "fabric": {"kind": "clos", "racks": 2, "spines": 1}, "routing": {"bfd": True}}
)


def lab_of(prefix: Path | None) -> Lab:
    return Lab(plan(SPEC), provider_of("netns", None, prefix))


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """This machine's system in a separate tree, as if it were another system's."""
    root = tmp_path_factory.mktemp("system")
    root.chmod(0o755)
    with ExitStack() as mounted:
        for name in ("proc", "dev", "run", "var/tmp", "var/lib/frr", "bin"):
            (root / name).mkdir(parents=True)
        (root / "var/run").symlink_to("/run")
        for name in ("usr", "lib", "lib64", "etc"):
            if not Path("/", name).exists():
                continue
            (root / name).mkdir()
            # Read-only: whoever kills the test must not leave the machine's own files open to
            # pytest, which removes old folders of tests.
            mount = ["mount", "-o", "bind,ro", f"/{name}", str(root / name)]
            subprocess.run(mount, check=True)
            umount = ["umount", "-l", str(root / name)]
            mounted.callback(partial(subprocess.run, umount, check=True))
        yield root


@pytest.fixture(scope="module")
def lab(system: Path) -> Iterator[RunningLab]:
    take_down(LAB)
    lab_of(system).up()
    try:
        yield RunningLab.open(LAB)
    finally:
        take_down(LAB)


def frr_of(lab: RunningLab) -> FrrInstallation:
    installation = lab.installation
    assert isinstance(installation, FrrInstallation)
    return installation


def test_a_lab_runs_the_frr_it_was_given_and_remembers_it(lab: RunningLab, system: Path) -> None:
    assert lab.installation == find_installation(system)
    assert lab.installation.root == str(system)
    assert read_environment(lab.installation).frr_version == lab.installation.version
    wait_until(lambda: read_status(lab).converged, "the lab as planned")
    for node in read_status(lab).nodes:
        assert tuple(node.daemons) == (lab.daemons_of(node.name) if node.role.tier else ())
        assert None not in node.daemons.values()


def test_each_switch_has_folders_of_its_own_where_frr_has_paths_compiled_in(
    lab: RunningLab,
) -> None:
    for switch in lab.fabric.switches:
        node = lab.node(switch.name)
        for pid in node.daemons().values():
            seen = Path(f"/proc/{pid}/root")
            for place, target in (
                (
                    frr_of(lab).run_folder.replace("/var/run", "/run"),
                    node.daemon_files.daemon_folder,
                ),
                ("/etc/frr", node.daemon_files.etc),
                ("/var/tmp", node.daemon_files.crashes),
            ):
                assert (seen / place.lstrip("/")).samefile(target), (switch.name, place)
            assert [path.name for path in (seen / "run/rocelab").iterdir()] == [LAB]
            assert [path.name for path in (seen / f"run/rocelab/{LAB}").iterdir()] == ["nodes"]


def test_bgpd_preloads_the_library_that_was_tried_and_a_restarted_one_does_too(
    lab: RunningLab,
) -> None:
    assert lab.memory == Memory(FrrMemory.LEAN, preloads=True)
    for switch in lab.fabric.switches:
        node = lab.node(switch.name)
        node.kill_daemons(["bgpd"])
        node.start_daemon("bgpd")
        for name, pid in node.daemons().items():
            assert (str(node.daemon_files.library) in mapped(pid)) == (name == "bgpd"), name
            assert processes.status_of(pid)["Uid"].split()[0] != "0"
        # What root starts as bgpd, FRR's user must not be able to write.
        for place in (node.daemon_files.library, *node.daemon_files.library.parents):
            assert place.stat().st_uid == 0
            assert not place.stat().st_mode & 0o022
    wait_until_whole(lab)


def test_a_plain_lab_has_the_same_routes_from_more_memory(lab: RunningLab, system: Path) -> None:
    spec = SPEC.model_copy(update={"name": "it-frr-plain"})
    take_down(spec.name)
    planned = Lab(plan(spec), provider_of("netns", None, system, FrrMemory.PLAIN))
    try:
        plain = planned.up()
        with pytest.raises(InputError, match="up with FRR's memory plain, not lean"):
            plain.check_memory(FrrMemory.LEAN)
        plain.check_memory(FrrMemory.PLAIN)
        assert environment_of(plain).frr_memory == "plain"
        assert not plain.node("rtsw1").daemon_files.library.exists()
        wait_until(lambda: read_status(plain).converged, "the plain lab as planned")
        wait_until(lambda: read_status(lab).converged, "the lean lab as planned")
        states = {
            status.frr_memory: status.pss_of_roles for status in map(read_status, (lab, plain))
        }
        assert states.keys() == {"lean", "plain"}
        # A session is at both its ends a read buffer of 640 KiB, which the plain one has touched.
        for role, size in states["plain"].items():
            assert size - states["lean"][role] > 500_000
    finally:
        plain.down()


@pytest.mark.parametrize("lacks", ["clang", "rings"])
def test_a_lab_comes_up_without_the_library_and_says_why(
    lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = None if lacks == "clang" else tmp_path
    if lacks == "clang":
        monkeypatch.setattr("rocelab.routing.frr.memory.CACHE", tmp_path)
        monkeypatch.setattr("rocelab.linux.clang.shutil.which", lambda _: None)
        problem = "clang is missing"
    else:
        installation = find_installation()
        for name in installation.daemons(("zebra", "bfdd")):
            (tmp_path / name).symlink_to(installation.program(name))
        # As a program that drops what it is to preload: a static one, one with capabilities.
        wrapper = tmp_path / "bgpd"
        wrapper.write_text(
            f'#!/bin/sh\nexec env -u LD_PRELOAD {installation.program("bgpd")} "$@"\n'
        )
        wrapper.chmod(0o755)
        problem = "there is no ringbuf_new"
    spec = SPEC.model_copy(update={"name": "it-frr-without"})
    take_down(spec.name)
    planned = Lab(plan(spec), provider_of("netns", None, prefix))
    try:
        without = planned.up()
        assert any(problem in note for note in without.notes)
        assert problem in (environment_of(without).frr_memory or "")
        for pid in without.node("rtsw1").daemons().values():
            assert "ringbuf" not in mapped(pid)
    finally:
        without.down()


def mapped(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_mgmtd_and_its_clients_meet_in_the_switchs_own_folder(lab: RunningLab) -> None:
    for switch in lab.fabric.switches:
        daemon_folder = lab.node(switch.name).daemon_files.daemon_folder
        assert (daemon_folder / "mgmtd_be.sock").is_socket() == frr_of(lab).has_mgmtd


def test_vtysh_of_a_switch_is_of_its_frr_and_asks_its_daemons(lab: RunningLab) -> None:
    for switch in lab.fabric.switches:
        program = lab.node(switch.name).daemon_files.programs / "vtysh"
        asked = [str(program), "-c", "show version", "-c", "show running-config"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        assert f"FRRouting {lab.installation.version}" in done.stdout
        assert f"hostname {switch.name}" in done.stdout
        assert done.stderr == ""


@pytest.mark.parametrize("daemon", FRR.programs)
def test_a_daemon_that_was_killed_comes_back_and_routing_with_it(
    lab: RunningLab, daemon: str
) -> None:
    if daemon not in lab.daemons_of("rtsw1"):
        with pytest.raises(Exception, match=f"runs no {daemon}"):
            DaemonCrash("rtsw1", daemon).prepare(lab)
        return
    before = lab.node("rtsw1").daemons()
    fault = DaemonCrash("rtsw1", daemon)
    fault.prepare(lab)
    fault.inject(lab)
    assert fault.remains(lab) == (f"{daemon} of rtsw1 does not run",)
    fault.restore(lab)
    assert fault.remains(lab) == ()
    after = lab.node("rtsw1").daemons()
    # Without zebra all are started anew.
    assert {name for name in before if before[name] != after[name]} == (
        set(before) if daemon == "zebra" else {daemon}
    )
    wait_until_whole(lab)


def test_a_daemon_that_hangs_at_its_start_ends_up_in_time_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = find_installation()
    (tmp_path / "bgpd").symlink_to(installation.program("bgpd"))
    first = installation.daemons(("zebra", "bfdd", "bgpd"))[0]
    hangs = tmp_path / first
    hangs.write_text("#!/bin/sh\necho I wait for somebody >&2\nexec sleep 1000\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(daemons, "START_TIMEOUT_S", 10.0)
    spec = SPEC.model_copy(update={"name": "it-frr-hangs"})
    lab = Lab(plan(spec), provider_of("netns", None, tmp_path))
    with pytest.raises(MachineError, match=rf"{first} of .* did not start within 10 s") as failed:
        lab.up()
    assert "I wait for somebody" in str(failed.value)
    assert not Path("/run/rocelab/it-frr-hangs").exists()


def test_a_prefix_has_its_programs_run_with_its_libraries(tmp_path: Path) -> None:
    installation = find_installation()
    copied = tmp_path / "usr/lib/frr"
    copied.mkdir(parents=True)
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    for name in ("mgmtd", "zebra", "bfdd", "bgpd"):
        if Path(installation.folder, name).exists():
            shutil.copy2(Path(installation.folder, name), copied / name)
    spec = SPEC.model_copy(update={"name": "it-frr-prefix"})
    take_down(spec.name)
    lab = Lab(plan(spec), provider_of("netns", None, tmp_path)).up()
    try:
        for name, pid in lab.node("rtsw1").daemons().items():
            assert Path(f"/proc/{pid}/exe").readlink() == copied / name
    finally:
        lab.down()
