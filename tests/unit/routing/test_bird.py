"""BIRD: its configuration against golden files, its answers, and what it does not run.
`RECORD=1 pytest` writes the files anew."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pytest

from rocelab.base.errors import InputError
from rocelab.drills.drill_spec import load_drill
from rocelab.drills.plan import plan_drill
from rocelab.faults.asked import asked_fault
from rocelab.faults.base import SingleFaultSpec
from rocelab.faults.kinds.daemon_crash import DaemonCrashSpec
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.render.deployment import deployment
from rocelab.render.files import write_rendered
from rocelab.routing.answers import UnreadableAnswerError
from rocelab.routing.bird.installation import BirdInstallation, version_in
from rocelab.routing.bird.stack import BIRD
from rocelab.routing.files import DaemonFiles
from rocelab.routing.stack import BgpPeer

GOLDEN = Path(__file__).parents[2] / "golden"
BFD = {"bfd": {"interval": "300ms", "multiplier": 3}}
PROTOCOLS = b"""\
0001 BIRD 2.0.12 ready.
2002-Name       Proto      Table      State  Since         Info
1002-kernel1    Kernel     master4    up     04:32:38.816  \n\
1006-  Channel ipv4
     State:          UP
     Routes:         0 imported, 9 exported, 0 preferred
 \n\
1002-ctsw1      BGP        ---        up     04:32:38.816  Established   \n\
1006-  BGP state:          Established
     Neighbor address: 198.18.0.19
   Channel ipv4
     State:          UP
     Routes:         4 imported, 1 filtered, 2 exported, 4 preferred
 \n\
1002-ctsw2-2    BGP        ---        start  04:32:38.816  Active        \n\
1006-  BGP state:          Active
     Neighbor address: 198.18.0.21%ctsw2-2
   Channel ipv4
     State:          DOWN
 \n\
0000 \n\
"""
SESSIONS = b"""\
0001 BIRD 2.0.12 ready.
1020-bfd1:
 IP address                Interface  State      Since         Interval  Timeout
 198.18.0.19               ctsw1      Up         04:37:27.185    0.300    0.900
 198.18.0.21               ctsw2      Up         04:37:27.185    0.300    3.000
 198.18.0.23               ctsw3      Down       04:37:27.185    1.000    0.900
