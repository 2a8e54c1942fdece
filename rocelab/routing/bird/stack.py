"""BIRD 2 as a routing stack: one daemon that has BGP, BFD and the kernel's routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocelab.base.errors import InputError
from rocelab.base.files import untrusted_lines
from rocelab.base.wording import printable
from rocelab.planning.fabric import Fabric, Node
from rocelab.routing.answers import ANSWER_TIMEOUT_S
from rocelab.routing.bird import configuration, control
from rocelab.routing.bird.installation import SHELL, BirdInstallation, find_installation
from rocelab.routing.daemons import run_on_time, set_niceness
from rocelab.routing.files import DaemonFiles
from rocelab.routing.stack import BgpPeer, Installation, Question

DAEMON = "bird"
TESTED_RELEASES = ("2.0.12",)
"""That of Debian 12."""
MOST_CHARACTERS = 64
_HEAD = re.compile(r"(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)")
_STATE = re.compile(r"\s+BGP state:\s+(\S+)")
_NEIGHBOUR = re.compile(r"\s+Neighbor address: ([^\s%]+)")
_ROUTES = re.compile(r"\s+Routes:\s+(\d{1,9}) imported, (?:\d+ filtered, )?(\d{1,9}) exported")
_BFD = re.compile(r"\S+\s+\S+\s+Up\s+\S+\s+([\d.]{1,12})\s+([\d.]{1,12})\s*")
_CHANGE = re.compile(rb"<TRACE> ([^\s:.]{1,64}): State changed to (up|down|start|stop)\b")


class Bird:
    """The daemon bird. BGP and BFD are protocols in it, and so are the kernel's routes."""

    name = "bird"
    title = "BIRD"
    programs = (DAEMON,)
    of_some_releases = ()
    speaker = DAEMON
    kernel_daemon = DAEMON
    shell = SHELL
    is_lean = False
    questions: Mapping[str, Sequence[Question]] = {
        DAEMON: (
            Question("protocols.txt", "protocols and sessions in full", "show protocols all"),
            Question("routes.txt", "BIRD's routes", "show route all"),
            Question("bfd-sessions.txt", "BFD sessions", "show bfd sessions"),
        )
    }

    def check(self, fabric: Fabric) -> None:
        configuration.check(fabric)

    def check_configuration(self, fabric: Fabric, installation: Installation) -> None:
        """All of it is the kit's."""

    def daemons(self, fabric: Fabric, node: Node) -> tuple[str, ...]:
        return self.programs

    def loading(self, daemon: str, files: DaemonFiles) -> list[str]:
        return []

    def configuration(
        self,
        fabric: Fabric,
        node: Node,
        daemons: Sequence[str],
        logs: Path | None,
        *,
        interfaces: bool,
    ) -> Mapping[str, str]:
        text = configuration.bird_configuration(fabric, node, logs, interfaces=interfaces)
        return dict.fromkeys(daemons, text)

    def opens_from_above(self, fabric: Fabric) -> bool:
        """Both ends open, and one of two connections is closed (RFC 4271 section 6.8)."""
        return False

    def find(self, prefix: Path | None) -> Installation:
        return find_installation(prefix)

    def installation_of(self, document: Mapping[str, object]) -> Installation:
        return BirdInstallation.of(document)

    def untested(self, version: str) -> str | None:
        if version in TESTED_RELEASES:
            return None
        return f"BIRD {version} is untested: rocelab is tested with {' and '.join(TESTED_RELEASES)}"

    def await_start(self, daemon: str, files: DaemonFiles) -> None:
        control.greeted(files, daemon)

    def schedule(self, daemon: str, pid: int, niceness: int) -> None:
        """The thread of BFD runs before everything else."""
        if niceness:
            set_niceness(pid, niceness)
        run_on_time(pid, but_the_first=True)

    def shell_arguments(self, commands: Sequence[str]) -> list[str]:
        if len(commands) > 1:
            raise InputError(f"{SHELL} runs one command at a time", "give -c once")
        return [word for command in commands for word in command.split()]

    def answer(
        self, files: DaemonFiles, daemon: str, command: str, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> str:
        return control.ask(files, daemon, command, timeout_s)

    def running_configuration(self, files: DaemonFiles, daemon: str) -> str:
        """BIRD does not show its configuration: its protocols with their states."""
        protocols = _protocols(control.ask(files, daemon, "show protocols all"))
        return "\n".join(head for head, _ in protocols)

    def configuration_changes(self, files: DaemonFiles, daemon: str, planned: str) -> Sequence[str]:
        """None: BIRD does not print the configuration that it runs."""
        return ()

    def peers(
        self, files: DaemonFiles, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> Mapping[str, BgpPeer]:
        peers = {}
        reply = control.ask(files, DAEMON, "show protocols all", timeout_s)
        for _, lines in _protocols(reply):
            peer, neighbour = BgpPeer("unknown", 0, 0), None
            for line in lines:
                if match := _STATE.match(line):
                    peer = replace(peer, state=printable(match[1])[:MOST_CHARACTERS])
                elif match := _NEIGHBOUR.match(line):
                    neighbour = printable(match[1])[:MOST_CHARACTERS]
                elif match := _ROUTES.match(line):
                    peer = replace(peer, accepted=int(match[1]), sent=int(match[2]))
            if neighbour is not None:
                peers[neighbour] = peer
        return peers

    def missing_sessions(
        self, fabric: Fabric, node: Node, daemons: Sequence[str], files: DaemonFiles
    ) -> Iterable[str]:
        peers = self.peers(files).items()
        return [
            f"{node.name}: the BGP session with {name} is {peer.state}"
            for name, peer in peers
            if not peer.established
        ]

    def session_changes(self, log: bytes) -> Sequence[tuple[str, bool]]:
        """By `debug protocols { states }`: a session has the name of its port."""
        matches = (_CHANGE.search(line) for line in untrusted_lines(log))
        return [
            (match[1].decode(errors="replace"), match[2] == b"up") for match in matches if match
        ]

    def bfd_ready(self, files: DaemonFiles, interval_ms: int, multiplier: int) -> int:
        """The time after which BIRD gives a session up is the far end's interval, as often as its
        multiplier says (RFC 5880 section 6.8.4)."""
        reply = control.ask(files, DAEMON, "show bfd sessions")
        rows = (_BFD.fullmatch(line) for line in reply.splitlines())
        return sum(round(float(row[2]) * 1000) == interval_ms * multiplier for row in rows if row)

    def unheard(self, files: DaemonFiles) -> frozenset[str]:
        return frozenset()


def _protocols(reply: str) -> Iterator[tuple[str, list[str]]]:
    """Each protocol of `show protocols all`: its name, kind, table and state, and the lines below.
    The first line is the table's heading."""
    head: str | None = None
    lines: list[str] = []
    for line in reply.splitlines()[1:]:
        if line[:1].strip():
            if head is not None:
                yield head, lines
            match = _HEAD.match(line)
            head, lines = " ".join(match.groups()[:4]) if match else line, []
        else:
            lines.append(line)
    if head is not None:
        yield head, lines


BIRD = Bird()
