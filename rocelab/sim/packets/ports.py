"""The packet engine's ports: queues by class, tail drop, WRED marks, one packet after the other.

The rules are those of a lab's port (`rocelab/dataplane/bpf/queues.bpf.c`): a packet for which its
class has no room in the port's buffer is dropped; the depth of its queue on arrival, without itself
and without the packet under way, decides on its mark. Strict classes go first, the others share
byte by byte. Beside lossless classes, which wait at gates, each other class has the buffer to
itself. Behind a host that gathers arrivals a NIC has a queue of lossless classes only
(`rocelab.dataplane.pfc`).
"""

from __future__ import annotations

from rocelab.planning.queues import CLASS_ALPHA
from rocelab.sim.packets import state as at
from rocelab.sim.packets.clock import schedule, set_timer
from rocelab.sim.packets.compiling import entry, inlined, part
from rocelab.sim.packets.draws import draw
from rocelab.sim.packets.freelist import release
from rocelab.sim.packets.hosts import wake_by
from rocelab.sim.packets.lossless import admit, discount, hold, is_lossless
from rocelab.sim.packets.sender import next_packet
from rocelab.sim.packets.state import PacketState


@inlined
def _is_marked(run: PacketState, number: int, class_: int, depth: int) -> bool:
    """Whether a packet that can be marked is, at a depth above KMIN; it is counted by its depth."""
    port = run.port[number]
    setting = run.setting[port.setting + class_]
    place, step = 0, len(run.marking) // 2
    while step > 0:
        if run.marking[place + step].floor <= depth:
            place += step
        step //= 2
    by_depth = run.marking[place]
    by_depth.markable += 1
    if depth <= setting.kmax:
        port.draws += 1
        limit = (depth - setting.kmin) * setting.pmax // (setting.kmax - setting.kmin)
        if draw(run.rules.seed, number, port.draws) >= limit:
            return False
    by_depth.marked += 1
    return True


@inlined
def enqueue(run: PacketState, packet: int, number: int) -> None:
    """A packet reaches a port."""
    port, row, rules = run.port[number], run.packet[packet], run.rules
    size = run.sizes[row.size_class] - at.ETHERNET
    class_, is_switch = row.class_, port.buffer < at.NEVER
    waits = is_lossless(run, class_)
    place = number * rules.classes + class_
    if (waits and is_switch and not _enter(run, packet, place, size)) or (
        not waits and is_switch and not _fits(run, number, class_, size)
    ):
        if port.buffer == at.CUT:
            run.counts.lost_packets += 1
        else:
            port.drops += 1
        release(run, packet)
        return
    if port.busy < 0 and not (waits and run.pause[place].is_closed > 0):
        if waits and is_switch:
            discount(run, packet, size)
        _transmit(run, packet, number)
        return
    # A NIC sends its ACKs and CNPs in their order, a switch by class.
    if not is_switch and not waits:
        class_ = rules.nic_class
        place = number * rules.classes + class_
    queue, setting = run.queue[place], run.setting[port.setting + class_]
    if (
        setting.marks
        and row.ce == 0
        and run.flow[row.flow].ecn != at.NOT_ECT
        and is_switch
        and queue.bytes > setting.kmin
        and _is_marked(run, number, class_, queue.bytes)
    ):
        row.ce = 1
        port.marks += 1
    _join(run, packet, number, place, waits)


@inlined
def _join(run: PacketState, packet: int, number: int, place: int, waits: bool) -> None:
    """A packet joins a queue, whose gate may be closed if it waits at one."""
    port, row, queue = run.port[number], run.packet[packet], run.queue[place]
    size = run.sizes[row.size_class] - at.ETHERNET
    row.next = -1
    if waits:
        run.pause[place].waiting_packets += 1
    if waits and run.pause[place].is_closed > 0:
        hold(run, packet, place)
    else:
        if queue.head < 0:
            queue.head = packet
        else:
            run.packet[queue.tail].next = packet
        queue.tail = packet
        port.queued += 1
    port.highest = max(port.highest, queue.bytes)
    queue.bytes += size
    port.depth += size


