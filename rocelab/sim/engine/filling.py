"""Max-min fair rates by progressive filling, compiled.

Changes the arrays of `rocelab.sim.engine.state.FairState` in place: `join` and `fill` solve some
flows while all others keep their rates.
"""

from __future__ import annotations

import numpy as np

from rocelab.base.arrays import Floats, Ints
from rocelab.sim.engine import state as at
from rocelab.sim.engine.compiling import making_arrays, part
from rocelab.sim.engine.heap import sink
from rocelab.sim.engine.state import FairState

NOISE = 1.0 + 1e-14
LONG_LIST = 512
"""A send with more flows than this keeps a running count of its free capacity."""


@part
def index(fair: FairState) -> None:
    """Reserve list space for the flows of each send; the lists stay empty."""
    fair.list_start[:] = 0
    for send in fair.sends:
        fair.list_start[send + 1] += 1
    for send in range(fair.send.shape[1]):
        fair.list_start[send + 1] += fair.list_start[send]
        fair.of_send[at.LIST_LENGTH, send] = 0


@part
def list_flow(fair: FairState, flow: int) -> None:
    """Put a flow on the lists of its sends."""
    weighted = len(fair.share) > 0
    for entry in range(fair.start[flow], fair.start[flow + 1]):
        send = fair.sends[entry]
        place = fair.list_start[send] + fair.of_send[at.LIST_LENGTH, send]
        fair.listed[place] = flow
        if weighted:
            fair.listed_share[place] = fair.share[entry]
        fair.of_send[at.LIST_LENGTH, send] += 1


@part
def join(fair: FairState, flow: int, inside: int, touched: int, afresh: bool) -> int:
    """Add a flow to those to be solved, as number `inside`, and its sends to those touched. Returns
    the number of touched sends. afresh: sends carry nothing yet."""
    row, weighted = fair.row, len(fair.share) > 0
    fair.flag[at.PHASE, flow] = at.INSIDE
    fair.of_flow[at.INSIDE_LIST, inside] = flow
    fair.flow[at.GIVEN, flow] = -float(fair.flag[at.TRANSFERS, flow])
    for entry in range(fair.start[flow], fair.start[flow + 1]):
        send = fair.sends[entry]
        if fair.of_send[at.MARKED, send] == 0:
            fair.of_send[at.MARKED, send] = 1
            fair.of_send[at.TOUCHED, touched] = send
            touched += 1
            row[send, at.OTHERS] = 0.0 if afresh else fair.send[at.LOAD, send]
            row[send, at.WEIGHT] = 0.0
        weight = float(fair.flag[at.TRANSFERS, flow])
        if weighted:
            weight *= fair.share[entry]
        if not afresh:
            row[send, at.OTHERS] -= weight * fair.flow[at.RATE, flow]
        row[send, at.WEIGHT] += weight
    return touched


@part
def _insert(shares: Floats, heap: Ints, size: int, share: float, send: int) -> None:
    """Put a send into a heap of this size."""
    place = size
    while place > 0 and shares[(place - 1) // 4] > share:
        parent = (place - 1) // 4
        shares[place], heap[place] = shares[parent], heap[parent]
        place = parent
    shares[place], heap[place] = share, send


@making_arrays
def fill(fair: FairState, inside: int, touched: int) -> None:
    """Progressive filling of the flows inside, over the capacity that the flows outside leave: the
    send with the least share is the bottleneck of all its flows (Bertsekas and Gallager, Data
    Networks, 6.5.2). A share only grows while other flows get their rates, so it is recomputed only
    when it is the least: from the send's list or, if that is long, from its free capacity. The
    first shares are sorted; only those that have grown are in the heap."""
    row, weighted, long_lists = fair.row, len(fair.share) > 0, False
    shares, heap = fair.send[at.HEAP_SHARE], fair.of_send[at.HEAP_SEND]
    allotted, free = fair.flow[at.GIVEN], fair.of_flow[at.FREE]
    capacity, lengths = fair.send[at.CAPACITY], fair.of_send[at.LIST_LENGTH]
    for number in range(touched):
        send = fair.of_send[at.TOUCHED, number]
        if capacity[send] == 0.0:
            # What is left of sums of rates is none.
            row[send, at.OTHERS] = 0.0
        left = capacity[send] - row[send, at.OTHERS]
        row[send, at.LEVEL] = np.inf
        shares[number] = max(left, 0.0) / row[send, at.WEIGHT]
        row[send, at.LEFT], row[send, at.FREE_WEIGHT] = left, row[send, at.WEIGHT]
        long_lists |= lengths[send] > LONG_LIST
    order = np.argsort(shares[:touched])
    first_shares, coming, size, fixed = shares[order], 0, 0, 0
    while fixed < inside and (coming < touched or size > 0):
        if coming < touched and (size == 0 or first_shares[coming] <= shares[0]):
            send, share = fair.of_send[at.TOUCHED, order[coming]], first_shares[coming]
            coming += 1
        else:
            send, share = heap[0], shares[0]
            size -= 1
            shares[0], heap[0] = shares[size], heap[size]
            sink(shares, heap, 0, size)
        if lengths[send] > LONG_LIST:
            level = max(row[send, at.LEFT], 0.0) / row[send, at.FREE_WEIGHT]
            if level > share * NOISE:
                _insert(shares, heap, size, level, send)
                size += 1
                continue
        left, weight, count = capacity[send] - row[send, at.OTHERS], 0.0, 0
        first = fair.list_start[send]
        for place in range(first, first + lengths[send]):
            flow = fair.listed[place]
            value = allotted[flow]
            if weighted:
                value *= fair.listed_share[place]
            if value < 0.0:
                free[count] = flow
                count += 1
                weight -= value
            else:
                left -= value
        if count == 0:
            continue
        level = max(left, 0.0) / weight
        if level > share * NOISE:
            _insert(shares, heap, size, level, send)
            size += 1
            continue
        row[send, at.LEVEL] = level
        for number in range(count):
            flow = free[number]
            transfers = -allotted[flow]
            allotted[flow] = transfers * level
            if long_lists:
                for entry in range(fair.start[flow], fair.start[flow + 1]):
                    part = transfers * fair.share[entry] if weighted else transfers
                    other = fair.sends[entry]
                    row[other, at.LEFT] -= part * level
                    row[other, at.FREE_WEIGHT] -= part
        fixed += count


@part
def weigh(fair: FairState) -> int:
    """Mark every send that lists flows as touched, with the weight of the flows to be solved and no
    load from others. Returns the number of touched sends."""
    row, weighted, touched = fair.row, len(fair.share) > 0, 0
    for send in range(fair.send.shape[1]):
        weight = 0.0
        first = fair.list_start[send]
        for place in range(first, first + fair.of_send[at.LIST_LENGTH, send]):
            allotted = fair.flow[at.GIVEN, fair.listed[place]]
            weight -= allotted * fair.listed_share[place] if weighted else allotted
        if weight > 0.0:
            fair.of_send[at.TOUCHED, touched] = send
            touched += 1
            row[send, at.OTHERS], row[send, at.WEIGHT] = 0.0, weight
    return touched
