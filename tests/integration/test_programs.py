"""Unmodified programs on the servers of a lab: their ranks and names, what their connections carry,
and their end, whatever they or others do."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocelab.base.data import shipped
from rocelab.base.errors import InputError
from rocelab.drills.labuse import kept
from rocelab.drills.run import run_drill
from rocelab.lab.lab import Lab, RunningLab
from rocelab.lab.teardown import take_down
from rocelab.linux.namespaces import processes_in
from rocelab.programs.running import OutputLine
from rocelab.testkit import lab as testkit
from tests.helpers.command import PROGRAM, rocelab
from tests.helpers.measured import measured, problems_of_drill
from tests.helpers.waiting import RUN_LIMIT_S, wait_until

pytestmark = pytest.mark.side_by_side

NAME = "it-programs"
LAB = f"""name: {NAME}
fabric: {{kind: clos, racks: 2, spines: 1, servers_per_rack: 1, nics_per_server: 2}}
links: {{rate: 100G}}
dilation: 1000
"""
TOLD = """
import json, os, socket
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "SLURM_PROCID",
         "OMPI_COMM_WORLD_SIZE", "GLOO_SOCKET_IFNAME", "EXTRA")
print(json.dumps({name: os.environ[name] for name in names} | {
    "host": socket.gethostname(), "peer": socket.gethostbyname("srv2-1"),
    "interfaces": [name for _, name in socket.if_nameindex()], "folder": os.getcwd()}))
"""
SENT_BYTES = 3_000_000
TRANSFER = f"""
import os, socket, sys
port = 5300
if os.environ["RANK"] == "0":
    listener = socket.create_server((os.environ["MASTER_ADDR"], port))
    print("listens", flush=True)
    near, _ = listener.accept()
    received = 0
    while piece := near.recv(65536):
        received += len(piece)
    print("received", received)
else:
    while True:
        try:
            far = socket.create_connection((os.environ["MASTER_ADDR"], port))
            break
        except ConnectionRefusedError:
            pass
    far.sendall(bytes({SENT_BYTES}))
"""
RING = """name: ring
lab: it-ring.yaml
traffic:
  command: python3 ring.py --steps 40
  ready: step 2 took
  metrics: {step: {pattern: "took ([0-9.]+) s", unit: s}}
faults:
  - {kind: carrier-down, link: "srv1-1:rtsw1", at: 300ms, lasts: 700ms}
expect: {failed_programs: 0, longest_stall: ">= 600ms"}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    take_down(NAME)
    file = tmp_path_factory.mktemp("lab") / f"{NAME}.yaml"
    file.write_text(LAB)
    yield Lab.planned(file).up()
    take_down(NAME)


@pytest.fixture
def whole(lab: RunningLab) -> Iterator[RunningLab]:
    """The lab; no process is left in its servers when the test ends."""
    inodes = [lab.node(server.name).netns.stat().st_ino for server in lab.fabric.servers]
    assert processes_in(inodes) == []
    yield lab
    wait_until(lambda: processes_in(inodes) == [], "no program is left")


