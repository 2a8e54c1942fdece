"""Finds which BGP sessions are established, from bgpd's logs, or from bgpd in an adopted lab.

A log has a line for every session that comes up or goes down (`bgp log-neighbor-changes`, which
every rendered configuration has). bgpd itself is not queried: a summary over its vty takes
milliseconds that belong to convergence, and a stopped daemon does not answer.

A session is up when its last line at both ends says so: a daemon that was killed or stopped logs
nothing, but its neighbours do once they notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rocelab.base.files import UntrustedFileError, read_untrusted, untrusted_lines
from rocelab.lab.daemons import FrrFiles
from rocelab.lab.peers import BgpPeer, bgp_peers
from rocelab.plan.fabric import Fabric, Link
from rocelab.record import LabFiles

# Possessive and bounded: no part of a line is tried again and again.
_CHANGE = re.compile(rb"%ADJCHANGE: neighbor ([^\s(]++)\S*+ .{0,64}?\b(Up|Down)\b")


ANSWER_LIMIT_S = 1.0
"""How long bgpd may take to answer: a stopped one never does."""
READ_BYTES = 1 << 20
"""How much of a log is read at once; a longer line is skipped."""
MOST_READS = 256
"""Reads in one call, of a log that grows faster than it is read."""


class SessionReader:
    """Follows the logs of a lab's bgpd from their beginning."""

    gaps = ()

    def __init__(self, fabric: Fabric) -> None:
        files = LabFiles(fabric.name)
        self._ends: dict[str, dict[str, bool]] = {link.name: {} for link in fabric.sessions}
        self._logs = {
            node.name: SessionLog(FrrFiles(files.node(node.name)).log("bgpd"))
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


def parse_changes(log: bytes) -> list[tuple[str, bool]]:
    """Neighbour and whether it came up, of each line about a session."""
    matches = (_CHANGE.search(line) for line in untrusted_lines(log))
    return [(match[1].decode(errors="replace"), match[2] == b"Up") for match in matches if match]


class AskedSessions:
    """Asks bgpd of every switch of a lab that was adopted, whose logs may be anywhere."""

    def __init__(self, fabric: Fabric, frr_of: Mapping[str, FrrFiles]) -> None:
        """`frr_of` are the switches that run bgpd."""
        self._frr_of = frr_of
        self._link_of = links_by_neighbour(fabric)
        self.gaps: tuple[str, ...] = ()

    def established(self) -> dict[str, bool]:
        """Whether each session is up at every end that answers, by its link's name; one without an
        answer is left out. All are asked at once, and one that hangs is waited for a second."""
        ends: dict[str, list[bool]] = {}
        gaps = []
        with ThreadPoolExecutor(max(1, len(self._frr_of))) as pool:
            answers = dict(
                zip(self._frr_of, pool.map(_answered, self._frr_of.values()), strict=True)
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
        return {link: all(found) for link, found in ends.items()}


def _answered(frr: FrrFiles) -> dict[str, BgpPeer] | OSError:
    try:
        return bgp_peers(frr, ANSWER_LIMIT_S)
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

    def __init__(self, path: Path) -> None:
        self._path = path
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
            yield from parse_changes(text[:whole])
            if not is_full:
                return
