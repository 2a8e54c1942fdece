"""Makes the packet engine's tables of a program, its paths and how its flows send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from rocelab.base.arrays import NONE, Bools, Floats, Longs
from rocelab.jobs.messages import Messages
from rocelab.labfile.portsettings import ClassQueues
from rocelab.labfile.queues import TRAFFIC_CLASSES, EcnSpec
from rocelab.planning.queues import bin_edges_bytes, quanta_of
from rocelab.results.engines import PortModel
from rocelab.sim.engine.program import Program
from rocelab.sim.packets import control
from rocelab.sim.packets import state as at
from rocelab.sim.packets.draws import drawn_order, order_by_nic
from rocelab.sim.packets.freelist import free_packets
from rocelab.sim.packets.hosts import with_wakes
from rocelab.sim.packets.pausing import Pausing, pause_rules, pause_tables
from rocelab.sim.packets.sending import (
    Gathering,
    Queues,
    SendAdmission,
    Sending,
    class_order,
)
from rocelab.sim.packets.state import (
    Bitmaps,
    ClassSetting,
    Clearance,
    Counts,
    Host,
    Marking,
    PacketEvent,
    PacketFlow,
    PacketPort,
    PacketState,
    Queue,
    Records,
    Ring,
    Rules,
    Task,
    Transfer,
    zeros,
)
from rocelab.sim.packets.wiring import PS, Wiring, connected, ports_of
from rocelab.wire.headers import Opcode

RINGED_SIZES = 4
"""Sizes of packets, ACKs and CNPs too, whose events have a ring for each rate. The loop looks
at all rings for each event, so those of other sizes are timers."""

FIRST_PACKETS = 2**16
"""Room for so many packets at first."""

PMAX_UNITS = 2**31


@dataclass(frozen=True, eq=False)
class _Sizes:
    """Bytes of each size class on the wire, and the classes of packets: of the first and of those
    between of each flow's messages, of the last of each run of messages, and of clear-to-sends."""

    wire_bytes: Longs
    first: Longs
    middle: Longs
    last: Longs
    clearing: Longs


@dataclass(frozen=True, eq=False)
class _Serialisation:
    """Of each rate of ports and size class: how long it takes, and its ring, -1 for a timer.
    by_ring: how long it takes of each ring."""

    delay_ps: Longs
    ring: Longs
    by_ring: Longs


def state_of(
    program: Program,
    wirings: Sequence[Wiring],
    latency_s: Floats,
    sending: Sending,
    queues: Queues,
) -> PacketState:
    """The tables at time 0, with the first wiring. latency_s: of each send, 2L."""
    pausing, ports = queues.pausing, ports_of(wirings, queues, latency_s)
    program = _by_runs(program, sending.messages)
    order, strict = class_order(sending, queues.strict)
    sizes = _sizes(program, sending)
    serialisation = _serialisation(ports.rates_bps, sizes.wire_bytes, queues.seed)
    port_rings = len(serialisation.by_ring)
    flow = _flows(sending, order, sizes)
    clearance = _clearance(sending.admission, flow, program.transfers)
    host = _hosts(sending.gathering)
    task, next_task = _tasks(program, sending)
    starts = start_order(program, sending, queues.seed)
    task.starts_as[starts] = np.arange(len(starts))
    pause, memory, buffer = pause_tables(pausing, order, port_rings)
    asking_ps = np.unique([] if pausing is None else pausing.delay_ps).astype(int).tolist()

    rules = _rules(queues, order, strict)
    rules.port_rings, rules.way_rings = port_rings, port_rings + len(asking_ps)
    rules.gap_ps = round(wirings[0].ways.gap_s * PS) or -1
    rules.data_flows = len(flow) - len(clearance)
    if sending.gathering is not None:
        rules.moderation_ps = round(1000 * sending.gathering.moderation_ns)
        rules.late_ps = round(1000 * sending.gathering.late_ns)

    counts = zeros(Counts, 1)[0]
    counts.most_taken = 4 + int(np.diff(program.first_transfer).max(initial=0))
    counts.most_taken += _most_pauses(pausing) + int(clearance.pairs.max(initial=0))
    waits_ps = rules.moderation_ps + rules.late_ps
    counts.most_taken += 2 * _most_ports(host) * waits_ps // int(serialisation.delay_ps.min())
    setting = _settings(queues, order)
    port = _ports(len(ports.is_nic), strict)
    kind = np.broadcast_to(queues.kind, len(port))
    # A job that sends nothing has no classes: of each kind none.
    kinds = len(setting) // len(order) if len(order) else int(kind.max(initial=0)) + 1
    port.setting = kind * len(order)
    counts.free_packets = max(FIRST_PACKETS, 2 * counts.most_taken, len(port))
    counts.finished, counts.most_host_timers = len(sizes.clearing), -2 * len(host)

    on_the_way_ps = [*asking_ps, *ports.on_the_way_ps()]
    ring = _rings(serialisation.by_ring, len(port), on_the_way_ps, int(counts.free_packets))
    timers = len(task) + 2 * len(port) + 2 * len(flow) + len(pause) + 1
    run = PacketState(
        task=task,
        transfer=_transfers(program, sending, sizes),
        flow=flow,
        bitmap=_bitmaps(sending),
        pace=np.zeros((len(flow), control.STATE_CELLS)),
        rule=sending.rules,
        port=port,
        setting=setting,
        queue=_queues(setting.quantum.reshape(kinds, len(order))[kind]),
        marking=_markings(queues),
        pause=pause,
        pool=memory,
        buffer=buffer,
        host=host,
        clearance=clearance,
        packet=free_packets(0, int(counts.free_packets)),
        next_task=next_task,
        starts=starts,
        path=np.array([at.LOST], np.int32),
        sizes=sizes.wire_bytes,
        ring_of=serialisation.ring.ravel(),
        delay_ps=serialisation.delay_ps.ravel(),
        ring=ring,
        event=zeros(PacketEvent, int((ring.mask + 1).sum())),
        timer=zeros(PacketEvent, timers),
        due=np.full(len(ring) + 1, at.NEVER),
        rules=rules,
        counts=counts,
    )
    run = connected(with_wakes(run), wirings[0], ports)
    port.free_ps = -port.burst_ps
    if len(host):
        port.busy[ports.is_nic] = at.GATHERS
        host.shaped_ps = -port.burst_ps
    return run


