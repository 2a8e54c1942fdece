"""The packet engine's event loop: store-and-forward ports, windows and cumulative ACKs.

Events are in one order: by time, then by birth. Events of one constant delay are born in their
order, so each delay has a ring; the loop merges the few rings and a heap of task timers.
"""

from __future__ import annotations

from pathlib import Path

from rocelab.compiling import compiler
from rocelab.sim.packets import state as at
from rocelab.sim.packets.state import State

compiled = compiler(Path(__file__).parent)


@compiled
def _schedule(run: State, ring: int, subject: int) -> None:
    rings = run.rings
    place = rings[at.RING_HEAD, ring] + rings[at.RING_COUNT, ring]
    place = rings[at.RING_FIRST, ring] + place % rings[at.RING_CAPACITY, ring]
    rings[at.RING_COUNT, ring] += 1
    run.events[at.TIME_PS, place] = run.counts[at.NOW_PS] + rings[at.RING_DELAY_PS, ring]
    run.events[at.BORN, place] = run.counts[at.SEQUENCE]
    run.events[at.SUBJECT, place] = subject
    run.counts[at.SEQUENCE] += 1


@compiled
def _earlier(run: State, one: int, other: int) -> bool:
    first, second = run.timers[at.TIME_PS, one], run.timers[at.TIME_PS, other]
    if first != second:
        return bool(first < second)
    return bool(run.timers[at.BORN, one] < run.timers[at.BORN, other])


@compiled
def _swap(run: State, one: int, other: int) -> None:
    for row in range(at.EVENT_ROWS):
        kept = run.timers[row, one]
        run.timers[row, one] = run.timers[row, other]
        run.timers[row, other] = kept


