"""The packet engine's event loop, and what ACKs and CNPs do that have reached their NIC."""

from __future__ import annotations

from rocelab.base.arrays import Longs
from rocelab.sim.packets import control
from rocelab.sim.packets import state as at
from rocelab.sim.packets.admission import send_clearances
from rocelab.sim.packets.clock import next_due, next_in_ring, next_timer, set_timer
from rocelab.sim.packets.compiling import compiled, inlined
from rocelab.sim.packets.freelist import release
from rocelab.sim.packets.gates import obey, watched
from rocelab.sim.packets.hosts import gather
from rocelab.sim.packets.lossless import drained, receive
from rocelab.sim.packets.ports import enqueue, offer, serialised, serve, shaped
from rocelab.sim.packets.receiver import deliver
from rocelab.sim.packets.selective import learn
from rocelab.sim.packets.sender import ack_timer, go_back, leave_turns, list_flow
from rocelab.sim.packets.state import State
from rocelab.sim.packets.tasks import packets_acknowledged, start

DONE, MORE, FULL = range(3)
"""What `advance` returns. FULL: there may be too few free packets or timers for the next event."""


@compiled
def _acknowledge(run: State, packet: int) -> None:
    """An ACK or NAK reaches its sender."""
    flow, acked = run.packet[packet, at.FLOW], int(run.packet[packet, at.PSN])
    ahead = run.packet[packet, at.KIND] - at.NAK
    release(run, packet)
    row = run.flow[flow]
    unacked = row[at.UNACKED]
    if acked < unacked or row[at.WINDOW] == 0:
        return
    if acked > unacked:
        row[at.UNACKED] = acked
        row[at.LEFT_RETRIES] = row[at.RETRIES]
        row[at.DEADLINE_PS] = at.NEVER
        if row[at.ASKED] >= acked:
            row[at.DEADLINE_PS] = run.counts[at.NOW_PS] + row[at.TIMEOUT_PS]
        packets_acknowledged(run, flow)
        if row[at.NEXT_PSN] < acked:
            row[at.NEXT_PSN], row[at.SENDING] = acked, row[at.ACKING]
    row[at.NAKS] += ahead >= 0
    if row[at.SELECTIVE]:
        learn(run, flow, unacked, acked + ahead)
    # A copy of a NAK that was already served asks for nothing new.
    elif ahead >= 0 and row[at.NEXT_PSN] > row[at.UNACKED]:
        go_back(run, flow)
    list_flow(run, flow)
    serve(run, row[at.NIC])


@inlined
def _take(run: State, packet: int) -> None:
    """A host takes a packet from its NIC."""
    row = run.packet[packet]
    if row[at.KIND] <= at.ASKING:
        deliver(run, packet)
    elif row[at.KIND] != at.CNP:
        _acknowledge(run, packet)
    else:
        flow = row[at.FLOW]
        release(run, packet)
        rule = run.rule[run.flow[flow, at.CONTROL]]
        control.on_cnp(run.pace[flow], rule, float(run.counts[at.NOW_PS]))


@inlined
def _reach(run: State, packet: int) -> None:
    """A packet comes to the end of a link."""
    row = run.packet[packet]
    row[at.PLACE] += 1
    port = run.path[row[at.PLACE]]
    if port >= 0:
        enqueue(run, packet, port)
    elif port == at.LOST:
        run.counts[at.LOST_PACKETS] += 1
        release(run, packet)
    elif run.rules[at.DRAINS] and not receive(run, packet):
        release(run, packet)
    elif run.rules[at.MODERATION_PS] > 0:
        gather(run, packet)
    else:
        _take(run, packet)


@compiled
def _woken(run: State, number: int) -> None:
    """A host that gathers arrivals takes them, and sends. number: of its first port."""
    host = run.host[number]
    run.counts[at.HOST_TIMERS] -= 1
    if host[at.DUE_PS] != run.counts[at.NOW_PS]:
        return
    packet = host[at.FIRST_ARRIVED]
    host[at.FIRST_ARRIVED] = -1
    host[at.WAKES] += 1
    while packet >= 0:
        following = run.packet[packet, at.NEXT]
        _take(run, packet)
        packet = following
    host[at.WOKE_PS], host[at.DUE_PS] = run.counts[at.NOW_PS], at.NEVER
    while number >= 0:
        offer(run, number)
        number = run.host[number, at.NEXT_PORT]


@compiled
def _run_out(run: State, subject: int) -> None:
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
        _woken(run, of)
    elif kind == at.SHAPED:
        shaped(run, of)
    else:
        if kind == at.TURN_DUE:
            run.flow[of, at.LISTED] = 0
            list_flow(run, of)
        else:
            ack_timer(run, of)
        serve(run, run.flow[of, at.NIC])


@compiled
def move(run: State, flow: int, number: int) -> None:
    """A flow sends by another port of its NIC from now on."""
    is_listed = leave_turns(run, flow)
    run.flow[flow, at.NIC] = number
    if is_listed:
        list_flow(run, flow)
        serve(run, number)


@compiled
def begin(run: State, clearing: Longs) -> None:
    """Time the tasks that wait for no other, and clear the first messages, in an order of all
    clearances."""
    for task in run.task:
        if task[at.WAITING] == 0:
            set_timer(run, task[at.DELAY_PS], at.START, task[at.STARTS_AS])
    for flow in range(len(run.flow)):
        if run.flow[flow, at.CONTROL] >= 0:
            control.begin(run.pace[flow], run.rule[run.flow[flow, at.CONTROL]])
    for clearance in clearing:
        send_clearances(run, clearance, 1)


@compiled
def advance(run: State, events: int, until_ps: int) -> int:
    """Run through as many events at most, all before a time."""
    timers = len(run.ring)
    for _ in range(events):
        if (
            run.counts[at.FREE_PACKETS] < run.counts[at.MOST_TAKEN]
            or run.counts[at.HOST_TIMERS] > run.counts[at.MOST_HOST_TIMERS]
        ):
            return FULL
        ring = next_due(run.due)
        time = run.due[ring]
        if time >= until_ps:
            return DONE
        run.counts[at.NOW_PS] = time
        if ring == timers:
            _run_out(run, next_timer(run))
        elif ring >= run.rules[at.WAY_RINGS]:
            _reach(run, next_in_ring(run, ring))
        elif ring < run.rules[at.PORT_RINGS]:
            serialised(run, next_in_ring(run, ring))
        else:
            obey(run, next_in_ring(run, ring))
    return MORE
