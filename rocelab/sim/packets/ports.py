"""The packet engine's ports: queues by class, tail drop, WRED marks, one packet after the other.

The rules are those of a lab's port (`rocelab/dataplane/bpf/queues.bpf.c`): a packet for which its
class has no room in the port's buffer is dropped; the depth of its queue on arrival, without itself
and without the packet under way, decides on its mark. Strict classes go first, the others share
byte by byte. Beside lossless classes, which wait at gates, each other class has the buffer to
itself. Behind a host that gathers arrivals a NIC has a queue of lossless classes only
(`rocelab.dataplane.pfc`).
"""

from __future__ import annotations

from rocelab.plan.queues import CLASS_ALPHA
from rocelab.sim.packets import state as at
from rocelab.sim.packets.clock import schedule, set_timer
from rocelab.sim.packets.compiling import compiled, inlined
from rocelab.sim.packets.draws import draw
from rocelab.sim.packets.freelist import release
from rocelab.sim.packets.hosts import wake_by
from rocelab.sim.packets.lossless import admit, discount, hold, is_lossless
from rocelab.sim.packets.sender import next_packet
from rocelab.sim.packets.state import State


@inlined
def _is_marked(run: State, number: int, depth: int) -> bool:
    """Whether a packet that can be marked is, at a depth above KMIN; it is counted by its depth."""
    rules, port = run.rules, run.port[number]
    place, step = 0, len(run.marking) // 2
    while step > 0:
        if run.marking[place + step, at.FLOOR] <= depth:
            place += step
        step //= 2
    by_depth = run.marking[place]
    by_depth[at.MARKABLE] += 1
    if depth <= rules[at.KMAX]:
        port[at.DRAWS] += 1
        limit = (depth - rules[at.KMIN]) * rules[at.PMAX] // (rules[at.KMAX] - rules[at.KMIN])
        if draw(rules[at.SEED], number, port[at.DRAWS]) >= limit:
            return False
    by_depth[at.MARKED_THERE] += 1
    return True


@inlined
def enqueue(run: State, packet: int, number: int) -> None:
    """A packet reaches a port."""
    port, row, rules = run.port[number], run.packet[packet], run.rules
    size = run.sizes[row[at.SIZE]] - at.ETHERNET
    class_, is_switch = row[at.CLASS], port[at.BUFFER] < at.NEVER
    waits = is_lossless(run, class_)
    place = number * rules[at.CLASSES] + class_
    if (waits and is_switch and not _enter(run, packet, place, size)) or (
        not waits and is_switch and not _fits(run, number, place, size)
    ):
        if port[at.BUFFER] == at.CUT:
            run.counts[at.LOST_PACKETS] += 1
        else:
            port[at.DROPS] += 1
        release(run, packet)
        return
    if port[at.BUSY] < 0 and not (waits and run.pause[place, at.IS_CLOSED] > 0):
        if waits and is_switch:
            discount(run, packet, size)
        _transmit(run, packet, number)
        return
    # A NIC sends its ACKs and CNPs in their order, a switch by class.
    if not is_switch and not waits:
        class_ = rules[at.NIC_CLASS]
        place = number * rules[at.CLASSES] + class_
    queue = run.queue[place]
    if (
        rules[at.MARKED_CLASSES] >> class_ & 1
        and row[at.CE] == 0
        and run.flow[row[at.FLOW], at.ECN] != at.NOT_ECT
        and is_switch
        and queue[at.BYTES] > rules[at.KMIN]
        and _is_marked(run, number, queue[at.BYTES])
    ):
        row[at.CE] = 1
        port[at.MARKS] += 1
    _join(run, packet, number, place, waits)


@inlined
def _join(run: State, packet: int, number: int, place: int, waits: bool) -> None:
    """A packet joins a queue, whose gate may be closed if it waits at one."""
    port, row, queue = run.port[number], run.packet[packet], run.queue[place]
    size = run.sizes[row[at.SIZE]] - at.ETHERNET
    row[at.NEXT] = -1
    if waits:
        run.pause[place, at.WAITING_PACKETS] += 1
    if waits and run.pause[place, at.IS_CLOSED] > 0:
        hold(run, packet, place)
    else:
        if queue[at.HEAD] < 0:
            queue[at.HEAD] = packet
        else:
            run.packet[queue[at.TAIL], at.NEXT] = packet
        queue[at.TAIL] = packet
        port[at.QUEUED] += 1
    port[at.HIGHEST] = max(port[at.HIGHEST], queue[at.BYTES])
    queue[at.BYTES] += size
    port[at.DEPTH] += size


