"""The packet engine's lossless classes: what a switch holds for whom, and when it asks for a pause.

The rules are those of a lab (`rocelab/dataplane/bpf/pfc.bpf.c`), but for one: a dynamic threshold,
which rises as others' packets leave, is looked at again with a port's own packets and where nothing
else can happen; in a lab, instead of the latter, when a pause is sent again.
"""

from __future__ import annotations

from rocelab.sim.packets import state as at
from rocelab.sim.packets.clock import schedule, set_timer
from rocelab.sim.packets.compiling import entry, inlined, part
from rocelab.sim.packets.freelist import unused
from rocelab.sim.packets.state import PacketState


@inlined
def is_lossless(run: PacketState, class_: int) -> bool:
    """Whether a class is."""
    return bool(run.rules.lossless >> class_ & 1)


@inlined
def ask(run: PacketState, place: int, pauses: int) -> None:
    """A receiver asks the sender of a class to stop or to go on: the frame is a packet of its own,
    which no data holds up."""
    packet = unused(run)
    run.packet[packet].flow, run.packet[packet].psn = place, pauses
    run.pause[place].is_over = pauses
    schedule(run, run.pause[place].ask_ring, packet)


@inlined
def _xoff(run: PacketState, ingress: int, beyond: int) -> int:
    """The threshold at this moment, of the `beyond` that a port and class hold beyond what is
    reserved: a static one is no higher than what is there for all."""
    row = run.pause[ingress]
    pool = run.pool[row.pool]
    unused_bytes = max(pool.shared_size - pool.shared, 0)
    if row.xoff > 0:
        return int(min(row.xoff, beyond + unused_bytes))
    if row.dynamic_th >= 0:
        return int(unused_bytes << row.dynamic_th)
    return int(unused_bytes >> -row.dynamic_th)


@part
def admit(run: PacketState, ingress: int, size: int) -> bool:
    """Count a packet for the port and class that it came in by; whether there is room."""
    row = run.pause[ingress]
    pool, reserved = run.pool[row.pool], row.reserved
    if row.is_over:
        if row.beyond + size > row.headroom or pool.reserve + size > pool.reserve_size:
            row.refused += 1
            return False
        row.beyond += size
        pool.reserve += size
        row.beyond_highest = max(row.beyond_highest, row.beyond)
        row.held += size
    else:
        before = max(row.held - reserved, 0)
        row.held += size
        beyond = max(row.held - reserved, 0)
        pool.shared += beyond - before
        if beyond > 0 and beyond >= _xoff(run, ingress, beyond):
            ask(run, ingress, 1)
    row.held_highest = max(row.held_highest, row.held)
    return True


@inlined
def _resume(run: PacketState, ingress: int) -> None:
    """Let the sender go on, if it was asked to stop and the threshold permits."""
    row = run.pause[ingress]
    if row.is_over == 0 or row.beyond > 0:
        return
    beyond = max(row.held - row.reserved, 0)
    xon = max(_xoff(run, ingress, beyond) - row.xon_offset, row.xon)
    if beyond <= xon:
        ask(run, ingress, 0)


@part
def discount(run: PacketState, packet: int, size: int) -> None:
    """A packet leaves its switch's memory: first what its port and class had beyond XOFF."""
    packet_row = run.packet[packet]
    send = run.path[packet_row.place - 1]
    ingress = send * run.rules.classes + packet_row.class_
    row = run.pause[ingress]
    pool, reserved = run.pool[row.pool], row.reserved
    part = min(row.beyond, size)
    before = max(row.held - part - reserved, 0)
    row.held -= size
    row.beyond -= part
    pool.reserve -= part
    pool.shared -= before - max(row.held - reserved, 0)
    _resume(run, ingress)


@entry
def resumed(run: PacketState) -> bool:
    """Where nothing is to happen any more: let a sender go on for whom a threshold has risen since;
    whether there was one."""
    for ingress in range(len(run.pause)):
        if run.pause[ingress].is_over:
            _resume(run, ingress)
            if run.pause[ingress].is_over == 0:
                return True
    return False


@part
def hold(run: PacketState, packet: int, place: int) -> None:
    """A packet joins a queue whose gate is closed."""
    row, queue = run.pause[place], run.queue[place]
    if row.first_waiting < 0:
        row.first_waiting = packet
        watch(run, place)
    else:
        run.packet[queue.tail].next = packet
    queue.tail = packet


@part
def watch(run: PacketState, place: int) -> None:
    """From now on packets wait at a closed gate: the watchdog of a switch's port counts."""
    row = run.pause[place]
    row.idle_ps = run.counts.now_ps
    is_switch = run.port[place // run.rules.classes].buffer < at.NEVER
    if run.rules.detection_ps > 0 and is_switch:
        time_watchdog(run, place, row.idle_ps + run.rules.detection_ps)


@part
def time_watchdog(run: PacketState, place: int, due: int) -> None:
    """Have a gate's watchdog look at it then, if it is not to look anyway."""
    if not run.pause[place].is_watched:
        run.pause[place].is_watched = 1
        set_timer(run, due, at.WATCHED, place)


@part
def wait_for_gate(run: PacketState, flow: int, place: int) -> None:
    """A flow waits for its NIC's gate, and keeps its place among those that do."""
    row = run.pause[place]
    run.flow[flow].listed, run.flow[flow].next_flow = 1, -1
    if row.parked.first < 0:
        row.parked.first = flow
    else:
        run.flow[row.parked.last].next_flow = flow
    row.parked.last = flow


@part
def receive(run: PacketState, packet: int) -> bool:
    """A packet joins the receive buffer of a NIC with a slow host; whether there is room."""
    now, row = run.counts.now_ps, run.packet[packet]
    send = run.path[row.place - 1]
    buffer, first = run.buffer[send], send * run.rules.classes
    bits = 8 * (run.sizes[row.size_class] - at.ETHERNET)
    drained_ps = max(buffer.drained_ps, now) + bits * 10**12 // buffer.drain_bps
    if drained_ps - now > buffer.full_ps:
        buffer.overflows += 1
        return False
    buffer.drained_ps = drained_ps
    buffer.fill_highest_ps = max(buffer.fill_highest_ps, drained_ps - now)
    if drained_ps - now >= buffer.xoff_ps:
        for class_ in range(run.rules.classes):
            if is_lossless(run, class_) and run.pause[first + class_].is_over == 0:
                ask(run, first + class_, 1)
        if not buffer.is_draining:
            buffer.is_draining = 1
            set_timer(run, drained_ps - buffer.xon_ps, at.DRAINED, send)
    return True


@part
def drained(run: PacketState, send: int) -> None:
    """A NIC's receive buffer may have reached XON."""
    buffer, first = run.buffer[send], send * run.rules.classes
    due = buffer.drained_ps - buffer.xon_ps
    if due > run.counts.now_ps:
        set_timer(run, due, at.DRAINED, send)
        return
    buffer.is_draining = 0
    for class_ in range(run.rules.classes):
        if is_lossless(run, class_):
            ask(run, first + class_, 0)
