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
from rocelab.sim.packets.state import State

ACK_BYTES = 4
"""AETH (InfiniBand Architecture Specification 9.3.5), beyond the headers of every packet."""

MOST_HOPS = 200_000_000
HOPS_PER_SECOND = 650_000
"""Packet-hops per second, of data and ACKs, on a core of 2 GHz, for the estimate."""

MOST_IN_FLIGHT = 2**24
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
        run.port[at.HIGHEST],
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
    ack = sending.overhead_bytes + ACK_BYTES
    sizes = np.concatenate(([ack], np.unique(np.concatenate((full, last)))))
    rates, rate_class = np.unique(capacity_bps, return_inverse=True)
    delays = np.rint(sizes[:, None] * 8 * PS / rates).astype(np.int64).ravel()
    ports, flows = len(capacity_bps), len(paths)
    pool = 2 * int(in_flight.sum()) + 1
    rings = np.zeros((at.RING_ROWS, len(delays) + 1), np.int64)
    rings[at.RING_CAPACITY] = [*[ports] * len(delays), pool]
    rings[at.RING_FIRST, 1:] = np.cumsum(rings[at.RING_CAPACITY])[:-1]
    rings[at.RING_DELAY_PS] = [*delays, round(latency_s * PS)]
    task = np.full((at.TASK_ROWS, program.tasks), -1, np.int64)
    task[at.WAITING] = np.diff(program.after_start)
    task[at.OPEN] = task[at.COMING] = np.diff(program.first_transfer)
    task[at.DELAY_PS] = np.rint(program.delay_s * PS)
    task[at.READY_PS] = 0
    flow = np.zeros((at.FLOW_ROWS, flows), np.int64)
    flow[[at.SENDING, at.ARRIVING, at.ACKING, at.LAST, at.NEXT_FLOW]] = -1
    flow[at.WINDOW], flow[at.ACK_EVERY] = sending.window, sending.ack_every
    flow[at.MESSAGE] = sending.message
    flow[at.FULL] = 1 + np.searchsorted(sizes[1:], full)
    transfer = np.full((at.TRANSFER_ROWS, program.transfers), -1, np.int64)
    transfer[at.PACKETS] = packets
    transfer[at.SHORT] = 1 + np.searchsorted(sizes[1:], last)
    port = np.zeros((at.PORT_ROWS, ports), np.int64)
    port[[at.HEAD, at.TAIL, at.FIRST_FLOW, at.LAST_FLOW, at.BUSY]] = -1
    port[at.RATE_CLASS] = rate_class
    packet = np.zeros((at.PACKET_ROWS, pool), np.int64)
    packet[at.NEXT] = np.arange(1, pool + 1)
    waiter = np.repeat(np.arange(program.tasks), np.diff(program.after_start))
    for_ack = ~_receives(program, paths, waiter)
    next_start = np.searchsorted(np.sort(program.after), np.arange(program.tasks + 1))
    arrivals = np.bincount(program.after[~for_ack], minlength=program.tasks)
    return State(
        task=task,
        flow=flow,
        transfer=transfer,
        port=port,
        packet=packet,
        next_start=next_start.astype(np.int64),
        next_acked=next_start[:-1] + arrivals,
        next_task=waiter[np.lexsort((for_ack, program.after))].astype(np.int64),
        first_transfer=program.first_transfer.astype(np.int64),
        task_of=np.repeat(np.arange(program.tasks), np.diff(program.first_transfer)),
        flow_of=program.flow.astype(np.int64),
        path_start=paths.start.astype(np.int64),
        path=paths.sends.astype(np.int64),
        rate_classes=np.array([len(rates)], np.int64),
        size_bytes=sizes.astype(np.int64),
        rings=rings,
        events=np.zeros((at.EVENT_ROWS, int(rings[at.RING_CAPACITY].sum())), np.int64),
        timers=np.zeros((at.EVENT_ROWS, program.tasks + 1), np.int64),
        counts=np.zeros(at.COUNTS, np.int64),
    )


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
    start, end = run.task[at.START_PS], run.task[at.END_PS]
    finish = run.transfer[at.FINISH_PS]
    seconds = run.counts[at.NOW_PS] / PS
    sent_bits = 8.0 * run.port[at.CARRIED]
    return Outcome(
        start_s=np.where(start < 0, np.inf, start / PS),
        end_s=np.where(end < 0, np.inf, end / PS),
        finish_s=np.where(finish < 0, np.inf, finish / PS),
        sent_bits=sent_bits,
        rate_times_s=np.array([0.0, seconds]),
        rate_bps=np.array([bits / seconds if seconds else 0.0, 0.0]),
        solves=0,
    )
