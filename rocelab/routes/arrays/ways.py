"""Finds every way of each flow's packets, where switches choose anew for packets or after pauses.

Takes the groups of switches and `Flows`, as `rocelab.routes.arrays.paths` does; returns `Ways`.
Draws at several switches are independent, so that a packet can draw its whole way at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import NONE, Ints, Longs
from rocelab.base.errors import InputError
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.routes.arrays.choice import Choice
from rocelab.routes.arrays.flows import Flows, Paths, Ways
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.paths import first_sends
from rocelab.routes.arrays.routes import Groups
from rocelab.routes.models import Model
from rocelab.routes.path import NoPathError

MOST_CELLS = 2**26
"""Sends of all ways, of 4 bytes each."""


def ways_of(network: Network, routes: Groups, flows: Flows, scheme: SchemeSpec) -> Ways:
    """The ways of flows under a scheme. Raises InputError if they are too many."""
    choice = Choice(routes, flows, scheme, Model.KERNEL, {})
    first = first_sends(network, routes, flows)
    every = np.arange(len(flows))
    rows = _Rows(every, first, first[:, None], np.ones(len(flows), np.int64))
    for _ in range(network.most_sends + 1):
        is_at_end = network.receiver[rows.last] == network.nic_server[flows.destination[rows.flow]]
        (going,) = np.nonzero((rows.last != NONE) & ~is_at_end)
        if not len(going):
            break
        rows = _next(network, routes, choice, flows, rows, going)
    else:
        raise NoPathError("packets loop")
    lost = rows.last == NONE
    sends = np.where(lost[:, None], NONE, rows.sends)
    start = np.concatenate(([0], np.cumsum((sends != NONE).sum(axis=1))))
    begins = np.searchsorted(rows.flow, every)
    common = np.lcm.reduceat(rows.odds, begins) if len(flows) else rows.odds
    times = common[rows.flow] // rows.odds
    _check_size(flows, int(times.sum()), 1)
    way = np.repeat(np.arange(len(times)), times)
    counts = np.bincount(rows.flow, times, len(flows)).astype(np.int64)
    gap_s = scheme.gap_ns / 1e9
    return Ways(
        np.concatenate(([0], np.cumsum(counts))), way, Paths(start, sends[sends != NONE]), gap_s
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """Ways as far as they are known, flow by flow: flow."""

    flow: Longs
    last: Ints
    """Send, NONE without a route."""
    sends: Ints
    """Padded with NONE."""
    odds: Longs
    """It is taken by one packet of so many."""


def _next(
    network: Network, routes: Groups, choice: Choice, flows: Flows, rows: _Rows, going: Longs
) -> _Rows:
    """All ways with one send more, where they are `going` on."""
    at = network.receiver[rows.last[going]]
    hops = routes.next_hops(at, flows.destination[rows.flow[going]])
    place = choice.places(at, rows.flow[going], hops)
    width = np.ones(len(rows.flow), np.int64)
    width[going] = np.where(choice.divided(at), np.maximum(hops.count, 1), 1)
    _check_size(flows, int(width.sum()), rows.sends.shape[1] + 1)
    row = np.repeat(np.arange(len(width)), width)
    option = np.arange(len(row)) - np.repeat(np.cumsum(width) - width, width)
    number = np.full(len(width), NONE, np.intp)
    number[going] = np.arange(len(going))
    (moved,) = np.nonzero(number[row] != NONE)
    of = number[row[moved]]
    drawn = hops.take(of).place(option[moved].astype(np.int32))
    taken = np.where(width[row[moved]] > 1, drawn, place[of])
    send = np.where(hops.count[of] > 0, routes.slots[hops.start[of] + taken], NONE)
    last, following = rows.last[row], np.full(len(row), NONE, np.int32)
    last[moved] = following[moved] = send
    sends = np.column_stack((rows.sends[row], following))
    return _Rows(rows.flow[row], last, sends, rows.odds[row] * width[row])


def _check_size(flows: Flows, ways: int, sends: int) -> None:
    if ways * sends > MOST_CELLS:
        raise InputError(
            f"the packets of {len(flows):,} flows have more than {ways:,} ways",
            hint="use --engine fluid, fewer ranks or fewer queue pairs",
        )
