"""The packet engine's receivers: data in order only, beyond gaps too, or in any order, and what
they answer.

The rules are those of a lab's queue pair (`rocelab.agent.rc.responder`, and of any order
`rocelab.agent.rc.reordering`).
"""

from __future__ import annotations

from rocelab.sim.packets import control
from rocelab.sim.packets import state as at
from rocelab.sim.packets.admission import clear
from rocelab.sim.packets.compiling import inlined, part
from rocelab.sim.packets.freelist import release
from rocelab.sim.packets.ports import send_answer
from rocelab.sim.packets.sender import draw_way, take
from rocelab.sim.packets.state import PacketState
from rocelab.sim.packets.tasks import packets_arrived


@inlined
def _answer(run: PacketState, flow: int, kind: int) -> None:
    """A receiver sends an ACK, NAK or CNP."""
    row = run.flow[flow]
    size, class_ = 0, row.ack_class
    if kind == at.CNP:
        size, class_ = 1, row.cnp_class
    else:
        run.counts.acks += 1
    if row.ack_way.ways > 0:
        draw_way(run, flow, row.ack_way)
    place = row.ack_way.path
    packet = take(run, flow, place, size, row.expected, kind, class_)
    send_answer(run, packet, run.path[place])


@part
def deliver(run: PacketState, packet: int) -> None:
    """Data reaches its NIC."""
    flow = run.packet[packet].flow
    psn, is_marked = int(run.packet[packet].psn), run.packet[packet].ce
    asks = run.packet[packet].kind == at.ASKING
    release(run, packet)
    row = run.flow[flow]
    if is_marked:
        row.marked += 1
        if row.control >= 0 and run.counts.now_ps >= row.cnp_due_ps:
            interval = int(run.rule[row.control, control.CNP_PS])
            row.cnp_due_ps = run.counts.now_ps + interval
            row.cnps += 1
            _answer(run, flow, at.CNP)
    is_new = psn == row.expected
    if row.reach:
        asks = _take_any(run, flow, psn, asks)
        if row.selective and 0 < psn - row.expected < row.reach:
            _answer(run, flow, at.NAK + psn - row.expected)
    elif psn > row.expected:
        row.out_of_order += 1
        if row.nak_sent == 0:
            row.nak_sent = 1
            _answer(run, flow, at.NAK)
        return
    elif is_new:
        row.expected = psn + 1
        row.nak_sent = 0
    if asks:
        _answer(run, flow, at.ACK)
    if is_new:
        if row.clearance >= 0:
            clear(run, flow, psn)
        packets_arrived(run, flow)


@part
def _take_any(run: PacketState, flow: int, psn: int, asks: bool) -> bool:
    """Take a packet in any order; whether an ACK is due: for it, or for one that came before."""
    row = run.flow[flow]
    ahead = psn - row.expected
    if ahead < 0 or ahead >= row.reach:
        return asks and ahead < 0
    bitmap = run.bitmap[flow]
    words = len(bitmap) // at.BITMAPS
    place, bit = psn // at.BITS % words, 1 << psn % at.BITS
    if ahead > 0:
        row.out_of_order += bitmap[place] & bit == 0
        bitmap[place] |= bit
        if asks:
            bitmap[place + words] |= bit
        return False
    while True:
        row.expected += 1
        place = row.expected // at.BITS % words
        bit = 1 << row.expected % at.BITS
        if bitmap[place] & bit == 0:
            return asks
        asks = asks or bitmap[place + words] & bit != 0
        bitmap[place] &= ~bit
        bitmap[place + words] &= ~bit
