"""What the packet engine's loop reads and changes: tables of records, one per thing.

A record of a packet or a port is one or two lines of the processor's cache. Times are in
picoseconds. A port is a send of the network. Bytes of queues are frames as a lab counts them,
without what Ethernet adds on the wire.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar, cast, get_type_hints, overload

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import Bools, Ints, Longs

Bitmaps = Annotated[npt.NDArray[np.int64], 2]
Rates = Annotated[npt.NDArray[np.float64], 2]

Row = TypeVar("Row", covariant=True)
Places = slice | Longs | Bools | tuple[slice, list[int]]


class Records(Protocol[Row]):
    """An array of records (`np.recarray`) with the fields of a class: a row by its place, a column
    as an attribute."""

    @overload
    def __getitem__(self, place: int | tuple[int, int]) -> Row: ...
    @overload
    def __getitem__(self, place: Places) -> Records[Row]: ...
    def __setitem__(self, place: Places, rows: object) -> None: ...
    def __iter__(self) -> Iterator[Row]: ...
    def __len__(self) -> int: ...
    def reshape(self, *shape: int) -> Records[Row]: ...
    def __getattr__(self, column: str) -> Any: ...  # noqa: ANN401
    def __setattr__(self, column: str, values: object) -> None: ...


def zeros(kind: type[Row], rows: int) -> Records[Row]:
    """So many records with the fields of a class, all 0."""
    return cast(Records[Row], np.zeros(rows, dtype_of(kind)).view(np.recarray))


def joined(*tables: Records[Row]) -> Records[Row]:
    """One table after the other."""
    rows = [cast("np.recarray[Any, Any]", table) for table in tables]
    return cast(Records[Row], np.concatenate(rows).view(np.recarray))


def dtype_of(kind: type) -> np.dtype[Any]:
    """The record of a class: of words of 8 bytes, those of packets of 4."""
    cell = np.int32 if kind is Packet else np.int64
    fields = [
        (name, cell if field is int else dtype_of(field))
        for name, field in get_type_hints(kind).items()
    ]
    return np.dtype((np.record, np.dtype(fields, align=True)))


NEVER = 2**62
END, LOST = -1, -2
"""Of a way: it ends at its NIC; a packet that comes here is lost."""

ETHERNET = 24
"""Bytes of a packet on the wire that queues do not count (`rocelab.agent.nic`)."""

BITMAPS, BITS = 3, 32
"""Of a flow whose receiver takes packets beyond a gap: bitmaps, with so many packets each word."""

DATA, ASKING, ACK, CNP, NAK = range(5)
"""Kinds of packets. ASKING: data that asks for an ACK. That of a NAK is as much higher as the
packet that it names is ahead of the one that it asks for."""

NOT_ECT, ECT, ALL_CE = range(3)

CUT = -1
"""`buffer` of a port whose link carries nothing."""

GONE = 2**40
"""`busy` of a port whose packet is on its way before it is serialised; -1: of an idle port."""

GATHERS = 2**41
"""`busy`, always, of a port whose host gathers arrivals."""

START, SERIALISED, TURN_DUE, ACK_LATE, WATCHED, DRAINED, WOKEN, SHAPED = range(8)
"""Kinds of timers: of a task, a port, two of a flow, of a gate, a receive buffer, a host, and a
NIC's queue."""


class Task:
    """A task. Others wait for it: next_task[first_next:first_acked] for the arrival of its data,
    next_task[first_acked:last_next] for its last ACK."""

    ready_ps: int
    start_ps: int
    end_ps: int
    delay_ps: int
    waiting: int
    """Tasks that it waits for."""

    open: int
    """Its transfers that are not acknowledged."""

    coming: int
    """Its transfers that have not arrived."""

    first_transfer: int
    last_transfer: int
    first_next: int
    first_acked: int
    last_next: int
    starts_as: int
    """Its place among those that start at one instant."""


class Transfer:
    """A run of equal messages (`rocelab.jobs.messages`)."""

    packets: int
    end_psn: int
    next_transfer: int
    message: int
    """Packets of each message."""

    last_size: int
    """The size class of its last packet, or its only one."""

    finish_ps: int
    task: int
    queue_pair: int


