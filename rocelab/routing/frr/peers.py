"""A switch's BGP sessions and BFD sessions, as its daemons report them.

Parses the answers of bgpd and bfdd over their vty sockets into typed peers with printable names. A
daemon that was taken over may answer anything: an answer of another shape, like a missing one, is
an error that names the switch and the daemon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from rocelab.base.family import Family
from rocelab.base.wording import printable, shown
from rocelab.routing.answers import ANSWER_TIMEOUT_S, UnreadableAnswerError
from rocelab.routing.files import DaemonFiles
from rocelab.routing.frr.vty import vty_json
from rocelab.routing.stack import BgpPeer

MOST_CHARACTERS = 64
"""The limit for a name or a state: an interface has 15, an IPv6 address 39."""


@dataclass(frozen=True, slots=True)
class BfdPeer:
    """A BFD session at one end, and the interval at which the far end sends."""

    is_up: bool
    remote_interval_ms: int


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """How often a session has ended and how often a route refresh was requested (RFC 2918) since
    bgpd started; and whether it is established now."""

    ended: int
    refreshes: int
    established: bool


def bgp_peers(files: DaemonFiles, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, BgpPeer]:
    """A switch's BGP sessions by neighbour: an interface, or an address.

    Raises OSError as `vty_command` does, UnreadableAnswerError if the answer has another shape.
    """
    summary = _summary(files, timeout_s)
    answer = DaemonAnswer(files, "bgpd")
    peers = {}
    for name, peer in answer.mapping(summary.get("peers", {})).items():
        fields = answer.mapping(peer)
        state = answer.text(fields.get("state"))
        counts = (answer.number(fields.get(key, 0)) for key in ("pfxRcd", "pfxSnt"))
        peers[answer.text(name)] = BgpPeer(state, *counts)
    return peers


def evpn_sessions(files: DaemonFiles, timeout_s: float = ANSWER_TIMEOUT_S) -> int:
    """The number of BGP sessions that carry EVPN routes at a switch. Raises as `bgp_peers` does."""
    summary = vty_json(files, "bgpd", "show bgp l2vpn evpn summary json", dict, timeout_s)
    answer = DaemonAnswer(files, "bgpd")
    peers = answer.mapping(summary.get("peers", {})).values()
    return sum(answer.mapping(peer).get("state") == "Established" for peer in peers)


def local_asn(files: DaemonFiles) -> int | None:
    """A switch's own AS number; None if it has no BGP. Raises as `bgp_peers` does."""
    summary = _summary(files)
    asn = summary.get("as")
    return None if asn is None else DaemonAnswer(files, "bgpd").asn(asn)


def _summary(files: DaemonFiles, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, object]:
    """A switch's sessions: those that carry IPv4, as all do in a lab of both families, or, if none
    does, those that carry IPv6."""
    return _first_with("peers", "show bgp {} unicast summary json", files, timeout_s)


def _first_with(
    key: str, command: str, files: DaemonFiles, timeout_s: float = ANSWER_TIMEOUT_S
) -> dict[str, object]:
    """bgpd's answer for IPv4, or for IPv6 where that has nothing under the key."""
    answer: dict[str, object] = {}
    for family in Family:
        answer = vty_json(files, "bgpd", command.format(family), dict, timeout_s)
        if answer.get(key):
            break
    return answer


def session_counts(files: DaemonFiles) -> dict[str, SessionCounts]:
    """bgpd's counters of a switch's sessions, by neighbour. Raises as `bgp_peers` does."""
    answer = DaemonAnswer(files, "bgpd")
    counts = {}
    for name, peer in _neighbours(files).items():
        messages = answer.mapping(peer.get("messageStats", {}))
        counts[name] = SessionCounts(
            answer.number(peer.get("connectionsDropped", 0)),
            answer.number(messages.get("routeRefreshSent", 0)),
            peer.get("bgpState") == "Established",
        )
    return counts


def unheard(files: DaemonFiles) -> frozenset[str]:
    """The neighbours of unnumbered links whose address a switch does not know: it has heard no
    router advertisement of them (RFC 4861 section 4.2). Raises as `bgp_peers` does."""
    neighbours = _neighbours(files).items()
    return frozenset(name for name, peer in neighbours if peer.get("bgpNeighborAddr") == "none")


def _neighbours(files: DaemonFiles) -> dict[str, Mapping[str, object]]:
    """All that bgpd tells of a switch's sessions, by neighbour."""
    document = vty_json(files, "bgpd", "show bgp neighbors json", dict)
    answer = DaemonAnswer(files, "bgpd")
    # The object also holds numbers of the address family.
    return {answer.text(name): peer for name, peer in document.items() if isinstance(peer, dict)}


def shutting_down(files: DaemonFiles) -> frozenset[str]:
    """The neighbours from which a switch has a path with the community GRACEFUL_SHUTDOWN (RFC
    8326). Raises as `bgp_peers` does."""
    table = _first_with("routes", "show bgp {} unicast community graceful-shutdown json", files)
    answer = DaemonAnswer(files, "bgpd")
    return frozenset(
        answer.text(path["peerId"])
        for paths in answer.mapping(table.get("routes", {})).values()
        for path in map(answer.mapping, answer.sequence(paths))
        if "peerId" in path
    )


def bfd_peers(files: DaemonFiles) -> list[BfdPeer]:
    """A switch's BFD sessions. Raises as `bgp_peers` does."""
    answer = DaemonAnswer(files, "bfdd")
    peers = []
    for peer in vty_json(files, "bfdd", "show bfd peers json", list):
        fields = answer.mapping(peer)
        interval_ms = answer.number(fields.get("remote-transmit-interval", 0))
        peers.append(BfdPeer(fields.get("status") == "up", interval_ms))
    return peers


@dataclass(frozen=True, slots=True)
class DaemonAnswer:
    """Checks the types of an answer's parts; its error names the switch and the daemon."""

    files: DaemonFiles
    daemon: str

    def mapping(self, value: object) -> Mapping[str, object]:
        return value if isinstance(value, dict) else self._refuse(value, "an object")

    def sequence(self, value: object) -> Sequence[object]:
        return value if isinstance(value, list) else self._refuse(value, "an array")

    def number(self, value: object) -> int:
        return value if isinstance(value, int) else self._refuse(value, "a whole number")

    def asn(self, value: object) -> int:
        """RFC 6793: 32 bits."""
        is_asn = type(value) is int and 0 <= value < 2**32
        return self.number(value) if is_asn else self._refuse(value, "an AS number")

    def text(self, value: object) -> str:
        """A name or a state, safe to print."""
        text = value if isinstance(value, str) else self._refuse(value, "a text")
        return printable(text)[:MOST_CHARACTERS]

    def _refuse(self, value: object, wanted: str) -> NoReturn:
        why = f"expected {wanted}, got {shown(value)}"
        raise UnreadableAnswerError(self.files, self.daemon, why)
