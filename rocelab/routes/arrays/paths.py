"""Finds the path of every flow through a network, all flows a hop at a time.

Takes the groups of switches (the `Routes` that BGP offers now, or tables that were read, see
`rocelab.prediction.predictor`) and `Flows`; returns `Paths`. Under the lab's schemes these are the
paths that `rocelab path` computes flow by flow and the lab's counters confirm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import NONE, Floats, Ints
from rocelab.base.errors import InputError
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.labfile.model import HashWeights
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.routes.arrays.choice import Choice, divides
from rocelab.routes.arrays.flows import Flows, Paths
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.routes import Groups, NextHops
from rocelab.routes.flows import Indices
from rocelab.routes.models import Model
from rocelab.routes.path import NoPathError
from rocelab.routes.steering import EntryKey

PIECE = 2**15
"""Flows routed at a time, so that memory beyond the paths themselves stays small."""

PIECE_OF_DIVIDED = 2**9


def paths_of(
    network: Network,
    routes: Groups,
    flows: Flows,
    *,
    scheme: SchemeSpec | None = None,
    model: Model = Model.KERNEL,
    entries: Mapping[EntryKey, int] | None = None,
    progress: ProgressSink = no_progress,
) -> Paths:
    """The paths of flows under a scheme (None: the spec's), or by an ASIC's hash model instead.

    A flow leaves by its port, or by the NIC's other port while its own has no link
    (`rocelab.linux.lag`). A flow without a route has no path. te without `entries` is routed as
    ecmp, its fallback. Planned next hops are in the order of links. On numbered links that is the
    order of the gateways' addresses, by which zebra sorts them. On unnumbered links the real order
    depends on the daemons' start, and paths hold as a distribution only.

    Raises InputError for flows between tenants, planned routes with unequal weights or a group
    wider than routing.max_paths and, where the kernel's own hash decides, a hash seed of 0;
    NoPathError for a flow that loops.
    """
    if routes.weights is None and network.spec.hashing.weights is not HashWeights.EQUAL:
        raise InputError(
            "weights by paths are BGP's work and not planned", hint="set hashing.weights: equal"
        )
    _check_tenants(network, flows)
    scheme = scheme or network.spec.scheme
    choice = Choice(routes, flows, scheme, model, entries or {})
    parted = divides(scheme, model)
    piece = PIECE_OF_DIVIDED if parted else PIECE
    first = first_sends(network, routes, flows)
    counts = np.zeros(len(flows), np.int64)
    sends, shares = [], []
    for begin in range(0, len(flows), piece):
        end = min(begin + piece, len(flows))
        which = begin + np.flatnonzero(first[begin:end] != NONE)
        parts = _Parts(which, first[which], np.ones(len(which)))
        parts = _walk(routes, choice, flows.destination, parts, parted)
        counts[begin:end] = np.bincount(parts.flow - begin, minlength=end - begin)
        sends.append(parts.send)
        if parted:
            shares.append(parts.share)
        progress(Progress("paths", end, len(flows)))
    start = np.concatenate(([0], np.cumsum(counts)))
    if not sends:
        return Paths(start, np.empty(0, np.int32))
    return Paths(start, np.concatenate(sends), np.concatenate(shares) if parted else None)


def _check_tenants(network: Network, flows: Flows) -> None:
    """Raises InputError for a flow between NICs that are not of one tenant."""
    if network.tenants is None:
        return
    of_nic, names = network.tenants.of_nic, network.tenants.names
    (lost,) = np.nonzero(of_nic[flows.source] != of_nic[flows.destination])
    if len(lost):
        ends = (int(end[lost[0]]) for end in (flows.source, flows.destination))
        placed = " and ".join(
            f"{network.nic_name(nic)} is in "
            + ("no tenant" if of_nic[nic] == NONE else f"tenant {names[of_nic[nic]]}")
            for nic in ends
        )
        raise InputError(
            f"{placed}: nothing leads from one to the other", "name NICs of one tenant"
        )


def flows_per_send(network: Network, paths: Paths) -> Floats:
    """How many flows each send carries, 2L; a part of a flow counts as its share."""
    return np.bincount(paths.sends, paths.share, minlength=network.sends).astype(np.float64)


def links_on_path(paths: Paths) -> Floats:
    """Links that each flow's packets cross, F: the average if parts of a flow take different
    paths."""
    flow = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    return np.bincount(flow, paths.share, minlength=len(paths)).astype(np.float64)


def along_paths(paths: Paths, of_send: Floats) -> Floats:
    """The sum of a value of each send (2L) along each flow's path, F: the average if parts of a
    flow take different paths."""
    flow = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    values = of_send[paths.sends]
    weights = values if paths.share is None else values * paths.share
    return np.bincount(flow, weights, minlength=len(paths)).astype(np.float64)


def first_sends(network: Network, routes: Groups, flows: Flows) -> Ints:
    """The send by which each flow leaves its server, NONE if its NIC has no link."""
    links = network.nic_links[flows.source]
    alive = (links != NONE) & routes.up[links]
    rows = np.arange(len(flows))
    port = np.where(alive[rows, flows.port], flows.port, np.argmax(alive, axis=1))
    return np.where(alive.any(axis=1), 2 * links[rows, port], NONE).astype(np.int32)


@dataclass(frozen=True, eq=False)
class _Parts:
    """Flows, or parts of them, each on a send."""

    flow: Indices
    send: Ints
    share: Floats


def _walk(routes: Groups, choice: Choice, destination: Ints, parts: _Parts, parted: bool) -> _Parts:
    """Route flows from their first sends on. Returns their parts on all sends, flow by flow."""
    network = routes.network
    walked = [parts]
    dead = np.zeros(0, np.intp)
    for _ in range(network.most_sends + 1):
        at = network.receiver[parts.send]
        (going,) = np.nonzero(at != network.nic_server[destination[parts.flow]])
        at, flow, share = at[going], parts.flow[going], parts.share[going]
        if not len(flow):
            break
        if parted:
            at, flow, share = _met(network.nodes, at, flow, share)
        hops = routes.next_hops(at, destination[flow])
        if routes.weights is None:
            _check_width(network, at, destination[flow], hops)
        dead = np.union1d(dead, flow[hops.count == 0])
        place = choice.places(at, flow, hops)
        ways = np.where(choice.divided(at), hops.count, np.minimum(hops.count, 1))
        row = np.repeat(np.arange(len(at)), ways)
        place = place[row]
        if parted:
            option = np.arange(len(row)) - np.repeat(np.cumsum(ways) - ways, ways)
            place = np.where(ways[row] > 1, hops.take(row).place(option.astype(np.int32)), place)
        send = routes.slots[hops.start[row] + place]
        parts = _Parts(flow[row], send, share[row] / ways[row])
        walked.append(parts)
    else:
        at, nic = network.receiver[parts.send[0]], destination[parts.flow[0]]
        raise NoPathError(f"{network.node_names[at]}: a packet to {network.ip(nic)} loops")
    flow = np.concatenate([walk.flow for walk in walked])
    order = np.argsort(flow, kind="stable")
    if len(dead):
        order = order[~np.isin(flow[order], dead)]
    send = np.concatenate([walk.send for walk in walked])
    share = np.concatenate([walk.share for walk in walked])
    return _Parts(flow[order], send[order], share[order])


def _met(nodes: int, at: Ints, flow: Indices, share: Floats) -> tuple[Ints, Indices, Floats]:
    """Merge the parts of a flow at one switch."""
    both, of_part = np.unique(flow * nodes + at, return_inverse=True)
    whole = np.asarray(np.bincount(of_part, share), np.float64)
    return (both % nodes).astype(np.int32), both // nodes, whole


def _check_width(network: Network, at: Ints, nic: Ints, hops: NextHops) -> None:
    most = network.spec.routing.max_paths
    if hops.count.max() > most:
        row = int(hops.count.argmax())
        raise InputError(
            f"{network.node_names[at[row]]}: which {most} of the {hops.count[row]} next hops to "
            f"{network.ip(nic[row])} BGP keeps is not planned",
            hint=f"set routing.max_paths to {hops.count[row]} or more",
        )
