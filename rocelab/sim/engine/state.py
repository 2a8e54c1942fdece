"""The arrays of the compiled core, built from a program and its paths.

The unknowns are the rates of flows. A flow's transfers run one after the other, so TRANSFERS is at
most 1. Columns of one kind are rows of one table, as each array argument of a compiled function
costs compile time. All are changed in place, so that the core can stop at a change and continue
after it.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import Floats, Ints
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.program import Limits, Offsets, Program

Table = Annotated[npt.NDArray[np.float64], 2]
Numbers = Annotated[npt.NDArray[np.int32], 2]
Flags = Annotated[npt.NDArray[np.int8], 2]

IDLE, OUTSIDE, INSIDE = range(3)
"""Phases of a flow: it has no transfers; it keeps its rate; it has to be solved."""

OTHERS, WEIGHT, LEVEL, LEFT, FREE_WEIGHT, CARRIED, MOST = range(7)
"""Columns of a send while rates are solved: what flows outside take of it, weight of those inside,
the share at which it was the bottleneck (infinite: it was not), capacity left, weight of those
without a rate; then what those inside take, and the highest of their rates."""

CAPACITY, LOAD, HELD, TOP, HEAP_SHARE = range(5)
"""Columns of each send: capacity; what it carries; the rate of flows whose bottleneck it is (-1:
none); no flow is faster than; a heap of shares."""

LIST_LENGTH, UPDATES, MARKED, TOUCHED, HEAP_SEND = range(5)
"""Columns of each send: how many flows are listed; changes of LOAD since it was added up; whether
it is among those touched; a list of those; the sends of the heap."""

RATE, GIVEN, SERVED, UPDATED, BITS, END_KEY = range(6)
"""Columns of each flow: rate; the one just solved of all its transfers, or minus their number while
it has none, 0 outside; bits that each transfer had got up to a moment; the moment; bits over its
path; a heap of when a transfer ends next."""

TRANSFERS, SOLVED_FOR, PHASE, IS_LISTED, IS_DIRTY = range(5)
"""Small columns of each flow: transfers; those that its rate is solved for; phase; whether sends
list it, whether its transfers changed."""

BOTTLENECK, NEW_BOTTLENECK, FIRST, PLACE, INSIDE_LIST, FREE, DIRTY, END_FLOW = range(8)
"""Columns of each flow: bottleneck, and the one just solved; first transfer; place in the heap;
lists of flows: inside, without a rate, changed; the flows of the heap."""

SIZE, TARGET, COUNTED, FINISH = range(4)
"""Columns of each transfer: bits; what SERVED is when it ends; what of that is in BITS; when it
ended."""

FLOW, TASK, FOLLOWING, RING = range(4)
"""Columns of each transfer: flow, task, the next on the same flow, ring or -1."""

SPENT, RING_SHARE, RING_LATENCY = range(3)
"""Columns of each ring: its share of the times of its transfers that ended, share, latency."""

READY, DELAY, LATENCY, STARTED, ENDED, START_KEY = range(6)
"""Columns of each task: when all before it were over, delay, latency, start, end; a heap of
starts."""

OPEN_TRANSFERS, WAITS, WAITING, FIRST_TRANSFER, NEXT_START, STACK, START_TASK = range(7)
"""Columns of each task: unfinished transfers, tasks it waits for at first and still, first
transfer, first of the tasks that wait for it; a stack; the tasks of the heap."""

PARTS = 5
"""Parts of what a limited flow has sent that are kept: a fourth of a window each, or what it sends
in a round trip."""
ROUND, WINDOW, LINE, SENT, HELD_BITS, BEGUN = range(6)
"""Columns of each limit: round trip; bits of a window; bit/s of an open one; bits of all transfers
so far, and of those that it held back; of each part when it began, when it was over, and the bits
before it."""
LIMIT_ROWS = BEGUN + 3 * PARTS

NOW, TOTAL, HORIZON = range(3)
"""Clock: time, sum of all rates, when the last of the transfers would end at these rates."""

ACTIVE, STARTS, OPENED, INDEXED, DONE, SOLVES, POINTS, STRIDE, LISTED, LATEST, SOLVED, SKIPPED = (
    range(12)
)
"""Counts: active flows, tasks that wait to start, whether the first of them are there, whether
flows are listed by send, finished transfers, solves, points of the rate, solves per point, listed
flows, the flow that ends last, flows solved so far, solves since the last point."""

POINTS_KEPT = 2048


class FairState(NamedTuple):
    """F flows with E sends in all, over S sends."""

    start: Offsets
    """F + 1."""

    sends: Ints
    """E."""

    share: Floats
    """E; empty where every send carries all of a flow."""

    list_start: Offsets
    """S + 1."""

    listed: Ints
    """E. The flows on each send."""

    listed_share: Floats
    """E."""

    row: Table
    """S x 7."""

    send: Table
    """5 x S."""

    of_send: Numbers
    """5 x S."""

    flow: Table
    """6 x F."""

    of_flow: Numbers
    """8 x (F + 1)."""

    flag: Flags
    """5 x F."""

    limit: Table
    """20 x W. The last W sends are each for one flow, whose limit is their capacity."""

    of_limit: Ints
    """The limit of each flow, -1 for none, F; empty without limits."""


class Run(NamedTuple):
    """X transfers of T tasks in C rings."""

    transfer: Table
    """4 x X."""

    of_transfer: Numbers
    """4 x X."""

    ring: Table
    """3 x C."""

    task: Table
    """6 x T."""

    of_task: Numbers
    """7 x (T + 1)."""

    next: Ints
    """The tasks after each."""

    clock: Floats
    """See above."""

    counts: Offsets
    """See above."""

    point: Table
    """Time and total rate."""


def checked(paths: Paths, capacity_bps: Floats) -> None:
    """Raises ValueError for impossible capacities, sends or shares."""
    if not np.all(np.isfinite(capacity_bps)) or np.any(capacity_bps < 0):
        raise ValueError("a capacity is negative or not finite")
    if not len(paths.sends):
        return
    if not 0 <= paths.sends.min() <= paths.sends.max() < len(capacity_bps):
        raise ValueError(f"a path has a send outside of 0 to {len(capacity_bps) - 1}")
    if paths.share is not None and not paths.share.min() > 0:
        raise ValueError("a share is not above 0")


def fair_state(paths: Paths, capacity_bps: Floats, limits: Limits | None = None) -> FairState:
    """Nothing under way. Raises ValueError as `checked` does."""
    checked(paths, capacity_bps)
    limit, of_limit = np.zeros((LIMIT_ROWS, 0)), np.empty(0, np.int32)
    if limits is not None:
        paths = with_limits(paths, len(capacity_bps), limits.flow)
        capacity_bps = np.concatenate((capacity_bps, limits.line_bps))
        limit = np.zeros((LIMIT_ROWS, len(limits.flow)))
        limit[BEGUN : BEGUN + PARTS] = -np.inf
        limit[ROUND], limit[WINDOW], limit[LINE] = (
            limits.round_s,
            limits.window_bits,
            limits.line_bps,
        )
        of_limit = np.full(len(paths), -1, np.int32)
        of_limit[limits.flow] = np.arange(len(limits.flow))
    flows, sends, entries = len(paths), len(capacity_bps), len(paths.sends)
    shared = paths.share is not None
    fair = FairState(
        start=np.require(paths.start, np.int64, ["C", "W"]),
        sends=np.require(paths.sends, np.int32, ["C", "W"]),
        share=np.require(paths.share if shared else np.empty(0), np.float64, ["C", "W"]),
        list_start=np.zeros(sends + 1, np.int64),
        listed=np.empty(entries, np.int32),
        listed_share=np.empty(entries if shared else 0),
        row=np.empty((sends, 7)),
        send=np.zeros((5, sends)),
        of_send=np.zeros((5, sends), np.int32),
        flow=np.zeros((6, flows)),
        of_flow=np.zeros((8, flows + 1), np.int32),
        flag=np.zeros((5, flows), np.int8),
        limit=limit,
        of_limit=of_limit,
    )
    fair.send[CAPACITY] = capacity_bps
    fair.send[HELD] = -1
    for column in (BOTTLENECK, NEW_BOTTLENECK, FIRST, PLACE):
        fair.of_flow[column] = -1
    return fair


def with_limits(paths: Paths, sends: int, limited: Ints) -> Paths:
    """Paths with a send of its own, from number `sends` on, at the end of that of each limited
    flow; empty ones stay so."""
    lengths = np.diff(paths.start)
    number = np.full(len(paths), -1)
    number[limited] = sends + np.arange(len(limited))
    number[lengths == 0] = -1
    is_limited = number >= 0
    start = np.concatenate(([0], np.cumsum(lengths + is_limited)))
    inner = np.arange(len(paths.sends)) + np.repeat(start[:-1] - paths.start[:-1], lengths)
    ends = start[1:][is_limited] - 1
    taken, share = np.empty(start[-1], np.int32), None
    taken[inner], taken[ends] = paths.sends, number[is_limited]
    if paths.share is not None:
        share = np.ones(start[-1])
        share[inner] = paths.share
    return Paths(start, taken, share)


def run_state(program: Program) -> Run:
    """Before the first moment of a program."""
    tasks, transfers = program.tasks, program.transfers
    waits = np.diff(program.after_start)
    numbers = np.arange(tasks, dtype=np.int32)
    open_transfers = np.diff(program.first_transfer)
    rings = program.rings
    run = Run(
        transfer=np.zeros((4, transfers)),
        of_transfer=np.empty((4, transfers), np.int32),
        ring=np.zeros((3, 0 if rings is None else len(rings.share))),
        task=np.zeros((6, tasks)),
        of_task=np.zeros((7, tasks + 1), np.int32),
        next=np.repeat(numbers, waits)[np.argsort(program.after, kind="stable")],
        clock=np.zeros(3),
        counts=np.zeros(12, np.int64),
        point=np.empty((2, POINTS_KEPT)),
    )
    run.transfer[SIZE] = program.size_bits
    run.transfer[FINISH] = np.inf
    run.of_transfer[FLOW] = program.flow
    run.of_transfer[TASK] = np.repeat(numbers, open_transfers)
    run.of_transfer[FOLLOWING] = -1
    run.of_transfer[RING] = -1
    if rings is not None:
        run.of_transfer[RING] = rings.of_transfer
        run.ring[RING_SHARE], run.ring[RING_LATENCY] = rings.share, rings.latency_s
    run.task[DELAY], run.task[LATENCY] = program.delay_s, program.latency_s
    run.task[STARTED] = run.task[ENDED] = np.inf
    run.of_task[OPEN_TRANSFERS, :tasks] = open_transfers
    run.of_task[WAITS, :tasks] = run.of_task[WAITING, :tasks] = waits
    run.of_task[FIRST_TRANSFER] = program.first_transfer
    np.cumsum(np.bincount(program.after, minlength=tasks), out=run.of_task[NEXT_START, 1:])
    run.counts[LATEST] = -1
    return run
