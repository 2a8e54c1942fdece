"""A switch's BGP policy: as rendered, as it runs, and changed while it runs.

Lines of configuration are without indentation. A fault restores what it removed from the rendered
configuration, never from a process's memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from rocelab.base.errors import InputError, MachineError
from rocelab.base.family import Family
from rocelab.lab.lab import RunningLab
from rocelab.labfile.stacks import DEFAULT_STACK
from rocelab.linux import processes
from rocelab.linux.bracket import Bracket
from rocelab.planning.fabric import Fabric, Link
from rocelab.routing.answers import UnreadableAnswerError
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr import peers, vty
from rocelab.routing.frr.configuration import frr_configuration
from rocelab.routing.stack import BgpPeer, stack_for

SHUT_FOR_PREFIXES = "Idle (PfxCt)"
"""The state of a session that maximum-prefix has shut, which stays so until it is cleared."""

T = TypeVar("T")

_GROUP = re.compile(r"neighbor (\S+) peer-group")
_LIST = re.compile(r"neighbor (?P<peer>\S+) prefix-list (?P<name>\S+) (?P<way>in|out)")


@dataclass(frozen=True, slots=True)
class Filter:
    """A line that sets a prefix list of a neighbour or a peer group."""

    line: str
    name: str


def rendered_lines(fabric: Fabric, switch: str) -> tuple[str, ...]:
    """The lines of a switch's bgpd.conf."""
    fabric = fabric.network_of(switch)
    text = frr_configuration(fabric, fabric.node(switch))["bgpd"]
    return tuple(line.strip() for line in text.splitlines())


def check_stack(fabric: Fabric) -> None:
    """Raises InputError if switches do not run FRR, which faults of policy ask and change."""
    stack = stack_for(fabric)
    if stack.name != DEFAULT_STACK:
        raise InputError(
            f"switches of lab {fabric.name} run {stack.title}, and this fault is one of FRR's bgpd",
            "leave routing.stack out; daemon-crash, daemon-hang and faults of links work on any",
        )


def check_rendered(fabric: Fabric) -> None:
    """Raises InputError if the lab was adopted or runs the user's own configuration: its policy is
    not rendered here. Raises as `check_stack`."""
    check_stack(fabric)
    if fabric.is_adopted or not fabric.spec.routing.is_rendered:
        why = "was adopted" if fabric.is_adopted else "runs a configuration of its own"
        raise InputError(
            f"not applicable: lab {fabric.name} {why}, and this fault changes policy that rocelab "
            "renders",
            hint="session-reset, daemon-crash and daemon-hang work on its FRR",
        )


def peer_groups(fabric: Fabric, switch: str) -> tuple[str, ...]:
    """The names of a switch's peer groups: every neighbour is in one."""
    matches = (_GROUP.fullmatch(line) for line in rendered_lines(fabric, switch))
    return tuple(match[1] for match in matches if match)


def peer_name(link: Link, switch: str) -> str:
    """A switch's name for its neighbour on a link: the address, or the interface to it."""
    far = link.far(switch)
    return link.port(switch).interface if far.address is None else far.ip


def distant_peers(fabric: Fabric, switch: str) -> Mapping[str, str]:
    """A switch's neighbours whose sessions are over no link of its own, such as those between
    loopbacks: what bgpd calls each, and the switch that it is. Known of a lab of the user's own
    routing that is up."""
    if fabric.observed is None:
        return {}
    near = {peer_name(link, switch) for link in fabric.links_of[switch] if link in fabric.sessions}
    owner = {node.loopback: node.name for node in fabric.switches if node.loopback is not None}
    names = fabric.observed.peers.get(switch, ())
    return {name: owner.get(name, name) for name in names if name not in near}


def filters(fabric: Fabric, switch: str, way: str, peers: Sequence[str] = ()) -> tuple[Filter, ...]:
    """The prefix lists for one direction (`in`, `out`), of `peers` only if any are named."""
    matches = (_LIST.fullmatch(line) for line in rendered_lines(fabric, switch))
    wanted = (
        Filter(match[0], match["name"])
        for match in matches
        if match and match["way"] == way and (not peers or match["peer"] in peers)
    )
    return tuple(dict.fromkeys(wanted))  # each family of addresses has the same


