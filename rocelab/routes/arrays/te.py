"""Traffic engineering at scale: every flow on the path with most room, as the lab's controller
does.

Takes a network, its routes, and flows with their rates; returns `Paths`. The rules are those of
`rocelab.dataplane.controller` (CSPF flow by flow, or the optimum of split flows, rounded), over
arrays, after Gangidi et al., "RDMA over Ethernet for Distributed AI Training at Meta Scale",
SIGCOMM 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import NONE, Floats, Ints, Longs
from rocelab.fabrics.hops import most_switches
from rocelab.labfile.schemes.te import TeEngine
from rocelab.routes.arrays.flows import Flows, Paths, joined_paths, paths_taken
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.routes import PlannedGroups
from rocelab.routes.te.moves import place_optimum
from rocelab.routes.te.optimum import least_maximum
from rocelab.routes.te.problem import FlowRequests, Offer, Placed, scratch, sums
from rocelab.routes.te.search import place_in_order

Mask = npt.NDArray[np.bool_]

_PORT_BITS, _SPORT_BITS = 2, 16


def place_te(
    network: Network,
    routes: PlannedGroups,
    flows: Flows,
    rate_bps: Floats,
    engine: TeEngine,
    *,
    fallback: Paths,
) -> Paths:
    """The path of every flow as a controller places them, all in one round.

    rate_bps: the demand of each flow, F. A flow without a path to its destination keeps its path of
    `fallback`: ECMP is the fallback of every entry. Queue pairs of one NIC port that share
    addresses and source port are one flow to a switch and stay together. Raises InputError if the
    linear programme is too large, MachineError if the solver fails.
    """
    problem = _problem(network, routes, flows, rate_bps)
    asked = problem.offer, problem.wanted, problem.order
    most_hops = _most_hops(network)
    if engine is TeEngine.CSPF:
        placed = place_in_order(*asked, scratch(network.nodes, most_hops))
    else:
        placed, _ = place_optimum(*asked, most_hops)
    return _chosen(placed.hops[problem.merged_of] != NONE, _whole(problem, placed), fallback)


def least_utilisation(
    network: Network, routes: PlannedGroups, flows: Flows, rate_bps: Floats
) -> float:
    """The least possible utilisation of the most used send between switches if flows are split at
    will: a lower bound for every placement. Arguments and errors are those of `place_te`."""
    problem = _problem(network, routes, flows, rate_bps)
    return least_maximum(problem.offer, problem.wanted, problem.order, _most_hops(network))


def fall_back(paths_te: Paths, routes_after: PlannedGroups, fallback_paths: Paths) -> Paths:
    """The paths until the controller's next round: a flow placed on a send that has failed since is
    hashed, onto its path of `fallback_paths`; all others stay.

    A kernel hashes anew only where its own group lost a member, and later switches keep their
    entries: here the whole path is the hashed one.
    """
    dead = ~np.repeat(routes_after.up, 2)
    hashed = np.zeros(len(paths_te), np.bool_)
    hashed[_flow_of(paths_te)[dead[paths_te.sends]]] = True
    return _chosen(hashed, fallback_paths, paths_te)


def unplanned_paths(
    network: Network, flows: Flows, paths_te: Paths, others: Flows, fallback: Paths
) -> Paths:
    """The paths of flows that are not planned, such as answers: those of placed flows between the
    same addresses, with the same source port, for which an entry holds too; else of `fallback`."""
    keys = np.concatenate((_key(network, flows), _key(network, others)))
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return paths_taken(joined_paths(paths_te, fallback), first[which[len(flows) :]])


def utilisation(paths: Paths, rate_bps: Floats, capacity_bps: Floats) -> Floats:
    """Load over capacity of each send when every flow sends at its rate; shape of `capacity_bps`.

    Above 1 flows do not fit; inf for a loaded send without capacity. rate_bps: of each flow.
    """
    load_bps = rate_bps[_flow_of(paths)]
    if paths.share is not None:
        load_bps = load_bps * paths.share
    load_bps = sums(paths.sends, load_bps, len(capacity_bps))
    used = np.where(load_bps > 0, np.inf, 0.0)
    return np.divide(load_bps, capacity_bps, out=used, where=capacity_bps > 0)


@dataclass(frozen=True, eq=False)
class _Problem:
    """The input of the searches: M flows that switches can tell apart."""

    offer: Offer
    wanted: FlowRequests
    order: Longs
    """Largest first, without flows whose NICs have no link."""
    merged_of: Longs
    """Which of these M each requested flow is."""
    first: Ints
    """The send by which each leaves its NIC, M."""
    last: Ints
    """The sends to each NIC, M x p, in the order of `wanted.leaves`."""


def _problem(network: Network, routes: PlannedGroups, flows: Flows, rate_bps: Floats) -> _Problem:
    alive = np.repeat(routes.up, 2)
    table = group_table(routes)
    offer = Offer(
        table.group,
        table.start,
        table.sends,
        network.receiver,
        np.where(alive, network.capacity_bps, 0.0),
    )
    _, one_of, merged_of = np.unique(_key(network, flows), return_index=True, return_inverse=True)
    source, destination, sport = (
        column[one_of] for column in (flows.source, flows.destination, flows.sport)
    )
    links = np.where(_alive(network, routes)[source], network.nic_links[source], NONE)
    chosen = links[np.arange(len(links)), flows.port[one_of]]
    first = np.where(chosen == NONE, links.max(axis=1), chosen)
    arriving = np.where(_alive(network, routes)[destination], network.nic_links[destination], NONE)
    wanted = FlowRequests(
        _upper(network, first),
        routes.nic_class[destination],
        _upper(network, arriving),
        sums(merged_of, rate_bps, len(one_of)),
    )
    rank = _address_rank(network)
    order = np.lexsort((sport, rank[destination], rank[source], -wanted.rate_bps))
    linked = (first != NONE) & (wanted.home != NONE)
    return _Problem(offer, wanted, order[linked[order]], merged_of, 2 * first, 2 * arriving + 1)


def _key(network: Network, flows: Flows) -> Longs:
    """Equal for flows that a switch cannot tell apart, F."""
    key = flows.source.astype(np.int64) * network.nics + flows.destination
    keys: Longs = (key << _PORT_BITS | flows.port) << _SPORT_BITS | flows.sport
    return keys


def _alive(network: Network, routes: PlannedGroups) -> Mask:
    """Which ports of each NIC are wired to a live link, n x p."""
    alive: Mask = (network.nic_links != NONE) & routes.up[network.nic_links]
    return alive


def _upper(network: Network, links: Ints) -> Ints:
    """The upper ends of links, NONE for no link."""
    return np.where(links == NONE, NONE, network.upper[links]).astype(np.int32)


def _address_rank(network: Network) -> Longs:
    """The rank of each NIC's address, sorted as text, by which the lab breaks ties."""
    text = np.array([network.ip(nic) for nic in range(network.nics)])
    rank = np.empty(len(text), np.int64)
    rank[np.argsort(text)] = np.arange(len(text))
    return rank