def packets_of(messages: Messages, mtu: Longs) -> Longs:
    """The packets of a message of each run, R: one even of an empty message."""
    counts: Longs = np.maximum(1, -(-messages.size_bytes // mtu))
    return counts


def _by_runs(program: Program, messages: Messages) -> Program:
    """The program with a transfer for each run of equal messages."""
    return replace(
        program,
        first_transfer=messages.first[program.first_transfer],
        flow=np.repeat(program.flow, np.diff(messages.first)),
    )


def _last_bytes(sending: Sending, packets: Longs, mtu: Longs) -> Longs:
    """On the wire, the last packet, or the only one, of each message of a run."""
    payload = sending.messages.size_bytes - (packets - 1) * mtu
    only, last = Opcode.RC_WRITE_ONLY_WITH_IMM, Opcode.RC_WRITE_LAST_WITH_IMM
    sizes = (sending.wire_bytes(opcode, payload) for opcode in (only, last))
    return np.where(packets == 1, *sizes)


def _most_pauses(pausing: Pausing | None) -> int:
    """The most pauses that one event asks for: those of a NIC, in all classes, or of a watchdog
    that empties a queue, of each port of the switch."""
    if pausing is None:
        return 0
    ports = np.bincount(pausing.pool[pausing.pool >= 0]).max(initial=0)
    return len(pausing.classes) + int(ports)


def _sizes(program: Program, sending: Sending) -> _Sizes:
    mtu, count = sending.mtu[program.flow], sending.messages.count
    packets = packets_of(sending.messages, mtu)
    first = sending.wire_bytes(Opcode.RC_WRITE_FIRST, sending.mtu)
    middle = sending.wire_bytes(Opcode.RC_WRITE_MIDDLE, sending.mtu)
    last = _last_bytes(sending, packets, mtu)
    clearing = np.full(int(sending.admission is not None), sending.clearance_bytes)
    of_packets = np.concatenate((last, first[program.flow], middle[program.flow], clearing))
    firsts, middles = count * (packets > 1), count * np.maximum(0, packets - 2)
    counts = np.concatenate((count, firsts, middles, clearing * count.sum()))
    sizes = _size_classes(sending, of_packets, counts)
    return _Sizes(sizes, *(_class_of(size, sizes) for size in (first, middle, last, clearing)))


def _serialisation(rates_bps: Floats, sizes: Longs, seed: int) -> _Serialisation:
    delay_ps = np.rint(sizes * 8 * PS / rates_bps[:, None]).astype(np.int64)
    has_ring = np.broadcast_to(np.arange(len(sizes)) < RINGED_SIZES, delay_ps.shape)
    by_ring = drawn_order(seed, int(has_ring.sum()))
    ring = np.full(delay_ps.shape, -1)
    ring[has_ring] = np.argsort(by_ring)
    return _Serialisation(delay_ps, ring, delay_ps[has_ring][by_ring])


def _transfers(program: Program, sending: Sending, sizes: _Sizes) -> Records[Transfer]:
    """Of each run of messages, and an endless one of clear-to-sends."""
    transfer = zeros(Transfer, program.transfers + len(sizes.clearing))
    transfer.task = transfer.queue_pair = transfer.next_transfer = transfer.finish_ps = -1
    of_data, endless = transfer[: program.transfers], transfer[program.transfers :]
    of_data.message = packets_of(sending.messages, sending.mtu[program.flow])
    of_data.packets = sending.messages.count * of_data.message
    of_data.end_psn = -1
    of_data.last_size, of_data.queue_pair = sizes.last, program.flow
    of_data.task = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    endless.packets = endless.end_psn = at.NEVER
    endless.message, endless.last_size = 1, sizes.clearing
    return transfer


def _flows(sending: Sending, order: list[int], sizes: _Sizes) -> Records[PacketFlow]:
    place = np.zeros(1 + max(order, default=0), np.int64)
    place[order] = np.arange(len(order))
    flow = zeros(PacketFlow, len(sending.source))
    flow.next_flow = flow.sending = flow.arriving = flow.acking = flow.last = flow.asked = -1
    flow.posting = flow.clearance = -1
    flow.deadline_ps = flow.posted = at.NEVER
    flow.data_way.last_ps = flow.ack_way.last_ps = -at.NEVER
    flow.first_size, flow.middle_size = sizes.first, sizes.middle
    flow.window, flow.reach = sending.window, sending.reach
    flow.ack_every, flow.selective = sending.ack_every, sending.selective
    flow.timeout_ps = 1000 * sending.ack_timeout_ns
    flow.retries = flow.left_retries = sending.retries
    flow.ecn, flow.control = sending.ecn, sending.control
    flow.data_class = place[sending.data_class]
    flow.ack_class, flow.cnp_class = place[sending.ack_class], place[sending.cnp_class]
    return flow


def _bitmaps(sending: Sending) -> Bitmaps:
    words = -(-int(sending.reach.max(initial=0)) // at.BITS)
    return np.zeros((len(sending.source), at.BITMAPS * words), np.int64)


def _ports(ports: int, turn: int) -> Records[PacketPort]:
    port = zeros(PacketPort, ports)
    port.busy = port.flows.first = port.flows.last = port.early = -1
    port.turn = turn
    return port


def _queues(deficits: Longs) -> Records[Queue]:
    """Of the classes of each port. deficits: what each may send at first, ports x classes."""
    queue = zeros(Queue, deficits.size)
    queue.head = queue.tail = -1
    queue.deficit = deficits.ravel()
    return queue


def _settings(queues: Queues, order: Sequence[int]) -> Records[ClassSetting]:
    """The rows of each kind of port, a class after the other."""
    line = EcnSpec.model_construct(kmin=queues.kmin, kmax=queues.kmax, pmax=queues.pmax)
    usual = ClassQueues(
        (queues.buffer_bytes,) * TRAFFIC_CLASSES,
        tuple(line if number in queues.marked else None for number in range(TRAFFIC_CLASSES)),
        (1,) * TRAFFIC_CLASSES,
    )
    kinds = queues.kinds or (usual,)
    setting = zeros(ClassSetting, len(kinds) * len(order))
    sharing = [number for number in order if number not in queues.strict]
    for row, (kind, number) in zip(setting, product(kinds, order), strict=True):
        quanta = quanta_of(kind.weights, sharing, queues.quantum)
        marking = kind.lines[number]
        row.buffer = kind.buffer_bytes[number]
        row.quantum = quanta.get(number, queues.quantum)
        row.marks = marking is not None
        if marking is not None:
            row.kmin, row.kmax = marking.kmin, marking.kmax
            row.pmax = round(marking.pmax * PMAX_UNITS)
    return setting


def _markings(queues: Queues) -> Records[Marking]:
    floors = bin_edges_bytes(queues.kmin, queues.kmax, queues.buffer_bytes)
    marking = zeros(Marking, len(floors))
    marking.floor = floors
    return marking


def _hosts(gathering: Gathering | None) -> Records[Host]:
    """Of each port, if hosts gather arrivals."""
    if gathering is None:
        return zeros(Host, 0)
    host = zeros(Host, len(gathering.server))
    host.woke_ps, host.due_ps, host.is_idle = -at.NEVER, at.NEVER, 1
    for column in (host.first_port, host.next_port, host.first_arrived):
        column[:] = NONE
    numbers = np.argsort(gathering.server, kind="stable")[(gathering.server == NONE).sum() :]
    server = gathering.server[numbers]
    _, begin, which = np.unique(server, return_index=True, return_inverse=True)
    host.first_port[numbers] = numbers[begin][which]
    host.next_port[numbers[:-1]] = np.where(server[1:] == server[:-1], numbers[1:], NONE)
    return host


def _most_ports(host: Records[Host]) -> int:
    """Of a host."""
    first = host.first_port
    return int(np.bincount(first[first != NONE]).max(initial=0))


def _clearance(
    admission: SendAdmission | None, flow: Records[PacketFlow], endless: int
) -> Records[Clearance]:
    """Of each of the last flows, which send an `endless` transfer as messages arrive."""
    if admission is None:
        return zeros(Clearance, 0)
    clearance = zeros(Clearance, len(admission.initial))
    clearance.initial, clearance.parts = admission.initial, admission.parts
    (waiting,) = np.nonzero(admission.waits_for >= 0)
    used, first, pairs = np.unique(
        admission.waits_for[waiting], return_index=True, return_counts=True
    )
    clearance.first_pair[used], clearance.pairs[used] = waiting[first], pairs
    flow.clearance[waiting], flow.posted[waiting] = admission.waits_for[waiting], 0
    clearing = slice(len(flow) - len(clearance), None)
    for column in (flow.sending, flow.arriving, flow.acking):
        column[clearing] = endless
    flow.clearance[clearing], flow.posted[clearing] = np.arange(len(clearance)), 0
    return clearance


def _rules(queues: Queues, order: list[int], strict: int) -> Rules:
    rules = zeros(Rules, 1)[0]
    rules.classes, rules.strict = len(order), strict
    rules.seed = queues.seed
    rules.cuts_through = queues.ports is PortModel.CUT_THROUGH
    if queues.pausing is not None:
        pause_rules(queues.pausing, order, rules)
    return rules


def _size_classes(sending: Sending, data: Longs, count: Longs) -> Longs:
    """The size of each class on the wire: of ACKs, of CNPs, and of data from the most frequent one
    down. count: packets of each size of `data`."""
    size, place = np.unique(data, return_inverse=True)
    packets = np.bincount(place, count, len(size))
    by_count = size[np.argsort(-packets, kind="stable")]
    return np.concatenate(([sending.ack_bytes, sending.cnp_bytes], by_count)).astype(np.int64)


def _class_of(size: Longs, sizes: Longs) -> Longs:
    order = np.argsort(sizes[2:])
    return 2 + order[np.searchsorted(sizes[2:], size, sorter=order)]


def _rings(
    serialisation_ps: Longs, ports: int, on_the_way_ps: list[int], packets: int
) -> Records[Ring]:
    """A ring for each serialisation, with room for all ports, and one for each time on the way,
    with room for all packets."""
    ring = zeros(Ring, len(serialisation_ps) + len(on_the_way_ps))
    ring.delay_ps = [*serialisation_ps, *on_the_way_ps]
    room = np.repeat((ports, packets), (len(serialisation_ps), len(on_the_way_ps)))
    mask = np.array([2 ** (most - 1).bit_length() - 1 for most in room.tolist()])
    ring.mask, ring.first = mask, np.cumsum(mask + 1) - (mask + 1)
    return ring


def _tasks(program: Program, sending: Sending) -> tuple[Records[Task], Longs]:
    """The records of tasks, and the tasks that wait for each."""
    task = zeros(Task, program.tasks)
    task.start_ps = task.end_ps = -1
    task.waiting = np.diff(program.after_start)
    task.open = task.coming = np.diff(program.first_transfer)
    task.delay_ps = np.rint(program.delay_s * PS)
    task.first_transfer = program.first_transfer[:-1]
    task.last_transfer = program.first_transfer[1:]
    waiter = np.repeat(np.arange(program.tasks), np.diff(program.after_start))
    for_ack = ~_receives(program, sending, waiter)
    first = np.searchsorted(np.sort(program.after), np.arange(program.tasks + 1))
    arrivals = np.bincount(program.after[~for_ack], minlength=program.tasks)
    task.first_next, task.last_next = first[:-1], first[1:]
    task.first_acked = first[:-1] + arrivals
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
    mask: Bools = (sender >= 0) & (sender == receiver)
    return mask


def _only(task: Longs, nic: Longs, tasks: int) -> Longs:
    """The NIC of all transfers of each task; -1 where they have several or there are none."""
    least, most = np.full(tasks, np.iinfo(np.int64).max), np.full(tasks, -1)
    np.minimum.at(least, task, nic)
    np.maximum.at(most, task, nic)
    return np.where(least == most, most, -1)
