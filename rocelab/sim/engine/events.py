"""Runs a program event by event, compiled: tasks start, transfers end, rates follow.

Changes the arrays of `rocelab.sim.engine.state` in place. `advance` runs until a change of
capacities or paths is due.
"""

from __future__ import annotations

import numpy as np

from rocelab.base.arrays import Ints
from rocelab.sim.engine import state as at
from rocelab.sim.engine.compiling import entry, part
from rocelab.sim.engine.filling import index, join, list_flow
from rocelab.sim.engine.heap import settle, sink
from rocelab.sim.engine.refilling import SAME, expect_anew, serve, solve, targets
from rocelab.sim.engine.state import FairState, Run


@part
def _mark_dirty(fair: FairState, dirty: int, flow: int) -> int:
    if fair.flag[at.IS_DIRTY, flow] == 0:
        fair.flag[at.IS_DIRTY, flow] = 1
        fair.of_flow[at.DIRTY, dirty] = flow
        dirty += 1
    return dirty


@part
def _ready(run: Run, task: int, depth: int) -> int:
    """Queue the start of a task that waits for no other, or push it on the stack of finished
    tasks."""
    start = run.task[at.READY, task] + run.task[at.DELAY, task]
    if run.of_task[at.OPEN_TRANSFERS, task] == 0:
        run.task[at.STARTED, task], run.task[at.ENDED, task] = (
            start,
            start + run.task[at.LATENCY, task],
        )
        run.of_task[at.STACK, depth] = task
        return depth + 1
    place = run.counts[at.STARTS]
    run.counts[at.STARTS] += 1
    while place > 0:
        parent = (place - 1) // 4
        before = run.task[at.START_KEY, parent]
        if before < start or (before == start and run.of_task[at.START_TASK, parent] < task):
            break
        run.task[at.START_KEY, place], run.of_task[at.START_TASK, place] = (
            run.task[at.START_KEY, parent],
            run.of_task[at.START_TASK, parent],
        )
        place = parent
    run.task[at.START_KEY, place], run.of_task[at.START_TASK, place] = start, task
    return depth


@part
def _finish_task(run: Run, task: int, time: float) -> None:
    """Finish a task: tasks that waited for it become ready; those without transfers finish at
    once."""
    run.task[at.ENDED, task] = time
    run.of_task[at.STACK, 0], depth = task, 1
    while depth > 0:
        depth -= 1
        task = run.of_task[at.STACK, depth]
        for place in range(run.of_task[at.NEXT_START, task], run.of_task[at.NEXT_START, task + 1]):
            later = run.next[place]
            run.task[at.READY, later] = max(run.task[at.READY, later], run.task[at.ENDED, task])
            run.of_task[at.WAITING, later] -= 1
            if run.of_task[at.WAITING, later] == 0:
                depth = _ready(run, later, depth)


@part
def _last_chunk(run: Run, task: int, time: float) -> float:
    """When a task whose last transfer ended at `time` is over, its rings' chunks included."""
    over = time
    for transfer in range(
        run.of_task[at.FIRST_TRANSFER, task], run.of_task[at.FIRST_TRANSFER, task + 1]
    ):
        ring = run.of_transfer[at.RING, transfer]
        if ring >= 0:
            chunk = run.ring[at.SPENT, ring] + run.ring[at.RING_LATENCY, ring]
            over = max(over, run.task[at.STARTED, task] + chunk)
    return float(over + run.task[at.LATENCY, task])


@part
def _is_limited(fair: FairState, flow: int) -> bool:
    return bool(len(fair.of_limit) > 0 and fair.of_limit[flow] >= 0)


@part
def _sent_at(fair: FairState, number: int, bits: float) -> float:
    """When a limited flow had sent so many bits, evenly in each of its parts; -inf: long ago."""
    limit, until = fair.limit, fair.limit[at.SENT, number]
    for row in range(at.BEGUN + at.PARTS - 1, at.BEGUN - 1, -1):
        before = limit[row + 2 * at.PARTS, number]
        if before < bits:
            begun, over = limit[row, number], limit[row + at.PARTS, number]
            return float(begun + (over - begun) * (bits - before) / (until - before))
        until = before
    return -np.inf


