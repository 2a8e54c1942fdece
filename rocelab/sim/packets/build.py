"""Makes the packet engine's tables of a program, its paths and how its flows send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rocelab.base.arrays import NONE, Bools, Floats, Longs
from rocelab.jobs.messages import Messages
from rocelab.plan.queues import bin_edges_bytes
from rocelab.results.simulation import PortModel
from rocelab.sim.engine.program import Program
from rocelab.sim.packets import control
from rocelab.sim.packets import state as at
from rocelab.sim.packets.draws import drawn_order, order_by_nic
from rocelab.sim.packets.freelist import free_packets
from rocelab.sim.packets.hosts import with_wakes
from rocelab.sim.packets.pausing import Pausing, pause_rules, pause_tables
from rocelab.sim.packets.sending import (
    ACK_BYTES,
    CLEARANCE_BYTES,
    CNP_BYTES,
    Admission,
    Gathering,
    Queues,
    Sending,
    class_order,
    wire_bytes,
)
from rocelab.sim.packets.state import State, Table
from rocelab.sim.packets.wiring import PS, Wiring, connected, ports_of
from rocelab.wire.headers import Opcode

RINGED_SIZES = 4
"""Sizes of packets, ACKs and CNPs too, whose events have a ring for each rate. The loop looks
at all rings for each event, so those of other sizes are timers."""

FIRST_PACKETS = 2**16
"""Room for so many packets at first."""

CUT_BYTES = 64
"""What a port that cuts through waits for: enough to choose the next port."""

PMAX_UNITS = 2**31


def state_of(
    program: Program,
    wirings: Sequence[Wiring],
    latency_s: float,
    sending: Sending,
    queues: Queues,
) -> State:
    """The tables at time 0, with the first wiring."""
    ports, flows = len(wirings[0].capacity_bps), len(sending.source)
    pausing, all_ports = queues.pausing, ports_of(wirings, queues)
    program = _by_runs(program, sending.messages)
    mtu, count = sending.mtu[program.flow], sending.messages.count
    message = packets_of(sending.messages, mtu)
    last = _last_bytes(sending.messages, message, mtu)
    first = wire_bytes(Opcode.RC_WRITE_FIRST, sending.mtu)
    middle = wire_bytes(Opcode.RC_WRITE_MIDDLE, sending.mtu)
    admission = sending.admission
    clears = np.full(int(admission is not None), CLEARANCE_BYTES)
    sizes = _size_classes(
        np.concatenate((last, first[program.flow], middle[program.flow], clears)),
        np.concatenate(
            (count, count * (message > 1), count * np.maximum(0, message - 2), clears * count.sum())
        ),
    )
    rates = all_ports.rates_bps
    delay_ps = np.rint(sizes * 8 * PS / rates[:, None]).astype(np.int64)
    is_ring = np.broadcast_to(np.arange(len(sizes)) < RINGED_SIZES, delay_ps.shape)
    most_taken = 4 + int(np.diff(program.first_transfer).max(initial=0)) + _most_asked(pausing)
    order, strict = class_order(sending)
    flow = _flows(sending, order)
    clearance = _clearance(admission, flow, program.transfers)
    most_taken += int(clearance[:, at.PAIRS].max(initial=0))
    host, host_rules = _hosts(sending.gathering)
    most_taken += 2 * _most_ports(host) * int(host_rules.sum()) // int(delay_ps.min())
    pool = max(FIRST_PACKETS, 2 * most_taken, ports)
    early_ps = _early_ps(queues.ports, rates[all_ports.by_rate], latency_s)
    ask_ps = np.unique([] if pausing is None else pausing.delay_ps).astype(int).tolist()
    on_the_way_ps = [*ask_ps, *early_ps, round(latency_s * PS)]
    port_rings = int(is_ring.sum())
    by_serialisation = drawn_order(queues.seed, port_rings)
    ring = _rings(delay_ps[is_ring][by_serialisation], ports, on_the_way_ps, pool)
    way_rings = port_rings + len(ask_ps)
    transfer = np.full((program.transfers, at.TRANSFER_CELLS), -1, np.int64)
    transfer[:, at.PACKETS], transfer[:, at.MESSAGE] = count * message, message
    transfer[:, at.LAST_SIZE], transfer[:, at.QUEUE_PAIR] = _class_of(last, sizes), program.flow
    transfer[:, at.TASK] = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    endless = np.full((len(clears), at.TRANSFER_CELLS), -1, np.int64)
    endless[:, [at.PACKETS, at.END_PSN]], endless[:, at.MESSAGE] = at.NEVER, 1
    endless[:, at.LAST_SIZE] = _class_of(clears, sizes)
    port = np.zeros((ports, at.PORT_CELLS), np.int64)
    port[:, [at.BUSY, at.FIRST_FLOW, at.LAST_FLOW, at.EARLY]] = -1
    port[:, at.TURN] = strict
    queue = np.zeros((ports * len(order), at.QUEUE_CELLS), np.int64)
    queue[:, [at.HEAD, at.TAIL]], queue[:, at.DEFICIT] = -1, queues.quantum
    flow[:, at.FIRST_SIZE], flow[:, at.MIDDLE_SIZE] = (
        _class_of(each, sizes) for each in (first, middle)
    )
    floors = bin_edges_bytes(queues.kmin, queues.kmax, queues.buffer_bytes)
    marking = np.zeros((len(floors), at.MARKING_CELLS), np.int64)
    marking[:, at.FLOOR] = floors
    task, next_task = _tasks(program, sending)
    starts = start_order(program, sending, queues.seed)
    task[starts, at.STARTS_AS] = np.arange(len(starts))
    rules = _rules(queues, order, strict)
    rules[at.PORT_RINGS], rules[at.WAY_RINGS] = port_rings, way_rings
    rules[at.GAP_PS] = round(wirings[0].ways.gap_s * PS) or -1
    rules[at.DATA_FLOWS] = flows - len(clearance)
    pause, memory, buffer = pause_tables(pausing, order, port_rings)
    rules[[at.MODERATION_PS, at.LATE_PS]] = host_rules
    timers = program.tasks + 2 * ports + 2 * flows + len(pause) + 1
    counts = np.zeros(at.COUNTS, np.int64)
    counts[[at.FREE_PACKETS, at.MOST_TAKEN]] = pool, most_taken
    counts[at.FINISHED], counts[at.MOST_HOST_TIMERS] = len(endless), -2 * len(host)
    port_ring = np.full(is_ring.shape, -1)
    port_ring[is_ring] = np.argsort(by_serialisation)
    run = State(
        task=task,
        transfer=np.concatenate((transfer, endless)),
        flow=flow,
        pace=np.zeros((flows, control.STATE_CELLS)),
        rule=sending.rules,
        port=port,
        queue=queue,
        marking=marking,
        pause=pause,
        pool=memory,
        buffer=buffer,
        host=host,
        clearance=clearance,
        packet=free_packets(0, pool),
        next_task=next_task,
        starts=starts,
        path=np.array([at.LOST], np.int32),
        sizes=sizes,
        ring_of=port_ring.ravel(),
        delay_ps=delay_ps.ravel(),
        ring=ring,
        event=np.zeros((int((ring[:, at.MASK] + 1).sum()), at.EVENT_CELLS), np.int64),
        timer=np.zeros((timers, at.EVENT_CELLS), np.int64),
        due=np.full(len(ring) + 1, at.NEVER),
        rules=rules,
        counts=counts,
    )
    run = connected(with_wakes(run), wirings[0], all_ports)
    port[:, at.FREE_PS] = -port[:, at.BURST_PS]
    if len(host):
        port[all_ports.is_nic, at.BUSY] = at.GATHERS
        host[:, at.SHAPED_PS] = -port[:, at.BURST_PS]
    return run


def packets_of(messages: Messages, mtu: Longs) -> Longs:
    """The packets of a message of each run, R: one even of an empty message."""
    found: Longs = np.maximum(1, -(-messages.size_bytes // mtu))
    return found


def _by_runs(program: Program, messages: Messages) -> Program:
    """The program with a transfer for each run of equal messages."""
    return replace(
        program,
        first_transfer=messages.first[program.first_transfer],
        flow=np.repeat(program.flow, np.diff(messages.first)),
    )


def _last_bytes(messages: Messages, packets: Longs, mtu: Longs) -> Longs:
    """On the wire, the last packet, or the only one, of each message of a run."""
    payload = messages.size_bytes - (packets - 1) * mtu
    only, last = Opcode.RC_WRITE_ONLY_WITH_IMM, Opcode.RC_WRITE_LAST_WITH_IMM
    return np.where(packets == 1, wire_bytes(only, payload), wire_bytes(last, payload))


def _most_asked(pausing: Pausing | None) -> int:
    """The most pauses that one event asks for: those of a NIC, in all classes, or of a watchdog
    that empties a queue, of each port of the switch."""
    if pausing is None:
        return 0
    ports = np.bincount(pausing.pool[pausing.pool >= 0]).max(initial=0)
    return len(pausing.classes) + int(ports)


def _flows(sending: Sending, order: list[int]) -> Table:
    words = -(-int(sending.reach.max(initial=0)) // at.BITS)
    flow = np.zeros((len(sending.source), at.FLOW_CELLS + at.BITMAPS * words), np.int64)
    flow[:, [at.NEXT_FLOW, at.SENDING, at.ARRIVING, at.ACKING, at.LAST, at.ASKED]] = -1
    flow[:, at.DEADLINE_PS] = at.NEVER
    flow[:, [at.DATA_PS, at.ACK_PS]] = -at.NEVER
    place = np.zeros(1 + max(order, default=0), np.int64)
    place[order] = np.arange(len(order))
    columns: dict[int, Longs] = {
        at.WINDOW: sending.window,
        at.ACK_EVERY: sending.ack_every,
        at.TIMEOUT_PS: 1000 * sending.ack_timeout_ns,
        at.RETRIES: sending.retries,
        at.LEFT_RETRIES: sending.retries,
        at.ECN: sending.ecn,
        at.DATA_CLASS: place[sending.data_class],
        at.ACK_CLASS: place[sending.ack_class],
        at.CNP_CLASS: place[sending.cnp_class],
        at.CONTROL: sending.control,
        at.REACH: sending.reach,
        at.SELECTIVE: sending.selective,
    }
    for cell, values in columns.items():
        flow[:, cell] = values
    return flow


def _hosts(gathering: Gathering | None) -> tuple[Table, Longs]:
    """A row per port, if hosts gather arrivals; MODERATION_PS and LATE_PS."""
    if gathering is None:
        return np.zeros((0, at.HOST_CELLS), np.int64), np.zeros(2, np.int64)
    host = np.zeros((len(gathering.server), at.HOST_CELLS), np.int64)
    host[:, at.WOKE_PS], host[:, at.DUE_PS] = -at.NEVER, at.NEVER
    host[:, [at.FIRST_PORT, at.NEXT_PORT, at.FIRST_ARRIVED]], host[:, at.IS_IDLE] = NONE, 1
    numbers = np.argsort(gathering.server, kind="stable")[(gathering.server == NONE).sum() :]
    server = gathering.server[numbers]
    _, begin, which = np.unique(server, return_index=True, return_inverse=True)
    host[numbers, at.FIRST_PORT] = numbers[begin][which]
    host[numbers[:-1], at.NEXT_PORT] = np.where(server[1:] == server[:-1], numbers[1:], NONE)
    times_ns = np.array([gathering.moderation_ns, gathering.late_ns])
    return host, np.rint(1000 * times_ns).astype(np.int64)


def _most_ports(host: Table) -> int:
    """Of a host."""
    first = host[:, at.FIRST_PORT]
    return int(np.bincount(first[first != NONE]).max(initial=0))


def _clearance(admission: Admission | None, flow: Table, endless: int) -> Table:
    """A row for each of the last flows, which send an `endless` transfer as messages arrive."""
    flow[:, at.POSTED], flow[:, [at.POSTING, at.CLEARANCE]] = at.NEVER, -1
    if admission is None:
        return np.zeros((0, at.CLEARANCE_CELLS), np.int64)
    clearance = np.zeros((len(admission.initial), at.CLEARANCE_CELLS), np.int64)
    clearance[:, at.INITIAL], clearance[:, at.PARTS] = admission.initial, admission.parts
    (waiting,) = np.nonzero(admission.waits_for >= 0)
    used, first, pairs = np.unique(
        admission.waits_for[waiting], return_index=True, return_counts=True
    )
    clearance[used, at.FIRST_PAIR], clearance[used, at.PAIRS] = waiting[first], pairs
    flow[waiting, at.CLEARANCE] = admission.waits_for[waiting]
    flow[waiting, at.POSTED] = 0
    control = flow[len(flow) - len(clearance) :]
    control[:, [at.SENDING, at.ARRIVING, at.ACKING]] = endless
    control[:, at.CLEARANCE], control[:, at.POSTED] = np.arange(len(clearance)), 0
    return clearance


def _rules(queues: Queues, order: list[int], strict: int) -> Longs:
    rules = np.zeros(at.RULES, np.int64)
    rules[at.CLASSES], rules[at.STRICT] = len(order), strict
    rules[at.KMIN], rules[at.KMAX] = queues.kmin, queues.kmax
    rules[at.PMAX] = round(queues.pmax * PMAX_UNITS)
    rules[at.MARKED_CLASSES] = sum(
        1 << place for place, class_ in enumerate(order) if class_ in queues.marked
    )
    rules[at.QUANTUM], rules[at.SEED] = queues.quantum, queues.seed
    rules[at.CUTS_THROUGH] = queues.ports is PortModel.CUT_THROUGH
    if queues.pausing is not None:
        pause_rules(queues.pausing, order, rules)
    return rules


def _size_classes(data: Longs, count: Longs) -> Longs:
    """The size of each class on the wire: of ACKs, of CNPs, and of data from the most frequent one
    down. count: packets of each size of `data`."""
    size, place = np.unique(data, return_inverse=True)
    packets = np.bincount(place, count, len(size))
    by_count = size[np.argsort(-packets, kind="stable")]
    return np.concatenate(([ACK_BYTES, CNP_BYTES], by_count)).astype(np.int64)


def _class_of(size: Longs, sizes: Longs) -> Longs:
    order = np.argsort(sizes[2:])
    return 2 + order[np.searchsorted(sizes[2:], size, sorter=order)]


def _early_ps(ports: PortModel, rates: Floats, latency_s: float) -> list[int]:
    """For each rate, how long after its beginning a packet reaches the next port; none where it
    does after its end."""
    if ports is PortModel.STORE_AND_FORWARD:
        return []
    header_bytes = CUT_BYTES if ports is PortModel.CUT_THROUGH else 0
    found: list[int] = np.rint((latency_s + header_bytes * 8 / rates) * PS).astype(int).tolist()
    return found


def _rings(serialisation_ps: Longs, ports: int, on_the_way_ps: list[int], pool: int) -> Table:
    """A ring for each serialisation, with room for all ports, and one for each time on the way,
    with room for all packets."""
    ring = np.zeros((len(serialisation_ps) + len(on_the_way_ps), at.RING_CELLS), np.int64)
    ring[:, at.RING_DELAY_PS] = [*serialisation_ps, *on_the_way_ps]
    ring[:, at.MASK] = 2 ** (pool - 1).bit_length() - 1
    ring[: len(serialisation_ps), at.MASK] = 2 ** (ports - 1).bit_length() - 1
    ring[1:, at.FIRST] = np.cumsum(ring[:-1, at.MASK] + 1)
    return ring


def _tasks(program: Program, sending: Sending) -> tuple[Table, Longs]:
    """The rows of tasks, and the tasks that wait for each."""
    task = np.zeros((program.tasks, at.TASK_CELLS), np.int64)
    task[:, [at.READY_PS, at.START_PS, at.END_PS]] = [0, -1, -1]
    task[:, at.WAITING] = np.diff(program.after_start)
    task[:, at.OPEN] = task[:, at.COMING] = np.diff(program.first_transfer)
    task[:, at.DELAY_PS] = np.rint(program.delay_s * PS)
    task[:, at.FIRST_TRANSFER] = program.first_transfer[:-1]
    task[:, at.LAST_TRANSFER] = program.first_transfer[1:]
    waiter = np.repeat(np.arange(program.tasks), np.diff(program.after_start))
    for_ack = ~_receives(program, sending, waiter)
    first = np.searchsorted(np.sort(program.after), np.arange(program.tasks + 1))
    arrivals = np.bincount(program.after[~for_ack], minlength=program.tasks)
    task[:, at.FIRST_NEXT], task[:, at.LAST_NEXT] = first[:-1], first[1:]
    task[:, at.FIRST_ACKED] = first[:-1] + arrivals
    return task, waiter[np.lexsort((for_ack, program.after))].astype(np.int64)


def start_order(program: Program, sending: Sending, seed: int) -> Longs:
    """The tasks as they start at one instant."""
    task = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    return order_by_nic(seed, _only(task, sending.source[program.flow], program.tasks))


def _receives(program: Program, sending: Sending, waiter: Longs) -> Bools:
    """Of each of `program.after`, whether the waiting task is the receiver's: whether it sends from
    the NIC to which all data of the other comes. It is taken for the sender's where a task has
    several destinations or no data."""
    task = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    sender = _only(task, sending.source[program.flow], program.tasks)[waiter]
    receiver = _only(task, sending.destination[program.flow], program.tasks)[program.after]
    found: Bools = (sender >= 0) & (sender == receiver)
    return found


def _only(task: Longs, nic: Longs, tasks: int) -> Longs:
    """The NIC of all transfers of each task; -1 where they have several or there are none."""
    least, most = np.full(tasks, np.iinfo(np.int64).max), np.full(tasks, -1)
    np.minimum.at(least, task, nic)
    np.maximum.at(most, task, nic)
    return np.where(least == most, most, -1)
