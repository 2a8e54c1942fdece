"""The packet engine's event loop: store-and-forward ports, windows and cumulative ACKs."""

from __future__ import annotations

from pathlib import Path

from rocelab.compiling import compiler
from rocelab.sim.packets import state as at
from rocelab.sim.packets.clock import next_due, next_in_ring, next_timer, schedule, set_timer
from rocelab.sim.packets.state import State

compiled = compiler(Path(__file__).parent, makes_arrays=False)


@compiled
def _take(run: State, flow: int, place: int, size: int, psn: int, asks: bool) -> int:
    packet = run.counts[at.FREE]
    row = run.packet[packet]
    run.counts[at.FREE] = row[at.NEXT]
    row[at.FLOW], row[at.PLACE], row[at.SIZE] = flow, place, size
    row[at.PSN], row[at.ASKS] = psn, asks
    return int(packet)


@compiled
def _release(run: State, packet: int) -> None:
    run.packet[packet, at.NEXT] = run.counts[at.FREE]
    run.counts[at.FREE] = packet


@compiled
def _list(run: State, flow: int) -> None:
    """Give a flow that may send a turn at its NIC's port."""
    row = run.flow[flow]
    if row[at.LISTED] or row[at.SENDING] < 0 or row[at.IN_FLIGHT] >= row[at.WINDOW]:
        return
    row[at.LISTED], row[at.NEXT_FLOW] = 1, -1
    port = run.port[row[at.NIC]]
    if port[at.FIRST_FLOW] < 0:
        port[at.FIRST_FLOW] = flow
    else:
        run.flow[port[at.LAST_FLOW], at.NEXT_FLOW] = flow
    port[at.LAST_FLOW] = flow


@compiled
def _emit(run: State, flow: int) -> int:
    """The next packet of a flow. It asks for an ACK as a queue pair of the lab does
    (`rocelab.agent.rc.requester`)."""
    row = run.flow[flow]
    transfer = row[at.SENDING]
    size = row[at.FULL]
    psn = row[at.ACKED] + row[at.IN_FLIGHT]
    row[at.SENT] += 1
    row[at.IN_FLIGHT] += 1
    is_last = row[at.SENT] == run.transfer[transfer, at.PACKETS]
    asks = (
        is_last
        or row[at.IN_FLIGHT] == row[at.WINDOW]
        or row[at.SENT] % row[at.MESSAGE] == 0
        or psn % row[at.ACK_EVERY] == row[at.ACK_EVERY] - 1
    )
    if is_last:
        size = run.transfer[transfer, at.SHORT]
        row[at.SENDING] = run.transfer[transfer, at.NEXT_TRANSFER]
        row[at.SENT] = 0
    return int(_take(run, flow, row[at.DATA_PATH], size, psn, asks))


@compiled
def _serve(run: State, number: int) -> None:
    """Start to send the next packet of an idle port: a queued one, else the next flow's."""
    port = run.port[number]
    packet = port[at.HEAD]
    if packet >= 0:
        port[at.HEAD] = run.packet[packet, at.NEXT]
        port[at.DEPTH] -= run.sizes[run.packet[packet, at.SIZE]]
    else:
        flow = port[at.FIRST_FLOW]
        if flow < 0:
            return
        port[at.FIRST_FLOW] = run.flow[flow, at.NEXT_FLOW]
        run.flow[flow, at.LISTED] = 0
        packet = _emit(run, flow)
        _list(run, flow)
    size = run.packet[packet, at.SIZE]
    port[at.BUSY] = packet
    port[at.CARRIED] += run.sizes[size]
    run.counts[at.HOPS] += 1
    ring = run.ring_of[port[at.RATE] + size]
    if ring >= 0:
        schedule(run, ring, number)
    else:
        set_timer(run, run.counts[at.NOW_PS] + run.delay_ps[port[at.RATE] + size], -1 - number)


@compiled
def _sent(run: State, number: int) -> None:
    """The last bit of a packet leaves its port."""
    schedule(run, len(run.ring) - 1, run.port[number, at.BUSY])
    run.port[number, at.BUSY] = -1
    _serve(run, number)


@compiled
def _enqueue(run: State, packet: int, number: int) -> None:
    port = run.port[number]
    run.packet[packet, at.NEXT] = -1
    if port[at.HEAD] < 0:
        port[at.HEAD] = packet
    else:
        run.packet[port[at.TAIL], at.NEXT] = packet
    port[at.TAIL] = packet
    port[at.DEPTH] += run.sizes[run.packet[packet, at.SIZE]]
    if port[at.BUSY] < 0:
        _serve(run, number)
    port[at.HIGHEST] = max(port[at.HIGHEST], port[at.DEPTH])


@compiled
def _go_on(run: State, first: int, last: int) -> None:
    """Tasks that wait no longer for one that has come so far."""
    for place in range(first, last):
        later = run.next_task[place]
        row = run.task[later]
        row[at.WAITING] -= 1
        if row[at.WAITING] == 0:
            row[at.READY_PS] = run.counts[at.NOW_PS]
            set_timer(run, row[at.READY_PS] + row[at.DELAY_PS], later)


