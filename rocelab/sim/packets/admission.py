"""The packet engine's receiver-driven admission: messages wait until their receiver clears them.

The rules are those of a lab's connection (`rocelab.agent.rc.connection`): a receiver clears at the
beginning what it has buffers for, and then as much as has arrived, in packets of a queue pair of
their own. A sender posts messages in their order, round-robin, or split over all queue pairs.
"""

from __future__ import annotations

from rocelab.sim.packets import state as at
from rocelab.sim.packets.compiling import compiled
from rocelab.sim.packets.ports import serve
from rocelab.sim.packets.sender import list_flow
from rocelab.sim.packets.state import State


@compiled
def send_clearances(run: State, clearance: int, count: int) -> None:
    """A receiver sends clear-to-sends."""
    flow = run.rules[at.DATA_FLOWS] + clearance
    run.flow[flow, at.POSTED] += count
    list_flow(run, flow)
    serve(run, run.flow[flow, at.NIC])


@compiled
def clear(run: State, flow: int, psn: int) -> None:
    """Packets have arrived, from `psn` on up to the one that is expected now: data, of which each
    message that is complete leaves a buffer, or clear-to-sends, the first of which clears as much
    as there are buffers for."""
    row = run.flow[flow]
    clearance = run.clearance[row[at.CLEARANCE]]
    if flow >= run.rules[at.DATA_FLOWS]:
        clearance[at.CLEARED] += row[at.EXPECTED] - psn
        if psn == 0:
            clearance[at.CLEARED] += clearance[at.INITIAL] - 1
        post(run, row[at.CLEARANCE])
        return
    number, complete = row[at.ARRIVING], 0
    while psn < row[at.EXPECTED]:
        transfer = run.transfer[number]
        if psn == transfer[at.END_PSN]:
            number = transfer[at.NEXT_TRANSFER]
            continue
        place = (psn - transfer[at.END_PSN] + transfer[at.PACKETS]) % transfer[at.MESSAGE]
        complete += place == transfer[at.MESSAGE] - 1
        psn += 1
    if complete:
        send_clearances(run, row[at.CLEARANCE], complete)


@compiled
def post(run: State, number: int) -> None:
    """Let messages that are cleared be sent."""
    clearance = run.clearance[number]
    if clearance[at.PAIRS] == 0:
        return
    while clearance[at.CLEARED] >= clearance[at.PARTS]:
        first = clearance[at.FIRST_PAIR] + clearance[at.NEXT_PAIR]
        if run.flow[first, at.POSTED] == run.flow[first, at.TOTAL]:
            break
        clearance[at.CLEARED] -= clearance[at.PARTS]
        clearance[at.NEXT_PAIR] += clearance[at.PARTS]
        clearance[at.NEXT_PAIR] %= clearance[at.PAIRS]
        for flow in range(first, first + clearance[at.PARTS]):
            row = run.flow[flow]
            transfer = run.transfer[row[at.POSTING]]
            row[at.POSTED] += transfer[at.MESSAGE]
            if row[at.POSTED] == transfer[at.END_PSN]:
                row[at.POSTING] = transfer[at.NEXT_TRANSFER]
            list_flow(run, flow)
    for flow in range(clearance[at.FIRST_PAIR], clearance[at.FIRST_PAIR] + clearance[at.PAIRS]):
        serve(run, run.flow[flow, at.NIC])