def _most_hops(network: Network) -> int:
    """Sends between switches on the longest path: up to the top tier and down again (no path has an
    ASN twice, and each of the tiers above the lowest has one in each zone), if there are tiers."""
    if network.details is None or network.details.valley_free:
        return max(1, 2 * (int(network.tier.max()) - 1))
    is_trunk = network.tier[network.lower] > 0
    ends = (network.lower[is_trunk].tolist(), network.upper[is_trunk].tolist())
    switches: list[int] = np.flatnonzero(network.tier).tolist()
    return max(1, most_switches(switches, zip(*ends, strict=True)) - 1)


def _whole(problem: _Problem, placed: Placed) -> Paths:
    """The paths of every requested flow, the sends at its NICs included."""
    flows, most = placed.sends.shape
    every = np.arange(flows)
    hops = placed.hops
    before = placed.sends[every, np.maximum(hops, 1) - 1]
    at = np.where(hops > 0, problem.offer.receiver[before], problem.wanted.ingress)
    port = np.argmax(problem.wanted.leaves == at[:, None], axis=1)
    rows = np.empty((flows, most + 2), np.int32)
    rows[:, 0] = problem.first
    rows[:, 1:-1] = placed.sends
    rows[every, hops + 1] = problem.last[every, port]
    rows, length = rows[problem.merged_of], np.where(hops == NONE, 0, hops + 2)[problem.merged_of]
    return Paths(_offsets(length), rows[np.arange(most + 2) < length[:, None]])


def _chosen(first: Mask, yes: Paths, no: Paths) -> Paths:
    """The paths of `yes` where `first` is true, else of `no`."""
    flow = np.arange(len(first))
    return paths_taken(joined_paths(yes, no), np.where(first, flow, len(first) + flow))


def _offsets(length: npt.NDArray[np.integer]) -> Longs:
    return np.concatenate(([0], np.cumsum(length, dtype=np.int64)))


def _flow_of(paths: Paths) -> Longs:
    """The flow that each send of `paths` belongs to."""
    return np.repeat(np.arange(len(paths)), np.diff(paths.start))


PIECE = 2**16
"""Cells computed at a time."""


@dataclass(frozen=True, eq=False)
class GroupTable:
    """The groups of next hops of all nodes for all destinations, by column, for searches over
    paths: 50 MB for 32,256 NICs in racks of 16. To route flows, ask `PlannedGroups` instead."""

    group: Ints
    """Of each node and class, NONE if the node has no route or the class is its own, N x classes.
    The sends of group g are sends[start[g]:start[g + 1]], in the kernel's order."""
    start: npt.NDArray[np.int64]
    sends: Ints


def group_table(routes: PlannedGroups) -> GroupTable:
    """The groups of every switch for every class that has NICs."""
    network = routes.network
    classes, nic_of = np.unique(routes.nic_class, return_index=True)
    nic_of, classes = nic_of[classes != NONE].astype(np.int32), classes[classes != NONE]
    group = np.full((network.nodes, len(routes.origins)), NONE, np.int32)
    switches = np.flatnonzero(network.tier).astype(np.int32)
    numbers: dict[tuple[int, ...], int] = {}
    some = max(1, PIECE // max(1, len(classes)))
    for begin in range(0, len(switches) if len(classes) else 0, some):
        here = switches[begin : begin + some]
        hops = routes.next_hops(np.repeat(here, len(classes)), np.tile(nic_of, len(here)))
        cells = np.full(len(hops.start), NONE, np.int32)
        for rows in hops.alike(hops.start):
            sends = routes.members(hops, int(rows[0]))
            if len(sends):
                cells[rows] = numbers.setdefault(tuple(sends.tolist()), len(numbers))
        group[np.ix_(here, classes)] = cells.reshape(len(here), len(classes))
    for origins in routes.origins.T:
        (columns,) = np.nonzero(origins != NONE)
        group[origins[columns], columns] = NONE
    widths = np.array([len(sends) for sends in numbers], np.int64)
    members = [send for sends in numbers for send in sends]
    start = np.concatenate(([0], np.cumsum(widths)))
    return GroupTable(group, start.astype(np.int64), np.array(members, np.int32))
