"""The packet engine's lossless classes: what a switch holds for whom, and when it asks for a pause.

The rules are those of a lab (`rocelab/dataplane/bpf/pfc.bpf.c`), but for one: a dynamic threshold,
which rises as others' packets leave, is looked at again with a port's own packets and where nothing
else can happen; in a lab, instead of the latter, when a pause is sent again.
"""

from __future__ import annotations

from rocelab.sim.packets import state as at
from rocelab.sim.packets.clock import schedule, set_timer
from rocelab.sim.packets.compiling import compiled, inlined
from rocelab.sim.packets.freelist import unused
from rocelab.sim.packets.state import State


@inlined
def is_lossless(run: State, class_: int) -> bool:
    """Whether a class is."""
    return bool(run.rules[at.LOSSLESS] >> class_ & 1)


@inlined
def ask(run: State, place: int, pauses: int) -> None:
    """A receiver asks the sender of a class to stop or to go on: the frame is a packet of its own,
    which no data holds up."""
    packet = unused(run)
    run.packet[packet, at.FLOW], run.packet[packet, at.PSN] = place, pauses
    run.pause[place, at.IS_OVER] = pauses
    schedule(run, run.pause[place, at.ASK_RING], packet)


@inlined
def _xoff(run: State, pool: int, beyond: int) -> int:
    """The threshold at this moment, of the `beyond` that a port and class hold beyond what is
    reserved: a static one is no higher than what is there for all."""
    rules = run.rules
    unused_bytes = max(run.pool[pool, at.SHARED_SIZE] - run.pool[pool, at.SHARED], 0)
    if rules[at.XOFF] > 0:
        return int(min(rules[at.XOFF], beyond + unused_bytes))
    if rules[at.DYNAMIC_TH] >= 0:
        return int(unused_bytes << rules[at.DYNAMIC_TH])
    return int(unused_bytes >> -rules[at.DYNAMIC_TH])


@compiled
def admit(run: State, ingress: int, size: int) -> bool:
    """Count a packet for the port and class that it came in by; whether there is room."""
    row, reserved = run.pause[ingress], run.rules[at.RESERVED]
    pool = run.pool[row[at.POOL]]
    if row[at.IS_OVER]:
        if (
            row[at.BEYOND] + size > row[at.HEADROOM]
            or pool[at.RESERVE] + size > pool[at.RESERVE_SIZE]
        ):
            row[at.REFUSED] += 1
            return False
        row[at.BEYOND] += size
        pool[at.RESERVE] += size
        row[at.BEYOND_HIGHEST] = max(row[at.BEYOND_HIGHEST], row[at.BEYOND])
        row[at.HELD] += size
    else:
        before = max(row[at.HELD] - reserved, 0)
        row[at.HELD] += size
        beyond = max(row[at.HELD] - reserved, 0)
        pool[at.SHARED] += beyond - before
        if beyond > 0 and beyond >= _xoff(run, row[at.POOL], beyond):
            ask(run, ingress, 1)
    row[at.HELD_HIGHEST] = max(row[at.HELD_HIGHEST], row[at.HELD])
    return True


@inlined
def _resume(run: State, ingress: int) -> None:
    """Let the sender go on, if it was asked to stop and the threshold permits."""
    row, rules = run.pause[ingress], run.rules
    if row[at.IS_OVER] == 0 or row[at.BEYOND] > 0:
        return
    beyond = max(row[at.HELD] - rules[at.RESERVED], 0)
    xon = max(_xoff(run, row[at.POOL], beyond) - rules[at.XON_OFFSET], 0)
    if beyond <= xon:
        ask(run, ingress, 0)


@compiled
def discount(run: State, packet: int, size: int) -> None:
    """A packet leaves its switch's memory: first what its port and class had beyond XOFF."""
    packet_row, reserved = run.packet[packet], run.rules[at.RESERVED]
    send = run.path[packet_row[at.PLACE] - 1]
    ingress = send * run.rules[at.CLASSES] + packet_row[at.CLASS]
    row = run.pause[ingress]
    pool = run.pool[row[at.POOL]]
    part = min(row[at.BEYOND], size)
    before = max(row[at.HELD] - part - reserved, 0)
    row[at.HELD] -= size
    row[at.BEYOND] -= part
    pool[at.RESERVE] -= part
    pool[at.SHARED] -= before - max(row[at.HELD] - reserved, 0)
    _resume(run, ingress)


