"""The packet engine's gates: a class of a port that stops when its receiver asks, and goes on.

The rules are those of a lab (`rocelab.dataplane.pfc.pauser`), its watchdog too. A frame that has
begun is sent to its end.
"""

from __future__ import annotations

from rocelab.sim.packets import state as at
from rocelab.sim.packets.compiling import compiled
from rocelab.sim.packets.freelist import release
from rocelab.sim.packets.hosts import rouse
from rocelab.sim.packets.lossless import time_watchdog, watch
from rocelab.sim.packets.ports import emptied, serve, shape
from rocelab.sim.packets.state import State


@compiled
def obey(run: State, frame: int) -> None:
    """What a receiver asked for takes effect at the sender."""
    place, pauses = run.packet[frame, at.FLOW], run.packet[frame, at.PSN]
    release(run, frame)
    row, number = run.pause[place], place // run.rules[at.CLASSES]
    row[at.IS_PAUSED] = pauses
    if run.port[number, at.BUSY] == at.GATHERS:
        rouse(run, number)
    if row[at.HAS_FIRED]:
        if not pauses:
            row[at.IDLE_PS] = run.counts[at.NOW_PS]
            time_watchdog(run, place, row[at.IDLE_PS] + run.rules[at.RESTORATION_PS])
    elif pauses:
        _close(run, place)
    else:
        _open(run, place)


@compiled
def _close(run: State, place: int) -> None:
    row, queue = run.pause[place], run.queue[place]
    row[at.IS_CLOSED], row[at.CLOSED_PS] = 1, run.counts[at.NOW_PS]
    row[at.STOPS] += 1
    row[at.FIRST_WAITING], queue[at.HEAD] = queue[at.HEAD], -1
    run.port[place // run.rules[at.CLASSES], at.QUEUED] -= row[at.WAITING_PACKETS]
    if row[at.FIRST_WAITING] >= 0:
        watch(run, place)


@compiled
def _open(run: State, place: int) -> None:
    """Packets and flows that waited take their turns again."""
    row, number = run.pause[place], place // run.rules[at.CLASSES]
    port = run.port[number]
    closed_ps = run.counts[at.NOW_PS] - row[at.CLOSED_PS]
    row[at.IS_CLOSED] = 0
    row[at.PAUSED_PS] += closed_ps
    row[at.LONGEST_PS] = max(row[at.LONGEST_PS], closed_ps)
    run.queue[place, at.HEAD] = row[at.FIRST_WAITING]
    port[at.QUEUED] += row[at.WAITING_PACKETS]
    if row[at.FIRST_PARKED] >= 0:
        if port[at.FIRST_FLOW] < 0:
            port[at.FIRST_FLOW] = row[at.FIRST_PARKED]
        else:
            run.flow[port[at.LAST_FLOW], at.NEXT_FLOW] = row[at.FIRST_PARKED]
        port[at.LAST_FLOW] = row[at.LAST_PARKED]
        row[at.FIRST_PARKED] = -1
    serve(run, number)
    if port[at.BUSY] == at.GATHERS:
        shape(run, number)
    # After it was idle, a lab's port may send several frames at once.
    while port[at.BUSY] < 0 and port[at.QUEUED] > 0:
        serve(run, number)


@compiled
def watched(run: State, place: int) -> None:
    """A watchdog's time is over: of detection, or of restoration after it has fired."""
    row, rules, now = run.pause[place], run.rules, run.counts[at.NOW_PS]
    row[at.IS_WATCHED] = 0
    if row[at.HAS_FIRED]:
        if row[at.IS_PAUSED]:
            return
        if row[at.IDLE_PS] + rules[at.RESTORATION_PS] > now:
            time_watchdog(run, place, row[at.IDLE_PS] + rules[at.RESTORATION_PS])
        else:
            row[at.HAS_FIRED] = 0
    elif row[at.IS_CLOSED] and row[at.FIRST_WAITING] >= 0:
        if row[at.IDLE_PS] + rules[at.DETECTION_PS] > now:
            time_watchdog(run, place, row[at.IDLE_PS] + rules[at.DETECTION_PS])
            return
        row[at.HAS_FIRED] = 1
        row[at.FIRINGS] += 1
        if rules[at.DISCARDS_ALL]:
            number = place // rules[at.CLASSES]
            count = emptied(run, number, place - number * rules[at.CLASSES])
            run.port[number, at.DROPS] += count
            row[at.DISCARDS] += count
        _open(run, place)
