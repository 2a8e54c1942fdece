"""The command line on a real lab: up, inspection, a broken daemon, down, as a user types it."""

from __future__ import annotations

import json
import os
import pty
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from rocelab.lab.lab import RunningLab
from tests.helpers.command import PROGRAM, read, rocelab, rocelab_process
from tests.helpers.measured import measured
from tests.helpers.waiting import RUN_LIMIT_S, wait_until

pytestmark = pytest.mark.side_by_side


LAB = "t-cli"
SPEC = f"name: {LAB}\nfabric: {{kind: clos, racks: 4, spines: 2}}\n"
FLOW = ("--src", "srv1-1", "--dst", "srv3-1")


def listed() -> set[str]:
    return {lab["name"] for lab in read("list")}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("cli") / "lab.yaml"
    file.write_text(SPEC)
    return file


@pytest.fixture(scope="module")
def lab(spec: Path) -> Iterator[str]:
    rocelab("down", spec)
    outcome = rocelab("up", spec, "--reuse", "--json")
    assert outcome.returncode == 0, outcome.stderr
    report = json.loads(outcome.stdout)
    assert report["reused"] is False
    assert report["total_s"] == pytest.approx(sum(report["stages_s"].values()))
    yield LAB
    assert rocelab("down", LAB).returncode == 0
    assert LAB not in listed()
    assert not Path("/run/rocelab", LAB).exists()


def test_a_lab_that_is_up_is_converged_and_says_with_what(lab: str) -> None:
    state = read("status", lab)
    by_name = {node["name"]: node for node in state["nodes"]}

    assert state["converged"] is True
    assert len(by_name) == 10
    assert by_name["rtsw1"]["sessions"] == {"established": 2, "expected": 2}
    assert by_name["rtsw1"]["routes"] == {"complete": 5, "expected": 5}
    assert by_name["srv1-1"]["daemons"] == {}
    for name in ("zebra", "bgpd"):
        pid = by_name["ctsw1"]["daemons"][name]
        assert Path(f"/proc/{pid}/comm").read_text().strip() == name
    assert state["totals"]["pss_bytes"] > 10e6
    assert rocelab("status", lab).returncode == 0


def test_a_lab_that_is_up_is_reached_by_its_file_as_by_its_name(lab: str, spec: Path) -> None:
    assert read("status", spec)["lab"] == lab
    last = json.loads(rocelab("health", spec, "--once", "--json").stdout.splitlines()[-1])
    assert last["report"]["lab"] == lab
    assert last["environment"]["frr_version"] == RunningLab.open(lab).installation.version
    assert last["environment"]["runtime"] == "netns"


def test_a_lab_that_is_up_is_listed_and_not_brought_up_twice(lab: str, spec: Path) -> None:
    state = {row["name"]: row["state"] for row in read("list")}
    assert state[lab] == "running"
    again = rocelab("up", spec)
    assert again.returncode == 2
    assert f"rocelab down {lab}" in again.stderr
    assert read("status", lab)["converged"]


def test_a_healthy_lab_is_reused_where_it_is_as_asked(lab: str, spec: Path) -> None:
    before = read("status", lab)["nodes"]
    outcome = rocelab("up", spec, "--reuse")
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert "nothing was changed" in outcome.stdout
    after = read("status", lab)["nodes"]
    assert [node["daemons"] for node in after] == [node["daemons"] for node in before]
    other = rocelab("up", spec, "--reuse", "--dilation", "7")
    assert other.returncode == 2
    assert "dilation differs" in other.stderr


def test_a_lab_that_is_broken_on_purpose_is_not_reused(lab: str, spec: Path) -> None:
    injected = rocelab("fault", "inject", lab, "grey-loss", "link=rtsw1:ctsw1")
    assert injected.returncode == 0, injected.stderr
    try:
        outcome = rocelab("up", spec, "--reuse")
    finally:
        assert rocelab("fault", "restore", lab, "--all").returncode == 0
    assert outcome.returncode == 1
    assert f"lab {lab} is up and broken on purpose" in outcome.stderr
    assert rocelab("up", spec, "--reuse").returncode == 0


