"""What the packet engine's loop reads and changes: tables of integers, a row per thing.

A row of a packet or a port is one or two lines of the processor's cache. Times are in picoseconds,
sizes in bytes on the wire. A port is a send of the network.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocelab.arrays import Ints, Longs

Table = npt.NDArray[np.int64]
"""Two-dimensional."""

Packets = npt.NDArray[np.int32]
"""Two-dimensional."""

NEVER = 2**62

READY_PS, START_PS, END_PS, DELAY_PS, WAITING, OPEN, COMING = range(7)
FIRST_TRANSFER, LAST_TRANSFER, FIRST_NEXT, FIRST_ACKED, LAST_NEXT = range(7, 12)
TASK_CELLS = 12

PACKETS, END_PSN, NEXT_TRANSFER, SHORT, FINISH_PS, TASK, QUEUE_PAIR = range(7)
TRANSFER_CELLS = 7

NIC, NEXT_FLOW, LISTED, SENDING, SENT, IN_FLIGHT, WINDOW, ACKED = range(8)
FULL, MESSAGE, ACK_EVERY, DATA_PATH, ACK_PATH, ARRIVED, ARRIVING, ACKING = range(8, 16)
LAST, TOTAL = range(16, 18)
FLOW_CELLS = 24

BUSY, HEAD, TAIL, DEPTH, HIGHEST, CARRIED, RATE, FIRST_FLOW = range(8)
LAST_FLOW = 8
PORT_CELLS = 16

NEXT, FLOW, PLACE, SIZE, PSN, ASKS = range(6)
PACKET_CELLS = 8

FIRST, MASK, FRONT, BACK, RING_DELAY_PS = range(5)
RING_CELLS = 8

TIME_PS, SUBJECT = range(2)
EVENT_CELLS = 2

NOW_PS, FREE, HOPS, TIMERS, ACKS, FINISHED, DISORDERED = range(7)
COUNTS = 8


class State(NamedTuple):
    """task: T rows. WAITING: tasks that it waits for; OPEN, COMING: its transfers that are not
    acknowledged, not arrived. The tasks that wait for it are next_task[FIRST_NEXT:LAST_NEXT], those
    before FIRST_ACKED for the arrival of its data, the others for its last ACK.

    transfer: X rows. flow: F rows, with the first place of its data and of its ACKs in `path`,
    where each way ends with -1. port: 2L rows. packet: P rows, free ones linked by NEXT; a
    negative PSN is an ACK's: -1 - packets acknowledged.

    sizes: bytes of each size class, of which 0 is an ACK's. ring_of, delay_ps: of the serialisation
    at each rate, of each size class; ring -1 for a timer. ring: a row per constant delay, the last
    that of propagation, whose subjects are packets; those of the others are ports. FRONT and BACK
    count what left and entered; an event is in `event` at FIRST + (count & MASK). timer: a binary
    heap; the subject of a task's delay is the task, of a serialisation -1 - port. due: the time of
    each ring's front and of the heap's root, or NEVER.
    """

    task: Table
    transfer: Table
    flow: Table
    port: Table
    packet: Packets
    next_task: Longs
    path: Ints
    sizes: Longs
    ring_of: Longs
    delay_ps: Longs
    ring: Table
    event: Table
    timer: Table
    due: Longs
    counts: Longs