def has_bgpd(lab: RunningLab, switch: str) -> bool:
    """Whether bgpd runs: one that starts later reads the rendered configuration."""
    return "bgpd" in lab.node(switch).daemons()


def answers(lab: RunningLab, switch: str) -> bool:
    """Whether a switch's bgpd runs and is not stopped."""
    pid = lab.node(switch).daemons().get("bgpd")
    return pid is not None and not processes.is_stopped(pid)


def running_lines(lab: RunningLab, switch: str) -> frozenset[str]:
    """The lines of bgpd's running configuration. Raises MachineError if it does not answer."""
    text = _ask(lab, switch, "show running-config")
    return frozenset(line.strip() for line in text.splitlines())


def configure(
    lab: RunningLab, switch: str, lines: Sequence[str], *, families: Sequence[Family] = ()
) -> Bracket:
    """Enter lines in a switch's `router bgp`, or in its part for each of these families; return
    when it took them.

    Raises MachineError if bgpd does not answer or refuses one.
    """
    parts = [
        (f"address-family {family} unicast", *lines, "exit-address-family") for family in families
    ]
    router = f"router bgp {lab.fabric.node(switch).asn}"
    return configure_globally(
        lab, switch, (router, *(chain.from_iterable(parts) if parts else lines))
    )


def configure_globally(lab: RunningLab, switch: str, lines: Sequence[str]) -> Bracket:
    """Enter lines in a switch's bgpd; return when it took them. Raises MachineError if it does not
    answer or refuses one."""
    files = lab.node(switch).daemon_files
    try:
        return Bracket.of(lambda: vty.vty_configure(files, "bgpd", *lines))
    except OSError as error:
        raise _unanswered(switch, error) from None


def clear(lab: RunningLab, switch: str, peers: Sequence[str], *, soft: bool = False) -> Bracket:
    """Reset sessions, or with `soft` only their routes (RFC 2918 route refresh); return when.

    Raises MachineError if bgpd does not answer.
    """
    how = " soft" if soft else ""
    commands = [f"clear bgp {peer}{how}" for peer in peers]
    files = lab.node(switch).daemon_files
    try:
        return Bracket.of(lambda: vty.vty_command(files, "bgpd", *commands))
    except OSError as error:
        raise _unanswered(switch, error) from None


def sessions(lab: RunningLab, switch: str) -> Mapping[str, BgpPeer]:
    """A switch's sessions, by `peer_name`. Raises MachineError if bgpd does not answer."""
    return _read(lab, switch, peers.bgp_peers)


def session_counts(lab: RunningLab, switch: str) -> Mapping[str, peers.SessionCounts]:
    """bgpd's counters of a switch's sessions, by `peer_name`. Raises MachineError if it does not
    answer."""
    return _read(lab, switch, peers.session_counts)


def shutting_down(lab: RunningLab, switch: str) -> frozenset[str]:
    """The neighbours, by `peer_name`, from which a switch has a path that is about to be withdrawn
    (community GRACEFUL_SHUTDOWN). Raises MachineError if its bgpd does not answer."""
    return _read(lab, switch, peers.shutting_down)


def _read(lab: RunningLab, switch: str, read: Callable[[DaemonFiles], T]) -> T:
    try:
        return read(lab.node(switch).daemon_files)
    except OSError as error:
        raise _unanswered(switch, error) from None


def _ask(lab: RunningLab, switch: str, command: str) -> str:
    try:
        return vty.vty_command(lab.node(switch).daemon_files, "bgpd", command)
    except OSError as error:
        raise _unanswered(switch, error) from None


def _unanswered(switch: str, error: OSError) -> MachineError:
    if isinstance(error, UnreadableAnswerError):
        return MachineError(
            str(error),
            "check its answer with `rocelab vtysh`; take the lab down and bring it up again",
        )
    return MachineError(
        f"bgpd of {switch} does not answer ({error})",
        "another fault may have stopped it: restore that one first",
    )
