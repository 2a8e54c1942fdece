"""What a routing stack is: its configuration, daemons, sessions and readiness.

A stack is an object in the group of entry points `rocelab.routing`; a lab's file names it with
`routing.stack`. `RoutingStack` knows fabrics and the daemons' answers; an `Installation` is where
its programs are on a machine or in an image, and how they are started. A lab keeps its installation
in its record, so that a restarted daemon is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rocelab.base.doors import Door
from rocelab.base.family import Family
from rocelab.base.files import replace_file
from rocelab.labfile.stacks import STACK_GROUP
from rocelab.routing.answers import ANSWER_TIMEOUT_S
from rocelab.routing.files import DaemonFiles

if TYPE_CHECKING:
    from rocelab.planning.fabric import Fabric, Node

_FILE = "installation.json"


@dataclass(frozen=True, slots=True)
class BgpPeer:
    """A BGP session at one end: its state (RFC 4271), and the number of prefixes accepted from and
    sent to the peer."""

    state: str
    accepted: int
    sent: int

    @property
    def established(self) -> bool:
        return self.state == "Established"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a daemon as evidence: the file of the answer, what it is, the command.

    `family`: IPV6 for what only labs with it are asked.
    """

    file: str
    what: str
    command: str
    family: Family = Family.IPV4


class Installation(Protocol):
    """The programs of a stack, on a machine or in an image.

    Paths are as a daemon sees them, whose `/` is `root`. `user` and `group` are those that daemons
    run as.
    """

    @property
    def stack(self) -> str:
        """The stack's name."""
        ...

    @property
    def version(self) -> str: ...

    @property
    def user(self) -> int: ...

    @property
    def group(self) -> int: ...

    @property
    def root(self) -> str: ...

    @property
    def place(self) -> str:
        """The folder of its daemons, as this machine sees it."""
        ...

    def program(self, daemon: str) -> str:
        """The path of a daemon's program."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that its programs need besides their usual ones."""
        ...

    def daemons(self, planned: Iterable[str]) -> tuple[str, ...]:
        """The planned daemons in start order, with those that this release needs besides."""
        ...

    def command(self, daemon: str, files: DaemonFiles) -> list[str]:
        """The command that starts a daemon, as root, on a switch's files. It ends with 0 once the
        configuration is loaded, and the daemon runs on with its id in `files.pid`."""
        ...

    def places(self, files: DaemonFiles) -> Mapping[Path, Path]:
        """A switch's own folders at the paths that are compiled into the daemons."""
        ...

    def other_files(self, files: DaemonFiles) -> Mapping[Path, str]:
        """What a switch's daemons read besides their configuration."""
        ...

    def shell(self, files: DaemonFiles) -> list[str]:
        """The command of the stack's command line for a switch's daemons."""
        ...

    def document(self) -> dict[str, object]:
        """Its fields, for `RoutingStack.installation_of`."""
        ...


