"""The packet engine's selective retransmission: what a sender knows to be missing.

As IRN (Mittal et al., Revisiting Network Support for RDMA, SIGCOMM 2018, section 3.1): each NAK
names a packet that came beyond a gap. What is not named or acknowledged before the last packet that
is named counts as lost, and is sent again once, before anything new; after a timeout all that is
not named counts as lost.
"""

from __future__ import annotations

from rocelab.base.arrays import Longs
from rocelab.sim.packets import state as at
from rocelab.sim.packets.compiling import inlined, part
from rocelab.sim.packets.state import PacketState


@inlined
def _word(bitmap: Longs, psn: int) -> int:
    words = len(bitmap) // at.BITMAPS
    return int(2 * words + psn // at.BITS % words)


@part
def seek(run: PacketState, flow: int) -> None:
    """Let the next packet of a flow be the first that is lost and was not sent again, else the
    first that is new."""
    row, bitmap = run.flow[flow], run.bitmap[flow]
    psn = max(row.again, row.unacked)
    while psn < row.lost_to and bitmap[_word(bitmap, psn)] >> psn % at.BITS & 1:
        psn += 1
    row.again = psn
    if psn >= row.lost_to:
        psn = row.highest_psn
    sending = row.acking
    while sending >= 0 and run.transfer[sending].end_psn <= psn:
        sending = run.transfer[sending].next_transfer
    row.next_psn, row.sending = psn, sending


@part
def learn(run: PacketState, flow: int, unacked: int, named: int) -> None:
    """Take what an ACK or NAK says. unacked: the oldest packet that was not acknowledged before;
    named: the one that came beyond a gap, else no later than `unacked` is now."""
    row, bitmap = run.flow[flow], run.bitmap[flow]
    for psn in range(unacked, min(row.unacked, row.lost_to)):
        bitmap[_word(bitmap, psn)] &= ~(1 << psn % at.BITS)
    if named > row.unacked:
        bitmap[_word(bitmap, named)] |= 1 << named % at.BITS
        row.lost_to = max(row.lost_to, named + 1)
    seek(run, flow)