@compiled
def _arrived(run: State, task: int) -> None:
    """All data of a task has arrived: receivers go on."""
    _go_on(run, run.task[task, at.FIRST_NEXT], run.task[task, at.FIRST_ACKED])


@compiled
def _end(run: State, task: int) -> None:
    """All data of a task is acknowledged: senders go on."""
    run.task[task, at.END_PS] = run.counts[at.NOW_PS]
    _go_on(run, run.task[task, at.FIRST_ACKED], run.task[task, at.LAST_NEXT])


@compiled
def _start(run: State, task: int) -> None:
    run.task[task, at.START_PS] = run.counts[at.NOW_PS]
    if run.task[task, at.OPEN] == 0:
        _arrived(run, task)
        _end(run, task)
    for number in range(run.task[task, at.FIRST_TRANSFER], run.task[task, at.LAST_TRANSFER]):
        transfer = run.transfer[number]
        flow = transfer[at.QUEUE_PAIR]
        row = run.flow[flow]
        row[at.TOTAL] += transfer[at.PACKETS]
        transfer[at.END_PSN] = row[at.TOTAL]
        if row[at.ARRIVING] < 0:
            row[at.ARRIVING] = number
        if row[at.ACKING] < 0:
            row[at.ACKING] = number
        else:
            run.transfer[row[at.LAST], at.NEXT_TRANSFER] = number
        if row[at.SENDING] < 0:
            row[at.SENDING] = number
        row[at.LAST] = number
        _list(run, flow)
        if run.port[row[at.NIC], at.BUSY] < 0:
            _serve(run, row[at.NIC])


@compiled
def _deliver(run: State, packet: int) -> None:
    """A data packet reaches its NIC."""
    flow = run.packet[packet, at.FLOW]
    row = run.flow[flow]
    if run.packet[packet, at.PSN] != row[at.ARRIVED]:
        run.counts[at.DISORDERED] += 1
    row[at.ARRIVED] += 1
    asks = run.packet[packet, at.ASKS]
    _release(run, packet)
    if asks:
        run.counts[at.ACKS] += 1
        ack = _take(run, flow, row[at.ACK_PATH], 0, -1 - row[at.ARRIVED], False)
        _enqueue(run, ack, run.path[row[at.ACK_PATH]])
    transfer = run.transfer[row[at.ARRIVING]]
    if transfer[at.END_PSN] == row[at.ARRIVED]:
        row[at.ARRIVING] = transfer[at.NEXT_TRANSFER]
        task = transfer[at.TASK]
        run.task[task, at.COMING] -= 1
        if run.task[task, at.COMING] == 0:
            _arrived(run, task)


@compiled
def _acknowledge(run: State, packet: int) -> None:
    flow = run.packet[packet, at.FLOW]
    row = run.flow[flow]
    acked = -1 - run.packet[packet, at.PSN]
    _release(run, packet)
    row[at.IN_FLIGHT] -= acked - row[at.ACKED]
    row[at.ACKED] = acked
    while row[at.ACKING] >= 0 and run.transfer[row[at.ACKING], at.END_PSN] <= acked:
        transfer = run.transfer[row[at.ACKING]]
        transfer[at.FINISH_PS] = run.counts[at.NOW_PS]
        run.counts[at.FINISHED] += 1
        row[at.ACKING] = transfer[at.NEXT_TRANSFER]
        task = transfer[at.TASK]
        run.task[task, at.OPEN] -= 1
        if run.task[task, at.OPEN] == 0:
            _end(run, task)
    _list(run, flow)
    if run.port[row[at.NIC], at.BUSY] < 0:
        _serve(run, row[at.NIC])


@compiled
def begin(run: State) -> None:
    """Time the tasks that wait for no other."""
    for task in range(len(run.task)):
        if run.task[task, at.WAITING] == 0:
            set_timer(run, run.task[task, at.DELAY_PS], task)


@compiled
def advance(run: State, events: int) -> bool:
    """Run through as many events at most. Returns whether there are more."""
    timers = len(run.ring)
    for _ in range(events):
        ring = next_due(run.due)
        time = run.due[ring]
        if time == at.NEVER:
            return False
        run.counts[at.NOW_PS] = time
        if ring == timers:
            subject = next_timer(run)
            if subject >= 0:
                _start(run, subject)
            else:
                _sent(run, -1 - subject)
            continue
        subject = next_in_ring(run, ring)
        if ring < timers - 1:
            _sent(run, subject)
            continue
        run.packet[subject, at.PLACE] += 1
        port = run.path[run.packet[subject, at.PLACE]]
        if port >= 0:
            _enqueue(run, subject, port)
        elif run.packet[subject, at.PSN] >= 0:
            _deliver(run, subject)
        else:
            _acknowledge(run, subject)
    return True
