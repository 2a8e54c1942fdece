"""FRR's user attacks root: what a daemon that was taken over can do on a running lab.

The attacks run as that user. The lab came up under umask 0, which must not help them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from rocelab.base.errors import MachineError
from rocelab.base.interruption import WORDS
from rocelab.lab.lab import RunningLab
from rocelab.lab.teardown import take_down
from rocelab.linux import namespaces
from rocelab.linux.processes import resume, stop
from rocelab.observe.evidence.bundle import collect_evidence
from rocelab.observe.health.sessions import SessionReader
from rocelab.observe.stages.tracing import log_sizes, logged_since, running_daemons
from rocelab.routing import daemons
from rocelab.routing.answers import ANSWER_TIMEOUT_S
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr import vty
from rocelab.routing.frr.installation import frr_owner
from tests.helpers.command import PROGRAM, rocelab
from tests.helpers.long import mostly_long
from tests.helpers.vty import answer_all, drip
from tests.helpers.waiting import LIMIT_S, RUN_LIMIT_S, wait_until

pytestmark = pytest.mark.side_by_side

LAB = "t-hostile"
SECRET = "only root reads this"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    file = tmp_path_factory.mktemp("lab") / "lab.yaml"
    file.write_text(
        f"name: {LAB}\nfabric: {{kind: clos, racks: 1, spines: 1}}\nmanagement: true\n"
        "scheme: {kind: e-ecmp}\n"
    )
    take_down(LAB)
    try:
        subprocess.run([*PROGRAM, "up", file], check=True, umask=0, capture_output=True)
        made = RunningLab.open(LAB)
        yield made
        take_down(LAB)
        assert not made.runtime.files.root.exists()
    finally:
        take_down(LAB)


@pytest.fixture
def files(lab: RunningLab) -> DaemonFiles:
    return lab.node("rtsw1").daemon_files


def as_frr(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command as FRR's user."""
    user, group = frr_owner()
    return subprocess.run(
        [str(argument) for argument in argv],
        user=user,
        group=group,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_LIMIT_S,
    )


@contextmanager
def in_place_of(file: Path, *make: str | Path) -> Iterator[None]:
    """FRR's user has removed `file`, and made something else in its place with the command
    `make`."""
    aside = file.with_name(f"{file.name}.aside")
    assert as_frr("mv", file, aside).returncode == 0
    try:
        assert as_frr(*make).returncode == 0
        yield
    finally:
        file.unlink(missing_ok=True)
        aside.rename(file)


def test_frrs_user_writes_nowhere_but_where_daemons_do(lab: RunningLab) -> None:
    root = lab.runtime.files.root
    process = as_frr("find", root, "-writable", "-not", "-type", "l")
    outside = [
        line
        for line in process.stdout.splitlines()
        if not Path(line).is_relative_to(lab.runtime.files.nodes)
        or "daemons" not in Path(line).relative_to(lab.runtime.files.nodes).parts[1:]
    ]
    assert outside == []
    node = lab.node("rtsw1").daemon_files
    for attack in (
        ("ln", "-s", "/etc/passwd", node.folder / "zebra2"),
        ("mkdir", node.folder / "more"),
        ("mv", node.daemon_folder, node.folder / "moved"),
        ("cp", "/bin/true", node.programs / "ls"),
        ("rm", "-f", node.configuration("bgpd")),
    ):
        assert as_frr(*attack).returncode != 0, attack


def test_what_rocelab_makes_under_umask_0_is_written_by_its_owner_alone(lab: RunningLab) -> None:
    for path in lab.runtime.files.root.rglob("*"):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode) or stat.S_ISSOCK(status.st_mode):
            continue
        assert not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH), path


def test_nobody_else_reaches_the_daemons_sockets(lab: RunningLab, files: DaemonFiles) -> None:
    status = files.daemon_folder.stat()
    assert stat.S_IMODE(status.st_mode) == 0o750
    assert (status.st_uid, status.st_gid) == frr_owner()


def test_roots_programs_over_ssh_are_not_frrs(lab: RunningLab) -> None:
    configuration = (lab.runtime.files.node("rtsw1") / "sshd_config").read_text()
    (line,) = (line for line in configuration.splitlines() if line.startswith("SetEnv PATH="))
    for folder in line.removeprefix("SetEnv PATH=").split()[0].split(":"):
        for parent in (Path(folder), *Path(folder).parents):
            if parent.exists():
                assert parent.stat().st_uid == 0, parent


