"""Routes that a rack's switch should not announce: what it learned, or another rack's prefix.

The faults remove filters of a leaf switch and restore the rendered ones. With `filtered` its
neighbours keep their filters, and the fabric must not be affected. Without it, their filters
towards this switch are off: the incident that filters prevent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.faults import policy
from rocelab.lab.lab import RunningLab

OWN_ASN_OCCURRENCES = 1
"""How often a leaked path holds a neighbour's own ASN: once, because no path crosses a tier
twice."""


def announced(lab: RunningLab, leaf: str) -> frozenset[str]:
    """The number of prefixes that a switch announces to all its neighbours together; bgpd counts
    what it has sent, filtered or not."""
    sent = sum(session.sent for session in policy.sessions(lab, leaf).values())
    return frozenset({f"{leaf} announces {sent} prefixes in all"})


def still_announced(lab: RunningLab, leaf: str) -> list[str]:
    """What a switch announces beyond its own prefixes: bgpd withdraws a while after it is told.
    Nothing where switches pass on all routes."""
    if not lab.fabric.network_of(leaf).valley_free:
        return []
    count = _prefixes(lab, leaf)
    states = policy.sessions(lab, leaf)
    peers = [policy.peer_name(link, leaf) for link in lab.fabric.uplinks(leaf)]
    return [
        f"{leaf} announces {states[peer].sent} prefixes to {peer}, its own are {count}"
        for peer in peers
        if states[peer].sent > count
    ]


def _prefixes(lab: RunningLab, leaf: str) -> int:
    """How many prefixes of the family that sessions are counted by a switch originates."""
    fabric = lab.fabric
    return sum(prefix.family is fabric.family for prefix in fabric.prefixes_of[leaf])


@dataclass(frozen=True, slots=True)
class _Neighbour:
    """A switch above a leaf: its name for the leaf, and its filters towards it."""

    switch: str
    peers: tuple[str, ...]
    filters: tuple[policy.Filter, ...]

    @property
    def own_asn_lines(self) -> list[str]:
        return [f"neighbor {peer} allowas-in {OWN_ASN_OCCURRENCES}" for peer in self.peers]


def _neighbours(lab: RunningLab, leaf: str) -> list[_Neighbour]:
    peers_of: dict[str, list[str]] = {}
    for link in lab.fabric.uplinks(leaf):
        peers_of.setdefault(link.b.node, []).append(policy.peer_name(link, link.b.node))
    return [
        _Neighbour(switch, tuple(peers), policy.filters(lab.fabric, switch, "in", peers))
        for switch, peers in peers_of.items()
    ]


def open_neighbours(lab: RunningLab, leaf: str, *, accept_own_asn: bool) -> None:
    for neighbour in _neighbours(lab, leaf):
        lines = [f"no {filter_.line}" for filter_ in neighbour.filters]
        lines += neighbour.own_asn_lines if accept_own_asn else []
        policy.configure(lab, neighbour.switch, lines, families=lab.fabric.spec.addresses.families)


def close_neighbours(lab: RunningLab, leaf: str) -> None:
    """Restore the neighbours' filters, and reopen sessions that maximum-prefix shut."""
    for neighbour in _neighbours(lab, leaf):
        if not policy.has_bgpd(lab, neighbour.switch):
            continue
        running = policy.running_lines(lab, neighbour.switch)
        lines = missing_lines(lab, neighbour.switch, neighbour.filters)
        lines += [f"no {line}" for line in neighbour.own_asn_lines if line in running]
        if lines:
            policy.configure(
                lab, neighbour.switch, lines, families=lab.fabric.spec.addresses.families
            )
        states = policy.sessions(lab, neighbour.switch)
        shut = [peer for peer in neighbour.peers if states[peer].state == policy.SHUT_FOR_PREFIXES]
        if shut:
            policy.clear(lab, neighbour.switch, shut)


def left_at_neighbours(lab: RunningLab, leaf: str) -> tuple[str, ...]:
    count = _prefixes(lab, leaf)
    remains: list[str] = []
    for neighbour in _neighbours(lab, leaf):
        if not policy.has_bgpd(lab, neighbour.switch):
            continue
        running = policy.running_lines(lab, neighbour.switch)
        remains += [
            f"{neighbour.switch} lacks `{line}`"
            for line in missing_lines(lab, neighbour.switch, neighbour.filters)
        ]
        remains += [
            f"{neighbour.switch} has `{line}`"
            for line in neighbour.own_asn_lines
            if line in running
        ]
        states = policy.sessions(lab, neighbour.switch)
        for peer in neighbour.peers:
            if states[peer].state == policy.SHUT_FOR_PREFIXES:
                remains.append(f"{neighbour.switch}'s session with {leaf} is {states[peer].state}")
            if states[peer].accepted > count and lab.fabric.network_of(leaf).valley_free:
                remains.append(
                    f"{neighbour.switch} has {states[peer].accepted} prefixes of {leaf}, whose own "
                    f"are {count}"
                )
    return tuple(remains)


def missing_lines(lab: RunningLab, switch: str, wanted: Sequence[policy.Filter]) -> list[str]:
    running = policy.running_lines(lab, switch)
    return [entry.line for entry in wanted if entry.line not in running]
