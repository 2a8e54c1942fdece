"""What the packet engine's loop reads and changes: tables of numbers, a row per thing.

A row of a packet or a port is one or two lines of the processor's cache. Times are in picoseconds.
A port is a send of the network. Bytes of queues are frames as a lab counts them, without what
Ethernet adds on the wire.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import Ints, Longs

Table = npt.NDArray[np.int64]
"""Two-dimensional."""

Packets = npt.NDArray[np.int32]
"""Two-dimensional."""

Rates = npt.NDArray[np.float64]
"""Two-dimensional."""

NEVER = 2**62
END, LOST = -1, -2
"""Of a way: it ends at its NIC; a packet that comes here is lost."""

ETHERNET = 24
"""Bytes of a packet on the wire that queues do not count (`rocelab.agent.nic`)."""

READY_PS, START_PS, END_PS, DELAY_PS, WAITING, OPEN, COMING = range(7)
FIRST_TRANSFER, LAST_TRANSFER, FIRST_NEXT, FIRST_ACKED, LAST_NEXT, STARTS_AS = range(7, 13)
TASK_CELLS = 13

PACKETS, END_PSN, NEXT_TRANSFER, MESSAGE, LAST_SIZE, FINISH_PS, TASK, QUEUE_PAIR = range(8)
TRANSFER_CELLS = 8

NIC, NEXT_FLOW, LISTED, SENDING, UNACKED, NEXT_PSN, HIGHEST_PSN, WINDOW = range(8)
FIRST_SIZE, MIDDLE_SIZE, ACK_EVERY, DATA_PATH, DATA_WAYS, ECN, DATA_CLASS, CONTROL = range(8, 16)
ACKING, SENT, LEFT_RETRIES, ASKED, DEADLINE_PS, TIMED, TIMEOUT_PS, RETRIES = range(16, 24)
ACK_PATH, ACK_WAYS, ACK_CLASS, CNP_CLASS, EXPECTED, ARRIVING, NAK_SENT, REACH = range(24, 32)
LAST, TOTAL, SENT_PS, SENT_BYTES, RETRANSMITTED, NAKS, TIMEOUTS, DRAWN = range(32, 40)
MARKED, CNPS, CNP_DUE_PS, OUT_OF_ORDER, DATA_HASH, DATA_PS, ACK_HASH, ACK_PS = range(40, 48)
POSTING, POSTED, CLEARANCE, SELECTIVE, AGAIN, LOST_TO = range(48, 54)
FLOW_CELLS = 54
BITMAPS, BITS = 3, 32
"""Of a flow whose receiver takes packets beyond a gap: behind its cells, with so many packets each
cell."""

CLEARED, INITIAL, PARTS, FIRST_PAIR, PAIRS, NEXT_PAIR = range(6)
CLEARANCE_CELLS = 6

BUSY, QUEUED, DEPTH, HIGHEST, CARRIED, RATE, BUFFER, TURN = range(8)
FIRST_FLOW, LAST_FLOW, MARKS, DROPS, DRAWS, FREE_PS, BURST_PS, EARLY = range(8, 16)
PORT_CELLS = 16

IS_IDLE, FIRST_PORT, NEXT_PORT, WOKE_PS, DUE_PS, FIRST_ARRIVED, LAST_ARRIVED, WAKES = range(8)
SHAPED_PS, IS_SHAPING = range(8, 10)
HOST_CELLS = 10

HEAD, TAIL, BYTES, DEFICIT = range(4)
QUEUE_CELLS = 4

HELD, HELD_HIGHEST, BEYOND, BEYOND_HIGHEST, IS_OVER, HEADROOM, POOL, REFUSED = range(8)
ASK_RING, IS_PAUSED, IS_CLOSED, FIRST_WAITING, WAITING_PACKETS = range(8, 13)
FIRST_PARKED, LAST_PARKED, CLOSED_PS, PAUSED_PS, LONGEST_PS, STOPS = range(13, 19)
IDLE_PS, IS_WATCHED, HAS_FIRED, FIRINGS, DISCARDS = range(19, 24)
PAUSE_CELLS = 24

FLOOR, MARKABLE, MARKED_THERE = range(3)
MARKING_CELLS = 3

SHARED, SHARED_SIZE, RESERVE, RESERVE_SIZE = range(4)
POOL_CELLS = 4

DRAIN_BPS, DRAINED_PS, FULL_PS, XOFF_PS, XON_PS, FILL_HIGHEST_PS, IS_DRAINING, OVERFLOWS = range(8)
BUFFER_CELLS = 8

NEXT, FLOW, PLACE, SIZE, PSN, KIND, CE, CLASS = range(8)
PACKET_CELLS = 8

DATA, ASKING, ACK, CNP, NAK = range(5)
"""Kinds of packets. ASKING: data that asks for an ACK. That of a NAK is as much higher as the
packet that it names is ahead of the one that it asks for."""

NOT_ECT, ECT, ALL_CE = range(3)

CUT = -1
"""BUFFER of a port whose link carries nothing."""

GONE = 2**40
"""BUSY of a port whose packet is on its way before it is serialised; -1: of an idle port."""

GATHERS = 2**41
"""BUSY, always, of a port whose host gathers arrivals."""

FIRST, MASK, FRONT, BACK, RING_DELAY_PS = range(5)
RING_CELLS = 8

TIME_PS, SUBJECT = range(2)
EVENT_CELLS = 2

START, SERIALISED, TURN_DUE, ACK_LATE, WATCHED, DRAINED, WOKEN, SHAPED = range(8)
"""Kinds of timers: of a task, a port, two of a flow, of a gate, a receive buffer, a host, and a
NIC's queue."""

