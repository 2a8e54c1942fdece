"""The packet engine's tasks: what starts when what it waits for has arrived or is acknowledged."""

from __future__ import annotations

from rocelab.sim.packets import state as at
from rocelab.sim.packets.admission import post
from rocelab.sim.packets.clock import set_timer
from rocelab.sim.packets.compiling import compiled, inlined
from rocelab.sim.packets.ports import serve
from rocelab.sim.packets.sender import list_flow
from rocelab.sim.packets.state import State


@inlined
def _go_on(run: State, first: int, last: int) -> None:
    """Tasks that wait no longer for one that has come so far."""
    for place in range(first, last):
        later = run.next_task[place]
        row = run.task[later]
        row[at.WAITING] -= 1
        if row[at.WAITING] == 0:
            row[at.READY_PS] = run.counts[at.NOW_PS]
            set_timer(run, row[at.READY_PS] + row[at.DELAY_PS], at.START, row[at.STARTS_AS])


@inlined
def _arrived(run: State, task: int) -> None:
    """All data of a task has arrived: receivers go on."""
    _go_on(run, run.task[task, at.FIRST_NEXT], run.task[task, at.FIRST_ACKED])


@inlined
def _end(run: State, task: int) -> None:
    """All data of a task is acknowledged: senders go on."""
    run.task[task, at.END_PS] = run.counts[at.NOW_PS]
    _go_on(run, run.task[task, at.FIRST_ACKED], run.task[task, at.LAST_NEXT])


@compiled
def start(run: State, task: int) -> None:
    """A task begins: its transfers join those of their queue pairs."""
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
        if row[at.CLEARANCE] < 0:
            list_flow(run, flow)
            serve(run, row[at.NIC])
        elif row[at.POSTING] < 0:
            row[at.POSTING] = number
    if len(run.clearance):
        _post_cleared(run, task)


@compiled
def _post_cleared(run: State, task: int) -> None:
    """Messages of a task that has begun are posted, as far as they are cleared."""
    for number in range(run.task[task, at.FIRST_TRANSFER], run.task[task, at.LAST_TRANSFER]):
        clearance = run.flow[run.transfer[number, at.QUEUE_PAIR], at.CLEARANCE]
        if clearance >= 0:
            post(run, clearance)


@inlined
def packets_arrived(run: State, flow: int) -> None:
    """A receiver expects a later packet now."""
    row = run.flow[flow]
    if run.transfer[row[at.ARRIVING], at.END_PSN] <= row[at.EXPECTED]:
        _transfers_arrived(run, flow)


@compiled
def _transfers_arrived(run: State, flow: int) -> None:
    row = run.flow[flow]
    while row[at.ARRIVING] >= 0:
        transfer = run.transfer[row[at.ARRIVING]]
        if transfer[at.END_PSN] > row[at.EXPECTED]:
            return
        row[at.ARRIVING] = transfer[at.NEXT_TRANSFER]
        task = transfer[at.TASK]
        run.task[task, at.COMING] -= 1
        if run.task[task, at.COMING] == 0:
            _arrived(run, task)


@inlined
def packets_acknowledged(run: State, flow: int) -> None:
    """A sender's oldest packet that is not acknowledged is a later one now."""
    row = run.flow[flow]
    while row[at.ACKING] >= 0:
        transfer = run.transfer[row[at.ACKING]]
        if transfer[at.END_PSN] > row[at.UNACKED]:
            return
        transfer[at.FINISH_PS] = run.counts[at.NOW_PS]
        run.counts[at.FINISHED] += 1
        row[at.ACKING] = transfer[at.NEXT_TRANSFER]
        task = transfer[at.TASK]
        run.task[task, at.OPEN] -= 1
        if run.task[task, at.OPEN] == 0:
            _end(run, task)
