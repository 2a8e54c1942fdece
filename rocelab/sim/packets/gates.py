"""The packet engine's gates: a class of a port that stops when its receiver asks, and goes on.

The rules are those of a lab (`rocelab.dataplane.pfc.pauser`), its watchdog too. A frame that has
begun is sent to its end.
"""

from __future__ import annotations

from rocelab.sim.packets import state as at
from rocelab.sim.packets.compiling import part
from rocelab.sim.packets.freelist import release
from rocelab.sim.packets.hosts import wake_now
from rocelab.sim.packets.lossless import time_watchdog, watch
from rocelab.sim.packets.ports import emptied, serve, shape
from rocelab.sim.packets.state import PacketState


@part
def obey(run: PacketState, frame: int) -> None:
    """What a receiver asked for takes effect at the sender."""
    place, pauses = run.packet[frame].flow, run.packet[frame].psn
    release(run, frame)
    row, number = run.pause[place], place // run.rules.classes
    row.is_paused = pauses
    if run.port[number].busy == at.GATHERS:
        wake_now(run, number)
    if row.has_fired:
        if not pauses:
            row.idle_ps = run.counts.now_ps
            time_watchdog(run, place, row.idle_ps + run.rules.restoration_ps)
    elif pauses:
        _close(run, place)
    else:
        _open(run, place)


@part
def _close(run: PacketState, place: int) -> None:
    row, queue = run.pause[place], run.queue[place]
    row.is_closed, row.closed_ps = 1, run.counts.now_ps
    row.stops += 1
    row.first_waiting, queue.head = queue.head, -1
    run.port[place // run.rules.classes].queued -= row.waiting_packets
    if row.first_waiting >= 0:
        watch(run, place)


@part
def _open(run: PacketState, place: int) -> None:
    """Packets and flows that waited take their turns again."""
    row, number = run.pause[place], place // run.rules.classes
    port = run.port[number]
    closed_ps = run.counts.now_ps - row.closed_ps
    row.is_closed = 0
    row.paused_ps += closed_ps
    row.longest_ps = max(row.longest_ps, closed_ps)
    run.queue[place].head = row.first_waiting
    port.queued += row.waiting_packets
    if row.parked.first >= 0:
        if port.flows.first < 0:
            port.flows.first = row.parked.first
        else:
            run.flow[port.flows.last].next_flow = row.parked.first
        port.flows.last = row.parked.last
        row.parked.first = -1
    serve(run, number)
    if port.busy == at.GATHERS:
        shape(run, number)
    # After it was idle, a lab's port may send several frames at once.
    while port.busy < 0 and port.queued > 0:
        serve(run, number)


@part
def watched(run: PacketState, place: int) -> None:
    """A watchdog's time is over: of detection, or of restoration after it has fired."""
    row, rules, now = run.pause[place], run.rules, run.counts.now_ps
    row.is_watched = 0
    if row.has_fired:
        if row.is_paused:
            return
        if row.idle_ps + rules.restoration_ps > now:
            time_watchdog(run, place, row.idle_ps + rules.restoration_ps)
        else:
            row.has_fired = 0
    elif row.is_closed and row.first_waiting >= 0:
        if row.idle_ps + rules.detection_ps > now:
            time_watchdog(run, place, row.idle_ps + rules.detection_ps)
            return
        row.has_fired = 1
        row.firings += 1
        if rules.discards_all:
            number = place // rules.classes
            count = emptied(run, number, place - number * rules.classes)
            run.port[number].drops += count
            row.discards += count
        _open(run, place)
