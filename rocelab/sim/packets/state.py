"""What the packet engine's loop reads and changes, as flat arrays of 64-bit integers.

Times are in picoseconds, sizes in bytes on the wire. A port is a send of the network.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocelab.arrays import Longs

Cells = npt.NDArray[np.int64]
"""Two-dimensional."""

READY_PS, END_PS, START_PS, WAITING, OPEN, COMING, DELAY_PS = range(7)
TASK_ROWS = 7
SENDING, ACKING, LAST, SENT, IN_FLIGHT, ACKED, TOTAL, ARRIVED, LISTED, NEXT_FLOW = range(10)
WINDOW, ACK_EVERY, FULL, MESSAGE, ARRIVING = range(10, 15)
FLOW_ROWS = 15
PACKETS, END_PSN, NEXT_TRANSFER, SHORT, FINISH_PS = range(5)
TRANSFER_ROWS = 5
HEAD, TAIL, FIRST_FLOW, LAST_FLOW, BUSY, DEPTH, HIGHEST, CARRIED, RATE_CLASS = range(9)
PORT_ROWS = 9
FLOW, HOP, SIZE_CLASS, PSN, NEXT, ASKS = range(6)
PACKET_ROWS = 6
SEQUENCE, NOW_PS, FREE, HOPS, TIMERS, ACKS, FINISHED, DISORDERED = range(8)
COUNTS = 8


class State(NamedTuple):
    """task: TASK_ROWS x T; OPEN, COMING: its transfers that are not acknowledged, not arrived.
    flow: FLOW_ROWS x F. transfer: TRANSFER_ROWS x X. port: PORT_ROWS x 2L. packet: PACKET_ROWS x
    P, free ones linked by NEXT; a negative PSN is an ACK's: -1 - packets acknowledged. next_task:
    the tasks that wait for task t are next_task[next_start[t]:next_start[t + 1]], those before
    next_acked[t] for the arrival of its data, the others for the last ACK. rate_classes: how many
    rates ports have, 1; the ring of each serialisation is size class x rate classes + rate class,
    that of propagation the last. events: those of all rings. timers: a binary heap of the tasks
    that wait for a delay.
    """

    task: Cells
    flow: Cells
    transfer: Cells
    port: Cells
    packet: Cells
    next_start: Longs
    next_acked: Longs
    next_task: Longs
    first_transfer: Longs
    task_of: Longs
    flow_of: Longs
    path_start: Longs
    path: Longs
    rate_classes: Longs
    size_bytes: Longs
    rings: Cells
    events: Cells
    timers: Cells
    counts: Longs


RING_FIRST, RING_CAPACITY, RING_HEAD, RING_COUNT, RING_DELAY_PS = range(5)
RING_ROWS = 5
TIME_PS, BORN, SUBJECT = range(3)
EVENT_ROWS = 3
