"""The packet engine's receiver-driven admission: messages wait until their receiver clears them.

The rules are those of a lab's connection (`rocelab.agent.rc.connection`): a receiver clears at the
beginning what it has buffers for, and then as much as has arrived, in packets of a queue pair of
their own. A sender posts messages in their order, round-robin, or split over all queue pairs.
"""

from __future__ import annotations

from rocelab.sim.packets.compiling import part
from rocelab.sim.packets.ports import serve
from rocelab.sim.packets.sender import list_flow
from rocelab.sim.packets.state import PacketState


@part
def send_clearances(run: PacketState, clearance: int, count: int) -> None:
    """A receiver sends clear-to-sends."""
    flow = run.rules.data_flows + clearance
    run.flow[flow].posted += count
    list_flow(run, flow)
    serve(run, run.flow[flow].nic)


@part
def clear(run: PacketState, flow: int, psn: int) -> None:
    """Packets have arrived, from `psn` on up to the one that is expected now: data, of which each
    message that is complete leaves a buffer, or clear-to-sends, the first of which clears as much
    as there are buffers for."""
    row = run.flow[flow]
    clearance = run.clearance[row.clearance]
    if flow >= run.rules.data_flows:
        clearance.cleared += row.expected - psn
        if psn == 0:
            clearance.cleared += clearance.initial - 1
        post(run, row.clearance)
        return
    number, complete = row.arriving, 0
    while psn < row.expected:
        transfer = run.transfer[number]
        if psn == transfer.end_psn:
            number = transfer.next_transfer
            continue
        place = (psn - transfer.end_psn + transfer.packets) % transfer.message
        complete += place == transfer.message - 1
        psn += 1
    if complete:
        send_clearances(run, row.clearance, complete)


@part
def post(run: PacketState, number: int) -> None:
    """Let messages that are cleared be sent."""
    clearance = run.clearance[number]
    if clearance.pairs == 0:
        return
    while clearance.cleared >= clearance.parts:
        first = clearance.first_pair + clearance.next_pair
        if run.flow[first].posted == run.flow[first].total:
            break
        clearance.cleared -= clearance.parts
        clearance.next_pair += clearance.parts
        clearance.next_pair %= clearance.pairs
        for flow in range(first, first + clearance.parts):
            row = run.flow[flow]
            transfer = run.transfer[row.posting]
            row.posted += transfer.message
            if row.posted == transfer.end_psn:
                row.posting = transfer.next_transfer
            list_flow(run, flow)
    for flow in range(clearance.first_pair, clearance.first_pair + clearance.pairs):
        serve(run, run.flow[flow].nic)