@pytest.mark.parametrize(
    "command",
    [
        ("drill", "run", "link-flap"),
        ("traffic", LAB, "--pattern", "allreduce", "--ranks", "2", "--size", "1MB"),
        ("compare", LAB),
    ],
)
def test_a_result_that_is_there_is_not_overwritten(
    lab: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    result = tmp_path / "result.json"
    result.write_text("kept")
    outcome = rocelab(*command, "--out", tmp_path)
    assert outcome.returncode == 2
    assert f"{tmp_path} has a result.json already" in outcome.stderr
    assert "--force" in outcome.stderr
    assert (result.read_text(), list(tmp_path.iterdir())) == ("kept", [result])


def test_a_node_that_is_not_there_is_named_beside_the_nearest(lab: str) -> None:
    outcome = rocelab("exec", lab, "rtws1", "true")
    assert outcome.returncode == 2
    assert f"lab {lab} has no node rtws1" in outcome.stderr
    assert "did you mean rtsw1?" in outcome.stderr


def test_a_command_runs_in_the_node_with_our_input_and_its_exit_code(lab: str, spec: Path) -> None:
    script = "ip -4 addr show ctsw1; cat; exit 7"
    done = rocelab_process("exec", spec, "rtsw1", "--", "sh", "-c", script, stdin="through")
    assert done.returncode == 7
    assert "198.18." in done.stdout
    assert done.stdout.endswith("\nthrough")
    for outcome in (
        rocelab_process("exec", lab, "rtsw1", "no-such-command"),
        rocelab("exec", lab, "nosuch", "ls"),
        rocelab("exec", lab, "rtsw1", "--"),
    ):
        assert outcome.returncode == 2
        assert "Traceback" not in outcome.stderr


def test_a_shell_is_the_users_own_and_runs_in_the_node(lab: str) -> None:
    outcome = subprocess.run(
        [*PROGRAM, "shell", lab, "rtsw2"],
        input="echo $ROCELAB_LAB $ROCELAB_NODE $PS1; ip -br link show ctsw2; exit 5",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SHELL": "/bin/sh"},
    )
    assert outcome.returncode == 5
    assert outcome.stdout.startswith(f"{lab} rtsw2 {lab}/rtsw2:")
    assert "ctsw2" in outcome.stdout.splitlines()[1]


def test_vtysh_talks_to_the_daemons_of_a_switch(lab: str, spec: Path) -> None:
    asked = ("vtysh", "-c", "show bgp summary json")
    inside = subprocess.run(
        [*PROGRAM, "shell", lab, "ctsw1"],
        input="vtysh -c 'show bgp summary json'",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SHELL": "/bin/bash"},
    )
    program = RunningLab.open(lab).node("ctsw1").daemon_files.programs / "vtysh"
    # As where /run is mounted noexec.
    program.chmod(0o644)
    try:
        without_execution = rocelab_process("vtysh", lab, "ctsw1", *asked[1:])
    finally:
        program.chmod(0o755)
    for outcome in (
        rocelab_process("vtysh", spec, "ctsw1", *asked[1:]),
        rocelab_process("exec", lab, "ctsw1", "--", *asked),
        inside,
        without_execution,
    ):
        assert '"peerCount":4' in outcome.stdout.replace(" ", ""), outcome
    assert rocelab("vtysh", lab, "srv1-1").returncode == 2


def test_nodes_ping_each_other_by_their_names(lab: str) -> None:
    for ends in (("srv1-1", "srv3-1"), ("srv1-1", "ctsw2"), ("rtsw1", "srv4-1:1")):
        outcome = rocelab_process("ping", lab, *ends, "-c", "1", "-W", "5")
        assert outcome.returncode == 0, outcome
        assert "1 received" in outcome.stdout
    assert rocelab("ping", lab, "srv1-1", "srv3-1:2", "-c", "1").returncode == 2


def test_pairs_that_do_not_reach_are_named_and_exit_with_1(lab: str) -> None:
    whole = rocelab("reach", lab)
    assert (whole.returncode, whole.stderr) == (0, "")
    assert "12 of 12 pairs of 4 NICs reach" in whole.stdout
    port = ("ip", "link", "set", "srv3-1")
    switch = RunningLab.open(lab).node("rtsw3")
    switch.exec([*port, "down"])
    try:
        cut = rocelab("reach", lab, "--json")
    finally:
        switch.exec([*port, "up"])
    assert cut.returncode == 1
    failed = {tuple(pair) for pair in json.loads(cut.stdout)["failed"]}
    assert failed == {
        pair
        for name in ("srv1-1", "srv2-1", "srv4-1")
        for pair in ((name, "srv3-1"), ("srv3-1", name))
    }
    wait_until(lambda: rocelab("reach", lab).returncode == 0, "every pair reaches again")


@pytest.mark.parametrize("source_port", [50000, 50001, 50002])
def test_the_computed_path_is_the_one_that_packets_take(lab: str, source_port: int) -> None:
    document = read("path", lab, *FLOW, "--sport", str(source_port), "--probe")
    assert document["tables"] == "kernel"
    assert document["hops"][0] == "srv1-1"
    assert document["hops"][-1] == "srv3-1"
    assert document["probe"] == {"hops": document["hops"], "agrees": True}


def test_a_capture_is_pcapng_with_the_packets_and_the_time_they_came(
    lab: str, tmp_path: Path
) -> None:
    file = tmp_path / "x.pcapng"

    def captured() -> tuple[str, int, int]:
        """What is said of a capture, and the time that it has packets of."""
        file.unlink(missing_ok=True)
        with subprocess.Popen(
            [*PROGRAM, "capture", lab, "srv3-1:rtsw3", "-o", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as capture:
            assert capture.stderr is not None
            assert "Ctrl-C" in capture.stderr.readline()
            before_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            rocelab("path", lab, *FLOW, "--sport", "50007", "--probe")
            after_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            capture.send_signal(signal.SIGINT)
            said, _ = capture.communicate(timeout=RUN_LIMIT_S)
        assert capture.returncode == 130
        return said, before_ns, after_ns

    # A tcpdump that had no CPU since leaves packets unread at its end, and says so.
    said, before_ns, after_ns = measured(
        captured, lambda answer: [answer[0]] if "more were lost" in answer[0] else []
    )
    packets = read_pcapng(file.read_bytes())
    assert said.startswith(f"{len(packets)} packets in ")
    probes = [
        time_ns for time_ns, data in packets if data[34:38] == struct.pack("!HH", 50007, 4791)
    ]
    # More than one where the answer was late.
    assert probes and all(before_ns < time_ns < after_ns for time_ns in probes)

    again = rocelab("capture", lab, "srv3-1:rtsw3", "-o", file)
    assert again.returncode == 2
    assert "--force" in again.stderr
    forced = ("-o", file, "--force", "--seconds", "0.2")
    assert rocelab("capture", lab, "srv3-1:rtsw3", *forced).returncode == 0
    for wrong in ("srv3-1:nosuch", "srv3-1"):
        assert rocelab("capture", lab, wrong, "-o", tmp_path / "y").returncode == 2


def test_a_packet_is_streamed_from_every_port_that_it_passes(lab: str) -> None:
    flow = ("srv1-1", "srv3-1", "50008")
    hops = read("path", lab, *FLOW, "--sport", flow[-1])["hops"]
    # Sent by the server, and received by its switch and by the server at the other end.
    ports = (f"{hops[0]}:{hops[1]}", f"{hops[1]}:{hops[0]}", f"{hops[-1]}:{hops[-2]}")
    fields = [f"-e{field}" for field in ("frame.interface_name", "frame.time_epoch")]
    command = ["tshark", "-r", "-", "-Y", f"udp.srcport == {flow[-1]}", "-T", "fields", *fields]
    with (
        subprocess.Popen(
            [*PROGRAM, "capture", lab, *ports, "-o", "-"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as capture,
        subprocess.Popen(
            command, stdin=capture.stdout, stdout=subprocess.PIPE, text=True
        ) as reader,
    ):
        assert capture.stderr is not None
        assert b"Ctrl-C" in capture.stderr.readline()
        rocelab("path", lab, *FLOW, "--sport", flow[-1], "--probe")
        capture.send_signal(signal.SIGINT)
        said = capture.stderr.read().decode().splitlines()
        lines = [line.split() for line in reader.communicate(timeout=RUN_LIMIT_S)[0].splitlines()]
    assert capture.returncode == 130
    assert said[-1] == "interrupted: the stream is whole"
    assert {name for name, _ in lines} == set(ports)
    times = [Decimal(epoch) for _, epoch in lines]
    assert times == sorted(times)


def test_a_capture_ends_after_as_many_packets_of_all_ports(lab: str) -> None:
    ports = [f"{rtsw}:{ctsw}" for rtsw in ("rtsw1", "rtsw2") for ctsw in ("ctsw1", "ctsw2")]
    done = subprocess.run(
        [*PROGRAM, "capture", lab, *ports, "-o", "-", "--count", "3"],
        capture_output=True,
        check=True,
        timeout=RUN_LIMIT_S,
    )
    assert len(read_pcapng(done.stdout)) == 3


def test_a_capture_whose_reader_has_gone_ends(lab: str) -> None:
    with subprocess.Popen(
        [*PROGRAM, "capture", lab, "srv3-1:lo", "-o", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as capture:
        assert capture.stdout is not None
        assert struct.unpack("=I", capture.stdout.read(4)) == (0x0A0D0D0A,)
        capture.stdout.close()
        # No packet comes: that nobody reads is found out without writing.
        assert capture.wait(timeout=RUN_LIMIT_S) == 141


def test_a_capture_is_not_written_to_a_terminal(lab: str) -> None:
    terminal, end = pty.openpty()
    done = subprocess.run(
        [*PROGRAM, "capture", lab, "srv3-1:rtsw3", "-o", "-"],
        stdout=end,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(terminal)
    os.close(end)
    assert done.returncode == 2
    assert "wireshark" in done.stderr


def read_pcapng(data: bytes) -> list[tuple[int, bytes]]:
    """Time and bytes of every enhanced packet block, each block's two lengths compared."""
    packets = []
    kinds = []
    while data:
        kind, length = struct.unpack_from("=II", data)
        assert struct.unpack_from("=I", data, length - 4)[0] == length
        kinds.append(kind)
        if kind == 6:
            _, high, low, kept, _ = struct.unpack_from("=IIIII", data, 8)
            packets.append((high << 32 | low, data[28 : 28 + kept]))
        data = data[length:]
    assert kinds[:2] == [0x0A0D0D0A, 1]
    return packets


def test_status_answers_while_a_daemon_is_dead_and_exits_1(lab: str, spec: Path) -> None:
    bgpd = next(node for node in read("status", lab)["nodes"] if node["name"] == "ctsw2")
    os.kill(bgpd["daemons"]["bgpd"], signal.SIGKILL)

    def converged() -> dict[str, bool]:
        return {node["name"]: node["converged"] for node in read("status", lab)["nodes"]}

    wait_until(lambda: not converged()["rtsw1"], "its neighbour has seen it")
    state = read("status", lab)
    by_name = {node["name"]: node for node in state["nodes"]}
    assert state["converged"] is False
    assert by_name["ctsw2"]["daemons"]["bgpd"] is None
    assert by_name["ctsw2"]["sessions"]["established"] == 0
    assert rocelab("up", spec, "--reuse").returncode == 1
    table = rocelab("status", lab)
    assert table.returncode == 1
    assert "bgpd:DEAD" in table.stdout


def test_commands_on_a_lab_that_is_not_up_end_with_2() -> None:
    for arguments in (["status", "bfd"], ["exec", "bfd", "rtsw1", "ls"], ["vtysh", "bfd", "rtsw1"]):
        outcome = rocelab(*arguments)
        assert outcome.returncode == 2
        assert "rocelab up bfd" in outcome.stderr


def test_down_is_idempotent_and_never_takes_a_path_for_a_name(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    assert rocelab("down", "bfd").returncode == 0
    assert rocelab("down", os.path.relpath(precious, "/run/rocelab")).returncode == 2
    assert precious.is_dir()
