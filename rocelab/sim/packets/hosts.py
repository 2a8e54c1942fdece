"""The packet engine's hosts that gather what arrives, as a lab's agents do.

A host takes arrivals and sends only while it is awake, by all ports of its server. It wakes at most
once in a time, like one behind a NIC that moderates its interrupts (`rocelab.agent.agent`), each
time a little late, and at once for a pause or its end. When it wakes it sends all that its links
could have carried meanwhile; of a lossless class to the NIC's queue (`rocelab.sim.packets.ports`).
"""

from __future__ import annotations

from rocelab.sim.packets import state as at
from rocelab.sim.packets.clock import set_timer
from rocelab.sim.packets.compiling import part
from rocelab.sim.packets.draws import draw
from rocelab.sim.packets.state import PacketEvent, PacketState, joined, zeros


@part
def wake_by(run: PacketState, number: int, time: int) -> None:
    """Let the host of a port wake at a time, or as soon after it as it may."""
    first, rules = run.host[number].first_port, run.rules
    host = run.host[first]
    due = max(time, host.woke_ps + rules.moderation_ps)
    stream = len(run.port) + len(run.flow) + first
    due += draw(rules.seed, stream, host.wakes) * rules.late_ps >> 31
    if due < host.due_ps:
        host.due_ps = due
        run.counts.host_timers += 1
        set_timer(run, due, at.WOKEN, first)


@part
def wake_now(run: PacketState, number: int) -> None:
    """Let the host of a port wake at once."""
    run.host[run.host[number].first_port].woke_ps = -at.NEVER
    wake_by(run, number, run.counts.now_ps)


@part
def gather(run: PacketState, packet: int) -> None:
    """A packet waits at its NIC for the host."""
    number = run.path[run.packet[packet].place - 1] ^ 1
    host = run.host[run.host[number].first_port]
    run.packet[packet].next = -1
    if host.first_arrived < 0:
        host.first_arrived = packet
    else:
        run.packet[host.last_arrived].next = packet
    host.last_arrived = packet
    wake_by(run, number, run.counts.now_ps)


def with_wakes(run: PacketState) -> PacketState:
    """The run with room for more timers of hosts. An event sets two of a host at most."""
    more = 4 * len(run.host)
    run.counts.most_host_timers += more
    return run._replace(timer=joined(run.timer, zeros(PacketEvent, more)))
