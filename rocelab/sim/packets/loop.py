"""The packet engine's event loop, and what ACKs and CNPs do that have reached their NIC."""

from __future__ import annotations

from rocelab.base.arrays import Longs
from rocelab.sim.packets import control
from rocelab.sim.packets import state as at
from rocelab.sim.packets.admission import send_clearances
from rocelab.sim.packets.clock import next_due, next_in_ring, next_timer, set_timer
from rocelab.sim.packets.compiling import entry, inlined, part
from rocelab.sim.packets.freelist import release
from rocelab.sim.packets.gates import obey, watched
from rocelab.sim.packets.hosts import gather
from rocelab.sim.packets.lossless import drained, receive
from rocelab.sim.packets.ports import enqueue, offer, serialised, serve, shaped
from rocelab.sim.packets.receiver import deliver
from rocelab.sim.packets.selective import learn
from rocelab.sim.packets.sender import ack_timer, go_back, leave_turns, list_flow
from rocelab.sim.packets.state import PacketState
from rocelab.sim.packets.tasks import packets_acknowledged, start

DONE, MORE, FULL = range(3)
"""What `advance` returns. FULL: there may be too few free packets or timers for the next event."""


@part
def _acknowledge(run: PacketState, packet: int) -> None:
    """An ACK or NAK reaches its sender."""
    flow, acked = run.packet[packet].flow, int(run.packet[packet].psn)
    ahead = run.packet[packet].kind - at.NAK
    release(run, packet)
    row = run.flow[flow]
    unacked = row.unacked
    if acked < unacked or row.window == 0:
        return
    if acked > unacked:
        row.unacked = acked
        row.left_retries = row.retries
        row.deadline_ps = at.NEVER
        if row.asked >= acked:
            row.deadline_ps = run.counts.now_ps + row.timeout_ps
        packets_acknowledged(run, flow)
        if row.next_psn < acked:
            row.next_psn, row.sending = acked, row.acking
    row.naks += ahead >= 0
    if row.selective:
        learn(run, flow, unacked, acked + ahead)
    # A copy of a NAK that was already served asks for nothing new.
    elif ahead >= 0 and row.next_psn > row.unacked:
        go_back(run, flow)
    list_flow(run, flow)
    serve(run, row.nic)


@inlined
def _take(run: PacketState, packet: int) -> None:
    """A host takes a packet from its NIC."""
    row = run.packet[packet]
    if row.kind <= at.ASKING:
        deliver(run, packet)
    elif row.kind != at.CNP:
        _acknowledge(run, packet)
    else:
        flow = row.flow
        release(run, packet)
        rule = run.rule[run.flow[flow].control]
        control.on_cnp(run.pace[flow], rule, float(run.counts.now_ps))


@inlined
def _reach(run: PacketState, packet: int) -> None:
    """A packet comes to the end of a link."""
    row = run.packet[packet]
    row.place += 1
    port = run.path[row.place]
    if port >= 0:
        enqueue(run, packet, port)
    elif port == at.LOST:
        run.counts.lost_packets += 1
        release(run, packet)
    elif run.rules.drains and not receive(run, packet):
        release(run, packet)
    elif run.rules.moderation_ps > 0:
        gather(run, packet)
    else:
        _take(run, packet)


@part
def _wake_host(run: PacketState, number: int) -> None:
    """A host that gathers arrivals takes them, and sends. number: of its first port."""
    host = run.host[number]
    run.counts.host_timers -= 1
    if host.due_ps != run.counts.now_ps:
        return
    packet = host.first_arrived
    host.first_arrived = -1
    host.wakes += 1
    while packet >= 0:
        following = run.packet[packet].next
        _take(run, packet)
        packet = following
    host.woke_ps, host.due_ps = run.counts.now_ps, at.NEVER
    while number >= 0:
        offer(run, number)
        number = run.host[number].next_port


@part
def _run_out(run: PacketState, subject: int) -> None:
    """A timer runs out."""
    kind, of = subject & 7, subject >> 3
    if kind == at.START:
        start(run, run.starts[of])
    elif kind == at.SERIALISED:
        serialised(run, of)
    elif kind == at.WATCHED:
        watched(run, of)
    elif kind == at.DRAINED:
        drained(run, of)
    elif kind == at.WOKEN:
        _wake_host(run, of)
    elif kind == at.SHAPED:
        shaped(run, of)
    else:
        if kind == at.TURN_DUE:
            run.flow[of].listed = 0
            list_flow(run, of)
        else:
            ack_timer(run, of)
        serve(run, run.flow[of].nic)


@entry
def move(run: PacketState, flow: int, number: int) -> None:
    """A flow sends by another port of its NIC from now on."""
    is_listed = leave_turns(run, flow)
    run.flow[flow].nic = number
    if is_listed:
        list_flow(run, flow)
        serve(run, number)


@entry
def begin(run: PacketState, clearing: Longs) -> None:
    """Time the tasks that wait for no other, and clear the first messages, in an order of all
    clearances."""
    for task in run.task:
        if task.waiting == 0:
            set_timer(run, task.delay_ps, at.START, task.starts_as)
    for flow in range(len(run.flow)):
        if run.flow[flow].control >= 0:
            control.begin(run.pace[flow], run.rule[run.flow[flow].control])
    for clearance in clearing:
        send_clearances(run, clearance, 1)


@entry
def advance(run: PacketState, events: int, until_ps: int) -> int:
    """Run through as many events at most, all before a time."""
    timers = len(run.ring)
    for _ in range(events):
        if (
            run.counts.free_packets < run.counts.most_taken
            or run.counts.host_timers > run.counts.most_host_timers
        ):
            return FULL
        ring = next_due(run.due)
        time = run.due[ring]
        if time >= until_ps:
            return DONE
        run.counts.now_ps = time
        if ring == timers:
            _run_out(run, next_timer(run))
        elif ring >= run.rules.way_rings:
            _reach(run, next_in_ring(run, ring))
        elif ring < run.rules.port_rings:
            serialised(run, next_in_ring(run, ring))
        else:
            obey(run, next_in_ring(run, ring))
    return MORE