@part
def _limit(fair: FairState, flow: int, now: float, size: float) -> None:
    """Let a limited flow send no faster than its window lets it end the transfer of this size that
    is next. Alone all its windows but the last take a round trip each; its last bit also leaves as
    many round trips as it has windows after the bit so many windows before, of another transfer."""
    number, limit, last = fair.of_limit[flow], fair.limit, at.BEGUN + at.PARTS - 1
    window, round_trip = limit[at.WINDOW, number], limit[at.ROUND, number]
    line, sent = limit[at.LINE, number], limit[at.SENT, number]
    end = now + size / line
    if window < np.inf:
        windows = max(1.0, np.ceil(size / window * (1.0 - SAME)))
        left = size - (windows - 1.0) * window
        end = now + (windows - 1.0) * round_trip + left / line
        answered = _sent_at(fair, number, sent + left - window)
        end = max(end, answered + windows * round_trip)
        if now - limit[last, number] >= round_trip or sent - limit[
            last + 2 * at.PARTS, number
        ] >= window / (at.PARTS - 1):
            for row in range(at.BEGUN, last):
                for column in range(row, row + 3 * at.PARTS, at.PARTS):
                    limit[column, number] = limit[column + 1, number]
            limit[last, number], limit[last + 2 * at.PARTS, number] = now, sent
    limit[at.SENT, number] = sent + size
    rate = min(line, size / (end - now))
    fair.send[at.CAPACITY, fair.send.shape[1] - limit.shape[1] + number] = rate


@part
def _note_limit(fair: FairState, flow: int, time: float, size: float) -> None:
    """Note when a transfer of a limited flow ended, and whether as late as the limit had it."""
    number, column = fair.of_limit[flow], fair.send.shape[1] - fair.limit.shape[1]
    column += number
    is_closed = fair.limit[at.WINDOW, number] == np.inf
    is_closed |= fair.send[at.CAPACITY, column] < fair.limit[at.LINE, number] * (1.0 - SAME)
    if is_closed and fair.of_flow[at.BOTTLENECK, flow] == column:
        fair.limit[at.HELD_BITS, number] += size
    fair.limit[at.BEGUN + 2 * at.PARTS - 1, number] = time


@part
def _finish(fair: FairState, run: Run, dirty: int) -> int:
    """End the transfer that is first to end, at its own time."""
    flow, time = fair.of_flow[at.END_FLOW, 0], fair.flow[at.END_KEY, 0]
    target, _ = targets(fair, run, flow)
    transfer, kept, is_limited = fair.of_flow[at.FIRST, flow], -1, _is_limited(fair, flow)
    fair.of_flow[at.FIRST, flow] = -1
    while transfer >= 0:
        following = run.of_transfer[at.FOLLOWING, transfer]
        if run.transfer[at.TARGET, transfer] <= target * (1.0 + SAME):
            run.transfer[at.FINISH, transfer] = time
            fair.flow[at.BITS, flow] += (
                run.transfer[at.TARGET, transfer] - run.transfer[at.COUNTED, transfer]
            )
            run.counts[at.DONE] += 1
            if is_limited:
                _note_limit(fair, flow, time, run.transfer[at.SIZE, transfer])
            task = run.of_transfer[at.TASK, transfer]
            ring = run.of_transfer[at.RING, transfer]
            if ring >= 0:
                spent = time - run.task[at.STARTED, task]
                run.ring[at.SPENT, ring] += run.ring[at.RING_SHARE, ring] * spent
            run.of_task[at.OPEN_TRANSFERS, task] -= 1
            if run.of_task[at.OPEN_TRANSFERS, task] == 0:
                _finish_task(run, task, _last_chunk(run, task, time))
        else:
            run.of_transfer[at.FOLLOWING, transfer] = kept
            kept = transfer
        transfer = following
    fair.of_flow[at.FIRST, flow] = kept
    if kept >= 0:
        if is_limited:
            following, _ = targets(fair, run, flow)
            _limit(fair, flow, time, following - target)
        expect_anew(fair, run, flow)
    else:
        fair.flag[at.TRANSFERS, flow] = 0
        last = run.counts[at.ACTIVE] - 1
        run.counts[at.ACTIVE] = last
        fair.of_flow[at.PLACE, flow] = -1
        if last > 0:
            fair.flow[at.END_KEY, 0], fair.of_flow[at.END_FLOW, 0] = (
                fair.flow[at.END_KEY, last],
                fair.of_flow[at.END_FLOW, last],
            )
            settle(fair.flow, fair.of_flow, 0, last)
        if run.counts[at.LATEST] == flow:
            run.counts[at.LATEST] = -1
    return _mark_dirty(fair, dirty, flow)


