"""Solves rates after an event, for the flows that depend on what changed only; compiled.

Changes the arrays of `rocelab.sim.engine.state` in place. Max-min fairness has a certificate: each
flow has a bottleneck, a send that is full and on which no flow is faster. Flows that lost their
bottleneck are solved with all others fixed. Flows that lose theirs by that are added, until none
does.
"""

from __future__ import annotations

import numpy as np

from rocelab.sim.engine import state as at
from rocelab.sim.engine.compiling import part
from rocelab.sim.engine.filling import fill, join, weigh
from rocelab.sim.engine.heap import settle
from rocelab.sim.engine.state import FairState, Run

SAME = 1e-12
"""Rates, loads and times that differ by less than this, relative, are equal."""
DRIFT_LIMIT = 256
"""After this many additions and subtractions a send's load is summed anew."""
LARGE_PART = 4
IN_ORDER = 8
"""All flows are visited if at least one in this many is active."""
"""Everything is solved if more than one in this many active flows has to be."""


@part
def _tally(fair: FairState, inside: int, touched: int) -> None:
    """Compute the load of the flows inside on each send, the fastest of them, and their
    bottlenecks."""
    row, weighted = fair.row, len(fair.share) > 0
    for number in range(touched):
        send = fair.of_send[at.TOUCHED, number]
        row[send, at.CARRIED] = row[send, at.MOST] = 0.0
    for number in range(inside):
        flow = fair.of_flow[at.INSIDE_LIST, number]
        transfers = fair.flag[at.TRANSFERS, flow]
        rate = max(fair.flow[at.GIVEN, flow], 0.0) / transfers
        nearest = np.inf
        for entry in range(fair.start[flow], fair.start[flow + 1]):
            send = fair.sends[entry]
            part = transfers * rate
            if weighted:
                part *= fair.share[entry]
            row[send, at.CARRIED] += part
            row[send, at.MOST] = max(row[send, at.MOST], rate)
            distance = abs(row[send, at.LEVEL] - rate)
            if distance < nearest:
                nearest = distance
                fair.of_flow[at.NEW_BOTTLENECK, flow] = send


@part
def _violations(fair: FairState, inside: int, touched: int) -> tuple[int, int]:
    """Add the flows outside that lost their bottleneck, or exceed the bottleneck of a flow
    inside."""
    row = fair.row
    for number in range(touched):
        send = fair.of_send[at.TOUCHED, number]
        left = fair.send[at.CAPACITY, send] - row[send, at.OTHERS] - row[send, at.CARRIED]
        slack = left > SAME * fair.send[at.CAPACITY, send]
        bound = row[send, at.LEVEL] * (1.0 + SAME)
        most = row[send, at.MOST]
        lost = fair.send[at.HELD, send] >= 0.0 and (
            slack or most > fair.send[at.HELD, send] * (1.0 + SAME)
        )
        if not lost and fair.send[at.TOP, send] <= bound:
            continue
        fair.send[at.HELD, send], fair.send[at.TOP, send] = -1.0, 0.0
        first = fair.list_start[send]
        for place in range(first, first + fair.of_send[at.LIST_LENGTH, send]):
            flow = fair.listed[place]
            if fair.flag[at.PHASE, flow] != at.OUTSIDE:
                continue
            rate = fair.flow[at.RATE, flow]
            held = fair.of_flow[at.BOTTLENECK, flow] == send
            if rate > bound or (held and (slack or most > rate * (1.0 + SAME))):
                touched = join(fair, flow, inside, touched, False)
                inside += 1
            else:
                fair.send[at.TOP, send] = max(fair.send[at.TOP, send], rate)
                if held:
                    fair.send[at.HELD, send] = rate
    return inside, touched


@part
def serve(fair: FairState, run: Run, flow: int) -> None:
    """Update the bits that a flow's transfers have sent so far."""
    elapsed = run.clock[at.NOW] - fair.flow[at.UPDATED, flow]
    fair.flow[at.SERVED, flow] += fair.flow[at.RATE, flow] * elapsed
    fair.flow[at.UPDATED, flow] = run.clock[at.NOW]


@part
def targets(fair: FairState, run: Run, flow: int) -> tuple[float, float]:
    """The bits served at which a flow's first and last transfers end."""
    least, most = np.inf, 0.0
    transfer = fair.of_flow[at.FIRST, flow]
    while transfer >= 0:
        least = min(least, run.transfer[at.TARGET, transfer])
        most = max(most, run.transfer[at.TARGET, transfer])
        transfer = run.of_transfer[at.FOLLOWING, transfer]
    return least, most


@part
def expect(fair: FairState, run: Run, flow: int) -> int:
    """Note when the next transfer of a flow ends at its rate. Returns its place in the heap of
    ends."""
    place = fair.of_flow[at.PLACE, flow]
    if place < 0:
        place = run.counts[at.ACTIVE]
        run.counts[at.ACTIVE] += 1
        fair.of_flow[at.END_FLOW, place] = flow
    end = last = np.inf
    if fair.flow[at.RATE, flow] > 0.0:
        least, most = targets(fair, run, flow)
        rate, served = fair.flow[at.RATE, flow], fair.flow[at.SERVED, flow]
        end = fair.flow[at.UPDATED, flow] + max(least - served, 0.0) / rate
        last = fair.flow[at.UPDATED, flow] + max(most - served, 0.0) / rate
    fair.flow[at.END_KEY, place] = end
    if run.clock[at.HORIZON] <= last < np.inf:
        run.clock[at.HORIZON], run.counts[at.LATEST] = last, flow
    elif run.counts[at.LATEST] == flow:
        run.counts[at.LATEST] = -1
    return int(place)