@runtime_checkable
class RoutingStack(Protocol):
    """A suite of routing daemons.

    name: in lab files and records. title: for people, such as `FRR`. programs: the names of all
    daemons that a switch may run, in start order. of_some_releases: those that it runs besides the
    planned ones if its release has them. speaker: the one that holds BGP's sessions. kernel_daemon:
    the one that sets the kernel's routes; where it has to be started again, the others are too.
    shell: the name of the command line. is_lean: whether `--frr-memory` is about it. questions:
    what is asked of each daemon as evidence.
    """

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def programs(self) -> tuple[str, ...]: ...

    @property
    def of_some_releases(self) -> tuple[str, ...]: ...

    @property
    def speaker(self) -> str: ...

    @property
    def kernel_daemon(self) -> str: ...

    @property
    def shell(self) -> str: ...

    @property
    def is_lean(self) -> bool: ...

    @property
    def questions(self) -> Mapping[str, Sequence[Question]]: ...

    def check(self, fabric: Fabric) -> None:
        """Raises InputError for what the stack does not do."""
        ...

    def check_configuration(self, fabric: Fabric, installation: Installation) -> None:
        """Have the installed release read what of the configuration is the user's own, without
        running it. Raises SpecError with the lines that it refuses, InputError for a daemon that
        it lacks."""
        ...

    def daemons(self, fabric: Fabric, node: Node) -> tuple[str, ...]:
        """The daemons of a switch of the fabric, in start order, whatever the release."""
        ...

    def configuration(
        self,
        fabric: Fabric,
        node: Node,
        daemons: Sequence[str],
        logs: Path | None,
        *,
        interfaces: bool,
    ) -> Mapping[str, str]:
        """The configuration of each of these daemons of a switch, by its name, with its log in
        `logs`, or where the stack logs by itself. `interfaces`: with the addresses of ports. Raises
        ValueError for a server."""
        ...

    def loading(self, daemon: str, files: DaemonFiles) -> list[str]:
        """The arguments with which the command line gives a daemon that was started its part of a
        file of all daemons; none if it has read its own."""
        ...

    def opens_from_above(self, fabric: Fabric) -> bool:
        """Whether the upper end of each BGP session opens it, and the lower end waits."""
        ...

    def find(self, prefix: Path | None) -> Installation:
        """The machine's installation, or the one in a folder. Raises InputError, MachineError."""
        ...

    def installation_of(self, document: Mapping[str, object]) -> Installation:
        """The installation of that `Installation.document`."""
        ...

    def untested(self, version: str) -> str | None:
        """The warning for a release that rocelab is not tested with; None if it is."""
        ...

    def await_start(self, daemon: str, files: DaemonFiles) -> None:
        """Return when a daemon that was started has its configuration and its pid file. Raises
        OSError."""
        ...

    def schedule(self, daemon: str, pid: int, niceness: int) -> None:
        """Give a daemon that was started its priority: that niceness, or what it needs."""
        ...

    def shell_arguments(self, commands: Sequence[str]) -> list[str]:
        """The arguments with which the command line runs these commands and ends. Raises
        InputError."""
        ...

    def answer(
        self, files: DaemonFiles, daemon: str, command: str, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> str:
        """A daemon's answer to a command of the stack's command line. Raises OSError."""
        ...

    def running_configuration(self, files: DaemonFiles, daemon: str) -> str:
        """What a daemon's configuration is now, or all that it tells of it. Raises OSError."""
        ...

    def configuration_changes(self, files: DaemonFiles, daemon: str, planned: str) -> Sequence[str]:
        """The lines that a daemon runs and `planned` has not, with `+`, and the other way round,
        with `-`; none where the stack does not tell. Raises OSError."""
        ...

    def peers(
        self, files: DaemonFiles, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> Mapping[str, BgpPeer]:
        """A switch's BGP sessions by neighbour: an interface, or an address. Raises OSError, and
        UnreadableAnswerError if the answer has another shape."""
        ...

    def missing_sessions(
        self, fabric: Fabric, node: Node, daemons: Sequence[str], files: DaemonFiles
    ) -> Iterable[str]:
        """Sentences about what is configured on a switch with these daemons and not up: sessions,
        and adjacencies with the switches next to it. Raises as `peers` does."""
        ...

    def session_changes(self, log: bytes) -> Sequence[tuple[str, bool]]:
        """Of each line of the speaker's log about a session: the neighbour, an interface or an
        address, and whether it came up."""
        ...

    def bfd_ready(self, files: DaemonFiles, interval_ms: int, multiplier: int) -> int:
        """The number of a switch's BFD sessions that are up, with the far end at that pace. Raises
        as `peers` does."""
        ...

    def unheard(self, files: DaemonFiles) -> frozenset[str]:
        """The neighbours of unnumbered links whose address a switch does not know. Raises as
        `peers` does."""
        ...


def _stack(_: str, value: object) -> RoutingStack:
    if not isinstance(value, RoutingStack):
        raise TypeError(f"expected an object with all of {__name__}.{RoutingStack.__name__}")
    return value


STACKS: Door[RoutingStack] = Door(STACK_GROUP, "routing stack", _stack)


def stack_for(fabric: Fabric) -> RoutingStack:
    """The stack that a fabric's switches run. Raises InputError if it cannot be loaded."""
    return STACKS.find(fabric.spec.routing.stack)


def write_installation(folder: Path, installation: Installation) -> None:
    """Write the installation into a lab's folder."""
    document = {"stack": installation.stack, **installation.document()}
    replace_file(folder / _FILE, json.dumps(document, indent=1))


def read_installation(folder: Path) -> Installation:
    """Read the installation from a lab's folder. Raises FileNotFoundError, and InputError if its
    stack is gone."""
    document = json.loads((folder / _FILE).read_text())
    return STACKS.find(document.pop("stack")).installation_of(document)
