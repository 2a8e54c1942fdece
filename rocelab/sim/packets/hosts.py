"""The packet engine's hosts that gather what arrives, as a lab's agents do.

A host takes arrivals and sends only while it is awake, by all ports of its server. It wakes at most
once in a time, like one behind a NIC that moderates its interrupts (`rocelab.agent.agent`), each
time a little late, and at once for a pause or its end. When it wakes it sends all that its links
could have carried meanwhile; of a lossless class to the NIC's queue (`rocelab.sim.packets.ports`).
"""

from __future__ import annotations

import numpy as np

from rocelab.sim.packets import state as at
from rocelab.sim.packets.clock import set_timer
from rocelab.sim.packets.compiling import compiled
from rocelab.sim.packets.draws import draw
from rocelab.sim.packets.state import State


@compiled
def wake_by(run: State, number: int, time: int) -> None:
    """Let the host of a port wake at a time, or as soon after it as it may."""
    first, rules = run.host[number, at.FIRST_PORT], run.rules
    host = run.host[first]
    due = max(time, host[at.WOKE_PS] + rules[at.MODERATION_PS])
    stream = len(run.port) + len(run.flow) + first
    due += draw(rules[at.SEED], stream, host[at.WAKES]) * rules[at.LATE_PS] >> 31
    if due < host[at.DUE_PS]:
        host[at.DUE_PS] = due
        run.counts[at.HOST_TIMERS] += 1
        set_timer(run, due, at.WOKEN, first)


@compiled
def rouse(run: State, number: int) -> None:
    """Let the host of a port wake at once."""
    run.host[run.host[number, at.FIRST_PORT], at.WOKE_PS] = -at.NEVER
    wake_by(run, number, run.counts[at.NOW_PS])


@compiled
def gather(run: State, packet: int) -> None:
    """A packet waits at its NIC for the host."""
    number = run.path[run.packet[packet, at.PLACE] - 1] ^ 1
    host = run.host[run.host[number, at.FIRST_PORT]]
    run.packet[packet, at.NEXT] = -1
    if host[at.FIRST_ARRIVED] < 0:
        host[at.FIRST_ARRIVED] = packet
    else:
        run.packet[host[at.LAST_ARRIVED], at.NEXT] = packet
    host[at.LAST_ARRIVED] = packet
    wake_by(run, number, run.counts[at.NOW_PS])


def with_wakes(run: State) -> State:
    """The run with room for more timers of hosts. An event sets two of a host at most."""
    more = 4 * len(run.host)
    run.counts[at.MOST_HOST_TIMERS] += more
    room = np.zeros((more, at.EVENT_CELLS), np.int64)
    return run._replace(timer=np.concatenate((run.timer, room)))
