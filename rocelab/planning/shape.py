"""The Clos in a graph of nodes and cables that others drew.

The inverse of `rocelab.fabrics.kinds.clos`: counts of racks, spines, servers, NICs and parallel
links, or each part of the graph that is no Clos.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from rocelab.base.errors import InputError
from rocelab.base.wording import listed
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.labfile.load import validate
from rocelab.labfile.source import Data, YamlSource

Pair = tuple[str, str]
SHOWN = 8
_TIERS = ("server", "leaf", "spine", "core")


@dataclass(frozen=True, slots=True)
class DrawnGraph:
    """A graph: the tier of each node (0 for servers, up to 3), and every cable, by its ends."""

    tier: Mapping[str, int]
    cables: Sequence[Pair]

    def of_tier(self, tier: int) -> list[str]:
        return [name for name, level in self.tier.items() if level == tier]

    @property
    def counted(self) -> Counter[Pair]:
        """The number of cables between two nodes, the lower one first."""
        return Counter(
            (one, other) if self.tier[one] <= self.tier[other] else (other, one)
            for one, other in self.cables
        )


def tiers(cables: Iterable[Pair], hosts: Set[str], switches: Set[str]) -> dict[str, int]:
    """The tier of each node that is joined to others: hosts are 0, switches with hosts 1, and each
    further step away from them is a tier more, up to 3. Without hosts the switches with the fewest
    neighbours are 1."""
    near: dict[str, set[str]] = {}
    for one, other in cables:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    joined = switches & near.keys()
    lowest = {name for name in joined if near[name] & hosts}
    if not lowest and joined:
        fewest = min(len(near[name]) for name in joined)
        lowest = {name for name in joined if len(near[name]) == fewest}
    tier = dict.fromkeys(hosts, 0) | dict.fromkeys(lowest, 1)
    frontier, number = lowest, 1
    while frontier:
        number += 1
        frontier = {far for name in frontier for far in near[name] if far not in tier}
        tier |= dict.fromkeys(frontier, min(number, len(_TIERS) - 1))
    return tier


def clos_in(drawn: DrawnGraph) -> ClosSpec:
    """The Clos that was drawn. Raises InputError with every part that is none, SpecError for one
    that is larger than a lab file can describe."""
    problems = list(_problems(drawn))
    if problems:
        more = len(problems) - SHOWN
        lines = problems[:SHOWN] + ([f"and {more} more"] if more > 0 else [])
        raise InputError(
            "no Clos: " + "; ".join(lines), "a lab file describes regular fabrics only"
        )
    counted = drawn.counted
    servers, leaves, spines, cores = map(drawn.of_tier, range(4))
    zones = _zones(drawn)
    counts: dict[str, Data] = {
        "zones": len(zones),
        "racks": len(leaves) // len(zones),
        "spines": len(spines) // len(zones),
        "links_per_pair": _one(counted, leaves, spines),
        "servers_per_rack": len(servers) // len(leaves),
        "nics_per_server": _one(counted, servers, leaves),
        "atsws": len(cores),
        "links_per_atsw": _one(counted, spines, cores),
    }
    return validate(YamlSource("the Clos that was drawn", counts, {}), ClosSpec)


def _one(counted: Counter[Pair], lower: Iterable[str], upper: Iterable[str]) -> int:
    """The number of parallel cables between two tiers, which is the same everywhere."""
    above = set(upper)
    below = set(lower)
    return next(
        (count for (low, high), count in counted.items() if low in below and high in above), 1
    )


def _problems(drawn: DrawnGraph) -> Iterator[str]:
    """Each part of the graph that is no Clos."""
    wired = dict.fromkeys(end for cable in drawn.cables for end in cable)
    if apart := [end for end in wired if end not in drawn.tier]:
        yield from (f"no path leads from {end} to a leaf" for end in apart)
        return
    counted = drawn.counted
    servers, leaves, spines, cores = map(drawn.of_tier, range(4))
    if not leaves or not spines:
        yield f"it has {len(leaves)} leaves and {len(spines)} spines"
        return
    for (low, high), _ in counted.items():
        if drawn.tier[high] - drawn.tier[low] != 1:
            ends = f"{_TIERS[drawn.tier[low]]} {low} and {_TIERS[drawn.tier[high]]} {high}"
            yield f"a cable joins {ends}"
    for server in servers:
        homes = [high for (low, high) in counted if low == server]
        if len(homes) != 1:
            yield f"server {server} is on {listed(homes, 'and') if homes else 'no leaf'}"
    yield from _uneven(
        "server", "cables", {server: _to(counted, server, leaves) for server in servers}
    )
    on_leaf = Counter(high for (low, high) in counted if drawn.tier[low] == 0)
    yield from _uneven("leaf", "servers", {leaf: on_leaf[leaf] for leaf in leaves})
    zones = _zones(drawn)
    yield from _uneven("zone of", "leaves", {zone[0]: len(_in(zone, leaves)) for zone in zones})
    yield from _uneven("zone of", "spines", {zone[0]: len(_in(zone, spines)) for zone in zones})
    for zone in zones:
        yield from _unmeshed(counted, _in(zone, leaves), _in(zone, spines))
    parallel = {zone[0]: _one(counted, _in(zone, leaves), _in(zone, spines)) for zone in zones}
    yield from _uneven("zone of", "cables from a leaf to a spine", parallel)
    joined = {name for zone in zones for name in zone}
    yield from (f"spine {spine} is on no leaf" for spine in spines if spine not in joined)
    if cores:
        yield from _unmeshed(counted, spines, cores)
    elif len(zones) > 1:
        yield f"its leaves and spines are {len(zones)} unconnected parts"


def _to(counted: Counter[Pair], low: str, upper: Iterable[str]) -> int:
    return sum(counted[low, high] for high in upper)


def _in(zone: Sequence[str], names: Iterable[str]) -> list[str]:
    members = set(zone)
    return [name for name in names if name in members]


def _uneven(what: str, of: str, counts: Mapping[str, int]) -> Iterator[str]:
    """Name the nodes whose count differs from most."""
    if not counts:
        return
    usual, _ = Counter(counts.values()).most_common(1)[0]
    for name, count in counts.items():
        if count != usual:
            yield f"{what} {name} has {count} {of}, others {usual}"


def _unmeshed(counted: Counter[Pair], lower: Sequence[str], upper: Sequence[str]) -> Iterator[str]:
    """Pairs of two tiers with more or fewer cables than most."""
    counts = {(low, high): counted[low, high] for low in lower for high in upper}
    if not counts:
        yield f"leaf {lower[0]} is on no spine"
        return
    usual, _ = Counter(counts.values()).most_common(1)[0]
    for (low, high), count in counts.items():
        if count != max(usual, 1):
            yield f"{count} cables join {low} and {high}, others {max(usual, 1)}"


def _zones(drawn: DrawnGraph) -> list[list[str]]:
    """Leaves and spines that are joined without cores, in order of their first leaf."""
    near: dict[str, set[str]] = {name: set() for name, tier in drawn.tier.items() if tier in (1, 2)}
    for one, other in drawn.cables:
        if one in near and other in near:
            near[one].add(other)
            near[other].add(one)
    zones, seen = [], set[str]()
    for leaf in drawn.of_tier(1):
        if leaf in seen:
            continue
        zone, frontier = [leaf], [leaf]
        seen.add(leaf)
        while frontier:
            frontier = [far for name in frontier for far in sorted(near[name]) if far not in seen]
            frontier = list(dict.fromkeys(frontier))
            seen.update(frontier)
            zone += frontier
        zones.append(zone)
    return zones