0000 \n\
"""


def fabric(routing: dict[str, object] | None = None, **extra: object) -> Fabric:
    body = {"name": "golden", "fabric": {"zones": 2, "racks": 2, "spines": 2, "atsws": 1}, **extra}
    return plan(LabSpec.model_validate({**body, "routing": {"stack": "bird", **(routing or {})}}))


@pytest.mark.parametrize("node", ["z1-rtsw1", "z1-ctsw1", "atsw1"])
@pytest.mark.parametrize(
    ("variant", "routing"),
    [("bird", BFD), ("bird-valleys", {"valley_free": False}), ("bird-ipv6", {})],
)
def test_a_switch_s_configuration_is_as_recorded(
    node: str, variant: str, routing: dict[str, object], tmp_path: Path
) -> None:
    extra = {"addresses": {"family": "ipv6"}} if variant == "bird-ipv6" else {}
    write_rendered(fabric(routing, **extra), tmp_path / "out")
    text = (tmp_path / "out" / node / "bird.conf").read_text()
    golden = GOLDEN / f"{variant}-{node}.conf"
    if os.environ.get("RECORD"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize(
    ("routing", "extra", "what"),
    [
        ({"numbering": "unnumbered"}, {}, "unnumbered links"),
        ({"graceful_restart": True}, {}, "routing.graceful_restart"),
        ({}, {"hashing": {"weights": "paths"}}, "hashing.weights: paths"),
        ({}, {"fabric": {"kind": "hpn", "segments": 2}}, "NICs with two ports"),
    ],
)
def test_what_it_does_not_run_is_refused_with_its_key(
    routing: dict[str, object], extra: dict[str, object], what: str
) -> None:
    with pytest.raises(InputError, match=f"has {what}, which rocelab does not run with BIRD"):
        BIRD.check(fabric(routing, **extra))


def test_a_stack_that_is_not_registered_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="there is no routing stack brid"):
        fabric({"stack": "brid"})


def test_faults_of_frr_s_policy_are_refused_and_those_of_daemons_are_not() -> None:
    lab = fabric()
    for kind in ("drain", "abrupt-removal", "session-reset", "route-leak", "bad-prefix"):
        keys = ("switch=z1-rtsw1", "of=z1-rtsw2") if kind == "bad-prefix" else ("switch=z1-rtsw1",)
        fault = asked_fault(kind, keys)
        assert isinstance(fault, SingleFaultSpec)
        with pytest.raises(InputError, match="run BIRD, and this fault is one of FRR's bgpd"):
            fault.resolve(lab)
    assert DaemonCrashSpec(kind="daemon-crash", switch="z1-ctsw1").resolve(lab).daemon == "bird"
    with pytest.raises(InputError, match="z1-ctsw1 of lab golden runs no bgpd"):
        DaemonCrashSpec(kind="daemon-crash", switch="z1-ctsw1", daemon="bgpd").resolve(lab)


def test_stages_are_left_out_and_containers_refused(tmp_path: Path) -> None:
    file = tmp_path / "staged.yaml"
    file.write_text(
        "{name: staged, lab: x.yaml, traffic: {flows: 2, rate_pps: 500, duration: 3s}, "
        "measure: {stages: true}, "
        "faults: [{kind: carrier-down, links: [z1-rtsw1:z1-ctsw1], at: 1s}]}"
    )
    drill = load_drill(file)
    planned = plan_drill(drill, fabric())
    assert not planned.phases[0].spec.measure.stages
    (note,) = planned.notes
    assert note.startswith("stages are not applicable: they are read from FRR's traces")
    with pytest.raises(InputError, match="BIRD does not run in containers"):
        deployment(fabric())


def test_sessions_are_read_with_their_states_and_prefixes() -> None:
    assert told(PROTOCOLS, BIRD.peers) == {
        "198.18.0.19": BgpPeer("Established", 4, 2),
        "198.18.0.21": BgpPeer("Active", 0, 0),
    }


def test_bfd_sessions_count_once_the_far_end_has_its_pace() -> None:
    assert told(SESSIONS, lambda files: BIRD.bfd_ready(files, 300, 3)) == 1


def test_a_refused_command_and_an_end_without_a_reply_are_errors() -> None:
    refused = b"0001 BIRD 2.0.12 ready.\n9001 syntax error, unexpected CF_SYM_UNDEFINED\n"
    with pytest.raises(UnreadableAnswerError, match="rejects `foo`: syntax error"):
        told(refused, lambda files: BIRD.answer(files, "bird", "foo"))
    with pytest.raises(OSError, match="closed its socket"):
        told(PROTOCOLS[:-6], BIRD.peers)


def test_its_log_tells_of_sessions_by_their_ports() -> None:
    log = b"""\
2026-11-29 04:37:26.422 <TRACE> ctsw2: State changed to start
2026-11-29 04:37:27.187 <TRACE> ctsw1: State changed to up
2026-11-29 04:37:27.187 <TRACE> ctsw1.ipv4: State changed to UP
2026-11-29 04:37:28.001 <INFO> ctsw1: State changed to up
"""
    assert BIRD.session_changes(log) == [("ctsw2", False), ("ctsw1", True)]


def test_it_is_never_root() -> None:
    files = DaemonFiles(Path("/run/rocelab/x/nodes/rtsw1"))
    bird = BirdInstallation("2.0.12", "/usr/sbin", 105, 109, "/usr/sbin/birdc", "/usr/bin/setpriv")
    command = bird.command("bird", files)
    ends = command.index("--")
    assert command[:4] == ["/usr/bin/setpriv", "--reuid=105", "--regid=109", "--clear-groups"]
    assert command[ends + 1 :] == [
        *("/usr/sbin/bird", "-c", f"{files.folder}/bird.conf"),
        *("-s", f"{files.folder}/daemons/bird.vty", "-P", f"{files.folder}/daemons/bird.pid"),
    ]
    assert BIRD.installation_of(bird.document()) == bird


def test_its_release_is_read_and_an_untested_one_named() -> None:
    assert version_in("BIRD version 2.0.12\n") == "2.0.12"
    assert version_in("?") == "unknown"
    assert BIRD.untested("2.0.12") is None
    assert "BIRD 3.0 is untested" in str(BIRD.untested("3.0"))


def told(answer: bytes, ask: Callable[[DaemonFiles], Any]) -> Any:
    """The result of a question with this greeting and reply; then the socket closes."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            greeting, _, reply = answer.partition(b"\n")
            connection.sendall(greeting + b"\n")
            connection.recv(1 << 10)
            connection.sendall(reply)

    with TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listening:
        files = DaemonFiles(Path(folder) / "rtsw1")
        files.daemon_folder.mkdir(parents=True)
        listening.bind(str(files.control("bird")))
        listening.listen()
        thread = Thread(target=serve)
        thread.start()
        try:
            return ask(files)
        finally:
            thread.join()
