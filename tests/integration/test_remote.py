"""`rocelab --host` over a real OpenSSH server: access, interruptions, results."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paramiko
import pytest

from rocelab.base.documents import to_json
from rocelab.drills.run import run_drill
from rocelab.lab.teardown import take_down
from rocelab.linux.namespaces import inside
from rocelab.record import LabFiles, recorded_labs
from rocelab.remote.address import parse_address, resolve
from rocelab.remote.connection import Output, connected
from rocelab.results.drill import from_json
from tests.helpers.command import rocelab
from tests.helpers.measured import measured, problems_of_drill
from tests.helpers.openssh import Server, make_key, ssh_server
from tests.helpers.waiting import RUN_LIMIT_S

pytestmark = pytest.mark.side_by_side

LAB = "t-remote"
SPEC = "name: {name}\nfabric: {{kind: clos, racks: 2, spines: 2, servers_per_rack: 1}}\n"
DRILL = """name: short
lab: labs/{name}.yaml
traffic: {{flows: 8, rate_pps: 500, warmup: 400ms, duration: 1600ms, seed: 3}}
faults:
  - {{kind: carrier-down, at: 400ms, links: [rtsw1:ctsw1, rtsw1:ctsw2], lasts: 400ms}}
measure: {{sustained: 200ms}}
expect: {{affected_flows: ">= 1"}}
"""
LOST_EXIT_CODE = 75


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on which the first command has installed rocelab."""
    root = tmp_path_factory.mktemp("server")
    with ssh_server(root, "t-remote", 2222) as made:
        code, out, errors = made.rocelab("list", "--json", cwd=root)
        assert code == 0, errors
        assert isinstance(json.loads(out), list)
        yield made


