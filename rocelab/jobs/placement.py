"""Which NIC each rank of a job runs on, in a lab and in a simulation.

`choose` chooses a NIC per rank among the `Nics` of a fabric, also beside other jobs; `place` does
so for a `Fabric`. It draws only from a seed, so a placement can be repeated.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property, partial
from itertools import groupby, zip_longest

from rocelab.base.errors import InputError
from rocelab.base.wording import listed, name_hint, shown
from rocelab.planning.fabric import Fabric, Nic
from rocelab.planning.tenancy import tenant_name


class Placement(StrEnum):
    """How ranks are laid out over the NICs of a fabric."""

    CONTIGUOUS = "contiguous"
    TOPOLOGY_AWARE = "topology-aware"
    FRAGMENTED = "fragmented"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class NicRef:
    """A server's NIC; NICs count from 1."""

    server: str
    nic: int

    def __str__(self) -> str:
        return f"{self.server}:{self.nic}"


@dataclass(frozen=True, slots=True)
class Cut:
    """The hops of a closed ring over all ranks that go from leaf to leaf and, among these, from
    zone to zone. A hop between NICs of one server counts too: in the lab it uses the network."""

    leaves: int
    zones: int


@dataclass(frozen=True)
class Nics:
    """The NICs of a fabric by column, counted from 0 in the fabric's order."""

    fabric: str
    nodes: Collection[str]
    """The names of servers and switches."""
    server: Sequence[str]
    """The name."""
    number: Sequence[int]
    """On that server, from 1."""
    leaf: Sequence[tuple[Hashable, ...]]
    """The switches that the NIC is wired to."""
    zone: Sequence[Hashable]
    """Of the first of these."""
    tenant: Sequence[Hashable] = ()
    """Of each NIC, None for one that is routed; empty in a fabric without tenants."""

    @cached_property
    def index(self) -> dict[NicRef, int]:
        """Where each NIC is in the columns."""
        return {ref: nic for nic, ref in enumerate(map(NicRef, self.server, self.number))}

    @cached_property
    def gpus(self) -> dict[NicRef, list[int]]:
        """All places of each NIC in the columns: several where GPUs share it
        (`rocelab.sim.hosts`)."""
        places: dict[NicRef, list[int]] = {}
        for place, ref in enumerate(map(NicRef, self.server, self.number)):
            places.setdefault(ref, []).append(place)
        return places

    def of_servers(self, names: Sequence[str]) -> list[int]:
        """The NICs of servers, in the order of the names, each once.

        A name, or a pattern of fnmatch(3), is of servers, of single NICs (`srv1-2:3`) or of
        switches, whose servers these are. Raises InputError for one that fits none.
        """
        switches: dict[Hashable, str] = dict(enumerate(self.nodes))
        chosen: dict[int, None] = {}
        for name in names:
            fits = partial(fnmatchcase, pat=name)
            fitting = [nic for nic, server in enumerate(self.server) if fits(server)]
            if not fitting and ":" in name:
                fitting = [nic for ref, nic in self.index.items() if fits(str(ref))]
            if not fitting:
                above = {at for at, switch in switches.items() if fits(switch)}
                above |= {switches[at] for at in above}
                fitting = [nic for nic, leaf in enumerate(self.leaf) if not above.isdisjoint(leaf)]
            if not fitting:
                raise InputError(
                    f"{shown(name)} is no server, NIC or leaf of {self.fabric}",
                    hint=name_hint(name, list(dict.fromkeys(self.server))),
                )
            chosen |= dict.fromkeys(fitting)
        return list(chosen)

    def cut(self, chosen: Sequence[int]) -> Cut:
        """The cut of a ring over a placement.

        A NIC with two ports is on its two leaves at once; a hop stays on a leaf where both NICs are
        on the same.
        """
        leaves, zones = ([column[nic] for nic in chosen] for column in (self.leaf, self.zone))
        hops = range(len(chosen))
        return Cut(
            leaves=sum(leaves[hop] != leaves[hop - 1] for hop in hops),
            zones=sum(zones[hop] != zones[hop - 1] for hop in hops),
        )

    def group_size(self, chosen: Sequence[int]) -> int:
        """How many consecutive ranks make up a group of a hierarchical collective.

        The ranks on one server if every server holds the same number of them, two or more; else the
        ranks on one leaf. Raises InputError if leaves hold different numbers or the ranks of a leaf
        are not consecutive.
        """
        servers, leaves = (
            [self.server[nic] for nic in chosen],
            [self.leaf[nic][0] for nic in chosen],
        )
        for homes, least in ((servers, 2), (leaves, 1)):
            runs = [len(list(run)) for _, run in groupby(homes)]
            if len(runs) == len(set(homes)) and len(set(runs)) == 1 and runs[0] >= least:
                return runs[0]
        raise InputError(
            "the ranks do not fall into groups of one size by server or leaf",
            hint="give the group size, or place ranks contiguous on full servers or leaves",
        )


