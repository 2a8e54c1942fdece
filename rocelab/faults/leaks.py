"""Routes that a rack's switch should not announce: what it learned, or another rack's prefix.

The faults remove filters of a leaf switch and restore the rendered ones. With `filtered` its
neighbours keep their filters, and the fabric must not be affected. Without it, their filters
towards this switch are off: the incident that filters prevent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.faults import policy
from rocelab.faults.base import NodeFault, SwitchFaultSpec
from rocelab.faults.selectors import NodeName, check_leaf
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket
from rocelab.plan.fabric import Fabric

OWN_ASN_OCCURRENCES = 1
"""How often a leaked path holds a neighbour's own ASN: once, because no path crosses a tier
twice."""


@dataclass(frozen=True, slots=True)
class RouteLeak(NodeFault):
    """A rack's switch announces all that it learned, its outbound filter gone.

    A neighbour's filters are its prefix list and the AS-path loop check (RFC 4271 section 9.1.2),
    which refuses every such path as the switches above a rack share one ASN; without `filtered`
    both are off, and maximum-prefix takes effect: it shuts the sessions, and the neighbours cut the
    rack off.
    """

    filtered: bool = True
    kind: str = "route-leak"

    def prepare(self, lab: RunningLab) -> None:
        """Removes the neighbours' filters, which has no effect until something is leaked."""
        if not self.filtered:
            _open_neighbours(lab, self.node, accept_own_asn=True)

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return _announced(lab, self.node)

    def inject(self, lab: RunningLab) -> Bracket:
        lines = [f"no {entry.line}" for entry in policy.filters(lab.fabric, self.node, "out")]
        return policy.configure(lab, self.node, lines, in_family=True)

    def restore(self, lab: RunningLab) -> Bracket | None:
        """Neighbours may take a while to remove the routes: see `remains`."""
        mended = None
        if policy.has_bgpd(lab, self.node):
            missing = _missing(lab, self.node, policy.filters(lab.fabric, self.node, "out"))
            if missing:
                mended = policy.configure(lab, self.node, missing, in_family=True)
        _close_neighbours(lab, self.node)
        return mended

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        found: list[str] = []
        if policy.has_bgpd(lab, self.node):
            missing = _missing(lab, self.node, policy.filters(lab.fabric, self.node, "out"))
            found += [f"{self.node} lacks `{line}`" for line in missing]
            found += _still_announced(lab, self.node)
        return tuple(found) + _left_at_neighbours(lab, self.node)


@dataclass(frozen=True, slots=True)
class BadPrefix(NodeFault):
    """A rack's switch announces another rack's prefix as its own, and keeps no route to it.

    Neighbours without filters see two equally distant origins and send a share of the traffic to
    the wrong rack. In both cases the switch's own servers no longer reach the other rack.
    """

    prefix: str
    filtered: bool = True
    kind: str = "bad-prefix"

    @property
    def subject(self) -> str:
        return f"{self.prefix} at {self.node}"

    def prepare(self, lab: RunningLab) -> None:
        """Removes the neighbours' filters, which has no effect until something is announced.

        Raises InputError if the prefix is the switch's own.
        """
        if self.prefix in {prefix.prefix for prefix in lab.fabric.prefixes_of[self.node]}:
            raise InputError(
                f"{self.prefix} is {self.node}'s own prefix", hint="name another rack's"
            )
        if not self.filtered:
            _open_neighbours(lab, self.node, accept_own_asn=False)

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return _announced(lab, self.node)

    def inject(self, lab: RunningLab) -> Bracket:
        policy.configure_globally(lab, self.node, self._permits(lab))
        return policy.configure(lab, self.node, [self._network], in_family=True)

    def restore(self, lab: RunningLab) -> Bracket | None:
        """Neighbours may take a while to remove the routes: see `remains`."""
        mended = None
        if policy.has_bgpd(lab, self.node):
            running = policy.running_lines(lab, self.node)
            if self._network in running:
                without = [f"no {self._network}"]
                mended = policy.configure(lab, self.node, without, in_family=True)
            # As it runs: FRR 10 has a line that was given twice twice.
            permitted = self._permitted(running)
            if permitted:
                policy.configure_globally(lab, self.node, [f"no {line}" for line in permitted])
        _close_neighbours(lab, self.node)
        return mended

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        found: list[str] = []
        if policy.has_bgpd(lab, self.node):
            running = policy.running_lines(lab, self.node)
            lines = self._permitted(running) + [
                line for line in (self._network,) if line in running
            ]
            found += [f"{self.node} has `{line}`" for line in lines]
            found += _still_announced(lab, self.node)
        return tuple(found) + _left_at_neighbours(lab, self.node)

    @property
    def _network(self) -> str:
        return f"network {self.prefix}"

    def _permits(self, lab: RunningLab) -> list[str]:
        """What lets the prefix through the switch's own filter."""
        names = dict.fromkeys(entry.name for entry in policy.filters(lab.fabric, self.node, "out"))
        return [f"ip prefix-list {name} permit {self.prefix}" for name in names]

    def _permitted(self, running: frozenset[str]) -> list[str]:
        end = f" permit {self.prefix}"
        return sorted(
            line for line in running if line.startswith("ip prefix-list ") and line.endswith(end)
        )