@part
def _begin(fair: FairState, run: Run, dirty: int) -> int:
    """Start the task that is first to start."""
    task = run.of_task[at.START_TASK, 0]
    run.task[at.STARTED, task] = run.task[at.START_KEY, 0]
    last = run.counts[at.STARTS] - 1
    run.counts[at.STARTS] = last
    run.task[at.START_KEY, 0], run.of_task[at.START_TASK, 0] = (
        run.task[at.START_KEY, last],
        run.of_task[at.START_TASK, last],
    )
    sink(run.task[at.START_KEY], run.of_task[at.START_TASK], 0, last)
    for transfer in range(
        run.of_task[at.FIRST_TRANSFER, task], run.of_task[at.FIRST_TRANSFER, task + 1]
    ):
        flow = run.of_transfer[at.FLOW, transfer]
        behind = 0.0
        if fair.of_flow[at.FIRST, flow] < 0:
            fair.flow[at.SERVED, flow], fair.flow[at.UPDATED, flow] = 0.0, run.clock[at.NOW]
            fair.flag[at.TRANSFERS, flow] = 1
            if _is_limited(fair, flow):
                _limit(fair, flow, run.clock[at.NOW], run.transfer[at.SIZE, transfer])
        else:
            serve(fair, run, flow)
            _, behind = targets(fair, run, flow)
        run.transfer[at.TARGET, transfer] = behind + run.transfer[at.SIZE, transfer]
        run.transfer[at.COUNTED, transfer] = behind
        run.of_transfer[at.FOLLOWING, transfer], fair.of_flow[at.FIRST, flow] = (
            fair.of_flow[at.FIRST, flow],
            transfer,
        )
        dirty = _mark_dirty(fair, dirty, flow)
    return dirty


@part
def _compact(fair: FairState, run: Run) -> None:
    """Take flows without transfers off all lists."""
    weighted = len(fair.share) > 0
    for send in range(fair.send.shape[1]):
        first, kept = fair.list_start[send], fair.list_start[send]
        for place in range(first, first + fair.of_send[at.LIST_LENGTH, send]):
            flow = fair.listed[place]
            if fair.flag[at.PHASE, flow] != at.IDLE:
                fair.listed[kept] = flow
                if weighted:
                    fair.listed_share[kept] = fair.listed_share[place]
                kept += 1
        fair.of_send[at.LIST_LENGTH, send] = kept - first
    run.counts[at.LISTED] = run.counts[at.ACTIVE]
    for flow in range(len(fair.start) - 1):
        fair.flag[at.IS_LISTED, flow] = fair.flag[at.PHASE, flow] != at.IDLE


@part
def _point(run: Run) -> None:
    """Record the total rate: at every solve, later at every n-th."""
    counts, last = run.counts, run.counts[at.POINTS] - 1
    if last >= 0 and run.point[0, last] == run.clock[at.NOW]:
        run.point[1, last] = run.clock[at.TOTAL]
        return
    counts[at.SKIPPED] += 1
    if counts[at.SKIPPED] < counts[at.STRIDE]:
        return
    counts[at.SKIPPED] = 0
    if last + 1 == run.point.shape[1]:
        half = run.point.shape[1] // 2
        for place in range(half):
            run.point[0, place] = run.point[0, 2 * place]
            run.point[1, place] = run.point[1, 2 * place]
        counts[at.POINTS] = half
        counts[at.STRIDE] = 2 * max(counts[at.STRIDE], 1)
    place = counts[at.POINTS]
    run.point[0, place], run.point[1, place] = run.clock[at.NOW], run.clock[at.TOTAL]
    counts[at.POINTS] += 1


@part
def _apply(fair: FairState, run: Run, dirty: int, again: Ints, everything: bool) -> None:
    """Solve for flows whose number of transfers has changed, and the flows that this affects."""
    weighted = len(fair.share) > 0
    changed = 0
    for number in range(dirty):
        flow = fair.of_flow[at.DIRTY, number]
        fair.flag[at.IS_DIRTY, flow] = 0
        more = fair.flag[at.TRANSFERS, flow] - fair.flag[at.SOLVED_FOR, flow]
        # A limited flow may have another limit for another transfer.
        if more != 0 or _is_limited(fair, flow):
            fair.of_flow[at.DIRTY, changed] = flow
            changed += 1
            run.clock[at.TOTAL] += more * fair.flow[at.RATE, flow]
            for entry in range(fair.start[flow], fair.start[flow + 1]):
                weight = more * fair.share[entry] if weighted else float(more)
                fair.send[at.LOAD, fair.sends[entry]] += weight * fair.flow[at.RATE, flow]
                fair.of_send[at.UPDATES, fair.sends[entry]] += 1
        if fair.flag[at.TRANSFERS, flow] == 0:
            fair.flag[at.PHASE, flow], fair.flow[at.RATE, flow] = at.IDLE, 0.0
        else:
            fair.flag[at.PHASE, flow] = at.OUTSIDE
            if fair.flag[at.IS_LISTED, flow] == 0:
                fair.flag[at.IS_LISTED, flow] = 1
                run.counts[at.LISTED] += 1
                list_flow(fair, flow)
            expect_anew(fair, run, flow)
    inside, touched = 0, 0
    for number in range(changed):
        flow = fair.of_flow[at.DIRTY, number]
        if fair.flag[at.TRANSFERS, flow] > 0:
            touched = join(fair, flow, inside, touched, False)
            inside += 1
    for number in range(changed):
        flow = fair.of_flow[at.DIRTY, number]
        if fair.flag[at.TRANSFERS, flow] < fair.flag[at.SOLVED_FOR, flow]:
            for entry in range(fair.start[flow], fair.start[flow + 1]):
                send = fair.sends[entry]
                if fair.send[at.HELD, send] >= 0.0:
                    fair.send[at.HELD, send] = -1.0
                    first = fair.list_start[send]
                    for place in range(first, first + fair.of_send[at.LIST_LENGTH, send]):
                        other = fair.listed[place]
                        if (
                            fair.flag[at.PHASE, other] == at.OUTSIDE
                            and fair.of_flow[at.BOTTLENECK, other] == send
                        ):
                            touched = join(fair, other, inside, touched, False)
                            inside += 1
        fair.flag[at.SOLVED_FOR, flow] = fair.flag[at.TRANSFERS, flow]
    for other in again:
        if fair.flag[at.PHASE, other] == at.OUTSIDE:
            touched = join(fair, other, inside, touched, False)
            inside += 1
    if inside > 0 or (everything and changed > 0):
        solve(fair, run, inside, touched, everything)
    if run.counts[at.ACTIVE] == 0:
        run.clock[at.TOTAL] = 0.0
    if changed > 0 or len(again) > 0:
        _point(run)
    if run.counts[at.LISTED] > 2 * run.counts[at.ACTIVE] + 4096:
        _compact(fair, run)