def choose(
    nics: Nics,
    ranks: int,
    how: Placement | Sequence[str],
    seed: int = 0,
    taken: Sequence[bool] | None = None,
) -> list[int]:
    """The NIC of each rank, each NIC used once at most, without those that are `taken`.

    contiguous fills server by server, all NICs of each, as launchers number ranks: neighbours are
    on one server, which NVLink joins in reality, and rails carry rings of every rank of a server.
    Beside other jobs it takes a server, or whole servers, and one zone where some have room, as
    schedulers do. topology-aware has the least cut between zones
    (unit, segment, pod) and consecutive ranks near each other (Gangidi et al., SIGCOMM 2024, `RDMA
    over Ethernet for Distributed AI Training at Meta Scale`). A job that fits into one zone gets
    the zone where it needs the fewest leaves, the fullest of several. A larger job fills the
    emptiest zones, then places the remaining ranks by the same rule. In a zone it takes the
    emptiest leaves, and for its last ranks the fullest leaf with room for them. A job in one zone
    thus has the fewest possible leaves, and any job the fewest zones; a job in several zones has
    the fewest leaves in each, not always overall. Ranks then follow the fabric's order: zone by
    zone, leaf by leaf. If all NICs of a server are on one leaf and no other job has any, contiguous
    is the same; with rails contiguous changes the leaf at every step. fragmented distributes ranks
    over the zones in turn and within each over its leaves in turn, so that consecutive ranks are on
    different leaves as long as NICs are left; random draws NICs from `seed`. A list names the NIC
    of each rank: `srv1-2:3`, or `srv1-2` for NIC 1.

    All ranks are in one tenant: if a fabric has several, in the first that has enough free NICs.

    Raises InputError for more ranks than free NICs, a fragmented placement on one leaf, and a list
    that is too short or long, repeats a NIC or names one that is taken, of another tenant, or
    does not exist.
    """
    if not isinstance(how, Placement):
        return _of_one_tenant(nics, _listed(nics, ranks, how, taken))
    if nics.tenant:
        taken = _beside_tenant(nics, ranks, taken)
    zones = _free_by_leaf(nics, taken)
    leaves = [leaf for zone in zones for leaf in zone]
    free = [nic for leaf in leaves for nic in leaf]
    if ranks > len(free):
        beside_others = len(free) < len(nics.leaf)
        raise InputError(
            f"{ranks} ranks do not fit the {len(free)} NICs of {nics.fabric}"
            + " that other jobs leave" * beside_others,
            hint="each rank needs its own NIC: use fewer ranks"
            + (" or jobs" if beside_others else ", or give the fabric more servers or NICs"),
        )
    match how:
        case Placement.CONTIGUOUS:
            chosen = sorted(free)
            if len(free) < len(nics.server):
                chosen = _beside_others(nics, chosen, ranks)
        case Placement.TOPOLOGY_AWARE:
            chosen = _nearest(zones, ranks)
        case Placement.FRAGMENTED:
            if ranks and sum(map(bool, leaves)) < 2:
                raise InputError(
                    f"{nics.fabric} has servers on one leaf only",
                    hint="a fragmented placement needs two; use contiguous",
                )
            chosen = _in_turn([_in_turn(zone) for zone in zones])
        case Placement.RANDOM:
            rng = random.Random(seed)  # noqa: S311 - repeatable draws, not secrets
            chosen = rng.sample(free, len(free))
    return chosen[:ranks]


def _beside_others(nics: Nics, free: list[int], ranks: int) -> list[int]:
    """The free NICs that are of the first server with room for all ranks, or of servers that no
    other job has, and of these of the first zone with room; all where there is none."""
    size, left = Counter(nics.server), Counter(nics.server[nic] for nic in free)
    of_one = next((server for server, room in left.items() if room >= ranks), None)
    if of_one is not None:
        return [nic for nic in free if nics.server[nic] == of_one]
    whole = [nic for nic in free if left[nics.server[nic]] == size[nics.server[nic]]]
    if len(whole) >= ranks:
        free = whole
    rooms = Counter(nics.zone[nic] for nic in free)
    home = next((zone for zone, room in rooms.items() if room >= ranks), None)
    return free if home is None else [nic for nic in free if nics.zone[nic] == home]