@inlined
def _fits(run: PacketState, number: int, class_: int, size: int) -> bool:
    """Whether a switch's port takes a packet of a class that is not lossless."""
    if run.port[number].buffer == at.CUT:
        return False
    queued = run.queue[number * run.rules.classes + class_].bytes + size
    limit = run.setting[run.port[number].setting + class_].buffer
    if run.rules.buffer_each:
        return bool(queued <= limit)
    in_port = run.port[number].depth + size
    return bool(queued + CLASS_ALPHA * in_port <= (CLASS_ALPHA + 1) * limit)


@part
def _enter(run: PacketState, packet: int, place: int, size: int) -> bool:
    """Whether a switch takes a packet of a lossless class."""
    row = run.packet[packet]
    if run.port[place // run.rules.classes].buffer == at.CUT:
        return False
    if run.pause[place].has_fired and run.rules.discards_all:
        run.pause[place].discards += 1
        return False
    send = run.path[row.place - 1]
    return admit(run, send * run.rules.classes + row.class_, size)


@part
def emptied(run: PacketState, number: int, class_: int) -> int:
    """Release all that a class of a port holds, at a closed gate too; how many packets it was."""
    port, place = run.port[number], number * run.rules.classes + class_
    queue, waits, count = run.queue[place], is_lossless(run, class_), 0
    is_closed = waits and run.pause[place].is_closed > 0
    packet = run.pause[place].first_waiting if is_closed else queue.head
    while packet >= 0:
        following = run.packet[packet].next
        size = run.sizes[run.packet[packet].size_class] - at.ETHERNET
        if waits and port.buffer < at.NEVER:
            discount(run, packet, size)
        release(run, packet)
        port.depth -= size
        count += 1
        packet = following
    queue.head, queue.bytes = -1, 0
    if waits:
        run.pause[place].waiting_packets = 0
    if is_closed:
        run.pause[place].first_waiting = -1
    else:
        port.queued -= count
    return count


@entry
def cut(run: PacketState, number: int) -> None:
    """A port's link carries nothing any more: what it holds is lost."""
    for class_ in range(run.rules.classes):
        run.counts.lost_packets += emptied(run, number, class_)
    run.port[number].buffer = at.CUT


@inlined
def _dequeue(run: PacketState, number: int) -> int:
    """Take the packet that a port with packets sends next."""
    port, rules = run.port[number], run.rules
    first, classes, strict = number * rules.classes, rules.classes, rules.strict
    offset = 0
    while offset < strict and run.queue[first + offset].head < 0:
        offset += 1
    if offset == strict:
        offset = port.turn
        while run.queue[first + offset].head < 0:
            offset = offset + 1 if offset + 1 < classes else strict
    queue = run.queue[first + offset]
    packet = queue.head
    size = run.sizes[run.packet[packet].size_class] - at.ETHERNET
    queue.head = run.packet[packet].next
    queue.bytes -= size
    port.queued -= 1
    port.depth -= size
    if is_lossless(run, offset):
        run.pause[first + offset].waiting_packets -= 1
        if port.buffer < at.NEVER:
            discount(run, packet, size)
    if offset >= strict:
        # As HTB: a class has its turn until it has sent more than its share.
        port.turn = offset
        queue.deficit -= size
        if queue.deficit < 0:
            queue.deficit += run.setting[port.setting + offset].quantum
            port.turn = offset + 1 if offset + 1 < classes else strict
    return int(packet)


@inlined
def serve(run: PacketState, number: int) -> None:
    """Let an idle port send: a queued packet, else one of the flows that take turns at it."""
    busy = run.port[number].busy
    if busy >= 0:
        if busy == at.GATHERS:
            offer(run, number)
        return
    has_queue = run.port[number].queued > 0
    packet = _dequeue(run, number) if has_queue else next_packet(run, number)
    if packet >= 0:
        _transmit(run, packet, number)


@part
def offer(run: PacketState, number: int) -> None:
    """A host that gathers arrivals may have something to send by a port: now, if it is awake."""
    port, port_host, now = run.port[number], run.host[number], run.counts.now_ps
    host = run.host[port_host.first_port]
    if host.due_ps == now:
        return
    if port.flows.first < 0:
        port_host.is_idle = 1
        return
    _end_idle_time(run, number)
    if host.woke_ps < now:
        wake_by(run, number, max(now, port.free_ps))
        return
    packet = 0
    while packet >= 0 and port.free_ps <= now:
        packet = next_packet(run, number)
        if packet >= 0:
            _hand_over(run, packet, number)
    if port.flows.first < 0:
        port_host.is_idle = 1
    else:
        wake_by(run, number, port.free_ps)


@part
def send_answer(run: PacketState, packet: int, number: int) -> None:
    """A receiver sends an ACK or CNP by its NIC's port. A host that gathers arrivals is awake."""
    if run.port[number].busy != at.GATHERS:
        enqueue(run, packet, number)
    elif run.port[number].buffer == at.CUT:
        run.counts.lost_packets += 1
        release(run, packet)
    else:
        _end_idle_time(run, number)
        _hand_over(run, packet, number)


@inlined
def _end_idle_time(run: PacketState, number: int) -> None:
    """A host has something to send by a port: the time for which it had nothing is over."""
    port, host = run.port[number], run.host[number]
    if host.is_idle:
        port.free_ps = max(port.free_ps, run.counts.now_ps)
        host.is_idle = 0


@part
def _hand_over(run: PacketState, packet: int, number: int) -> None:
    """A host sends a packet by a port: to the NIC's queue, which has the link's rate, if its class
    is lossless, else past it."""
    port, row = run.port[number], run.packet[packet]
    port.free_ps += run.delay_ps[port.rate + row.size_class]
    if is_lossless(run, row.class_) and port.buffer != at.CUT:
        _join(run, packet, number, number * run.rules.classes + row.class_, True)
        shape(run, number)
    else:
        _leave(run, packet, number)


@part
def shape(run: PacketState, number: int) -> None:
    """Let the queue of a NIC whose host gathers arrivals send what its link's rate permits."""
    port, host, now = run.port[number], run.host[number], run.counts.now_ps
    while port.queued > 0 and not host.is_shaping:
        if host.shaped_ps > now:
            host.is_shaping = 1
            set_timer(run, host.shaped_ps, at.SHAPED, number)
            return
        packet = _dequeue(run, number)
        saved = min(now - host.shaped_ps, port.burst_ps)
        host.shaped_ps = now - saved + run.delay_ps[port.rate + run.packet[packet].size_class]
        _leave(run, packet, number)


@part
def shaped(run: PacketState, number: int) -> None:
    """The link of a NIC whose host gathers arrivals can take a packet again."""
    run.host[number].is_shaping = 0
    shape(run, number)


@inlined
def _leave(run: PacketState, packet: int, number: int) -> None:
    """A packet of a host that gathers arrivals is on its way."""
    port = run.port[number]
    port.carried += run.sizes[run.packet[packet].size_class]
    run.counts.hops += 1
    schedule(run, port.early, packet)


@inlined
def _transmit(run: PacketState, packet: int, number: int) -> None:
    port, row, now = run.port[number], run.packet[packet], run.counts.now_ps
    kind = port.rate + row.size_class
    port.carried += run.sizes[row.size_class]
    run.counts.hops += 1
    saved = min(now - port.free_ps, port.burst_ps)
    port.free_ps = now - saved + run.delay_ps[kind]
    port.busy = packet
    if port.early >= 0 and (not run.rules.cuts_through or _cuts_through(run, packet)):
        schedule(run, port.early, packet)
        port.busy = at.GONE
        if port.free_ps <= now:
            port.busy = -1
            return
    if saved == 0 and run.ring_of[kind] >= 0:
        schedule(run, run.ring_of[kind], number)
    else:
        set_timer(run, port.free_ps, at.SERIALISED, number)


@inlined
def _cuts_through(run: PacketState, packet: int) -> bool:
    """Whether the next port can send a packet as it comes: it is no faster than this one, and no
    NIC, which takes whole packets."""
    place = run.packet[packet].place
    here, following = run.path[place], run.path[place + 1]
    return bool(following >= 0 and run.port[following].rate <= run.port[here].rate)


@inlined
def serialised(run: PacketState, number: int) -> None:
    """The last bit of a packet has left its port."""
    port = run.port[number]
    if port.busy != at.GONE:
        schedule(run, port.whole, port.busy)
    port.busy = -1
    serve(run, number)