@pytest.fixture(scope="module")
def lab(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A lab on the server, from a file on this machine."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "mine.yaml").write_text(SPEC.format(name=LAB))
    take_down(LAB)
    code, out, errors = server.rocelab("up", "mine.yaml", "--json", cwd=folder)
    assert code == 0, errors
    assert json.loads(out)["lab"] == LAB
    yield LAB
    assert server.rocelab("down", LAB, cwd=folder)[0] == 0
    assert LAB not in recorded_labs()


def test_a_command_there_is_over_before_what_it_left_in_the_background(server: Server) -> None:
    destination = resolve(parse_address(server.host), paramiko.SSHConfig(), server.home)
    size = 60_000

    def outputs() -> list[Output]:
        with connected(destination, server.home) as connection:
            return [
                connection.run(command)
                for command in (
                    f"sleep infinity & head -c {size} /dev/zero; echo of errors >&2; exit 3",
                    "yes & echo first; exit 4",
                )
            ]

    whole, endless = inside(server.netns, outputs)
    assert (whole.exit_code, whole.out, whole.err) == (3, bytes(size), b"of errors\n")
    assert endless.exit_code == 4
    assert b"first" in endless.out


@pytest.mark.long
def test_a_command_gives_there_what_it_gives_here(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(SPEC.format(name="t-remote-plan"))
    local = rocelab("plan", "mine.yaml", "--json")
    code, out, errors = server.rocelab("plan", "mine.yaml", "--json", cwd=tmp_path)
    assert (code, out.decode()) == (local.returncode, local.stdout)
    assert json.loads(out)["lab"] == "t-remote-plan"
    assert errors == ""
    outside = tmp_path / "elsewhere/rendered"
    work = tmp_path / "work"
    work.mkdir()
    outside.parent.mkdir()
    code, _, errors = server.rocelab("render", "../mine.yaml", f"-o{outside}", cwd=work)
    assert code == 0, errors
    assert "brought back" in errors
    assert rocelab("render", "mine.yaml", "-o", "here").returncode == 0

    def contents(folder: Path) -> dict[str, str]:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_text() for path in files}

    assert contents(outside) == contents(tmp_path / "here")
    # What is there is not written over by a command that would not do so here.
    (work / "full").mkdir()
    (work / "full/mine.txt").write_text("mine")
    code, _, errors = server.rocelab("render", "../mine.yaml", "-o", "full", cwd=work)
    assert code == 2
    assert "not empty" in errors
    assert contents(work / "full") == {"mine.txt": "mine"}


@pytest.mark.long
def test_a_capture_there_is_a_stream_here(server: Server, lab: str, tmp_path: Path) -> None:
    words = ("capture", lab, "rtsw1:ctsw1", "ctsw1:rtsw1", "-o", "-", "--count", "2")
    code, out, errors = server.rocelab(*words, cwd=tmp_path)
    assert (code, errors.splitlines()[-1]) == (0, "2 packets")
    kinds = []
    while out:
        kind, length = struct.unpack_from("=II", out)
        kinds.append(kind)
        out = out[length:]
    assert kinds == [0x0A0D0D0A, 1, 1, 6, 6]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_nothing_of_a_run_stays_there_once_its_results_are_here(
    server: Server, tmp_path: Path
) -> None:
    assert server.rocelab("plan", "tiny", cwd=tmp_path)[0] == 0
    assert list((server.kit / "runs").iterdir()) == []
    assert list((server.kit / "incoming").iterdir()) == []
    assert len(list((server.kit / "kits").iterdir())) == 1
    assert list((server.home / ".local/state/rocelab/runs").iterdir()) == []


def test_a_machine_that_is_not_known_is_refused_with_what_to_compare(
    server: Server, tmp_path: Path
) -> None:
    fingerprint = subprocess.run(
        ["ssh-keygen", "-lf", server.host_key], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    known = server.known_hosts.read_text()
    server.known_hosts.write_text("")
    try:
        code, out, errors = server.rocelab("plan", "tiny", cwd=tmp_path)
    finally:
        server.known_hosts.write_text(known)
    assert (code, out) == (3, b"")
    assert fingerprint in errors
    assert "is not in" in errors
    assert "hint: compare" in errors
    assert server.known_hosts.read_text() == known


def test_a_changed_host_key_is_said_plainly_and_nothing_is_sent(
    server: Server, tmp_path: Path
) -> None:
    known = server.known_hosts.read_text()
    make_key(tmp_path / "other")
    kind, key, *_ = (tmp_path / "other.pub").read_text().split()
    name = known.split()[0]
    server.known_hosts.write_text(f"{name} {kind} {key}\n")
    try:
        code, out, errors = server.rocelab("plan", "tiny", cwd=tmp_path)
    finally:
        server.known_hosts.write_text(known)
    assert (code, out) == (3, b"")
    assert "has CHANGED" in errors
    assert "ssh-keygen -R" in errors


def test_a_key_that_is_refused_is_named_and_no_password_is_asked_for(
    server: Server, tmp_path: Path
) -> None:
    mine = server.key.read_bytes(), server.key.with_suffix(".pub").read_text()
    server.key.unlink()
    server.key.with_suffix(".pub").unlink()
    locked = server.home / ".ssh/id_ecdsa"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ecdsa", "-N", "secret words", "-f", locked], check=True
    )
    make_key(server.key)
    try:
        code, _, errors = server.rocelab("plan", "tiny", cwd=tmp_path)
    finally:
        server.key.write_bytes(mine[0])
        server.key.with_suffix(".pub").write_text(mine[1])
        locked.unlink()
        locked.with_suffix(".pub").unlink()
    assert code == 3
    assert f"{server.key}" in errors
    assert f"{locked} (has a passphrase)" in errors
    assert "ssh-copy-id" in errors


@pytest.mark.long
def test_the_configuration_of_ssh_is_honoured_to_the_last_jump(
    server: Server, tmp_path: Path
) -> None:
    moved = server.home / "keys"
    moved.mkdir()
    server.key.rename(moved / "lab")
    (server.home / ".ssh/config").write_text(
        f"Host far\n ProxyJump hop\nHost far hop\n HostName 127.0.0.1\n Port {server.port}\n"
        f"Host *\n User root\n IdentityFile ~/keys/lab\n IdentitiesOnly yes\n"
    )
    try:
        code, out, errors = server.rocelab("plan", "tiny", "--json", cwd=tmp_path, host="far")
    finally:
        (moved / "lab").rename(server.key)
        (server.home / ".ssh/config").unlink()
    assert code == 0, errors
    assert json.loads(out)["lab"] == "tiny"


@pytest.mark.long
def test_a_key_of_the_agent_is_enough(server: Server, tmp_path: Path) -> None:
    socket = tmp_path / "agent"
    with subprocess.Popen(
        ["ssh-agent", "-D", "-a", socket], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        environment = server.environment(SSH_AUTH_SOCK=str(socket))
        subprocess.run(["ssh-add", "-q", server.key], env=environment, check=True)
        hidden = tmp_path / "hidden"
        server.key.rename(hidden)
        try:
            code, _, errors = server.rocelab("plan", "tiny", cwd=tmp_path, environment=environment)
        finally:
            hidden.rename(server.key)
            agent.terminate()
    assert code == 0, errors


def read_until(process: subprocess.Popen[bytes], text: bytes) -> bytes:
    assert process.stdout is not None
    said = b""
    while text not in said:
        data = os.read(process.stdout.fileno(), 1 << 12)
        assert data, said
        said += data
    return said


@pytest.mark.long
def test_a_run_outlives_its_connection_and_is_attached_to_again(
    server: Server, lab: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"echo before; echo bad >&2; read word < {gate}; echo after $word; exit 3"
    command = ("exec", lab, "srv1-1", "--", "sh", "-c", script)
    with server.begin(*command, cwd=tmp_path) as process:
        read_until(process, b"before\n")
        server.cut()
        out, errors = process.communicate(timeout=RUN_LIMIT_S)
    assert process.returncode == LOST_EXIT_CODE, errors.decode()
    text = errors.decode()
    assert "is lost; it goes on there" in text
    again = re.search(r"hint: rocelab --host \S+ attach (\S+)", text)
    assert again is not None
    listed = json.loads(server.rocelab("runs", "--json", cwd=tmp_path)[1])
    assert [(row["run"], row["state"]) for row in listed] == [(again[1], "running")]
    with server.begin("attach", cwd=tmp_path) as process:
        assert read_until(process, b"before\n") == b"before\n"
        gate.write_text("all\n")
        out, errors = process.communicate(timeout=RUN_LIMIT_S)
    assert (process.returncode, out, errors) == (3, b"after all\n", b"bad\n")
    assert json.loads(server.rocelab("runs", "--json", cwd=tmp_path)[1]) == []
    assert server.rocelab("attach", cwd=tmp_path)[0] == 2


@pytest.mark.long
def test_ctrl_c_is_passed_on_and_what_the_command_then_says_still_comes(
    server: Server, lab: str, tmp_path: Path
) -> None:
    script = "trap 'echo stopped; exit 9' INT; mkfifo gate; echo ready; read x < gate"
    with server.begin("exec", lab, "srv1-1", "--", "sh", "-c", script, cwd=tmp_path) as process:
        read_until(process, b"ready\n")
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=RUN_LIMIT_S)
    assert (process.returncode, out) == (9, b"stopped\n")
    assert b"Ctrl-C is passed on" in errors


@pytest.mark.long
def test_a_second_ctrl_c_leaves_the_run_to_itself(server: Server, lab: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"trap '' INT; echo ready; read x < {gate}; echo end"
    with server.begin("exec", lab, "srv1-1", "--", "sh", "-c", script, cwd=tmp_path) as process:
        read_until(process, b"ready\n")
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        assert b"Ctrl-C is passed on" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=RUN_LIMIT_S)
    assert process.returncode == LOST_EXIT_CODE, errors.decode()
    assert b"attach" in errors
    gate.write_text("go\n")
    code, out, _ = server.rocelab("attach", cwd=tmp_path)
    assert (code, out) == (0, b"ready\nend\n")


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.long
def test_a_full_disk_is_said_before_at_and_after_the_start(
    server: Server, lab: str, tmp_path: Path
) -> None:
    runs = server.kit / "runs"
    script = "head -c 300000 /dev/zero | tr '\\0' x; echo done >&2"
    big = tmp_path / "big.yaml"
    big.write_bytes(b"# " + os.urandom(400_000).hex().encode() + b"\n")
    with small_disk(runs, "192k"):
        command = ("exec", lab, "srv1-1", "--", "sh", "-c", script)
        code, out, errors = server.rocelab(*command, cwd=tmp_path)
        assert code == 3
        assert 0 < len(out) < 300_000
        assert set(out) == {ord("x")}
        lost = re.search(r"was full: ([\d,]+) bytes of output are lost", errors)
        assert lost is not None, errors
        assert int(lost[1].replace(",", "")) == 300_000 - len(out) + len(b"done\n")
        # The run stays until somebody has seen to it.
        run = json.loads(server.rocelab("runs", "--json", cwd=tmp_path)[1])[0]["run"]
        assert server.rocelab("runs", "--remove", run, cwd=tmp_path)[0] == 0
        code, _, errors = server.rocelab("plan", "big.yaml", cwd=tmp_path)
        assert code == 3
        assert "is full" in errors
        assert list(runs.iterdir()) == []


@pytest.mark.long
def test_a_kit_that_finds_no_room_is_not_installed_and_the_next_one_is(
    server: Server, tmp_path: Path
) -> None:
    kits = server.kit / "kits"
    (kit,) = kits.iterdir()
    shutil.rmtree(kit)
    with small_disk(server.kit / "incoming", "64k"):
        code, _, errors = server.rocelab("plan", "tiny", cwd=tmp_path)
        assert code == 3, errors
        assert "is full" in errors
        assert list(kits.iterdir()) == []
    code, _, errors = server.rocelab("plan", "tiny", cwd=tmp_path)
    assert code == 0, errors
    assert list(kits.iterdir()) == [kit]


@pytest.mark.long
def test_the_page_of_a_lab_there_is_opened_here(server: Server, lab: str, tmp_path: Path) -> None:
    with server.begin("live", lab, "--read-only", cwd=tmp_path) as process:
        said = read_until(process, b"Ctrl-C ends the page").decode()
        url = re.search(r"http://127\.0\.0\.1:(\d+)(/\?token=\S+)", said)
        assert url is not None, said
        port = int(url[1])
        # Here its own port is taken: by the lab's server, which is on the same loopback.
        assert port != json.loads((LabFiles(lab).root / "live.json").read_text())["port"]
        answer = fetched(server, port, url[2])
        cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        assert answer.status == 303
        for _ in range(3):
            answer = fetched(server, port, "/fabric.json", cookie=cookie)
            assert json.loads(answer.read())["lab"] == lab
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=RUN_LIMIT_S)
    assert process.returncode == 130, errors.decode()
    assert b"is no longer served" in errors
    with pytest.raises(ConnectionRefusedError):
        fetched(server, port, "/")


@pytest.mark.long
def test_a_page_there_that_no_tunnel_leads_to_is_said(
    server: Server, lab: str, tmp_path: Path
) -> None:
    server.stop()
    server.start("AllowTcpForwarding no")
    try:
        with server.begin("live", lab, "--read-only", cwd=tmp_path) as process:
            read_until(process, b"Ctrl-C ends the page")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=RUN_LIMIT_S)
    finally:
        server.stop()
        server.start()
    assert b"AllowTcpForwarding in its sshd_config allows it" in errors