@part
def expect_anew(fair: FairState, run: Run, flow: int) -> None:
    """Note when the next transfer of a flow ends and move it to its place in the heap of ends."""
    settle(fair.flow, fair.of_flow, expect(fair, run, flow), run.counts[at.ACTIVE])


@part
def _load(fair: FairState, send: int) -> float:
    """What a send carries, added up over its flows."""
    weighted = len(fair.share) > 0
    load = 0.0
    first = fair.list_start[send]
    for place in range(first, first + fair.of_send[at.LIST_LENGTH, send]):
        flow = fair.listed[place]
        part = fair.flag[at.TRANSFERS, flow] * fair.flow[at.RATE, flow]
        load += part * fair.listed_share[place] if weighted else part
    return load


@part
def _forget(fair: FairState, inside: int, touched: int) -> None:
    for number in range(touched):
        fair.of_send[at.MARKED, fair.of_send[at.TOUCHED, number]] = 0
    for number in range(inside):
        flow = fair.of_flow[at.INSIDE_LIST, number]
        fair.flag[at.PHASE, flow] = at.OUTSIDE


@part
def _join_all(fair: FairState, active: int) -> int:
    """Mark all active flows to be solved: in order if they are many, which is faster."""
    flows, inside, touched = len(fair.start) - 1, 0, 0
    if active * IN_ORDER < flows:
        for place in range(active):
            touched = join(fair, fair.of_flow[at.END_FLOW, place], place, touched, True)
        return touched
    for flow in range(flows):
        if fair.flag[at.PHASE, flow] != at.IDLE:
            fair.flag[at.PHASE, flow] = at.INSIDE
            fair.of_flow[at.INSIDE_LIST, inside] = flow
            fair.flow[at.GIVEN, flow] = -float(fair.flag[at.TRANSFERS, flow])
            inside += 1
    return weigh(fair)


@part
def _keep_rates(fair: FairState, run: Run, inside: int, whole: bool) -> None:
    """Let the flows inside continue at their new rates."""
    for number in range(inside):
        flow = fair.of_flow[at.INSIDE_LIST, number]
        transfers, before = fair.flag[at.TRANSFERS, flow], fair.flow[at.RATE, flow]
        rate = max(fair.flow[at.GIVEN, flow], 0.0) / transfers
        fair.flow[at.GIVEN, flow] = 0.0
        fair.of_flow[at.BOTTLENECK, flow] = fair.of_flow[at.NEW_BOTTLENECK, flow]
        if rate != before:
            serve(fair, run, flow)
            fair.flow[at.RATE, flow] = rate
            run.clock[at.TOTAL] += transfers * (rate - before)
            if whole:
                expect(fair, run, flow)
            else:
                expect_anew(fair, run, flow)
    if whole:
        run.clock[at.TOTAL] = 0.0
        for place in range(inside):
            flow = fair.of_flow[at.INSIDE_LIST, place]
            run.clock[at.TOTAL] += fair.flag[at.TRANSFERS, flow] * fair.flow[at.RATE, flow]
            settle(fair.flow, fair.of_flow, place, place + 1)


@part
def _keep_loads(fair: FairState, touched: int, whole: bool) -> None:
    """Note what the sends touched carry now, and for which rates they are the bottleneck."""
    row, sends = fair.row, fair.send
    for number in range(touched):
        send = fair.of_send[at.TOUCHED, number]
        sends[at.LOAD, send] = row[send, at.OTHERS] + row[send, at.CARRIED]
        fair.of_send[at.UPDATES, send] += 1
        if whole:
            sends[at.HELD, send], sends[at.TOP, send] = -1.0, 0.0
            fair.of_send[at.UPDATES, send] = 0
        elif fair.of_send[at.UPDATES, send] > DRIFT_LIMIT:
            sends[at.LOAD, send] = _load(fair, send)
            fair.of_send[at.UPDATES, send] = 0
        sends[at.TOP, send] = max(sends[at.TOP, send], row[send, at.MOST])
        if row[send, at.LEVEL] < np.inf:
            sends[at.HELD, send] = row[send, at.LEVEL]


@part
def solve(fair: FairState, run: Run, inside: int, touched: int, everything: bool) -> None:
    """Solve the flows inside and those that turn out to depend on them; take their rates."""
    active = run.counts[at.ACTIVE]
    before, whole = -1, False
    while inside > before and not whole:
        if everything or inside * LARGE_PART > active:
            _forget(fair, inside, touched)
            inside, touched, whole = active, _join_all(fair, active), True
        else:
            for number in range(before):
                flow = fair.of_flow[at.INSIDE_LIST, number]
                fair.flow[at.GIVEN, flow] = -float(fair.flag[at.TRANSFERS, flow])
        fill(fair, inside, touched)
        _tally(fair, inside, touched)
        before = inside
        if not whole:
            inside, touched = _violations(fair, inside, touched)
    _forget(fair, inside, touched)
    _keep_rates(fair, run, inside, whole)
    _keep_loads(fair, touched, whole)
    run.counts[at.SOLVES] += 1
    run.counts[at.SOLVED] += inside