@compiled
def resumed(run: State) -> bool:
    """Where nothing is to happen any more: let a sender go on for whom a threshold has risen since;
    whether there was one."""
    for ingress in range(len(run.pause)):
        if run.pause[ingress, at.IS_OVER]:
            _resume(run, ingress)
            if run.pause[ingress, at.IS_OVER] == 0:
                return True
    return False


@compiled
def hold(run: State, packet: int, place: int) -> None:
    """A packet joins a queue whose gate is closed."""
    row, queue = run.pause[place], run.queue[place]
    if row[at.FIRST_WAITING] < 0:
        row[at.FIRST_WAITING] = packet
        watch(run, place)
    else:
        run.packet[queue[at.TAIL], at.NEXT] = packet
    queue[at.TAIL] = packet


@compiled
def watch(run: State, place: int) -> None:
    """From now on packets wait at a closed gate: the watchdog of a switch's port counts."""
    row = run.pause[place]
    row[at.IDLE_PS] = run.counts[at.NOW_PS]
    is_switch = run.port[place // run.rules[at.CLASSES], at.BUFFER] < at.NEVER
    if run.rules[at.DETECTION_PS] > 0 and is_switch:
        time_watchdog(run, place, row[at.IDLE_PS] + run.rules[at.DETECTION_PS])


@compiled
def time_watchdog(run: State, place: int, due: int) -> None:
    """Have a gate's watchdog look at it then, if it is not to look anyway."""
    if not run.pause[place, at.IS_WATCHED]:
        run.pause[place, at.IS_WATCHED] = 1
        set_timer(run, due, at.WATCHED, place)


@compiled
def park(run: State, flow: int, place: int) -> None:
    """A flow waits for its NIC's gate, and keeps its place among those that do."""
    row = run.pause[place]
    run.flow[flow, at.LISTED], run.flow[flow, at.NEXT_FLOW] = 1, -1
    if row[at.FIRST_PARKED] < 0:
        row[at.FIRST_PARKED] = flow
    else:
        run.flow[row[at.LAST_PARKED], at.NEXT_FLOW] = flow
    row[at.LAST_PARKED] = flow


@compiled
def receive(run: State, packet: int) -> bool:
    """A packet joins the receive buffer of a NIC with a slow host; whether there is room."""
    now, row = run.counts[at.NOW_PS], run.packet[packet]
    send = run.path[row[at.PLACE] - 1]
    buffer, first = run.buffer[send], send * run.rules[at.CLASSES]
    bits = 8 * (run.sizes[row[at.SIZE]] - at.ETHERNET)
    drained_ps = max(buffer[at.DRAINED_PS], now) + bits * 10**12 // buffer[at.DRAIN_BPS]
    if drained_ps - now > buffer[at.FULL_PS]:
        buffer[at.OVERFLOWS] += 1
        return False
    buffer[at.DRAINED_PS] = drained_ps
    buffer[at.FILL_HIGHEST_PS] = max(buffer[at.FILL_HIGHEST_PS], drained_ps - now)
    if drained_ps - now >= buffer[at.XOFF_PS]:
        for class_ in range(run.rules[at.CLASSES]):
            if is_lossless(run, class_) and run.pause[first + class_, at.IS_OVER] == 0:
                ask(run, first + class_, 1)
        if not buffer[at.IS_DRAINING]:
            buffer[at.IS_DRAINING] = 1
            set_timer(run, drained_ps - buffer[at.XON_PS], at.DRAINED, send)
    return True


@compiled
def drained(run: State, send: int) -> None:
    """A NIC's receive buffer may have reached XON."""
    buffer, first = run.buffer[send], send * run.rules[at.CLASSES]
    due = buffer[at.DRAINED_PS] - buffer[at.XON_PS]
    if due > run.counts[at.NOW_PS]:
        set_timer(run, due, at.DRAINED, send)
        return
    buffer[at.IS_DRAINING] = 0
    for class_ in range(run.rules[at.CLASSES]):
        if is_lossless(run, class_):
            ask(run, first + class_, 0)