CLASSES, STRICT, KMIN, KMAX, PMAX, MARKED_CLASSES, QUANTUM, SEED = range(8)
CUTS_THROUGH, PORT_RINGS, WAY_RINGS, LOSSLESS, NIC_CLASS, DRAINS = range(8, 14)
XOFF, XON_OFFSET, RESERVED, DYNAMIC_TH = range(14, 18)
DETECTION_PS, RESTORATION_PS, DISCARDS_ALL, BUFFER_EACH, GAP_PS, DATA_FLOWS = range(18, 24)
MODERATION_PS, LATE_PS = range(24, 26)
RULES = 26

NOW_PS, FREE, FREE_PACKETS, MOST_TAKEN, TIMERS, HOPS, ACKS, FINISHED, FAILED = range(9)
LOST_PACKETS, HOST_TIMERS, MOST_HOST_TIMERS = range(9, 12)
COUNTS = 12


class State(NamedTuple):
    """task: T rows. WAITING: tasks that it waits for; OPEN, COMING: its transfers that are not
    acknowledged, not arrived. The tasks that wait for it are next_task[FIRST_NEXT:LAST_NEXT], those
    before FIRST_ACKED for the arrival of its data, the others for its last ACK. starts: all tasks
    as they start at one instant, NIC by NIC, in an order that the seed draws, those of a NIC in
    their own; STARTS_AS: its place there.

    transfer: R rows, one for each run of equal messages (`rocelab.jobs.messages`). MESSAGE: packets
    of each message; LAST_SIZE: the size class of its last packet, or its only one. flow: F rows,
    the sender and the receiver of a queue pair, with the size classes of first packets and of
    those between; CONTROL: its row in `rule`, -1 for none; REACH: of a receiver that takes packets
    beyond a gap, its window, else 0: of each packet in it BITMAPS say whether it has come, whether
    it asked for an ACK, and, of a SELECTIVE sender, whether a NAK named it. Of the packets before
    LOST_TO the others are lost; AGAIN is the first of them that was not sent again. pace: F rows,
    rule: a row per set of parameters (`rocelab.sim.packets.control`).

    With admission, else empty, clearance: a row for each of the flows from DATA_FLOWS on, whose
    packets clear others to send: messages that are CLEARED and not posted yet, and the data flows
    that wait for them, PAIRS from FIRST_PAIR on, which get messages in turn, PARTS at once.
    CLEARANCE of both: that row, -1 of a flow that sends without. POSTED: the PSN up to which it may
    send; POSTING: its transfer of which the next message is.

    path: ways of packets, port by port, each up to END or LOST; the first cell is LOST. DATA_PATH,
    ACK_PATH: where the way of a flow's packets begins. DATA_WAYS, ACK_WAYS: 0, or where a list does
    of several: their number, and where each begins. DATA_HASH, ACK_HASH chooses of them, drawn anew
    by a packet more than GAP_PS after the last one's DATA_PS, ACK_PS.

    port: 2L rows. FREE_PS: when it can begin a packet; while idle it saves up BURST_PS at most.
    EARLY: the ring by which packets leave as they begin, -1 for none. HIGHEST: the most that a
    packet found in its queue. queue: a row per class of each port, the strict ones first. marking:
    a row per bin of depths, whose lowest is FLOOR, for all queues of switches: packets that came at
    such a depth above KMIN and could be marked, and those that were. packet: P rows, free ones
    linked by NEXT. The PSN of an ACK is one more than the last that it acknowledges.

    With lossless classes, else empty. pause: a row per class of each port, as of `queue`. Up to
    REFUSED of what the receiver at the link's other end holds for it, of it BEYOND in headroom; the
    others of the port's gate, which the receiver closes: the packets and flows that wait for it,
    how long it was closed, and its watchdog. pool: a row per switch: what is SHARED by its ports
    and the RESERVE of headroom. buffer: a row per port, of the NIC's receive buffer at the link's
    other end, if hosts are slow: it is empty at DRAINED_PS, and levels are times to drain them.

    With hosts that gather arrivals, else empty, host: a row per port. IS_IDLE: there was nothing
    to send by it; NEXT_PORT: of its server. FREE_PS of such a port is the host's; its NIC's queue,
    of lossless classes, can begin a packet at SHAPED_PS, and IS_SHAPING while a timer for it is
    set. In the row of the server's FIRST_PORT, when the host
    WOKE_PS and is DUE_PS to wake next, and what has ARRIVED meanwhile. HOST_TIMERS: those that are
    set, also for later than is due now.

    sizes: bytes of each size class on the wire; 0 is that of ACKs, 1 of CNPs. ring_of, delay_ps: of
    the serialisation at each rate, of each size class; ring -1 for a timer. ring: a row per
    constant delay: PORT_RINGS of serialisation, whose subjects are ports, then those of pauses, and
    from WAY_RINGS on those of packets on their way, the last one that of propagation. FRONT and
    BACK count what left and entered; an event is in `event` at FIRST + (count & MASK). timer: a
    binary heap; a subject is 8 x task, port, flow or row of `pause` + the kind. due: the time of
    each ring's front and of the heap's root, or NEVER.
    """

    task: Table
    transfer: Table
    flow: Table
    pace: Rates
    rule: Rates
    port: Table
    queue: Table
    marking: Table
    pause: Table
    pool: Table
    buffer: Table
    host: Table
    clearance: Table
    packet: Packets
    next_task: Longs
    starts: Longs
    path: Ints
    sizes: Longs
    ring_of: Longs
    delay_ps: Longs
    ring: Table
    event: Table
    timer: Table
    due: Longs
    rules: Longs
    counts: Longs
