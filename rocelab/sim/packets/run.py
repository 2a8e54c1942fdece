"""Runs a program packet by packet, over fixed paths.

Ports store and forward: a packet reaches the next one a latency after the end of its serialisation.
Queues are unlimited, with neither marks nor losses, so that nothing is sent again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.arrays import Floats
from rocelab.errors import InputError
from rocelab.sim.engine.program import Outcome, Program
from rocelab.sim.fabric.flows import Paths
from rocelab.sim.packets import loop
from rocelab.sim.packets import state as at
from rocelab.sim.packets.state import Longs, State

ACK_BYTES = 4
"""AETH (InfiniBand Architecture Specification 9.3.5), beyond the headers of every packet."""

MOST_HOPS = 200_000_000
HOPS_PER_SECOND = 650_000
"""Packet-hops per second, of data and ACKs, on a core of 2 GHz, for the estimate."""

MOST_IN_FLIGHT = 2**24
PS = 1e12


@dataclass(frozen=True, eq=False)
class Sending:
    """How flows send: payload_bytes of each transfer, X; mtu, window and ack_every of each flow, F;
    overhead_bytes: headers of each packet on the wire."""

    payload_bytes: Longs
    mtu: Longs
    window: Longs
    ack_every: Longs
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
    program: Program, paths: Paths, capacity_bps: Floats, latency_s: float, sending: Sending
) -> PacketRun:
    """Run a program to its end. latency_s: of each send, after serialisation.

    A message is done at its last ACK. ACKs take the links of their data in reverse and wait in the
    same queues; a NIC sends them before data. Raises InputError for a run that would take too long.
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
    if not loop.advance(run):
        raise AssertionError("a packet arrived out of order")
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
    task[at.OPEN] = np.diff(program.first_transfer)
    task[at.DELAY_PS] = np.rint(program.delay_s * PS)
    task[at.READY_PS] = 0
    flow = np.zeros((at.FLOW_ROWS, flows), np.int64)
    flow[[at.SENDING, at.ACKING, at.LAST, at.NEXT_FLOW]] = -1
    flow[at.WINDOW], flow[at.ACK_EVERY] = sending.window, sending.ack_every
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
    return State(
        task=task,
        flow=flow,
        transfer=transfer,
        port=port,
        packet=packet,
        next_start=np.concatenate(
            ([0], np.cumsum(np.bincount(program.after, minlength=program.tasks)))
        ).astype(np.int64),
        next_task=waiter[np.argsort(program.after, kind="stable")].astype(np.int64),
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