def program(folder: Path, text: str) -> tuple[str, str]:
    """A program as a command."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(text))
    return sys.executable, str(file)


def report_of(*arguments: str | Path) -> dict[str, Any]:
    """The report of a run whose programs did well."""
    done = rocelab("run", NAME, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_each_program_knows_its_rank_and_is_on_its_own_host(
    whole: RunningLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--on", "srv2-*", "--on", "srv1-1", "--per-server", "2", "--env", "EXTRA=a=b")
    done = rocelab("run", NAME, *options, "--", *program(tmp_path, TOLD))
    assert done.returncode == 0, done.stderr
    facts_of = {}
    for line in done.stdout.splitlines():
        name, _, text = line.partition(" | ")
        facts_of[name.strip()] = json.loads(text)
    ranks = {name: (int(facts["RANK"]), facts["host"]) for name, facts in facts_of.items()}
    assert ranks == {
        "srv2-1/0": (0, "srv2-1"),
        "srv2-1/1": (1, "srv2-1"),
        "srv1-1/0": (2, "srv1-1"),
        "srv1-1/1": (3, "srv1-1"),
    }
    interfaces = [link.a.interface for nic in whole.fabric.nics("srv1-1") for link in nic.links]
    facts = facts_of["srv1-1/1"]
    assert sorted(facts["interfaces"]) == sorted(["lo", *interfaces])
    assert facts == {
        "RANK": "3",
        "SLURM_PROCID": "3",
        "WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "srv2-1",
        "GLOO_SOCKET_IFNAME": interfaces[0],
        "EXTRA": "a=b",
        "host": "srv1-1",
        "peer": whole.fabric.nics("srv2-1")[0].ip,
        "interfaces": facts["interfaces"],
        "folder": str(tmp_path),
    }


def test_what_a_connection_carried_is_exact(whole: RunningLab, tmp_path: Path) -> None:
    report = report_of("--", *program(tmp_path, TRANSFER))
    (sent,) = report["connections"]
    ends = (sent["source"], sent["destination"], sent["destination_port"])
    assert ends == ("srv2-1:1", "srv1-1:1", 5300)
    assert sent["delivered_bytes"] == SENT_BYTES
    assert 0 < sent["min_rtt_us"] <= sent["rtt_us"]


def test_a_stall_while_a_link_is_down_is_seen(whole: RunningLab, tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    once = f"    far.sendall(bytes({SENT_BYTES}))"
    text = TRANSFER.replace(once, f"    while not os.path.exists({str(enough)!r}):\n    {once}")
    command = [*PROGRAM, "run", NAME, "--json", "--", *program(tmp_path, text)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert b"listens" in process.stderr.readline()
        fault = ("carrier-down", "link=srv1-1:rtsw1", "lasts=800ms")
        assert rocelab("fault", "inject", NAME, *fault).returncode == 0
        enough.touch()
        out, errors = process.communicate(timeout=RUN_LIMIT_S)
    assert process.returncode == 0, errors
    connection = json.loads(out)["connections"][0]
    assert (
        max(stall["ended_ns"] - stall["began_ns"] for stall in connection["stalls"]) > 700e6
    )  # the kernel tells ticks


def test_a_drill_says_what_a_fault_did_to_programs(tmp_path: Path) -> None:
    (tmp_path / "ring.py").write_text((shipped("scripts") / "programs" / "ring.py").read_text())
    drill = tmp_path / "ring.yaml"
    (tmp_path / "it-ring.yaml").write_text(LAB.replace(NAME, "it-ring"))
    drill.write_text(RING)
    result = measured(lambda: run_drill(drill, retries=0), problems_of_drill)
    assert result.outcome == "passed"
    ((run,),) = result.valid_repeats
    assert run.programs is not None
    (steps,) = run.programs.metrics
    assert len(steps.values) == 40
    down, up = (event.t_ns for event in run.programs.events)
    # What has arrived by then may complete a step yet.
    waiting = next(value for at_ns, value in steps.points if at_ns > up)
    assert waiting > (up - down) / 2e9


def mpi_is_here() -> bool:
    """Whether the machine has what setup.sh's `test` installs: mpirun, and mpi4py for Debian's
    Python."""
    python = subprocess.run(["/usr/bin/python3", "-c", "import mpi4py"], check=False)
    return shutil.which("mpirun") is not None and python.returncode == 0


@pytest.mark.parametrize(
    ("name", "is_here"),
    [
        ("http-flap", lambda: True),
        ("iperf-flap", lambda: shutil.which("iperf3") is not None),
        ("mpi-flap", mpi_is_here),
    ],
)
def test_a_shipped_drill_of_a_program_tells_its_story(
    whole: RunningLab, tmp_path: Path, name: str, is_here: Callable[[], bool]
) -> None:
    """The drill as it ships but for its lab, which has two servers."""
    if not is_here():
        pytest.skip(f"{name} needs a program that is not installed: ./setup.sh test does")
    scripts = shipped("scripts")
    (tmp_path / "programs").symlink_to(scripts / "programs")
    (tmp_path / f"{NAME}.yaml").write_text(LAB)
    text = (scripts / f"{name}.yaml").read_text().replace("lab: zone-small", f"lab: {NAME}.yaml")
    text = re.sub(r"servers: \[srv1-1, .*\]", "servers: [srv1-1, srv2-1]", text)
    text = text.replace("srv1-1,srv2-1,srv3-1,srv4-1", "srv1-1,srv2-1").replace("srv3-1", "srv2-1")
    drill = tmp_path / f"{name}.yaml"
    drill.write_text(text.replace("rtsw3", "rtsw2"))
    use = kept(lambda text: None)
    result = measured(lambda: run_drill(drill, use=use, lab=whole, retries=0), problems_of_drill)
    assert result.outcome == "passed"
    ((run,),) = result.valid_repeats
    assert run.programs is not None
    carried = {(link.link, link.receiver): link for link in run.programs.report.links}
    server = carried["srv1-1:rtsw1", "srv1-1"]
    assert server.sent_bytes > 0
    assert server.connections
    assert carried["srv1-1:rtsw1", "rtsw1"].queue_drops is None


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sh -c 'echo one; echo two'", "before they ended; the first last said: one; two"),
        ("sh -c 'echo one; exec sleep 1000'", "within 2 s; the first last said: one"),
    ],
)
def test_programs_that_are_never_ready_are_no_measurement(
    whole: RunningLab, tmp_path: Path, command: str, why: str
) -> None:
    drill = tmp_path / "ring.yaml"
    text = RING.replace("python3 ring.py --steps 40", json.dumps(command)).replace("it-ring", NAME)
    drill.write_text(text.replace("metrics:", "limit: 2s\n  metrics:"))
    (tmp_path / f"{NAME}.yaml").write_text(LAB)
    done = rocelab("drill", "run", drill, "--keep", "--retries", "0")
    assert done.returncode == 3
    said = " ".join((done.stdout + done.stderr).split())
    assert f"no program wrote a line with 'step 2 took' {why}" in said


def test_python_runs_programs_too(whole: RunningLab, tmp_path: Path) -> None:
    lab = testkit.RunningLab.open(NAME)
    lines: list[OutputLine] = []
    report = lab.run(program(tmp_path, TRANSFER), on=["srv*"], on_line=lines.append)
    assert report.code == 0
    (sent,) = report.connections
    links = {(link.link, link.receiver): link for link in report.links}
    to_server = links["srv1-1:rtsw1", "srv1-1"]
    assert sent.delivered_bytes <= to_server.sent_bytes
    assert to_server.connections == 1
    assert "listens" in "".join(line.text for line in lines)
    with pytest.raises(InputError, match="expected a program and its arguments"):
        lab.run("hostname")
    with pytest.raises(InputError, match="no server of lab"):
        lab.run(["hostname"], on=["nobody"])


def test_when_one_fails_the_others_end_and_its_code_is_the_runs(
    whole: RunningLab, tmp_path: Path
) -> None:
    text = """
        import os, sys, time
        if os.environ["RANK"] == "1":
            sys.exit(7)
        time.sleep(1000)
    """
    done = rocelab("run", NAME, "--json", "--", *program(tmp_path, text))
    assert done.returncode == 7
    codes = {rank["name"]: rank["code"] for rank in json.loads(done.stdout)["ranks"]}
    assert codes == {"srv1-1": None, "srv2-1": 7}


@pytest.mark.parametrize(
    ("command", "code", "how"),
    [
        (("no-such-program",), 127, "there is no program no-such-program"),
        (("/etc/hosts",), 126, "/etc/hosts is not executable: chmod +x"),
        (("/etc",), 126, "Permission denied: /etc"),
        (("sh", "-c", "kill -9 $$"), 137, "signal 9"),
        (("echo", "a\0b"), 126, "embedded null byte"),
    ],
)
def test_a_program_that_cannot_run_says_why(
    whole: RunningLab, command: tuple[str, ...], code: int, how: str
) -> None:
    done = rocelab("run", NAME, "--on", "srv1-1", "--", *command)
    assert done.returncode == code
    assert how in " ".join(done.stderr.split())


def test_what_one_program_writes_is_passed_on_byte_by_byte(whole: RunningLab) -> None:
    command = [*PROGRAM, "run", NAME, "--on", "srv1-1", "--", "printf", r"\377\000\r\n1%%\r2%%"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=RUN_LIMIT_S)
    assert done.stdout == b"\xff\0\r\n1%\r2%"


def test_signals_that_the_caller_blocks_reach_programs(whole: RunningLab) -> None:
    command = [*PROGRAM, "run", NAME, "--", "sh", "-c", "[ $RANK = 0 ] || exec sleep 1000; exit 5"]
    blocked = (signal.SIGCHLD, signal.SIGTERM)
    done = subprocess.run(
        command,
        capture_output=True,
        check=False,
        timeout=RUN_LIMIT_S,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, blocked),
    )
    assert done.returncode == 5


def test_a_supervisor_that_is_killed_is_said_at_once(whole: RunningLab) -> None:
    command = [*PROGRAM, "run", NAME, "--", "sh", "-c", "echo began; exec sleep 1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"began" in process.stdout.readline()
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(listed), signal.SIGKILL)
        _, errors = process.communicate(timeout=RUN_LIMIT_S)
    assert process.returncode == 3
    assert b"the programs' supervisor ended: something killed it" in errors


BACKGROUND = "setsid sleep 1000 & trap '' INT TERM; echo began; while :; do sleep 1; done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_the_command(whole: RunningLab, number: int) -> None:
    command = [*PROGRAM, "run", NAME, "--", "sh", "-c", BACKGROUND]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert b"began" in process.stdout.readline()
        os.kill(process.pid, number)
        _, errors = process.communicate(timeout=RUN_LIMIT_S)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert errors.decode().splitlines()[-1] == "interrupted: 2 programs ended"


def test_children_in_the_background_end_with_the_programs(whole: RunningLab) -> None:
    assert rocelab("run", NAME, "--", "sh", "-c", "setsid sleep 1000 &").returncode == 0


def test_programs_enter_other_nodes_as_ssh_does(whole: RunningLab) -> None:
    shell = "/bin/sh ${OMPI_MCA_plm_rsh_agent#* }"
    words = f'{shell} srv2-1 hostname "&&" echo "one  two"; {shell} srv9 true'
    done = rocelab("run", NAME, "--on", "srv1-1", "--", "sh", "-c", words)
    assert done.stdout.splitlines() == ["srv2-1", "one two"]
    assert f"lab {NAME} has no node srv9" in done.stderr
    assert done.returncode == 255


def test_the_machine_keeps_its_name_and_processes(whole: RunningLab) -> None:
    host = os.uname().nodename
    done = rocelab("run", NAME, "--on", "srv1-1", "--", "sh", "-c", "ls -d /proc/[0-9]* | wc -l")
    assert os.uname().nodename == host
    assert int(done.stdout) < 10
