"""The packet engine's free packets."""

from __future__ import annotations

import numpy as np

from rocelab.sim.packets.compiling import inlined
from rocelab.sim.packets.state import Packet, PacketEvent, PacketState, Records, joined, zeros


@inlined
def unused(run: PacketState) -> int:
    """Take a free packet."""
    packet = run.counts.free
    run.counts.free = run.packet[packet].next
    run.counts.free_packets -= 1
    return int(packet)


@inlined
def release(run: PacketState, packet: int) -> None:
    """A packet is no more."""
    run.packet[packet].next = run.counts.free
    run.counts.free = packet
    run.counts.free_packets += 1


def grown(run: PacketState) -> PacketState:
    """The same with room for twice as many packets."""
    pool = len(run.packet)
    more = free_packets(pool, 2 * pool)
    more[-1].next = run.counts.free
    run.counts.free, run.counts.free_packets = pool, run.counts.free_packets + pool
    ring, on_the_way = joined(run.ring), slice(run.rules.port_rings, None)
    ring.mask[on_the_way] = 2 * ring.mask[on_the_way] + 1
    ring.first[1:] = np.cumsum(ring.mask[:-1] + 1)
    event = zeros(PacketEvent, int((ring.mask + 1).sum()))
    for old, new in zip(run.ring, ring, strict=True):
        numbers = np.arange(old.front, old.back)
        places = old.first + (numbers & old.mask)
        event[new.first + (numbers & new.mask)] = run.event[places]
    return run._replace(packet=joined(run.packet, more), ring=ring, event=event)


def free_packets(first: int, end: int) -> Records[Packet]:
    """Free packets of these numbers."""
    packet = zeros(Packet, end - first)
    packet.next = np.arange(first + 1, end + 1)
    return packet
