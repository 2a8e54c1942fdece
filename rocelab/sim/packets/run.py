"""Runs a program packet by packet, over fixed paths.

Ports store and forward: a packet reaches the next one a latency after the end of its serialisation.
Queues are unlimited, with neither marks nor losses, so that nothing is sent again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.arrays import Bools, Floats, Ints, Longs
from rocelab.errors import InputError
from rocelab.progress import Progress, ProgressSink, no_progress
from rocelab.sim.engine.program import Outcome, Program
from rocelab.sim.fabric.flows import Paths
from rocelab.sim.packets import loop
from rocelab.sim.packets import state as at
from rocelab.sim.packets.state import State, Table

ACK_BYTES = 4
"""AETH (InfiniBand Architecture Specification 9.3.5), beyond the headers of every packet."""

MOST_HOPS = 600_000_000
HOPS_PER_SECOND = 2_000_000
"""Packet-hops per second, of data and ACKs, on a core of 2 GHz, for the estimate."""

MOST_IN_FLIGHT = 2**24
RINGED_SIZES = 4
"""Sizes of packets, ACKs among them, whose events have a ring for each rate: the loop looks at all
rings for each event. Those of other sizes are timers."""

_EVENTS_AT_ONCE = 200_000
PS = 1e12


@dataclass(frozen=True, eq=False)
class Sending:
    """How flows send: payload_bytes of each transfer, X; of each flow, F, the mtu, and packets in
    flight, for one ACK and in a message; overhead_bytes: headers of each packet on the wire."""

    payload_bytes: Longs
    mtu: Longs
    window: Longs
    ack_every: Longs
    message: Longs
    overhead_bytes: int


@dataclass(frozen=True, eq=False)
class PacketRun:
    """An outcome; data packets and ACKs sent; packet_hops: transmissions of both; highest_bytes:
    of the queue of each send, 2L, without the packet under way."""

    outcome: Outcome
    packets: int
    acks: int
    packet_hops: int
    highest_bytes: Longs


def run_packets(
    program: Program,
    paths: Paths,
    capacity_bps: Floats,
    latency_s: float,
    sending: Sending,
    progress: ProgressSink = no_progress,
) -> PacketRun:
    """Run a program to its end. latency_s: of each send, after serialisation.

    A sender goes on at the last ACK of its data, a receiver when all of it has arrived. ACKs take
    the links of their data in reverse and wait in the same queues; a NIC sends them before data.
    Raises InputError for a run that would take too long.
    """
    packets = -(-sending.payload_bytes // sending.mtu[program.flow])
    hops = int((packets * np.diff(paths.start)[program.flow]).sum())
    in_flight = np.minimum(
        np.bincount(program.flow, packets, len(paths)).astype(np.int64), sending.window
    )
    if hops > MOST_HOPS or in_flight.sum() > MOST_IN_FLIGHT:
        raise InputError(
            f"packet by packet this takes {int(packets.sum()):,} packets and {hops:,} packet-hops, "
            f"about {2 * hops / HOPS_PER_SECOND:,.0f} s, and {int(in_flight.sum()):,} packets in "
            f"flight; at most {MOST_HOPS:,} and {MOST_IN_FLIGHT:,} are simulated",
            hint="take --engine fluid, a smaller size or fewer ranks",
        )
    run = _state(program, paths, capacity_bps, latency_s, sending, packets, in_flight)
    loop.begin(run)
    # In parts: a compiled function is not interrupted.
    while loop.advance(run, _EVENTS_AT_ONCE):
        progress(Progress("simulating", int(run.counts[at.FINISHED]), program.transfers))
    assert run.counts[at.DISORDERED] == 0
    return PacketRun(
        _outcome(run, float(program.size_bits.sum())),
        int(packets.sum()),
        int(run.counts[at.ACKS]),
        int(run.counts[at.HOPS]),
        run.port[:, at.HIGHEST],
    )


def _state(
    program: Program,
    paths: Paths,
    capacity_bps: Floats,
    latency_s: float,
    sending: Sending,
    packets: Longs,
    in_flight: Longs,
) -> State:
    full = sending.mtu + sending.overhead_bytes
    last = sending.payload_bytes - (packets - 1) * sending.mtu[program.flow]
    last += sending.overhead_bytes
    sizes, often = _size_classes(full[program.flow], packets - 1, last)
    sizes[0] = sending.overhead_bytes + ACK_BYTES
    rates, rate_class = np.unique(capacity_bps, return_inverse=True)
    delay_ps = np.rint(sizes * 8 * PS / rates[:, None]).astype(np.int64)
    is_ring = np.broadcast_to(np.arange(len(sizes)) < often, delay_ps.shape)
    ports, flows, pool = len(capacity_bps), len(paths), int(in_flight.sum()) + 1
    ring = _rings(delay_ps[is_ring], ports, round(latency_s * PS), pool)
    hops = np.diff(paths.start)
    path = np.full(2 * (int(hops.sum()) + flows), -1, np.int32)
    data_path = 2 * (paths.start[:-1] + np.arange(flows))
    ack_path = data_path + hops + 1
    way = np.arange(len(paths.sends)) - np.repeat(paths.start[:-1], hops)
    path[np.repeat(data_path, hops) + way] = paths.sends
    path[np.repeat(ack_path + hops - 1, hops) - way] = paths.sends ^ 1
    flow = np.zeros((flows, at.FLOW_CELLS), np.int64)
    flow[:, [at.NEXT_FLOW, at.SENDING, at.ARRIVING, at.ACKING, at.LAST]] = -1
    flow[:, at.NIC], flow[:, at.DATA_PATH], flow[:, at.ACK_PATH] = (
        path[data_path],
        data_path,
        ack_path,
    )
    flow[:, at.WINDOW], flow[:, at.ACK_EVERY] = sending.window, sending.ack_every
    flow[:, at.MESSAGE] = sending.message
    flow[:, at.FULL] = _class_of(full, sizes)
    transfer = np.full((program.transfers, at.TRANSFER_CELLS), -1, np.int64)
    transfer[:, at.PACKETS], transfer[:, at.SHORT] = packets, _class_of(last, sizes)
    transfer[:, at.QUEUE_PAIR] = program.flow
    transfer[:, at.TASK] = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    port = np.zeros((ports, at.PORT_CELLS), np.int64)
    port[:, [at.BUSY, at.HEAD, at.TAIL, at.FIRST_FLOW, at.LAST_FLOW]] = -1
    port[:, at.RATE] = rate_class * len(sizes)
    packet = np.zeros((pool, at.PACKET_CELLS), np.int32)
    packet[:, at.NEXT] = np.arange(1, pool + 1)
    task, next_task = _tasks(program, paths)
    return State(
        task=task,
        transfer=transfer,
        flow=flow,
        port=port,
        packet=packet,
        next_task=next_task,
        path=path,
        sizes=sizes,
        ring_of=np.where(is_ring, np.cumsum(is_ring).reshape(is_ring.shape) - 1, -1).ravel(),
        delay_ps=delay_ps.ravel(),
        ring=ring,
        event=np.zeros((int((ring[:, at.MASK] + 1).sum()), at.EVENT_CELLS), np.int64),
        timer=np.zeros((program.tasks + ports + 1, at.EVENT_CELLS), np.int64),
        due=np.full(len(ring) + 1, at.NEVER),
        counts=np.zeros(at.COUNTS, np.int64),
    )


def _size_classes(full: Longs, fulls: Longs, last: Longs) -> tuple[Longs, int]:
    """The size of each class, from the most frequent one down, after a place for ACKs, and how many
    of them have rings."""
    size, place = np.unique(np.concatenate((full, last)), return_inverse=True)
    packets = np.bincount(place, np.concatenate((fulls, np.ones_like(last))), len(size))
    sizes = np.concatenate(([0], size[np.argsort(-packets, kind="stable")]))
    return sizes, min(len(sizes), RINGED_SIZES)


def _class_of(size: Longs, sizes: Longs) -> Longs:
    order = np.argsort(sizes[1:])
    return 1 + order[np.searchsorted(sizes[1:], size, sorter=order)]


def _rings(serialisation_ps: Longs, ports: int, latency_ps: int, pool: int) -> Table:
    """A ring for each serialisation, with room for all ports, and one for all packets."""
    ring = np.zeros((len(serialisation_ps) + 1, at.RING_CELLS), np.int64)
    ring[:, at.RING_DELAY_PS] = [*serialisation_ps, latency_ps]
    ring[:-1, at.MASK], ring[-1, at.MASK] = 2 ** ports.bit_length() - 1, 2 ** pool.bit_length() - 1
    ring[1:, at.FIRST] = np.cumsum(ring[:-1, at.MASK] + 1)
    return ring


def _tasks(program: Program, paths: Paths) -> tuple[Table, Longs]:
    """The rows of tasks, and the tasks that wait for each."""
    task = np.zeros((program.tasks, at.TASK_CELLS), np.int64)
    task[:, [at.READY_PS, at.START_PS, at.END_PS]] = [0, -1, -1]
    task[:, at.WAITING] = np.diff(program.after_start)
    task[:, at.OPEN] = task[:, at.COMING] = np.diff(program.first_transfer)
    task[:, at.DELAY_PS] = np.rint(program.delay_s * PS)
    task[:, at.FIRST_TRANSFER] = program.first_transfer[:-1]
    task[:, at.LAST_TRANSFER] = program.first_transfer[1:]
    waiter = np.repeat(np.arange(program.tasks), np.diff(program.after_start))
    for_ack = ~_receives(program, paths, waiter)
    first = np.searchsorted(np.sort(program.after), np.arange(program.tasks + 1))
    arrivals = np.bincount(program.after[~for_ack], minlength=program.tasks)
    task[:, at.FIRST_NEXT], task[:, at.LAST_NEXT] = first[:-1], first[1:]
    task[:, at.FIRST_ACKED] = first[:-1] + arrivals
    return task, waiter[np.lexsort((for_ack, program.after))].astype(np.int64)


def _receives(program: Program, paths: Paths, waiter: Longs) -> Bools:
    """Of each of `program.after`, whether the waiting task is the receiver's: whether it sends on
    the link by which all data of the other comes. It is taken for the sender's where a task has
    several destinations or no data."""
    task = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    first = _only(task, paths.sends[paths.start[program.flow]], program.tasks)
    last = _only(task, paths.sends[paths.start[program.flow + 1] - 1], program.tasks)
    sent, come = first[waiter], last[program.after]
    found: Bools = (sent >= 0) & (come >= 0) & (sent == come ^ 1)
    return found


def _only(task: Longs, port: Ints, tasks: int) -> Longs:
    """The port of all transfers of each task; -1 where they have several or there are none."""
    least, most = np.full(tasks, np.iinfo(np.int64).max), np.full(tasks, -1)
    np.minimum.at(least, task, port)
    np.maximum.at(most, task, port)
    return np.where(least == most, most, -1)


def _outcome(run: State, bits: float) -> Outcome:
    start, end = run.task[:, at.START_PS], run.task[:, at.END_PS]
    finish = run.transfer[:, at.FINISH_PS]
    seconds = run.counts[at.NOW_PS] / PS
    sent_bits = 8 * run.port[:, at.CARRIED].astype(np.float64)
    return Outcome(
        start_s=np.where(start < 0, np.inf, start / PS),
        end_s=np.where(end < 0, np.inf, end / PS),
        finish_s=np.where(finish < 0, np.inf, finish / PS),
        sent_bits=sent_bits,
        rate_times_s=np.array([0.0, seconds]),
        rate_bps=np.array([bits / seconds if seconds else 0.0, 0.0]),
        solves=0,
    )