def _beside_tenant(nics: Nics, ranks: int, taken: Sequence[bool] | None) -> list[bool]:
    """The NICs that are taken or of other tenants than the first with enough free NICs."""
    free = [nic for nic in range(len(nics.tenant)) if taken is None or not taken[nic]]
    room = Counter(nics.tenant[nic] for nic in free)
    # NICs that are in no tenant come last.
    order = sorted(dict.fromkeys(nics.tenant), key=lambda tenant: tenant is None)
    chosen = next((tenant for tenant in order if room[tenant] >= ranks), None)
    if room[chosen] < ranks:
        raise InputError(
            f"{ranks} ranks do not fit one tenant of {nics.fabric}: the largest has "
            f"{max(room.values(), default=0)} free NICs",
            hint="use fewer ranks, or give the tenant more members",
        )
    of_tenant = {nic for nic in free if nics.tenant[nic] == chosen}
    return [nic not in of_tenant for nic in range(len(nics.tenant))]


def _of_one_tenant(nics: Nics, chosen: list[int]) -> list[int]:
    """The NICs of a list, which are of one tenant. Raises InputError if they are not."""
    tenants = dict.fromkeys(nics.tenant[nic] for nic in chosen) if nics.tenant else {}
    if len(tenants) > 1:
        names = listed(
            ("no tenant" if name is None else f"tenant {name}" for name in tenants), "and"
        )
        raise InputError(
            f"the placement lists NICs of {names}, which do not reach each other",
            hint="list NICs of one tenant",
        )
    return chosen


def place(
    fabric: Fabric,
    ranks: int,
    how: Placement | Sequence[str],
    seed: int = 0,
    taken: Collection[NicRef] = (),
) -> tuple[NicRef, ...]:
    """The NIC of each rank, as `choose` chooses among those that are not `taken`; raises as it
    does."""
    nics = _nics_of(fabric)
    refs = list(nics.index)
    occupied = [ref in taken for ref in refs] if taken else None
    return tuple(refs[nic] for nic in choose(nics, ranks, how, seed, occupied))


def nics_of_servers(fabric: Fabric, names: Sequence[str]) -> tuple[NicRef, ...]:
    """The NICs of servers, as `Nics.of_servers` has it; raises as it does."""
    nics = _nics_of(fabric)
    refs = list(nics.index)
    return tuple(refs[nic] for nic in nics.of_servers(names))


def cut(fabric: Fabric, places: Sequence[NicRef]) -> Cut:
    """The cut of a ring over a placement. Raises KeyError for a NIC that is not in the fabric."""
    nics = _nics_of(fabric)
    return nics.cut([nics.index[place] for place in places])


def group_size(fabric: Fabric, places: Sequence[NicRef]) -> int:
    """How many consecutive ranks make up a group of a hierarchical collective, and errors, as
    `Nics.group_size`."""
    nics = _nics_of(fabric)
    return nics.group_size([nics.index[place] for place in places])


def nic_of(fabric: Fabric, ref: NicRef) -> Nic:
    """The NIC that `ref` names in a fabric that has it."""
    return fabric.nics(ref.server)[ref.nic - 1]


def reference(name: str) -> NicRef:
    """The NIC that `server` or `server:nic` names. Raises InputError for other text."""
    match = re.fullmatch(r"([^:]+)(?::([0-9]{1,3}))?", name)
    if match is None:
        raise InputError(
            f"expected server or server:nic such as srv1-1:2, got {shown(name)}",
            hint="NICs count from 1",
        )
    return NicRef(match[1], int(match[2] or 1))


def find_nic(fabric: Fabric, server: str, number: int = 1) -> Nic:
    """The NIC that `server:nic` names, or the `number`-th (from 1) of `server`. Raises InputError
    if there is none."""
    if ":" in server:
        named = reference(server)
        server, number = named.server, named.nic
    node = fabric.node_by_name.get(server)
    if node is None or node.is_switch:
        what = "is a switch" if node else "is not in the fabric"
        raise InputError(
            f"{server} {what}",
            hint=name_hint(server, [node.name for node in fabric.servers]),
        )
    nics = fabric.nics(server)
    if not 1 <= number <= len(nics):
        raise InputError(f"{server} has no NIC {number}", hint=f"its NICs are 1 to {len(nics)}")
    return nics[number - 1]