def fetched(server: Server, port: int, path: str, **headers: str) -> http.client.HTTPResponse:
    """What a browser gets on the loopback of the machine that typed the command."""

    def fetch() -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=RUN_LIMIT_S)
        connection.request("GET", path, headers=headers)
        return connection.getresponse()

    return inside(server.netns, fetch)


@pytest.mark.long
def test_a_program_in_a_node_has_this_terminal(server: Server, lab: str, tmp_path: Path) -> None:
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
    script = "stty size; read word; echo got $word; exit 6"
    with server.begin(
        "exec", lab, "srv1-1", "--", "sh", "-c", script, cwd=tmp_path, terminal=end
    ) as process:
        os.close(end)
        said = b""
        while b"31 97" not in said:
            said += os.read(terminal, 1 << 12)
        os.write(terminal, b"it\n")
        while b"got it" not in said:
            said += os.read(terminal, 1 << 12)
        assert process.wait(timeout=RUN_LIMIT_S) == 6
    os.close(terminal)


@pytest.mark.long
def test_a_drill_there_ends_with_the_report_that_it_has_here(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs/t-remote-drill.yaml").write_text(SPEC.format(name="t-remote-drill"))
    (tmp_path / "short.yaml").write_text(DRILL.format(name="t-remote-drill"))
    take_down("t-remote-drill")

    def run_there() -> tuple[int, bytes, str]:
        shutil.rmtree("there", ignore_errors=True)
        outputs = ("--json", "--out", "there", "--junit", "there.xml")
        return server.rocelab("drill", "run", "short.yaml", *outputs, cwd=tmp_path)

    code, out, errors = measured(
        run_there, lambda ran: problems_of_drill(from_json(ran[1].decode()))
    )
    assert code == 0, errors
    result = json.loads(out)
    here = measured(lambda: run_drill(Path("short.yaml")), problems_of_drill)
    local = json.loads(to_json(here))
    assert json.loads((tmp_path / "there/result.json").read_text()) == result
    assert "<testsuite" in (tmp_path / "there.xml").read_text()
    assert (tmp_path / "there/report.html").read_text().startswith("<!")
    assert shape(result) == shape(local)
    assert result["passed"] is local["passed"] is True
    assert result["lab"] == local["lab"]
    assert "t-remote-drill" not in recorded_labs()


def shape(document: object) -> object:
    """The keys of a document, without measured values. Which figures have a spread depends on the
    measurement too: a flow that has not recovered at the drill's end has no convergence time."""
    if isinstance(document, dict):
        return {key: shape(value) for key, value in document.items() if key != "spread"}
    return type(document).__name__ if isinstance(document, list) else None
