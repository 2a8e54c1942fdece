"""The order of the packet engine's events: a ring per constant delay and a heap of timers.

Events of one delay are due in the order in which they were scheduled. At one instant tasks start
first (`State.starts`), then other timers run out, in an order that the seed draws; then come the
rings: of serialisation, of pauses, and of packets on their way, those that were sent whole last.
So, whatever its size, the packet that a port has sent has left before the next one comes. The seed
also draws the order of the rings of serialisation, and of those of packets that left early.
"""

from __future__ import annotations

from rocelab.arrays import Longs
from rocelab.sim.packets import state as at
from rocelab.sim.packets.compiling import compiled, inlined
from rocelab.sim.packets.draws import TIES, draw
from rocelab.sim.packets.state import State, Table


@inlined
def schedule(run: State, ring: int, subject: int) -> None:
    """Let an event happen after the ring's delay."""
    row = run.ring[ring]
    time = run.counts[at.NOW_PS] + row[at.RING_DELAY_PS]
    place = row[at.FIRST] + (row[at.BACK] & row[at.MASK])
    if row[at.FRONT] == row[at.BACK]:
        run.due[ring] = time
    row[at.BACK] += 1
    run.event[place, at.TIME_PS] = time
    run.event[place, at.SUBJECT] = subject


@inlined
def next_in_ring(run: State, ring: int) -> int:
    """Take the subject of a ring's front."""
    row = run.ring[ring]
    subject = run.event[row[at.FIRST] + (row[at.FRONT] & row[at.MASK]), at.SUBJECT]
    row[at.FRONT] += 1
    if row[at.FRONT] == row[at.BACK]:
        run.due[ring] = at.NEVER
    else:
        following = row[at.FIRST] + (row[at.FRONT] & row[at.MASK])
        run.due[ring] = run.event[following, at.TIME_PS]
    return int(subject)


@inlined
def next_due(due: Longs) -> int:
    """The ring, or the heap as the last, whose event is next."""
    found, time = len(due) - 1, due[-1]
    for ring in range(len(due) - 1):
        if due[ring] < time:
            found, time = ring, due[ring]
    return found


@compiled
def _order(run: State, subject: int) -> int:
    """Where a timer comes among those of one instant, with its subject as the lowest bits."""
    if subject & 7 == at.START:
        return subject - 2**32
    return draw(run.rules[at.SEED], TIES, subject) << 32 | subject


@inlined
def _is_before(heap: Table, place: int, time: int, order: int) -> bool:
    """Whether the timer at a place of the heap runs out before another one."""
    due = heap[place, at.TIME_PS]
    return bool(due < time or (due == time and heap[place, at.ORDER] < order))


@inlined
def set_timer(run: State, time: int, kind: int, of: int) -> None:
    """Let a timer of a task, port, flow or gate run out at a time."""
    heap, place, order = run.timer, run.counts[at.TIMERS], _order(run, 8 * of + kind)
    run.counts[at.TIMERS] += 1
    while place > 0 and not _is_before(heap, (place - 1) >> 1, time, order):
        parent = (place - 1) >> 1
        heap[place, at.TIME_PS] = heap[parent, at.TIME_PS]
        heap[place, at.ORDER] = heap[parent, at.ORDER]
        place = parent
    heap[place, at.TIME_PS], heap[place, at.ORDER] = time, order
    run.due[-1] = heap[0, at.TIME_PS]


@inlined
def next_timer(run: State) -> int:
    """Take the subject of the timer that runs out first."""
    heap, place = run.timer, 0
    first = heap[0, at.ORDER]
    run.counts[at.TIMERS] -= 1
    count = run.counts[at.TIMERS]
    time, last = heap[count, at.TIME_PS], heap[count, at.ORDER]
    while True:
        child = 2 * place + 1
        if child + 1 < count and _is_before(
            heap, child + 1, heap[child, at.TIME_PS], heap[child, at.ORDER]
        ):
            child += 1
        if child >= count or not _is_before(heap, child, time, last):
            break
        heap[place, at.TIME_PS] = heap[child, at.TIME_PS]
        heap[place, at.ORDER] = heap[child, at.ORDER]
        place = child
    heap[place, at.TIME_PS], heap[place, at.ORDER] = time, last
    run.due[-1] = heap[0, at.TIME_PS] if count else at.NEVER
    return int(first & (2**32 - 1))
