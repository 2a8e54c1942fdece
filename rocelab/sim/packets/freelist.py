"""The packet engine's free packets."""

from __future__ import annotations

from rocelab.sim.packets import state as at
from rocelab.sim.packets.compiling import inlined
from rocelab.sim.packets.state import State


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