@compiled
def _time_task(run: State, task: int) -> None:
    place = run.counts[at.TIMERS]
    run.counts[at.TIMERS] += 1
    run.timers[at.TIME_PS, place] = run.task[at.READY_PS, task] + run.task[at.DELAY_PS, task]
    run.timers[at.BORN, place] = run.counts[at.SEQUENCE]
    run.timers[at.SUBJECT, place] = task
    run.counts[at.SEQUENCE] += 1
    while place > 0 and _earlier(run, place, (place - 1) // 2):
        _swap(run, place, (place - 1) // 2)
        place = (place - 1) // 2


@compiled
def _next_timer(run: State) -> int:
    task = run.timers[at.SUBJECT, 0]
    run.counts[at.TIMERS] -= 1
    count, place = run.counts[at.TIMERS], 0
    _swap(run, 0, count)
    while True:
        child = 2 * place + 1
        if child >= count:
            return int(task)
        if child + 1 < count and _earlier(run, child + 1, child):
            child += 1
        if not _earlier(run, child, place):
            return int(task)
        _swap(run, place, child)
        place = child


@compiled
def _take(run: State, flow: int, hop: int, size: int, psn: int) -> int:
    packet = run.counts[at.FREE]
    run.counts[at.FREE] = run.packet[at.NEXT, packet]
    run.packet[at.FLOW, packet] = flow
    run.packet[at.HOP, packet] = hop
    run.packet[at.SIZE_CLASS, packet] = size
    run.packet[at.PSN, packet] = psn
    run.packet[at.ASKS, packet] = 0
    return int(packet)


@compiled
def _release(run: State, packet: int) -> None:
    run.packet[at.NEXT, packet] = run.counts[at.FREE]
    run.counts[at.FREE] = packet


@compiled
def _port(run: State, packet: int) -> int:
    """The send that a packet takes next. ACKs take the links of their flow in reverse."""
    flow, hop = run.packet[at.FLOW, packet], run.packet[at.HOP, packet]
    if run.packet[at.PSN, packet] >= 0:
        return int(run.path[run.path_start[flow] + hop])
    return int(run.path[run.path_start[flow + 1] - 1 - hop] ^ 1)


@compiled
def _list(run: State, flow: int) -> int:
    """Give a flow that may send a turn at its NIC's port. Returns the port."""
    port = run.path[run.path_start[flow]]
    state = run.flow
    if (
        state[at.LISTED, flow] == 0
        and state[at.SENDING, flow] >= 0
        and state[at.IN_FLIGHT, flow] < state[at.WINDOW, flow]
    ):
        state[at.LISTED, flow] = 1
        state[at.NEXT_FLOW, flow] = -1
        if run.port[at.FIRST_FLOW, port] < 0:
            run.port[at.FIRST_FLOW, port] = flow
        else:
            state[at.NEXT_FLOW, run.port[at.LAST_FLOW, port]] = flow
        run.port[at.LAST_FLOW, port] = flow
    return int(port)


@compiled
def _emit(run: State, flow: int) -> int:
    """The next packet of a flow. It asks for an ACK as a queue pair of the lab does
    (`rocelab.agent.rc.requester`)."""
    state = run.flow
    transfer = state[at.SENDING, flow]
    size = state[at.FULL, flow]
    psn = state[at.ACKED, flow] + state[at.IN_FLIGHT, flow]
    state[at.SENT, flow] += 1
    state[at.IN_FLIGHT, flow] += 1
    is_last = state[at.SENT, flow] == run.transfer[at.PACKETS, transfer]
    asks = (
        is_last
        or state[at.SENT, flow] % state[at.MESSAGE, flow] == 0
        or psn % state[at.ACK_EVERY, flow] == state[at.ACK_EVERY, flow] - 1
        or state[at.IN_FLIGHT, flow] == state[at.WINDOW, flow]
    )
    if is_last:
        size = run.transfer[at.SHORT, transfer]
        state[at.SENDING, flow] = run.transfer[at.NEXT_TRANSFER, transfer]
        state[at.SENT, flow] = 0
    packet = _take(run, flow, 0, size, psn)
    run.packet[at.ASKS, packet] = asks
    return packet


@compiled
def _serve(run: State, port: int) -> None:
    """Start to send the next packet if the port is idle: a queued one, else the next flow's."""
    if run.port[at.BUSY, port] >= 0:
        return
    packet = run.port[at.HEAD, port]
    if packet >= 0:
        run.port[at.HEAD, port] = run.packet[at.NEXT, packet]
        run.port[at.DEPTH, port] -= run.size_bytes[run.packet[at.SIZE_CLASS, packet]]
    else:
        flow = run.port[at.FIRST_FLOW, port]
        if flow < 0:
            return
        run.port[at.FIRST_FLOW, port] = run.flow[at.NEXT_FLOW, flow]
        run.flow[at.LISTED, flow] = 0
        packet = _emit(run, flow)
        _list(run, flow)
    size = run.packet[at.SIZE_CLASS, packet]
    run.port[at.BUSY, port] = packet
    run.port[at.CARRIED, port] += run.size_bytes[size]
    run.counts[at.HOPS] += 1
    _schedule(run, size * run.rate_classes[0] + run.port[at.RATE_CLASS, port], port)


@compiled
def _enqueue(run: State, packet: int) -> None:
    port = _port(run, packet)
    run.packet[at.NEXT, packet] = -1
    if run.port[at.HEAD, port] < 0:
        run.port[at.HEAD, port] = packet
    else:
        run.packet[at.NEXT, run.port[at.TAIL, port]] = packet
    run.port[at.TAIL, port] = packet
    run.port[at.DEPTH, port] += run.size_bytes[run.packet[at.SIZE_CLASS, packet]]
    _serve(run, port)
    run.port[at.HIGHEST, port] = max(run.port[at.HIGHEST, port], run.port[at.DEPTH, port])


@compiled
def _let(run: State, begin: int, end: int) -> None:
    """Tasks that wait no longer for one that has come so far."""
    for place in range(begin, end):
        later = run.next_task[place]
        run.task[at.WAITING, later] -= 1
        if run.task[at.WAITING, later] == 0:
            run.task[at.READY_PS, later] = run.counts[at.NOW_PS]
            _time_task(run, later)


@compiled
def _arrive(run: State, task: int) -> None:
    """All data of a task has arrived: receivers go on."""
    _let(run, run.next_start[task], run.next_acked[task])


@compiled
def _end(run: State, task: int) -> None:
    """All data of a task is acknowledged: senders go on."""
    run.task[at.END_PS, task] = run.counts[at.NOW_PS]
    _let(run, run.next_acked[task], run.next_start[task + 1])


@compiled
def _start(run: State, task: int) -> None:
    run.task[at.START_PS, task] = run.counts[at.NOW_PS]
    if run.task[at.OPEN, task] == 0:
        _arrive(run, task)
        _end(run, task)
    for transfer in range(run.first_transfer[task], run.first_transfer[task + 1]):
        flow = run.flow_of[transfer]
        run.flow[at.TOTAL, flow] += run.transfer[at.PACKETS, transfer]
        run.transfer[at.END_PSN, transfer] = run.flow[at.TOTAL, flow]
        if run.flow[at.ARRIVING, flow] < 0:
            run.flow[at.ARRIVING, flow] = transfer
        if run.flow[at.ACKING, flow] < 0:
            run.flow[at.ACKING, flow] = transfer
        else:
            run.transfer[at.NEXT_TRANSFER, run.flow[at.LAST, flow]] = transfer
        if run.flow[at.SENDING, flow] < 0:
            run.flow[at.SENDING, flow] = transfer
        run.flow[at.LAST, flow] = transfer
        _serve(run, _list(run, flow))


@compiled
def _deliver(run: State, packet: int) -> None:
    """A data packet reaches its NIC."""
    flow = run.packet[at.FLOW, packet]
    if run.packet[at.PSN, packet] != run.flow[at.ARRIVED, flow]:
        run.counts[at.DISORDERED] += 1
    run.flow[at.ARRIVED, flow] += 1
    if run.packet[at.ASKS, packet]:
        run.counts[at.ACKS] += 1
        _enqueue(run, _take(run, flow, 0, 0, -1 - run.flow[at.ARRIVED, flow]))
    _release(run, packet)
    transfer = run.flow[at.ARRIVING, flow]
    if run.transfer[at.END_PSN, transfer] == run.flow[at.ARRIVED, flow]:
        run.flow[at.ARRIVING, flow] = run.transfer[at.NEXT_TRANSFER, transfer]
        task = run.task_of[transfer]
        run.task[at.COMING, task] -= 1
        if run.task[at.COMING, task] == 0:
            _arrive(run, task)


@compiled
def _acknowledge(run: State, packet: int) -> None:
    flow = run.packet[at.FLOW, packet]
    acked = -1 - run.packet[at.PSN, packet]
    _release(run, packet)
    run.flow[at.IN_FLIGHT, flow] -= acked - run.flow[at.ACKED, flow]
    run.flow[at.ACKED, flow] = acked
    transfer = run.flow[at.ACKING, flow]
    while transfer >= 0 and run.transfer[at.END_PSN, transfer] <= acked:
        run.transfer[at.FINISH_PS, transfer] = run.counts[at.NOW_PS]
        run.counts[at.FINISHED] += 1
        following = run.transfer[at.NEXT_TRANSFER, transfer]
        run.flow[at.ACKING, flow] = following
        task = run.task_of[transfer]
        run.task[at.OPEN, task] -= 1
        if run.task[at.OPEN, task] == 0:
            _end(run, task)
        transfer = following
    _serve(run, _list(run, flow))


@compiled
def begin(run: State) -> None:
    """Time the tasks that wait for no other."""
    for task in range(run.task.shape[1]):
        if run.task[at.WAITING, task] == 0:
            _time_task(run, task)


@compiled
def advance(run: State, events: int) -> bool:
    """Run through as many events at most. Returns whether there are more."""
    last = run.rings.shape[1] - 1
    for _ in range(events):
        found, time, born = -1, 0, 0
        for ring in range(last + 1):
            if run.rings[at.RING_COUNT, ring] > 0:
                place = run.rings[at.RING_FIRST, ring] + run.rings[at.RING_HEAD, ring]
                due, number = run.events[at.TIME_PS, place], run.events[at.BORN, place]
                if found < 0 or due < time or (due == time and number < born):
                    found, time, born = ring, due, number
        if run.counts[at.TIMERS] > 0:
            due, number = run.timers[at.TIME_PS, 0], run.timers[at.BORN, 0]
            if found < 0 or due < time or (due == time and number < born):
                run.counts[at.NOW_PS] = due
                _start(run, _next_timer(run))
                continue
        if found < 0:
            return False
        run.counts[at.NOW_PS] = time
        head = run.rings[at.RING_HEAD, found]
        subject = run.events[at.SUBJECT, run.rings[at.RING_FIRST, found] + head]
        run.rings[at.RING_HEAD, found] = (head + 1) % run.rings[at.RING_CAPACITY, found]
        run.rings[at.RING_COUNT, found] -= 1
        if found < last:
            packet = run.port[at.BUSY, subject]
            run.port[at.BUSY, subject] = -1
            _schedule(run, last, packet)
            _serve(run, subject)
            continue
        flow = run.packet[at.FLOW, subject]
        run.packet[at.HOP, subject] += 1
        if run.packet[at.HOP, subject] < run.path_start[flow + 1] - run.path_start[flow]:
            _enqueue(run, subject)
        elif run.packet[at.PSN, subject] >= 0:
            _deliver(run, subject)
        else:
            _acknowledge(run, subject)
    return True