@part
def _window(fair: FairState, run: Run, eps: float) -> float:
    """The time up to which completions are taken together."""
    if run.counts[at.LATEST] < 0:
        run.clock[at.HORIZON] = 0.0
        for place in range(run.counts[at.ACTIVE]):
            flow = fair.of_flow[at.END_FLOW, place]
            if fair.flow[at.RATE, flow] > 0.0:
                _, most = targets(fair, run, flow)
                last = (
                    fair.flow[at.UPDATED, flow]
                    + (most - fair.flow[at.SERVED, flow]) / fair.flow[at.RATE, flow]
                )
                if run.clock[at.HORIZON] <= last:
                    run.clock[at.HORIZON], run.counts[at.LATEST] = last, flow
    return float(fair.flow[at.END_KEY, 0] + eps * (run.clock[at.HORIZON] - run.clock[at.NOW]))


@entry
def advance(
    fair: FairState, run: Run, until: float, eps: float, again: Ints, everything: bool, work: int
) -> bool:
    """Run up to `until`, the next change. False if it stopped earlier, after some `work`.

    again: flows to be solved first. everything: solve all flows whenever anything is solved.
    """
    counts = run.counts
    if counts[at.INDEXED] == 0:
        counts[at.INDEXED] = 1
        index(fair)
    if counts[at.OPENED] == 0:
        counts[at.OPENED] = 1
        for task in range(run.task.shape[1]):
            if run.of_task[at.WAITS, task] == 0:
                depth = _ready(run, task, 0)
                if depth > 0:
                    _finish_task(run, task, run.task[at.ENDED, task])
    dirty = 0
    for flow in again:
        dirty = _mark_dirty(fair, dirty, flow)
    if dirty > 0:
        _apply(fair, run, dirty, again, everything)
    nothing = again[:0]
    while work > 0:
        ends = fair.flow[at.END_KEY, 0] if counts[at.ACTIVE] > 0 else np.inf
        starts = run.task[at.START_KEY, 0] if counts[at.STARTS] > 0 else np.inf
        time = min(ends, starts)
        if time == np.inf or time > until * (1.0 + SAME):
            if until < np.inf:
                run.clock[at.NOW] = max(until, run.clock[at.NOW])
            return True
        limit = time * (1.0 + SAME)
        if eps > 0.0 and ends <= starts:
            limit = max(limit, min(_window(fair, run, eps), until) * (1.0 + SAME))
        dirty = 0
        while counts[at.ACTIVE] > 0 and fair.flow[at.END_KEY, 0] <= limit:
            if counts[at.STARTS] > 0 and fair.flow[at.END_KEY, 0] > run.task[at.START_KEY, 0] * (
                1.0 + SAME
            ):
                break
            time = max(time, fair.flow[at.END_KEY, 0])
            dirty = _finish(fair, run, dirty)
            work -= 1
        if counts[at.STARTS] > 0 and run.task[at.START_KEY, 0] <= time * (1.0 + SAME):
            time = max(time, run.task[at.START_KEY, 0])
        run.clock[at.NOW] = max(run.clock[at.NOW], time)
        while counts[at.STARTS] > 0 and run.task[at.START_KEY, 0] <= time * (1.0 + SAME):
            dirty = _begin(fair, run, dirty)
        before = counts[at.SOLVED]
        _apply(fair, run, dirty, nothing, everything)
        work -= max(counts[at.SOLVED] - before, 1)
    return False
