"""Which NIC each rank of a job runs on.

`place` chooses a NIC of a `Fabric` per rank. It draws only from a seed, so a placement can be
repeated.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, zip_longest

from rocelab.errors import InputError
from rocelab.plan.fabric import Fabric, Nic
from rocelab.wording import name_hint, shown


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


def place(
    fabric: Fabric, ranks: int, how: Placement | Sequence[str], seed: int = 0
) -> tuple[NicRef, ...]:
    """The NIC of each rank, each NIC used once at most.

    contiguous fills server by server, all NICs of each, as launchers number ranks: neighbours are
    on one server, which NVLink joins in reality. topology-aware fills leaf by leaf within
    a zone (unit, segment, pod), then the next zone: a ring crosses as few leaves and zones as
    possible (`cut`). If all NICs of a server are on one leaf the two are the same; with
    rails contiguous changes the leaf at every step. fragmented distributes ranks over the zones in
    turn and within each over its leaves in turn, so that consecutive ranks are on different leaves
    as long as NICs are left; random draws NICs from `seed`. A list names the NIC of each rank:
    `srv1-2:3`, or `srv1-2` for NIC 1.

    Raises InputError for more ranks than NICs, a fragmented placement on one leaf, and a list that
    is too short or long, repeats a NIC or names a missing one.
    """
    if not isinstance(how, Placement):
        return _listed(fabric, ranks, how)
    zones = _nics_by_leaf(fabric)
    leaves = [leaf for zone in zones for leaf in zone]
    nics = [nic for leaf in leaves for nic in leaf]
    if ranks > len(nics):
        raise no_room(ranks, len(nics), fabric.name)
    match how:
        case Placement.CONTIGUOUS:
            chosen = [
                NicRef(server.name, nic.number)
                for server in fabric.servers
                for nic in fabric.nics(server.name)
            ]
        case Placement.TOPOLOGY_AWARE:
            chosen = nics
        case Placement.FRAGMENTED:
            if len(leaves) < 2:
                raise one_leaf(fabric.name)
            chosen = _in_turn([_in_turn(zone) for zone in zones])
        case Placement.RANDOM:
            rng = random.Random(seed)  # noqa: S311 - repeatable draws, not secrets
            chosen = rng.sample(nics, len(nics))
    return tuple(chosen[:ranks])


@dataclass(frozen=True, slots=True)
class Cut:
    """The hops of a closed ring over all ranks that go from leaf to leaf and, among these, from
    zone to zone. A hop between NICs of one server counts too: in the lab it uses the network."""

    leaves: int
    zones: int


def cut(fabric: Fabric, places: Sequence[NicRef]) -> Cut:
    """The cut of a ring over a placement.

    A NIC with two ports is on its two leaves at once; a hop stays on a leaf where both NICs are on
    the same. Raises KeyError for a server that is not in the fabric.
    """
    leaves = [_leaf(fabric, nic_of(fabric, place)) for place in places]
    zones = [fabric.node(switches[0]).zone for switches in leaves]
    hops = range(len(places))
    return Cut(
        leaves=sum(leaves[hop] != leaves[hop - 1] for hop in hops),
        zones=sum(zones[hop] != zones[hop - 1] for hop in hops),
    )


def nic_of(fabric: Fabric, ref: NicRef) -> Nic:
    """The NIC that `ref` names in a fabric that has it."""
    return fabric.nics(ref.server)[ref.nic - 1]


def group_size(fabric: Fabric, places: Sequence[NicRef]) -> int:
    """How many consecutive ranks make up a group of a hierarchical collective.

    The ranks on one server if every server holds the same number of them, two or more; else the
    ranks on one leaf. Raises InputError if leaves hold different numbers or the ranks of a leaf are
    not consecutive.
    """
    return even_group(
        [place.server for place in places],
        [nic_of(fabric, place).links[0].b.node for place in places],
    )


def even_group(servers: Sequence[str | int], leaves: Sequence[str | int]) -> int:
    """`group_size` of ranks on these servers and leaves. Raises InputError as it does."""
    for homes, least in ((servers, 2), (leaves, 1)):
        runs = [len(list(run)) for _, run in groupby(homes)]
        if len(runs) == len(set(homes)) and len(set(runs)) == 1 and runs[0] >= least:
            return runs[0]
    raise InputError(
        "the ranks do not fall into groups of one size by server or leaf",
        hint="give the group size, or place ranks contiguous on full servers or leaves",
    )


def _leaf(fabric: Fabric, nic: Nic) -> tuple[str, ...]:
    """The switches that a NIC is wired to."""
    return tuple(link.b.node for link in nic.links)


def _nics_by_leaf(fabric: Fabric) -> list[list[list[NicRef]]]:
    """The NICs by zone and leaf, in order of the fabric."""
    zones: dict[int | None, dict[tuple[str, ...], list[NicRef]]] = {}
    for server in fabric.servers:
        for nic in fabric.nics(server.name):
            switches = _leaf(fabric, nic)
            leaves = zones.setdefault(fabric.node(switches[0]).zone, {})
            leaves.setdefault(switches, []).append(NicRef(server.name, nic.number))
    return [list(leaves.values()) for leaves in zones.values()]


def _in_turn(groups: Sequence[Sequence[NicRef]]) -> list[NicRef]:
    """The first NIC of each group, then the second of each, and so on."""
    return [nic for one_each in zip_longest(*groups) for nic in one_each if nic is not None]


def _listed(fabric: Fabric, ranks: int, names: Sequence[str]) -> tuple[NicRef, ...]:
    places = references(ranks, names)
    for place in places:
        node = fabric.node_by_name.get(place.server)
        if node is None or node.is_switch:
            raise no_server(
                place.server, node is not None, [server.name for server in fabric.servers]
            )
        check_nic(place, len(fabric.nics(place.server)))
    return places


def references(ranks: int, names: Sequence[str]) -> tuple[NicRef, ...]:
    """The NICs that a list names, each once. Raises InputError if it does not fit `ranks`."""
    if len(names) != ranks:
        raise InputError(
            f"the placement lists {len(names)} NICs for {ranks} ranks",
            hint="list one NIC per rank, as server or server:nic",
        )
    places = tuple(map(reference, names))
    place, times = Counter(places).most_common(1)[0]
    if times > 1:
        raise InputError(
            f"NIC {place} is listed {times} times",
            hint=f"a rank needs a NIC of its own; {place.server} alone means {place.server}:1",
        )
    return places


def reference(name: str) -> NicRef:
    """The NIC that `server` or `server:nic` names. Raises InputError for other text."""
    match = re.fullmatch(r"([^:]+)(?::([0-9]{1,3}))?", name)
    if match is None:
        raise InputError(
            f"expected server or server:nic such as srv1-1:2, got {shown(name)}",
            hint="NICs count from 1",
        )
    return NicRef(match[1], int(match[2] or 1))


def no_server(name: str, is_switch: bool, servers: Sequence[str]) -> InputError:
    """The error for a name that is none of `servers`."""
    what = "is a switch" if is_switch else "is not in the fabric"
    return InputError(f"{shown(name)} {what}", hint=name_hint(name, servers))


def check_nic(place: NicRef, nics: int) -> None:
    """Raise InputError if a server with `nics` NICs does not have this one."""
    if not 1 <= place.nic <= nics:
        raise InputError(f"{place.server} has no NIC {place.nic}", hint=f"its NICs are 1 to {nics}")


def no_room(ranks: int, nics: int, fabric: str) -> InputError:
    """The error for too few NICs."""
    return InputError(
        f"{ranks} ranks do not fit the {nics} NICs of {fabric}",
        hint="a rank needs a NIC of its own: take fewer ranks, or give the fabric more servers "
        "or NICs",
    )


def one_leaf(fabric: str) -> InputError:
    """The error for a fragmented placement on fewer than two leaves."""
    return InputError(
        f"{fabric} has servers on one leaf only",
        hint="a fragmented placement needs two; take contiguous",
    )
