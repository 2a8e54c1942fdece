"""FRR as a routing stack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rocelab.base.family import Family
from rocelab.base.files import untrusted_lines
from rocelab.labfile.frr_file import START_ORDER
from rocelab.planning.fabric import Fabric, Node
from rocelab.routing.answers import ANSWER_TIMEOUT_S
from rocelab.routing.daemons import run_on_time, set_niceness
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr import adjacencies, configuration, own, peers
from rocelab.routing.frr.differences import changed_lines
from rocelab.routing.frr.installation import SHELL, FrrInstallation, find_installation, untested
from rocelab.routing.frr.vty import vty_command
from rocelab.routing.stack import BgpPeer, Installation, Question

DAEMONS = ("mgmtd", *START_ORDER)
RUNNING = "show running-config"
# Possessive and bounded: no part of a line is tried again and again.
_CHANGE = re.compile(rb"%ADJCHANGE: neighbor ([^\s(]++)\S*+ .{0,64}?\b(Up|Down)\b")


class Frr:
    """The daemons zebra, bgpd, with BFD bfdd, and since release 10 mgmtd; others where the user's
    own configuration has them."""

    name = "frr"
    title = "FRR"
    programs = DAEMONS
    of_some_releases = ("mgmtd",)
    speaker = "bgpd"
    # zebra takes no routes from a bgpd that outlived it (FRR 8.4: bgpd comes back after 10 s and
    # announces only what changes then). A zebra that outlived mgmtd connects to the new one.
    kernel_daemon = "zebra"
    shell = SHELL
    is_lean = True
    questions: Mapping[str, Sequence[Question]] = {
        "mgmtd": (Question("running-config.mgmtd", "configuration that mgmtd runs", RUNNING),),
        "zebra": (
            Question("running-config.zebra", "configuration that zebra runs", RUNNING),
            Question("routes.json", "zebra's routes", "show ip route json"),
            Question(
                "routes-ipv6.json", "zebra's IPv6 routes", "show ipv6 route json", Family.IPV6
            ),
            Question(
                "interfaces.txt", "interfaces and their router advertisements", "show interface"
            ),
        ),
        "bgpd": (
            Question("running-config.bgpd", "configuration that bgpd runs", RUNNING),
            Question("bgp-summary.json", "BGP sessions", "show bgp ipv4 unicast summary json"),
            Question("bgp-neighbors.json", "BGP sessions in full", "show bgp neighbors json"),
            Question("bgp-table.json", "BGP paths", "show bgp ipv4 unicast json"),
            Question(
                "bgp-summary-ipv6.json",
                "BGP sessions of IPv6",
                "show bgp ipv6 unicast summary json",
                Family.IPV6,
            ),
            Question(
                "bgp-table-ipv6.json",
                "BGP paths of IPv6",
                "show bgp ipv6 unicast json",
                Family.IPV6,
            ),
        ),
        "ospfd": (
            Question("running-config.ospfd", "configuration that ospfd runs", RUNNING),
            Question("ospf-neighbors.json", "OSPF's neighbours", "show ip ospf neighbor json"),
            Question("ospf-database.txt", "OSPF's database", "show ip ospf database"),
        ),
        "isisd": (
            Question("running-config.isisd", "configuration that isisd runs", RUNNING),
            Question("isis-neighbors.json", "IS-IS's neighbours", "show isis neighbor json"),
            Question("isis-database.txt", "IS-IS's database", "show isis database detail"),
        ),
        "staticd": (
            Question("running-config.staticd", "configuration that staticd runs", RUNNING),
        ),
        "bfdd": (
            Question("running-config.bfdd", "configuration that bfdd runs", RUNNING),
            Question("bfd-peers.json", "BFD sessions", "show bfd peers json"),
        ),
    }

    def check(self, fabric: Fabric) -> None:
        """FRR does all that a lab file can ask for."""
        own.check_sessions(fabric)

    def check_configuration(self, fabric: Fabric, installation: Installation) -> None:
        if isinstance(installation, FrrInstallation):
            own.check_configuration(fabric, installation)

    def daemons(self, fabric: Fabric, node: Node) -> tuple[str, ...]:
        return own.daemons_of(fabric, node)

    def configuration(
        self,
        fabric: Fabric,
        node: Node,
        daemons: Sequence[str],
        logs: Path | None,
        *,
        interfaces: bool,
    ) -> Mapping[str, str]:
        logs = logs or configuration.LOG_FOLDER
        return own.configuration_of(fabric, node, daemons, logs, interfaces=interfaces)

    def loading(self, daemon: str, files: DaemonFiles) -> list[str]:
        return own.loading(daemon, files.folder)

    def opens_from_above(self, fabric: Fabric) -> bool:
        return configuration.opens_from_above(fabric)

    def find(self, prefix: Path | None) -> Installation:
        return find_installation(prefix)

    def installation_of(self, document: Mapping[str, object]) -> Installation:
        return FrrInstallation.of(document)

    def untested(self, version: str) -> str | None:
        return untested(version)

    def await_start(self, daemon: str, files: DaemonFiles) -> None:
        """A daemon with `-d` is not before that."""

    def schedule(self, daemon: str, pid: int, niceness: int) -> None:
        """bfdd runs before everything else."""
        if daemon == "bfdd":
            run_on_time(pid)
        elif niceness:
            set_niceness(pid, niceness)

    def shell_arguments(self, commands: Sequence[str]) -> list[str]:
        return [word for command in commands for word in ("-c", command)]

    def answer(
        self, files: DaemonFiles, daemon: str, command: str, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> str:
        return vty_command(files, daemon, command, timeout_s=timeout_s)

    def running_configuration(self, files: DaemonFiles, daemon: str) -> str:
        return vty_command(files, daemon, RUNNING)

    def configuration_changes(self, files: DaemonFiles, daemon: str, planned: str) -> Sequence[str]:
        return changed_lines(planned, self.running_configuration(files, daemon))

    def peers(
        self, files: DaemonFiles, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> Mapping[str, BgpPeer]:
        return peers.bgp_peers(files, timeout_s)

    def missing_sessions(
        self, fabric: Fabric, node: Node, daemons: Sequence[str], files: DaemonFiles
    ) -> Iterable[str]:
        return adjacencies.missing(fabric, node, daemons, files)

    def session_changes(self, log: bytes) -> Sequence[tuple[str, bool]]:
        """By `bgp log-neighbor-changes`."""
        matches = (_CHANGE.search(line) for line in untrusted_lines(log))
        return [
            (match[1].decode(errors="replace"), match[2] == b"Up") for match in matches if match
        ]

    def bfd_ready(self, files: DaemonFiles, interval_ms: int, multiplier: int) -> int:
        sessions = peers.bfd_peers(files)
        return sum(peer.is_up and peer.remote_interval_ms == interval_ms for peer in sessions)

    def unheard(self, files: DaemonFiles) -> frozenset[str]:
        return peers.unheard(files)


FRR = Frr()