def _nics_of(fabric: Fabric) -> Nics:
    nics = [(server.name, nic) for server in fabric.servers for nic in fabric.nics(server.name)]
    leaf = [tuple(link.b.node for link in nic.links) for _, nic in nics]
    return Nics(
        fabric.name,
        fabric.node_by_name,
        server=[server for server, _ in nics],
        number=[nic.number for _, nic in nics],
        leaf=leaf,
        zone=[fabric.node(switches[0]).zone for switches in leaf],
        tenant=[tenant_name(fabric, nic) for _, nic in nics] if fabric.tenants else (),
    )


def _free_by_leaf(nics: Nics, taken: Sequence[bool] | None) -> list[list[list[int]]]:
    """The NICs that are not taken, by zone and leaf, all of these in the fabric's order."""
    zones: dict[Hashable, dict[tuple[Hashable, ...], list[int]]] = {}
    for nic, (zone, leaf) in enumerate(zip(nics.zone, nics.leaf, strict=True)):
        free = zones.setdefault(zone, {}).setdefault(leaf, [])
        if taken is None or not taken[nic]:
            free.append(nic)
    return [list(leaves.values()) for leaves in zones.values()]


def _in_turn(groups: Sequence[Sequence[int]]) -> list[int]:
    """The first NIC of each group, then the second of each, and so on."""
    return [nic for one_each in zip_longest(*groups) for nic in one_each if nic is not None]


def _nearest(zones: Sequence[Sequence[Sequence[int]]], ranks: int) -> list[int]:
    """The NICs of a topology-aware placement, from free ones by zone and leaf."""
    free = [list(map(len, leaves)) for leaves in zones]
    room = list(map(sum, free))
    take = [[0] * len(leaves) for leaves in zones]
    while ranks:
        shares = {
            zone: _fewest_leaves(free[zone], ranks)
            for zone, nics in enumerate(room)
            if nics >= ranks
        }
        if shares:
            best = min(shares, key=lambda zone: (sum(map(bool, shares[zone])), room[zone]))
            take[best] = shares[best]
        else:
            best = room.index(max(room))
            take[best] = free[best]
        ranks -= sum(take[best])
        room[best] = 0
    return [
        nic
        for leaves, counts in zip(zones, take, strict=True)
        for leaf, count in zip(leaves, counts, strict=True)
        for nic in leaf[:count]
    ]


def _fewest_leaves(free: Sequence[int], ranks: int) -> list[int]:
    """How many of `ranks` to put on each of the leaves of a zone that has room for all."""
    take = [0] * len(free)
    for leaf in sorted(range(len(free)), key=free.__getitem__, reverse=True):
        if free[leaf] >= ranks:
            break
        take[leaf] = free[leaf]
        ranks -= free[leaf]
    others = [leaf for leaf, nics in enumerate(free) if not take[leaf] and nics >= ranks]
    take[min(others, key=free.__getitem__)] = ranks
    return take


def _listed(
    nics: Nics, ranks: int, names: Sequence[str], taken: Sequence[bool] | None
) -> list[int]:
    if len(names) != ranks:
        raise InputError(
            f"the placement lists {len(names)} NICs for {ranks} ranks",
            hint="list one NIC per rank, as server or server:nic",
        )
    places = list(map(reference, names))
    for place, times in Counter(places).items():
        if times > max(1, len(nics.gpus.get(place, ()))):
            raise InputError(
                f"NIC {place} is listed {times} times",
                hint=f"each rank needs its own NIC; {place.server} alone means {place.server}:1",
            )
    free = {ref: iter(rows) for ref, rows in nics.gpus.items()}
    chosen: list[int] = []
    nics_of = Counter(nics.server)
    for place in places:
        if place.server not in nics_of:
            what = "is a switch" if place.server in nics.nodes else "is not in the fabric"
            raise InputError(
                f"{shown(place.server)} {what}", hint=name_hint(place.server, list(nics_of))
            )
        if place not in nics.index:
            raise InputError(
                f"{place.server} has no NIC {place.nic}",
                hint=f"its NICs are 1 to {nics_of[place.server]}",
            )
        row = next((row for row in free[place] if taken is None or not taken[row]), None)
        if row is None:
            raise InputError(
                f"NIC {place} belongs to another job", hint="list NICs that no other job has"
            )
        chosen.append(row)
    return chosen
