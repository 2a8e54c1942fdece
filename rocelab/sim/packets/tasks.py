"""The packet engine's tasks: what starts when what it waits for has arrived or is acknowledged."""

from __future__ import annotations

from rocelab.sim.packets import state as at
from rocelab.sim.packets.admission import post
from rocelab.sim.packets.clock import set_timer
from rocelab.sim.packets.compiling import inlined, part
from rocelab.sim.packets.ports import serve
from rocelab.sim.packets.sender import list_flow
from rocelab.sim.packets.state import PacketState


@inlined
def _release_tasks(run: PacketState, first: int, last: int) -> None:
    """Tasks that wait no longer for one that has come so far."""
    for place in range(first, last):
        later = run.next_task[place]
        row = run.task[later]
        row.waiting -= 1
        if row.waiting == 0:
            row.ready_ps = run.counts.now_ps
            set_timer(run, row.ready_ps + row.delay_ps, at.START, row.starts_as)


@inlined
def _arrived(run: PacketState, task: int) -> None:
    """All data of a task has arrived: receivers go on."""
    _release_tasks(run, run.task[task].first_next, run.task[task].first_acked)


@inlined
def _end(run: PacketState, task: int) -> None:
    """All data of a task is acknowledged: senders go on."""
    run.task[task].end_ps = run.counts.now_ps
    _release_tasks(run, run.task[task].first_acked, run.task[task].last_next)


@part
def start(run: PacketState, task: int) -> None:
    """A task begins: its transfers join those of their queue pairs."""
    run.task[task].start_ps = run.counts.now_ps
    if run.task[task].open == 0:
        _arrived(run, task)
        _end(run, task)
    for number in range(run.task[task].first_transfer, run.task[task].last_transfer):
        transfer = run.transfer[number]
        flow = transfer.queue_pair
        row = run.flow[flow]
        row.total += transfer.packets
        transfer.end_psn = row.total
        if row.arriving < 0:
            row.arriving = number
        if row.acking < 0:
            row.acking = number
        else:
            run.transfer[row.last].next_transfer = number
        if row.sending < 0:
            row.sending = number
        row.last = number
        if row.clearance < 0:
            list_flow(run, flow)
            serve(run, row.nic)
        elif row.posting < 0:
            row.posting = number
    if len(run.clearance):
        _post_cleared(run, task)


@part
def _post_cleared(run: PacketState, task: int) -> None:
    """Messages of a task that has begun are posted, as far as they are cleared."""
    for number in range(run.task[task].first_transfer, run.task[task].last_transfer):
        clearance = run.flow[run.transfer[number].queue_pair].clearance
        if clearance >= 0:
            post(run, clearance)


@inlined
def packets_arrived(run: PacketState, flow: int) -> None:
    """A receiver expects a later packet now."""
    row = run.flow[flow]
    if run.transfer[row.arriving].end_psn <= row.expected:
        _transfers_arrived(run, flow)


@part
def _transfers_arrived(run: PacketState, flow: int) -> None:
    row = run.flow[flow]
    while row.arriving >= 0:
        transfer = run.transfer[row.arriving]
        if transfer.end_psn > row.expected:
            return
        row.arriving = transfer.next_transfer
        task = transfer.task
        run.task[task].coming -= 1
        if run.task[task].coming == 0:
            _arrived(run, task)


@inlined
def packets_acknowledged(run: PacketState, flow: int) -> None:
    """A sender's oldest packet that is not acknowledged is a later one now."""
    row = run.flow[flow]
    while row.acking >= 0:
        transfer = run.transfer[row.acking]
        if transfer.end_psn > row.unacked:
            return
        transfer.finish_ps = run.counts.now_ps
        run.counts.finished += 1
        row.acking = transfer.next_transfer
        task = transfer.task
        run.task[task].open -= 1
        if run.task[task].open == 0:
            _end(run, task)