@inlined
def _fits(run: State, number: int, place: int, size: int) -> bool:
    """Whether a switch's port takes a packet of a class that is not lossless."""
    queued, limit = run.queue[place, at.BYTES] + size, run.port[number, at.BUFFER]
    if run.rules[at.BUFFER_EACH]:
        return bool(queued <= limit)
    in_port = run.port[number, at.DEPTH] + size
    return bool(queued + CLASS_ALPHA * in_port <= (CLASS_ALPHA + 1) * limit)


@compiled
def _enter(run: State, packet: int, place: int, size: int) -> bool:
    """Whether a switch takes a packet of a lossless class."""
    row = run.packet[packet]
    if run.port[place // run.rules[at.CLASSES], at.BUFFER] == at.CUT:
        return False
    if run.pause[place, at.HAS_FIRED] and run.rules[at.DISCARDS_ALL]:
        run.pause[place, at.DISCARDS] += 1
        return False
    send = run.path[row[at.PLACE] - 1]
    return admit(run, send * run.rules[at.CLASSES] + row[at.CLASS], size)


@compiled
def emptied(run: State, number: int, class_: int) -> int:
    """Release all that a class of a port holds, at a closed gate too; how many packets it was."""
    port, place = run.port[number], number * run.rules[at.CLASSES] + class_
    queue, waits, count = run.queue[place], is_lossless(run, class_), 0
    is_closed = waits and run.pause[place, at.IS_CLOSED] > 0
    packet = run.pause[place, at.FIRST_WAITING] if is_closed else queue[at.HEAD]
    while packet >= 0:
        following = run.packet[packet, at.NEXT]
        size = run.sizes[run.packet[packet, at.SIZE]] - at.ETHERNET
        if waits and port[at.BUFFER] < at.NEVER:
            discount(run, packet, size)
        release(run, packet)
        port[at.DEPTH] -= size
        count += 1
        packet = following
    queue[at.HEAD], queue[at.BYTES] = -1, 0
    if waits:
        run.pause[place, at.WAITING_PACKETS] = 0
    if is_closed:
        run.pause[place, at.FIRST_WAITING] = -1
    else:
        port[at.QUEUED] -= count
    return count


@compiled
def cut(run: State, number: int) -> None:
    """A port's link carries nothing any more: what it holds is lost."""
    for class_ in range(run.rules[at.CLASSES]):
        run.counts[at.LOST_PACKETS] += emptied(run, number, class_)
    run.port[number, at.BUFFER] = at.CUT


@inlined
def _dequeue(run: State, number: int) -> int:
    """Take the packet that a port with packets sends next."""
    port, rules = run.port[number], run.rules
    first, classes, strict = number * rules[at.CLASSES], rules[at.CLASSES], rules[at.STRICT]
    found = 0
    while found < strict and run.queue[first + found, at.HEAD] < 0:
        found += 1
    if found == strict:
        found = port[at.TURN]
        while run.queue[first + found, at.HEAD] < 0:
            found = found + 1 if found + 1 < classes else strict
    queue = run.queue[first + found]
    packet = queue[at.HEAD]
    size = run.sizes[run.packet[packet, at.SIZE]] - at.ETHERNET
    queue[at.HEAD] = run.packet[packet, at.NEXT]
    queue[at.BYTES] -= size
    port[at.QUEUED] -= 1
    port[at.DEPTH] -= size
    if is_lossless(run, found):
        run.pause[first + found, at.WAITING_PACKETS] -= 1
        if port[at.BUFFER] < at.NEVER:
            discount(run, packet, size)
    if found >= strict:
        # As HTB: a class has its turn until it has sent more than its share.
        port[at.TURN] = found
        queue[at.DEFICIT] -= size
        if queue[at.DEFICIT] < 0:
            queue[at.DEFICIT] += rules[at.QUANTUM]
            port[at.TURN] = found + 1 if found + 1 < classes else strict
    return int(packet)


@inlined
def serve(run: State, number: int) -> None:
    """Let an idle port send: a queued packet, else one of the flows that take turns at it."""
    busy = run.port[number, at.BUSY]
    if busy >= 0:
        if busy == at.GATHERS:
            offer(run, number)
        return
    has_queue = run.port[number, at.QUEUED] > 0
    packet = _dequeue(run, number) if has_queue else next_packet(run, number)
    if packet >= 0:
        _transmit(run, packet, number)


@compiled
def offer(run: State, number: int) -> None:
    """A host that gathers arrivals may have something to send by a port: now, if it is awake."""
    port, own, now = run.port[number], run.host[number], run.counts[at.NOW_PS]
    host = run.host[own[at.FIRST_PORT]]
    if host[at.DUE_PS] == now:
        return
    if port[at.FIRST_FLOW] < 0:
        own[at.IS_IDLE] = 1
        return
    _occupy(run, number)
    if host[at.WOKE_PS] < now:
        wake_by(run, number, max(now, port[at.FREE_PS]))
        return
    packet = 0
    while packet >= 0 and port[at.FREE_PS] <= now:
        packet = next_packet(run, number)
        if packet >= 0:
            _hand_over(run, packet, number)
    if port[at.FIRST_FLOW] < 0:
        own[at.IS_IDLE] = 1
    else:
        wake_by(run, number, port[at.FREE_PS])


@compiled
def send_answer(run: State, packet: int, number: int) -> None:
    """A receiver sends an ACK or CNP by its NIC's port. A host that gathers arrivals is awake."""
    if run.port[number, at.BUSY] != at.GATHERS:
        enqueue(run, packet, number)
    elif run.port[number, at.BUFFER] == at.CUT:
        run.counts[at.LOST_PACKETS] += 1
        release(run, packet)
    else:
        _occupy(run, number)
        _hand_over(run, packet, number)


@inlined
def _occupy(run: State, number: int) -> None:
    """A host has something to send by a port: the time for which it had nothing is over."""
    port, own = run.port[number], run.host[number]
    if own[at.IS_IDLE]:
        port[at.FREE_PS] = max(port[at.FREE_PS], run.counts[at.NOW_PS])
        own[at.IS_IDLE] = 0


@compiled
def _hand_over(run: State, packet: int, number: int) -> None:
    """A host sends a packet by a port: to the NIC's queue, which has the link's rate, if its class
    is lossless, else past it."""
    port, row = run.port[number], run.packet[packet]
    port[at.FREE_PS] += run.delay_ps[port[at.RATE] + row[at.SIZE]]
    if is_lossless(run, row[at.CLASS]) and port[at.BUFFER] != at.CUT:
        _join(run, packet, number, number * run.rules[at.CLASSES] + row[at.CLASS], True)
        shape(run, number)
    else:
        _leave(run, packet, number)


@compiled
def shape(run: State, number: int) -> None:
    """Let the queue of a NIC whose host gathers arrivals send what its link's rate permits."""
    port, own, now = run.port[number], run.host[number], run.counts[at.NOW_PS]
    while port[at.QUEUED] > 0 and not own[at.IS_SHAPING]:
        if own[at.SHAPED_PS] > now:
            own[at.IS_SHAPING] = 1
            set_timer(run, own[at.SHAPED_PS], at.SHAPED, number)
            return
        packet = _dequeue(run, number)
        saved = min(now - own[at.SHAPED_PS], port[at.BURST_PS])
        own[at.SHAPED_PS] = now - saved + run.delay_ps[port[at.RATE] + run.packet[packet, at.SIZE]]
        _leave(run, packet, number)


@compiled
def shaped(run: State, number: int) -> None:
    """The link of a NIC whose host gathers arrivals can take a packet again."""
    run.host[number, at.IS_SHAPING] = 0
    shape(run, number)


@inlined
def _leave(run: State, packet: int, number: int) -> None:
    """A packet of a host that gathers arrivals is on its way."""
    port = run.port[number]
    port[at.CARRIED] += run.sizes[run.packet[packet, at.SIZE]]
    run.counts[at.HOPS] += 1
    schedule(run, port[at.EARLY], packet)


@inlined
def _transmit(run: State, packet: int, number: int) -> None:
    port, row, now = run.port[number], run.packet[packet], run.counts[at.NOW_PS]
    kind = port[at.RATE] + row[at.SIZE]
    port[at.CARRIED] += run.sizes[row[at.SIZE]]
    run.counts[at.HOPS] += 1
    saved = min(now - port[at.FREE_PS], port[at.BURST_PS])
    port[at.FREE_PS] = now - saved + run.delay_ps[kind]
    port[at.BUSY] = packet
    if port[at.EARLY] >= 0 and (not run.rules[at.CUTS_THROUGH] or _cuts_through(run, packet)):
        schedule(run, port[at.EARLY], packet)
        port[at.BUSY] = at.GONE
        if port[at.FREE_PS] <= now:
            port[at.BUSY] = -1
            return
    if saved == 0 and run.ring_of[kind] >= 0:
        schedule(run, run.ring_of[kind], number)
    else:
        set_timer(run, port[at.FREE_PS], at.SERIALISED, number)


@inlined
def _cuts_through(run: State, packet: int) -> bool:
    """Whether the next port can send a packet as it comes: it is no faster than this one, and no
    NIC, which takes whole packets."""
    place = run.packet[packet, at.PLACE]
    here, following = run.path[place], run.path[place + 1]
    return bool(following >= 0 and run.port[following, at.RATE] <= run.port[here, at.RATE])


@inlined
def serialised(run: State, number: int) -> None:
    """The last bit of a packet has left its port."""
    port = run.port[number]
    if port[at.BUSY] != at.GONE:
        schedule(run, len(run.ring) - 1, port[at.BUSY])
    port[at.BUSY] = -1
    serve(run, number)
