"""The packet engine's free packets."""

from __future__ import annotations

import numpy as np

from rocelab.sim.packets import state as at
from rocelab.sim.packets.compiling import inlined
from rocelab.sim.packets.state import Packets, State


@inlined
def unused(run: State) -> int:
    """Take a free packet."""
    packet = run.counts[at.FREE]
    run.counts[at.FREE] = run.packet[packet, at.NEXT]
    run.counts[at.FREE_PACKETS] -= 1
    return int(packet)


@inlined
def release(run: State, packet: int) -> None:
    """A packet is no more."""
    run.packet[packet, at.NEXT] = run.counts[at.FREE]
    run.counts[at.FREE] = packet
    run.counts[at.FREE_PACKETS] += 1


def grown(run: State) -> State:
    """The same with room for twice as many packets."""
    pool = len(run.packet)
    more = free_packets(pool, 2 * pool)
    more[-1, at.NEXT] = run.counts[at.FREE]
    run.counts[at.FREE], run.counts[at.FREE_PACKETS] = pool, run.counts[at.FREE_PACKETS] + pool
    ring, on_the_way = run.ring.copy(), slice(run.rules[at.PORT_RINGS], None)
    ring[on_the_way, at.MASK] = 2 * ring[on_the_way, at.MASK] + 1
    ring[1:, at.FIRST] = np.cumsum(ring[:-1, at.MASK] + 1)
    event = np.zeros((int((ring[:, at.MASK] + 1).sum()), at.EVENT_CELLS), np.int64)
    for old, new in zip(run.ring, ring, strict=True):
        numbers = np.arange(old[at.FRONT], old[at.BACK])
        places = old[at.FIRST] + (numbers & old[at.MASK])
        event[new[at.FIRST] + (numbers & new[at.MASK])] = run.event[places]
    return run._replace(packet=np.concatenate((run.packet, more)), ring=ring, event=event)


def free_packets(first: int, end: int) -> Packets:
    """Rows of free packets of these numbers."""
    packet = np.zeros((end - first, at.PACKET_CELLS), np.int32)
    packet[:, at.NEXT] = np.arange(first + 1, end + 1)
    return packet
