"""Finds which BGP sessions are established, from daemons' logs, or from bgpd in an adopted lab.

A log has a line for every session that comes up or goes down, as every rendered configuration asks
for. Daemons themselves are not queried: a summary takes milliseconds that belong to convergence,
and a stopped daemon does not answer.

A session is up when its last line at both ends says so: a daemon that was killed or stopped logs
nothing, but its neighbours do once they notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rocelab.base.files import UntrustedFileError, read_untrusted
from rocelab.lab.node import NamespaceNode
from rocelab.planning.fabric import Fabric, Link
from rocelab.record import LabFiles
from rocelab.routing.files import DaemonFiles
from rocelab.routing.stack import BgpPeer, stack_for

ANSWER_LIMIT_S = 1.0
"""How long bgpd may take to answer: a stopped one never does."""
READ_BYTES = 1 << 20
"""How much of a log is read at once; a longer line is skipped."""
MOST_READS = 256
"""Reads in one call, of a log that grows faster than it is read."""


class SessionReader:
    """Follows the logs of a lab's daemons from their beginning."""

    gaps = ()

    def __init__(self, fabric: Fabric) -> None:
        files, stack = LabFiles(fabric.name), stack_for(fabric)
        self._ends: dict[str, dict[str, bool]] = {link.name: {} for link in fabric.sessions}
        self._logs = {
            node.name: SessionLog(
                DaemonFiles(files.node(node.name)).log(stack.speaker), stack.session_changes
            )
            for node in fabric.switches
        }
        self._link_of = links_by_neighbour(fabric)

    def established(self) -> dict[str, bool]:
        """Whether each session is up, by its link's name."""
        for node, log in self._logs.items():
            for neighbour, is_up in log.changes():
                link = self._link_of.get((node, neighbour))
                if link is not None:
                    self._ends[link.name][node] = is_up
        return {link: both_up(ends) for link, ends in self._ends.items()}


def both_up(ends: Mapping[str, bool]) -> bool:
    """Whether a session is up by the last line of each of its ends."""
    return len(ends) == 2 and all(ends.values())


class PolledSessions:
    """Asks bgpd of every switch of a lab that was adopted, whose logs may be anywhere."""

    def __init__(self, fabric: Fabric, speakers: Mapping[str, NamespaceNode]) -> None:
        """`speakers` are the switches that have BGP sessions."""
        self._speakers = speakers
        self._link_of = links_by_neighbour(fabric)
        self.gaps: tuple[str, ...] = ()

    def established(self) -> dict[str, bool]:
        """Whether each session is up at every end that answers, by its link's name; one without an
        answer is left out. All are asked at once, and one that hangs is waited for a second."""
        ends: dict[str, list[bool]] = {}
        gaps = []
        with ThreadPoolExecutor(max(1, len(self._speakers))) as pool:
            answers = dict(
                zip(self._speakers, pool.map(_answered, self._speakers.values()), strict=True)
            )
        for node, peers in answers.items():
            if isinstance(peers, OSError):
                gaps.append(f"could not read {node}: {peers}")
                continue
            for neighbour, peer in peers.items():
                link = self._link_of.get((node, neighbour))
                if link is not None:
                    ends.setdefault(link.name, []).append(peer.established)
        self.gaps = tuple(gaps)
        return {link: all(states) for link, states in ends.items()}


def _answered(switch: NamespaceNode) -> Mapping[str, BgpPeer] | OSError:
    try:
        return switch.stack.peers(switch.daemon_files, ANSWER_LIMIT_S)
    except OSError as error:
        return error


def links_by_neighbour(fabric: Fabric) -> dict[tuple[str, str], Link]:
    """A session's link, by a switch and its name for its neighbour: an interface, or an address."""
    return {
        (link.port(node).node, neighbour): link
        for link in fabric.sessions
        for node in (link.a.node, link.b.node)
        for neighbour in (
            link.port(node).interface,
            *((link.far(node).ip,) if link.far(node).address else ()),
        )
    }


class SessionLog:
    """A growing log; an incomplete last line is read again when it is complete."""

    def __init__(self, path: Path, parse: Callable[[bytes], Sequence[tuple[str, bool]]]) -> None:
        """`parse`: as `RoutingStack.session_changes`."""
        self._path, self._parse = path, parse
        self._read_bytes = 0

    def changes(self) -> Iterator[tuple[str, bool]]:
        """Neighbour and whether it came up, of each line that is new."""
        for _ in range(MOST_READS):
            try:
                text = read_untrusted(self._path, self._read_bytes, READ_BYTES)
            except (FileNotFoundError, UntrustedFileError):
                return
            is_full = len(text) == READ_BYTES
            whole = text.rfind(b"\n") + 1 or (READ_BYTES if is_full else 0)
            self._read_bytes += whole
            yield from self._parse(text[:whole])
            if not is_full:
                return