class FlowWay:
    """Where the way of a flow's packets begins in `path`. ways: 0, or where a list does of several:
    their number, and where each begins. `hash` chooses of them, drawn anew by a packet more than
    `gap_ps` after the last one's `last_ps`."""

    path: int
    ways: int
    hash: int
    last_ps: int


class PacketFlow:
    """The sender and the receiver of a queue pair."""

    nic: int
    next_flow: int
    listed: int
    sending: int
    unacked: int
    next_psn: int
    highest_psn: int
    window: int
    first_size: int
    """The size class of first packets."""

    middle_size: int
    """The size class of packets between the first and the last."""

    ack_every: int
    ecn: int
    data_class: int
    control: int
    """Its row in `rule`, -1 for none."""

    acking: int
    sent: int
    left_retries: int
    asked: int
    deadline_ps: int
    timed: int
    timeout_ps: int
    retries: int
    data_way: FlowWay
    ack_way: FlowWay
    ack_class: int
    cnp_class: int
    expected: int
    arriving: int
    nak_sent: int
    reach: int
    """Of a receiver that takes packets beyond a gap, its window, else 0."""

    last: int
    total: int
    sent_ps: int
    sent_bytes: int
    retransmitted: int
    naks: int
    timeouts: int
    drawn: int
    marked: int
    cnps: int
    cnp_due_ps: int
    out_of_order: int
    posting: int
    """Its transfer that the next message is of."""

    posted: int
    """The PSN up to which it may send."""

    clearance: int
    """Its row of clearances, -1 of one that sends without."""

    selective: int
    again: int
    """The first lost packet that was not sent again."""

    lost_to: int
    """Of the packets before it, those that no NAK named are lost."""


class Clearance:
    """Of a flow whose packets clear others to send."""

    cleared: int
    """Messages that are cleared and not posted yet."""

    initial: int
    parts: int
    """How many messages a data flow gets at once."""

    first_pair: int
    """The first of the data flows that wait for them, which get messages in turn."""

    pairs: int
    """How many data flows wait for them."""

    next_pair: int


class Turns:
    """The first and the last of flows that take turns, linked by `next_flow`; the first is -1 where
    there are none."""

    first: int
    last: int


class ClassSetting:
    """Of a class of ports of one kind: the most bytes that it holds, its marking line, whether it
    is marked, and the bytes that it sends before the next one that shares its port."""

    buffer: int
    kmin: int
    kmax: int
    pmax: int
    marks: int
    quantum: int


class PacketPort:
    """A port: the sending end of a link."""

    busy: int
    queued: int
    depth: int
    highest: int
    """The most that a packet met in its queue."""

    carried: int
    rate: int
    buffer: int
    turn: int
    flows: Turns
    marks: int
    drops: int
    draws: int
    free_ps: int
    """When it can begin a packet."""

    burst_ps: int
    """The most that it saves up while idle."""

    early: int
    """The ring by which packets leave as they begin, -1 for none."""

    whole: int
    """The ring by which packets that were sent whole come to the end of the link."""

    setting: int
    """The row of its first class in the table of that name."""


class Host:
    """Of a port of a server whose arrivals are gathered. `free_ps` of such a port is the host's.
    What the whole server does is in the row of its first port."""

    is_idle: int
    """There was nothing to send by the port."""

    first_port: int
    next_port: int
    """Of its server."""

    woke_ps: int
    """When the server woke."""

    due_ps: int
    """When the server is to wake next."""

    first_arrived: int
    """What arrived since then begins here."""

    last_arrived: int
    wakes: int
    shaped_ps: int
    """When the NIC's queue, of lossless classes, can begin a packet."""

    is_shaping: int
    """A timer for `shaped_ps` is set."""


class Queue:
    """A class of a port."""

    head: int
    tail: int
    bytes: int
    deficit: int


class Pause:
    """A class of a port: up to `refused` of what the receiver at the link's other end holds for it,
    of it `beyond` in headroom; the others of the port's gate, which the receiver closes: the
    packets and flows that wait for it, how long it was closed, and its watchdog."""

    held: int
    held_highest: int
    beyond: int
    beyond_highest: int
    is_over: int
    headroom: int
    xoff: int
    dynamic_th: int
    xon: int
    xon_offset: int
    reserved: int
    pool: int
    refused: int
    ask_ring: int
    is_paused: int
    is_closed: int
    first_waiting: int
    waiting_packets: int
    parked: Turns
    closed_ps: int
    paused_ps: int
    longest_ps: int
    stops: int
    idle_ps: int
    is_watched: int
    has_fired: int
    firings: int
    discards: int