def test_a_log_that_is_a_link_is_not_read_and_evidence_is_roots_alone(
    lab: RunningLab, files: DaemonFiles, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text(SECRET)
    out = tmp_path / "evidence"
    with in_place_of(files.log("bgpd"), "ln", "-s", secret, files.log("bgpd")):
        evidence = collect_evidence(lab, ["rtsw1"], out, capture_s=0.1)
        running = running_daemons(lab)
        assert SECRET not in str(logged_since(running, dict.fromkeys(log_sizes(running), 0)))
        assert SECRET not in daemons.last_log_line("bgpd", files)
    assert "rtsw1/bgpd.log" in {gap.file for gap in evidence.gaps}
    for path in (out, *out.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def test_a_log_writes_nothing_to_the_terminal_of_its_reader(files: DaemonFiles) -> None:
    write = f"printf 'one\\n\\033]0;two\\a\\n' > {files.log('bgpd')}"
    with in_place_of(files.log("bgpd"), "sh", "-c", write):
        assert daemons.last_log_line("bgpd", files) == "?]0;two?"


def test_a_daemon_that_starts_again_writes_through_no_link(
    lab: RunningLab, files: DaemonFiles, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text(SECRET)
    node = lab.node("rtsw1")
    node.kill_daemons(["bgpd"])
    with (
        in_place_of(files.pid("bgpd"), "ln", "-s", secret, files.pid("bgpd")),
        in_place_of(files.log("bgpd"), "ln", "-s", secret, files.log("bgpd")),
        suppress(MachineError),
    ):
        node.start_daemon("bgpd")
    assert secret.read_text() == SECRET
    if "bgpd" not in node.daemons():
        node.start_daemon("bgpd")


def test_a_daemon_that_starts_again_gives_no_folder_away_that_a_link_leads_to(
    lab: RunningLab, files: DaemonFiles, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o755)
    place = files.crashes / "frr"
    node = lab.node("rtsw1")
    node.kill_daemons(["bgpd"])
    with in_place_of(place, "ln", "-s", secret, place), suppress(MachineError):
        node.start_daemon("bgpd")
    assert secret.stat().st_uid == 0
    assert list(secret.iterdir()) == []
    if "bgpd" not in node.daemons():
        node.start_daemon("bgpd")


MOUNTING = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
for place in sys.argv[2:]:
    assert libc.mount(sys.argv[1].encode(), place.encode(), None, 0x1000, None) == 0, place
"""
"""Binds a file over others, as a daemon that was taken over can: it has CAP_SYS_ADMIN."""


def test_what_a_daemon_mounts_over_programs_root_never_executes(
    lab: RunningLab, files: DaemonFiles, tmp_path: Path
) -> None:
    node = lab.node("rtsw1")
    evil, marker = files.daemon_folder / "evil", tmp_path / "marker"
    assert as_frr("sh", "-c", f"printf '#!/bin/sh\nid >{marker}\n' >{evil}").returncode == 0
    assert as_frr("chmod", "755", evil).returncode == 0
    user, group = frr_owner()
    rights = "-all,+net_bind_service,+net_admin,+net_raw,+sys_admin"
    pid = node.daemons()["bgpd"]
    places = ("/usr/bin/env", lab.runtime.installation.program("bgpd"))
    as_bgpd = (
        *("nsenter", f"--target={pid}", "--mount", "--net"),
        *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"),
        *(f"--{kind}={rights}" for kind in ("inh-caps", "ambient-caps", "bounding-set")),
    )
    mounting = ("/usr/bin/python3", "-c", MOUNTING, str(evil), *places)
    subprocess.run([*as_bgpd, *mounting], check=True)
    for place in places:
        seen = subprocess.run(
            ["nsenter", f"--target={pid}", "--mount", "cat", place], capture_output=True, check=True
        )
        assert seen.stdout.startswith(b"#!/bin/sh")
    vtysh = [*PROGRAM, "vtysh", LAB, "rtsw1", "-c", "show version"]
    assert b"FRRouting" in subprocess.run(vtysh, capture_output=True, check=True).stdout
    node.kill_daemons(["bgpd"])
    node.start_daemon("bgpd")
    assert "bgpd" in node.daemons()
    assert not marker.exists()
    evil.unlink()


def test_what_a_dead_daemon_has_left_is_ended_when_it_starts_again(lab: RunningLab) -> None:
    node = lab.node("rtsw1")
    pid = node.daemons()["bgpd"]
    local = ["nsenter", f"--target={pid}", "--mount", "unshare", "--net", "sleep", "600"]
    with subprocess.Popen(local) as left:
        namespace = lab.runtime.files.mounts_of("rtsw1", "bgpd").stat().st_ino
        inside = [namespace], (namespaces.MOUNTS,)
        wait_until(lambda: left.pid in namespaces.processes_in(*inside), "it is inside")
        node.kill_daemons(["bgpd"])
        node.start_daemon("bgpd")
        assert left.wait(LIMIT_S) == -signal.SIGKILL


def test_a_daemon_gains_no_rights_by_what_it_executes(lab: RunningLab) -> None:
    for pid in lab.node("rtsw1").daemons().values():
        status = Path(f"/proc/{pid}/status").read_text()
        assert "NoNewPrivs:\t1\n" in status


def test_a_log_that_is_a_pipe_or_anothers_file_holds_nobody_up(
    lab: RunningLab, files: DaemonFiles
) -> None:
    def established() -> set[bool]:
        return set(SessionReader(lab.fabric).established().values())

    wait_until(lambda: established() == {True}, "every session")
    with in_place_of(files.log("bgpd"), "mkfifo", files.log("bgpd")):
        assert established() == {False}
        assert daemons.last_log_line("bgpd", files) == "(nothing logged)"
    assert established() == {True}


def test_a_pid_file_names_no_process_that_is_not_the_switchs_daemon(
    lab: RunningLab, files: DaemonFiles, common_folder: Path
) -> None:
    user, group = frr_owner()
    program = common_folder / "bgpd"
    shutil.copy("/bin/sleep", program)

    def of_frr_elsewhere() -> subprocess.Popen[bytes]:
        return subprocess.Popen([program, "600"], user=user, group=group, extra_groups=[])

    def of_root_in_the_node() -> subprocess.Popen[bytes]:
        return namespaces.inside(
            lab.node("rtsw1").netns, lambda: subprocess.Popen([program, "600"])
        )

    for victim in (of_frr_elsewhere, of_root_in_the_node):
        with victim() as process:
            try:
                write = f"echo {process.pid} > {files.pid('bgpd')}"
                with in_place_of(files.pid("bgpd"), "sh", "-c", write):
                    assert "bgpd" not in lab.node("rtsw1").daemons()
                    lab.node("rtsw1").kill_daemons(["bgpd"])
                assert process.poll() is None
            finally:
                process.send_signal(signal.SIGKILL)


def test_a_vty_that_is_a_link_leads_to_no_other_socket(
    lab: RunningLab, files: DaemonFiles, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(other))
        listening.listen()
        listening.setblocking(False)
        link = files.control("bgpd")
        with in_place_of(link, "ln", "-s", other, link):
            with pytest.raises(OSError, match="not a socket"):
                vty.vty_command(files, "bgpd", "show version", timeout_s=2)
            with pytest.raises(BlockingIOError):
                listening.accept()
    assert "FRR" in vty.vty_command(files, "bgpd", "show version")


def test_an_answer_of_another_shape_is_named_and_traces_back_nowhere(
    lab: RunningLab, files: DaemonFiles
) -> None:
    odd = b'{"peers": {"ctsw1": ["\\u001b[31m", 7]}}'
    with answering(files.control("bgpd"), odd):
        for code, *arguments in (
            (1, "status", LAB),
            (1, "health", LAB, "--once"),
            (0, "fault", "list", LAB),
        ):
            outcome = rocelab(*map(str, arguments))
            assert outcome.returncode == code, outcome.stdout + outcome.stderr
            assert "Traceback" not in outcome.stderr + outcome.stdout
        for command in (("status", LAB), ("health", LAB, "--once")):
            said = rocelab(*map(str, command))
            assert said.returncode == 1
            assert (
                "the answer of bgpd of rtsw1 cannot be read: expected an object, got a list"
                in said.stdout + said.stderr
            )
    # The daemon's peers may still be coming back after an earlier test killed it.
    wait_until(lambda: rocelab("status", LAB).returncode == 0, "all is well again")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"no JSON", "the answer of bgpd of rtsw1 cannot be read: it is not JSON"),
        (b"x" * (vty.MOST_ANSWER_BYTES + 1), "the daemon's answer does not end"),
    ],
    ids=["no-json", "huge"],
)
def test_a_bgpd_that_answers_what_is_no_answer_is_named(
    lab: RunningLab, files: DaemonFiles, answer: bytes, said: str
) -> None:
    with answering(files.control("bgpd"), answer):
        assert_named(said)
    wait_until(lambda: rocelab("status", LAB).returncode == 0, "all is well again")


def test_a_bgpd_whose_answer_does_not_end_is_named(files: DaemonFiles) -> None:
    with dripping(files.control("bgpd")):
        outcome = rocelab("health", LAB, "--once")
        assert outcome.returncode == 1
        assert "bgpd of rtsw1 does not answer" in outcome.stderr
    wait_until(lambda: rocelab("status", LAB).returncode == 0, "all is well again")


def assert_named(said: str) -> None:
    """`status` and `health` name what is wrong, and exit 1."""
    for command in (("status", LAB), ("health", LAB, "--once")):
        outcome = rocelab(*command)
        assert outcome.returncode == 1
        assert said in outcome.stdout + outcome.stderr, outcome


def test_a_daemon_that_does_not_run_is_named(lab: RunningLab) -> None:
    node = lab.node("rtsw1")
    node.kill_daemons(["zebra"])
    try:
        assert_named("zebra of rtsw1 does not run")
    finally:
        node.start_daemons(lab.daemons_of("rtsw1"))
    wait_until(lambda: rocelab("status", LAB).returncode == 0, "all is well again")


def test_a_daemon_that_a_signal_has_stopped_is_named(lab: RunningLab) -> None:
    pid = lab.node("rtsw1").daemons()["zebra"]
    stop([pid])
    try:
        assert_named("a signal has stopped zebra of rtsw1")
    finally:
        resume([pid])
    wait_until(lambda: rocelab("status", LAB).returncode == 0, "all is well again")


@pytest.mark.parametrize("number", mostly_long((signal.SIGINT, signal.SIGTERM), (signal.SIGINT,)))
@pytest.mark.parametrize("command", ["status", "evidence"])
def test_a_command_that_an_endless_answer_holds_up_ends_on_a_signal(
    files: DaemonFiles, tmp_path: Path, command: str, number: int
) -> None:
    options = ("rtsw1", "--capture", "0", "--out", tmp_path / "out")
    arguments = [*PROGRAM, command, LAB, *(options if command == "evidence" else ())]
    with (
        dripping(files.control("bgpd")) as begun,
        subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert begun.wait(LIMIT_S)
            process.send_signal(number)
            # Without the signal `status` would wait for longer.
            _, said = process.communicate(timeout=0.8 * ANSWER_TIMEOUT_S)
        finally:
            process.kill()
    assert process.returncode == 128 + number
    assert said.startswith(f"{WORDS[signal.Signals(number)]}: "), said
    assert not (tmp_path / "out").exists()


def test_who_locks_what_all_may_read_holds_no_command_up(lab: RunningLab) -> None:
    """flock(2) only needs an open file."""
    hold = 'for path; do exec {fd}<"$path" && flock --nonblock $fd; done; echo held; read'
    root = lab.runtime.files.root
    everything = [root.parent, *root.parent.glob(f"{LAB}*"), *root.iterdir()]
    user, group = frr_owner()
    with subprocess.Popen(
        ["bash", "-c", hold, "bash", *map(str, everything)],
        user=user,
        group=group,
        extra_groups=[],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        cable = ("delay", "link=rtsw1:ctsw1", "delay=1ms")
        for arguments in (["fault", "inject", LAB, *cable], ["fault", "restore", LAB, "--all"]):
            outcome = rocelab(*arguments)
            assert outcome.returncode == 0, outcome.stderr
        assert holder.poll() is None
        holder.kill()


@contextmanager
def answering(vty: Path, answer: bytes) -> Iterator[None]:
    """A fake in place of a daemon's vty gives this answer to every command."""
    with listening_at(vty, lambda listening: answer_all(listening, answer)):
        yield


@contextmanager
def dripping(vty: Path) -> Iterator[Event]:
    """A fake in place of a daemon answers byte by byte without end; yields the event of its first
    byte."""
    begun, over = Event(), Event()
    with listening_at(vty, lambda listening: drip(listening, begun, over)):
        try:
            yield begun
        finally:
            over.set()


@contextmanager
def listening_at(vty: Path, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """Run `serve` on a thread with a socket in place of a daemon's vty."""
    aside = vty.with_name(f"{vty.name}.aside")
    assert as_frr("mv", vty, aside).returncode == 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(vty))
        listening.listen()
        thread = Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            vty.unlink()
            aside.rename(vty)


def test_folders_in_folders_do_not_keep_a_lab_from_going_down(files: DaemonFiles) -> None:
    """More than Python's own removal can go into; the lab of these tests goes down after it."""
    nest = "import os\nfor _ in range(1100): os.mkdir('d'); os.chdir('d')"
    code = f"import os; os.chdir({str(files.daemon_folder)!r})\n{nest}"
    assert as_frr("/usr/bin/python3", "-c", code).returncode == 0


def test_the_record_of_the_lab_is_whole_after_all_this(lab: RunningLab) -> None:
    assert json.loads(lab.runtime.files.record.read_text())["lab"] == LAB
    assert set(lab.node("rtsw1").daemons()) == set(lab.daemons_of("rtsw1"))
    assert os.path.ismount(lab.runtime.files.netns)
