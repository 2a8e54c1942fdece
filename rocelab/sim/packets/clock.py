"""The order of the packet engine's events: a ring per constant delay and a heap of timers.

Events of one delay are due in the order in which they were scheduled. At one instant tasks start
first (`PacketState.starts`), then other timers run out, in an order that the seed draws; then come
the rings: of serialisation, of pauses, and of packets on their way, those that were sent whole
last. So, whatever its size, the packet that a port has sent has left before the next one comes. The
seed also draws the order of the rings of serialisation, and of those of packets that left early.
"""

from __future__ import annotations

from rocelab.base.arrays import Longs
from rocelab.sim.packets import state as at
from rocelab.sim.packets.compiling import inlined, part
from rocelab.sim.packets.draws import TIES, draw
from rocelab.sim.packets.state import PacketState


@inlined
def schedule(run: PacketState, ring: int, subject: int) -> None:
    """Let an event happen after the ring's delay."""
    row = run.ring[ring]
    time = run.counts.now_ps + row.delay_ps
    place = row.first + (row.back & row.mask)
    if row.front == row.back:
        run.due[ring] = time
    row.back += 1
    run.event[place].time_ps = time
    run.event[place].subject = subject


@inlined
def next_in_ring(run: PacketState, ring: int) -> int:
    """Take the subject of a ring's front."""
    row = run.ring[ring]
    subject = run.event[row.first + (row.front & row.mask)].subject
    row.front += 1
    if row.front == row.back:
        run.due[ring] = at.NEVER
    else:
        following = row.first + (row.front & row.mask)
        run.due[ring] = run.event[following].time_ps
    return int(subject)


@inlined
def next_due(due: Longs) -> int:
    """The ring, or the heap as the last, whose event is next."""
    slot, time = len(due) - 1, due[-1]
    for ring in range(len(due) - 1):
        if due[ring] < time:
            slot, time = ring, due[ring]
    return slot


@part
def _tie(run: PacketState, subject: int) -> int:
    """Where a timer comes among those of one instant."""
    if subject & 7 == at.START:
        return subject - 2**31
    return draw(run.rules.seed, TIES, subject)


@inlined
def _is_before(run: PacketState, place: int, time: int, subject: int) -> bool:
    """Whether the timer at a place of the heap runs out before another one."""
    due = run.timer[place].time_ps
    return bool(
        due < time or (due == time and _tie(run, run.timer[place].subject) < _tie(run, subject))
    )


@inlined
def set_timer(run: PacketState, time: int, kind: int, of: int) -> None:
    """Let a timer of a task, port, flow or gate run out at a time."""
    heap, place, subject = run.timer, run.counts.timers, 8 * of + kind
    run.counts.timers += 1
    while place > 0 and not _is_before(run, (place - 1) >> 1, time, subject):
        parent = (place - 1) >> 1
        heap[place].time_ps = heap[parent].time_ps
        heap[place].subject = heap[parent].subject
        place = parent
    heap[place].time_ps, heap[place].subject = time, subject
    run.due[-1] = heap[0].time_ps


@inlined
def next_timer(run: PacketState) -> int:
    """Take the subject of the timer that runs out first."""
    heap, place = run.timer, 0
    subject = heap[0].subject
    run.counts.timers -= 1
    count = run.counts.timers
    time, last = heap[count].time_ps, heap[count].subject
    while True:
        child = 2 * place + 1
        if child + 1 < count and _is_before(
            run, child + 1, heap[child].time_ps, heap[child].subject
        ):
            child += 1
        if child >= count or not _is_before(run, child, time, last):
            break
        heap[place].time_ps = heap[child].time_ps
        heap[place].subject = heap[child].subject
        place = child
    heap[place].time_ps, heap[place].subject = time, last
    run.due[-1] = heap[0].time_ps if count else at.NEVER
    return int(subject)
