"""The packet engine's receivers: data in order only, beyond gaps too, or in any order, and what
they answer.

The rules are those of a lab's queue pair (`rocelab.agent.rc.responder`, and of any order
`rocelab.agent.rc.reordering`).
"""

from __future__ import annotations

from rocelab.sim.packets import control
from rocelab.sim.packets import state as at
from rocelab.sim.packets.admission import clear
from rocelab.sim.packets.compiling import compiled, inlined
from rocelab.sim.packets.freelist import release
from rocelab.sim.packets.ports import send_answer
from rocelab.sim.packets.sender import draw_way, take
from rocelab.sim.packets.state import State
from rocelab.sim.packets.tasks import packets_arrived


@inlined
def _answer(run: State, flow: int, kind: int) -> None:
    """A receiver sends an ACK, NAK or CNP."""
    row = run.flow[flow]
    size, class_ = 0, row[at.ACK_CLASS]
    if kind == at.CNP:
        size, class_ = 1, row[at.CNP_CLASS]
    else:
        run.counts[at.ACKS] += 1
    if row[at.ACK_WAYS] > 0:
        draw_way(run, flow, at.ACK_PATH, at.ACK_HASH)
    place = row[at.ACK_PATH]
    packet = take(run, flow, place, size, row[at.EXPECTED], kind, class_)
    send_answer(run, packet, run.path[place])


@compiled
def deliver(run: State, packet: int) -> None:
    """Data reaches its NIC."""
    flow = run.packet[packet, at.FLOW]
    psn, is_marked = int(run.packet[packet, at.PSN]), run.packet[packet, at.CE]
    asks = run.packet[packet, at.KIND] == at.ASKING
    release(run, packet)
    row = run.flow[flow]
    if is_marked:
        row[at.MARKED] += 1
        if row[at.CONTROL] >= 0 and run.counts[at.NOW_PS] >= row[at.CNP_DUE_PS]:
            interval = int(run.rule[row[at.CONTROL], control.CNP_PS])
            row[at.CNP_DUE_PS] = run.counts[at.NOW_PS] + interval
            row[at.CNPS] += 1
            _answer(run, flow, at.CNP)
    is_new = psn == row[at.EXPECTED]
    if row[at.REACH]:
        asks = _take_any(run, flow, psn, asks)
        if row[at.SELECTIVE] and 0 < psn - row[at.EXPECTED] < row[at.REACH]:
            _answer(run, flow, at.NAK + psn - row[at.EXPECTED])
    elif psn > row[at.EXPECTED]:
        row[at.OUT_OF_ORDER] += 1
        if row[at.NAK_SENT] == 0:
            row[at.NAK_SENT] = 1
            _answer(run, flow, at.NAK)
        return
    elif is_new:
        row[at.EXPECTED] = psn + 1
        row[at.NAK_SENT] = 0
    if asks:
        _answer(run, flow, at.ACK)
    if is_new:
        if row[at.CLEARANCE] >= 0:
            clear(run, flow, psn)
        packets_arrived(run, flow)


@compiled
def _take_any(run: State, flow: int, psn: int, asks: bool) -> bool:
    """Take a packet in any order; whether an ACK is due: for it, or for one that came before."""
    row = run.flow[flow]
    ahead = psn - row[at.EXPECTED]
    if ahead < 0 or ahead >= row[at.REACH]:
        return asks and ahead < 0
    words = (len(row) - at.FLOW_CELLS) // at.BITMAPS
    place, bit = at.FLOW_CELLS + psn // at.BITS % words, 1 << psn % at.BITS
    if ahead > 0:
        row[at.OUT_OF_ORDER] += row[place] & bit == 0
        row[place] |= bit
        if asks:
            row[place + words] |= bit
        return False
    while True:
        row[at.EXPECTED] += 1
        place = at.FLOW_CELLS + row[at.EXPECTED] // at.BITS % words
        bit = 1 << row[at.EXPECTED] % at.BITS
        if row[place] & bit == 0:
            return asks
        asks = asks or row[place + words] & bit != 0
        row[place] &= ~bit
        row[place + words] &= ~bit