def _announced(lab: RunningLab, leaf: str) -> frozenset[str]:
    """The number of prefixes that a switch announces to all its neighbours together; bgpd counts
    what it has sent, filtered or not."""
    sent = sum(session.sent for session in policy.sessions(lab, leaf).values())
    return frozenset({f"{leaf} announces {sent} prefixes in all"})


def _still_announced(lab: RunningLab, leaf: str) -> list[str]:
    """What a switch announces beyond its own prefixes: bgpd withdraws a while after it is told."""
    own = len(lab.fabric.prefixes_of[leaf])
    states = policy.sessions(lab, leaf)
    peers = [policy.peer_name(link, leaf) for link in lab.fabric.uplinks(leaf)]
    return [
        f"{leaf} announces {states[peer].sent} prefixes to {peer}, its own are {own}"
        for peer in peers
        if states[peer].sent > own
    ]


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


def _open_neighbours(lab: RunningLab, leaf: str, *, accept_own_asn: bool) -> None:
    for neighbour in _neighbours(lab, leaf):
        lines = [f"no {filter_.line}" for filter_ in neighbour.filters]
        lines += neighbour.own_asn_lines if accept_own_asn else []
        policy.configure(lab, neighbour.switch, lines, in_family=True)


def _close_neighbours(lab: RunningLab, leaf: str) -> None:
    """Restore the neighbours' filters, and reopen sessions that maximum-prefix shut."""
    for neighbour in _neighbours(lab, leaf):
        if not policy.has_bgpd(lab, neighbour.switch):
            continue
        running = policy.running_lines(lab, neighbour.switch)
        lines = _missing(lab, neighbour.switch, neighbour.filters)
        lines += [f"no {line}" for line in neighbour.own_asn_lines if line in running]
        if lines:
            policy.configure(lab, neighbour.switch, lines, in_family=True)
        states = policy.sessions(lab, neighbour.switch)
        shut = [peer for peer in neighbour.peers if states[peer].state == policy.SHUT_FOR_PREFIXES]
        if shut:
            policy.clear(lab, neighbour.switch, shut)


def _left_at_neighbours(lab: RunningLab, leaf: str) -> tuple[str, ...]:
    own = len(lab.fabric.prefixes_of[leaf])
    found: list[str] = []
    for neighbour in _neighbours(lab, leaf):
        if not policy.has_bgpd(lab, neighbour.switch):
            continue
        running = policy.running_lines(lab, neighbour.switch)
        found += [
            f"{neighbour.switch} lacks `{line}`"
            for line in _missing(lab, neighbour.switch, neighbour.filters)
        ]
        found += [
            f"{neighbour.switch} has `{line}`"
            for line in neighbour.own_asn_lines
            if line in running
        ]
        states = policy.sessions(lab, neighbour.switch)
        for peer in neighbour.peers:
            if states[peer].state == policy.SHUT_FOR_PREFIXES:
                found.append(f"{neighbour.switch}'s session with {leaf} is {states[peer].state}")
            if states[peer].accepted > own:
                found.append(
                    f"{neighbour.switch} has {states[peer].accepted} prefixes of {leaf}, whose own "
                    f"are {own}"
                )
    return tuple(found)


def _missing(lab: RunningLab, switch: str, wanted: Sequence[policy.Filter]) -> list[str]:
    running = policy.running_lines(lab, switch)
    return [entry.line for entry in wanted if entry.line not in running]


class RouteLeakSpec(SwitchFaultSpec):
    """A rack's switch announces to all what it learned from one."""

    kind: Literal["route-leak"]
    filtered: Annotated[
        bool, Field(description="neighbours keep their filters towards the rack")
    ] = True

    def resolve(self, fabric: Fabric) -> RouteLeak:
        policy.check_rendered(fabric)
        check_leaf(fabric, self.switch)
        if not fabric.spec.routing.valley_free:
            raise InputError(
                f"{self.switch} announces all that it learns already",
                hint="the lab has routing.valley_free: false",
            )
        return RouteLeak(self.switch, self.filtered)


class BadPrefixSpec(SwitchFaultSpec):
    """A rack's switch announces the prefix of another rack as its own."""

    kind: Literal["bad-prefix"]
    of: Annotated[NodeName, Field(description="the switch whose prefix it is")]
    filtered: Annotated[
        bool, Field(description="neighbours keep their filters towards the rack")
    ] = True

    def resolve(self, fabric: Fabric) -> BadPrefix:
        """The announcement of the first prefix of the other rack's servers."""
        policy.check_rendered(fabric)
        check_leaf(fabric, self.switch)
        check_leaf(fabric, self.of)
        if self.of == self.switch:
            raise InputError(
                f"{self.of} announces its own prefix anyway", hint="name another switch in `of`"
            )
        prefixes = (prefix.prefix for prefix in fabric.prefixes_of[self.of])
        prefix = next(prefix for prefix in prefixes if not prefix.endswith("/32"))
        return BadPrefix(self.switch, prefix, self.filtered)