class Marking:
    """Of all queues of switches: packets that came at a depth from `floor` on, above kmin, and
    could be marked, and those that were."""

    floor: int
    markable: int
    marked: int


class Pool:
    """Of a switch: what is shared by its ports, and the reserve of headroom."""

    shared: int
    shared_size: int
    reserve: int
    reserve_size: int


class Buffer:
    """A NIC's receive buffer at a link's other end, if its host is slow: it is empty at drained_ps,
    and levels are times to drain them."""

    drain_bps: int
    drained_ps: int
    full_ps: int
    xoff_ps: int
    xon_ps: int
    fill_highest_ps: int
    is_draining: int
    overflows: int


class Packet:
    """A packet."""

    next: int
    """Of free ones, and of a queue."""

    flow: int
    place: int
    size_class: int
    psn: int
    """That of an ACK is one more than the last that it acknowledges."""

    kind: int
    ce: int
    class_: int


class Ring:
    """Events of one delay. front and back count what left and entered; an event is in `event` at
    first + (count & mask)."""

    first: int
    mask: int
    front: int
    back: int
    delay_ps: int


class PacketEvent:
    """subject: of a ring a port or packet; of a timer 8 x task, port, flow or row of `pause` + the
    kind."""

    time_ps: int
    subject: int


class Rules:
    """What holds for all of a run. Of rings, port_rings of serialisation come first, then those of
    pauses, and from way_rings on those of packets on their way. Flows from data_flows on clear
    others to send."""

    classes: int
    strict: int
    seed: int
    cuts_through: int
    port_rings: int
    way_rings: int
    lossless: int
    nic_class: int
    drains: int
    detection_ps: int
    restoration_ps: int
    discards_all: int
    buffer_each: int
    gap_ps: int
    data_flows: int
    moderation_ps: int
    late_ps: int


class Counts:
    """Counts of a run, and the present."""

    now_ps: int
    free: int
    free_packets: int
    most_taken: int
    timers: int
    hops: int
    acks: int
    finished: int
    failed: int
    lost_packets: int
    host_timers: int
    """Timers of hosts that are set, also for later than is due now."""

    most_host_timers: int


class PacketState(NamedTuple):
    """The tables of a run. `clearance`, of admission, `pause`, `pool` and `buffer`, of lossless
    classes, and `host`, of hosts that gather arrivals, are empty without."""

    task: Records[Task]
    transfer: Records[Transfer]
    flow: Records[PacketFlow]
    bitmap: Bitmaps
    """A row for each flow, three bitmaps behind one another of the packets in the window of a
    receiver that takes them beyond gaps: whether each has come, whether it asked for an ACK, and,
    of a selective sender, whether a NAK named it."""

    pace: Rates
    """A row for each flow."""

    rule: Rates
    """A row for each set of parameters (`rocelab.sim.packets.control`)."""

    port: Records[PacketPort]
    setting: Records[ClassSetting]
    queue: Records[Queue]
    """A row per class of each port, the strict ones first."""

    marking: Records[Marking]
    pause: Records[Pause]
    """As `queue`."""

    pool: Records[Pool]
    buffer: Records[Buffer]
    host: Records[Host]
    clearance: Records[Clearance]
    packet: Records[Packet]
    next_task: Longs
    starts: Longs
    """All tasks as they start at one instant, NIC by NIC, in an order that the seed draws, those of
    a NIC in their own."""

    path: Ints
    """Ways of packets, port by port, each up to END or LOST; the first cell is LOST."""

    sizes: Longs
    """Bytes of each size class on the wire; 0 is that of ACKs, 1 of CNPs."""

    ring_of: Longs
    """Of the serialisation at each rate, of each size class; -1 for a timer."""

    delay_ps: Longs
    """Of the serialisation at each rate, of each size class."""

    ring: Records[Ring]
    """One for each constant delay, the last that of propagation."""

    event: Records[PacketEvent]
    timer: Records[PacketEvent]
    """A binary heap."""

    due: Longs
    """The time of each ring's front and of the heap's root, or NEVER."""

    rules: Rules
    counts: Counts
