"""The optimum: the least utilisation of the most used link if flows are split at will.

It solves a linear programme by HiGHS through `scipy.optimize.linprog`. All flows to NICs with the
same switches are one commodity, whatever their source, as switches forward by destination: the size
of the programme follows from the fabric and not from the number of flows.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]
from scipy.sparse import coo_array  # type: ignore[import-untyped]

from rocelab.base.arrays import NONE, Floats, Ints, Longs
from rocelab.base.errors import InputError, MachineError
from rocelab.routes.te.even import even_split
from rocelab.routes.te.problem import FlowRequests, Offer, sums

MOST_VARIABLES = 80_000
"""HiGHS takes about a minute for this many."""

_ENOUGH = 1e-9


def least_maximum(offer: Offer, wanted: FlowRequests, order: Longs, most_hops: int) -> float:
    """The least possible maximum utilisation of a send for the flows in `order`, split at will,
    without those that have no path.

    Raises InputError if the programme is too large, MachineError if the solver fails.
    """
    pairs = _pairs(wanted, order)
    even, bound = even_split(offer, pairs, most_hops)
    return even if even <= bound + _ENOUGH else _programme(offer, pairs)


def _pairs(wanted: FlowRequests, order: Longs) -> FlowRequests:
    """The flows of `order`; flows with the same ends are summed."""
    keys = np.column_stack((wanted.ingress, wanted.home, wanted.leaves))[order]
    pairs, pair = np.unique(keys, axis=0, return_inverse=True)
    rate_bps = sums(pair.reshape(-1), wanted.rate_bps[order], len(pairs))
    ingress, home, leaves = pairs[:, 0], pairs[:, 1], pairs[:, 2:]
    # One layout of arrays, one compilation.
    return FlowRequests(ingress.copy(), home.copy(), leaves.copy(), rate_bps)


def _programme(offer: Offer, pairs: FlowRequests) -> float:
    """The optimum of the linear programme. Raises as `least_maximum` says."""
    kinds, kind = np.unique(
        np.column_stack((pairs.home, pairs.leaves)), axis=0, return_inverse=True
    )
    shape = (len(kinds), len(offer.group))
    begin, end = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    supply_bps = np.zeros(shape)
    supply_bps[kind.reshape(-1), pairs.ingress] = pairs.rate_bps
    sends: list[int] = []
    for number, (home, *leaves) in enumerate(kinds.tolist()):
        onward: dict[int, list[int]] = {}
        for node in np.flatnonzero(supply_bps[number]).tolist():
            if not _arrives(offer, home, leaves, node, onward):
                supply_bps[number, node] = 0.0
        for node, choices in onward.items():
            begin[number, node] = len(sends)
            sends += choices
            end[number, node] = len(sends)
        if len(sends) > MOST_VARIABLES:
            raise InputError(
                f"the optimum of flows to {len(kinds):,} racks has more than {MOST_VARIABLES:,} "
                "variables, too many to solve in about a minute",
                hint="use the engine cspf, or a smaller job or fabric",
            )
    return _solved(offer, begin, end, np.array(sends, np.int32), supply_bps)


def _arrives(
    offer: Offer, home: int, leaves: Collection[int], node: int, onward: dict[int, list[int]]
) -> bool:
    """Whether packets at `node` get to one of `leaves`. Fills in the sends towards them for each
    node on the way."""
    if node in leaves:
        return True
    if node not in onward:
        onward[node] = []  # A path does not come here again.
        group = offer.group[node, home]
        if group != NONE:
            onward[node] = [
                send
                for send in offer.sends[offer.start[group] : offer.start[group + 1]].tolist()
                if offer.capacity_bps[send] > 0
                and _arrives(offer, home, leaves, int(offer.receiver[send]), onward)
            ]
    return bool(onward[node])


def _solved(offer: Offer, begin: Ints, end: Ints, send: Ints, supply_bps: Floats) -> float:
    """The optimum if `send` from begin up to end are the choices of each commodity and node.

    Variable 0 is the utilisation, then one for each choice, in units of the largest capacity.
    """
    commodity, node = np.nonzero(end > begin)
    width = (end - begin)[commodity, node]
    row_of = np.full(begin.shape, NONE)
    row_of[commodity, node] = np.arange(len(node))
    # Rows lie in the order of nodes here, choices in that of the search.
    slot = np.repeat(begin[commodity, node], width) + _counted(width)
    leaving = np.empty(len(send), np.int64)
    leaving[slot] = np.repeat(np.arange(len(node)), width)
    coming = row_of[commodity[leaving], offer.receiver[send]]
    inner = np.flatnonzero(coming != NONE)
    every = np.arange(len(send))
    unit_bps = offer.capacity_bps[send].max()
    kept = coo_array(
        (
            np.concatenate((np.ones(len(send)), -np.ones(len(inner)))),
            (np.concatenate((leaving, coming[inner])), 1 + np.concatenate((every, inner))),
        ),
        shape=(len(node), 1 + len(send)),
    )
    loaded, link = np.unique(send, return_inverse=True)
    used = coo_array(
        (
            np.concatenate((unit_bps / offer.capacity_bps[send], -np.ones(len(loaded)))),
            (
                np.concatenate((link, np.arange(len(loaded)))),
                np.concatenate((1 + every, np.zeros(len(loaded), np.int64))),
            ),
        ),
        shape=(len(loaded), 1 + len(send)),
    )
    cost = np.zeros(1 + len(send))
    cost[0] = 1.0
    solved = linprog(
        cost,
        A_ub=used.tocsr(),
        b_ub=np.zeros(len(loaded)),
        A_eq=kept.tocsr(),
        b_eq=supply_bps[commodity, node] / unit_bps,
        method="highs-ipm",
    )
    if solved.status != 0:
        raise MachineError(f"the solver gave up: {solved.message}")
    return float(solved.x[0])


def _counted(width: Longs) -> Longs:
    """0 up to each width, one after the other."""
    return np.arange(width.sum()) - np.repeat(np.cumsum(width) - width, width)
