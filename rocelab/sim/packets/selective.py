"""The packet engine's selective retransmission: what a sender knows to be missing.

As IRN (Mittal et al., Revisiting Network Support for RDMA, SIGCOMM 2018, section 3.1): each NAK
names a packet that came beyond a gap. What is not named or acknowledged before the last packet that
is named counts as lost, and is sent again once, before anything new; after a timeout all that is
not named counts as lost.
"""

from __future__ import annotations

from rocelab.base.arrays import Longs
from rocelab.sim.packets import state as at
from rocelab.sim.packets.compiling import compiled, inlined
from rocelab.sim.packets.state import State


@inlined
def _cell(row: Longs, psn: int) -> int:
    words = (len(row) - at.FLOW_CELLS) // at.BITMAPS
    return int(at.FLOW_CELLS + 2 * words + psn // at.BITS % words)


@compiled
def seek(run: State, flow: int) -> None:
    """Let the next packet of a flow be the first that is lost and was not sent again, else the
    first that is new."""
    row = run.flow[flow]
    psn = max(row[at.AGAIN], row[at.UNACKED])
    while psn < row[at.LOST_TO] and row[_cell(row, psn)] >> psn % at.BITS & 1:
        psn += 1
    row[at.AGAIN] = psn
    if psn >= row[at.LOST_TO]:
        psn = row[at.HIGHEST_PSN]
    sending = row[at.ACKING]
    while sending >= 0 and run.transfer[sending, at.END_PSN] <= psn:
        sending = run.transfer[sending, at.NEXT_TRANSFER]
    row[at.NEXT_PSN], row[at.SENDING] = psn, sending


@compiled
def learn(run: State, flow: int, unacked: int, named: int) -> None:
    """Take what an ACK or NAK says. unacked: the oldest packet that was not acknowledged before;
    named: the one that came beyond a gap, else no later than UNACKED."""
    row = run.flow[flow]
    for psn in range(unacked, min(row[at.UNACKED], row[at.LOST_TO])):
        row[_cell(row, psn)] &= ~(1 << psn % at.BITS)
    if named > row[at.UNACKED]:
        row[_cell(row, named)] |= 1 << named % at.BITS
        row[at.LOST_TO] = max(row[at.LOST_TO], named + 1)
    seek(run, flow)
