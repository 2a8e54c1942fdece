"""Runs a program packet by packet.

Ports store and forward: a packet reaches the next one a latency after the end of its serialisation.
Switches queue, mark and drop as a lab's ports do, NICs send again what is lost, and slow down where
a job has congestion control.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Bools, Floats, Longs
from rocelab.base.errors import InputError
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.routes.arrays.flows import Ways, paths_taken
from rocelab.sim.engine.program import Outcome, Program
from rocelab.sim.packets import loop
from rocelab.sim.packets import state as at
from rocelab.sim.packets.build import packets_of, state_of
from rocelab.sim.packets.draws import order_by_nic
from rocelab.sim.packets.freelist import grown
from rocelab.sim.packets.hosts import with_wakes
from rocelab.sim.packets.lossless import resumed
from rocelab.sim.packets.sending import Queues, Sending, class_order
from rocelab.sim.packets.state import (
    Buffer,
    PacketFlow,
    PacketState,
    Pause,
    Records,
    Transfer,
    dtype_of,
)
from rocelab.sim.packets.wiring import PS, Wiring, connected, ports_of
from rocelab.sim.size import check_memory

MOST_HOPS = 600_000_000
HOPS_PER_SECOND = 2_000_000
"""Packet-hops per second, of data and ACKs, on a core of 2 GHz, for the estimate."""

MOST_AWAITED = 2**32
"""Packets that receivers which take them beyond gaps keep account of, three bits of a word of 32
each."""

MOST_IN_FLIGHT = 2**24
"""Packets on the way and in queues, for which there is room."""

PACKET_WORDS = 12
"""A packet in flight, in words of 8 bytes: 4 of it, and as many events as there are twice, since
room is doubled."""

RATES = 200
"""Rates over time, of intervals of equal length."""

_EVENTS_AT_ONCE = 200_000
_FEWER = "use --engine fluid, a smaller transport.window, a lower load or fewer ranks"


@dataclass(frozen=True, eq=False)
class PacketRun(Outcome):
    """An outcome, and the packets of 2L sends and F flows."""

    packets: int
    """Data packets sent."""

    acks: int
    """ACKs and NAKs."""

    packet_hops: int
    """Transmissions of all packets."""

    highest_bytes: Longs
    """2L. The most that a packet met in its queue, without the one under way."""

    marks: Longs
    """2L."""

    drops: Longs
    """2L."""

    marking: Longs
    """Packets that queues of switches could mark at a depth above kmin, and those that they did, by
    bin of depth (`rocelab.planning.queues.bin_edges_bytes`)."""

    marked: Longs
    """F. Packets that its receiver got with a mark."""

    cnps: Longs
    """F."""

    naks: Longs
    """F."""

    retransmitted: Longs
    """F. Packets sent again."""

    timeouts: Longs
    """F."""

    out_of_order: Longs
    """F. Data packets that came before an earlier one."""

    lost: int
    """Packets of all kinds on links that carried nothing, at their ports, or without a route."""

    failed: int
    """Queue pairs that gave up after too many attempts."""

    lossless: tuple[int, ...]
    """The lossless classes in use, ascending."""

    pause: Records[Pause]
    """2L x lossless classes."""

    buffer: Records[Buffer]
    """Of receive buffers."""

    data_sends: Bools
    """2L. Whether a send is on some way of data."""

    idle_s: float
    """From when on no port sends any more: what was resent for nothing may leave after the last
    transfer's end."""


def run_packets(
    program: Program,
    wirings: Sequence[Wiring],
    latency_s: Floats,
    sending: Sending,
    queues: Queues,
    progress: ProgressSink = no_progress,
) -> PacketRun:
    """Run a program to its end. wirings: in order of time, the first at 0. latency_s: of each send,
    2L, after serialisation.

    A sender goes on at the last ACK of its data, a receiver when all of it has arrived. A NIC sends
    ACKs and CNPs before data. The arguments are those that `check_packets` accepts; raises
    InputError if too many packets are in flight later.
    """
    run = state_of(program, wirings, latency_s, sending, queues)
    clears = sending.source[len(sending.source) - len(run.clearance) :]
    loop.begin(run, order_by_nic(queues.seed, clears))
    ports = ports_of(wirings, queues, latency_s)
    for number, wiring in enumerate(wirings):
        if number:
            run = connected(run, wiring, ports)
        until_ps = wirings[number + 1].time_ps if number + 1 < len(wirings) else at.NEVER
        run = _advanced(run, until_ps, progress)
        # What was sent again for nothing may meet a change after the last task.
        if (run.task.end_ps >= 0).all() and run.due.min() == at.NEVER:
            break
    return _outcome(run, program, wirings, sending, queues)


def check_packets(
    program: Program, wirings: Sequence[Wiring], sending: Sending, queues: Queues
) -> None:
    """Raises InputError for a run that would take too long, MachineError for one that does not fit.
    Calls no compiled function."""
    _check_size(program, wirings[0].ways, sending)
    queued = queued_at_first(program, wirings[0], sending, queues)
    if queued > MOST_IN_FLIGHT:
        raise InputError(
            f"when NICs have sent what their windows allow at first, {queued:,} packets are in "
            f"flight; at most {MOST_IN_FLIGHT:,} are simulated",
            hint=_FEWER,
        )
    _check_memory(program, sending, queued)


def queued_at_first(program: Program, wiring: Wiring, sending: Sending, queues: Queues) -> int:
    """Packets that are in flight at least when NICs have sent what the windows of the flows that
    begin first let them: all but those that the last links can have carried by then.

    0 where this is not known: if something else holds senders back, packets have several ways, or
    they do not fit into the buffers of all ports, so that some may be dropped.
    """
    flows, ways = len(sending.source), wiring.ways
    if (
        queues.pausing is not None
        or sending.admission is not None
        or sending.gathering is not None
        or (sending.control >= 0).any()
        or (np.diff(ways.first[: flows + 1]) > 1).any()
    ):
        return 0
    waits = np.diff(program.after_start) > 0
    is_first = ~waits & (program.delay_s == program.delay_s[~waits].min(initial=np.inf))
    mask = np.repeat(is_first, np.diff(program.first_transfer))
    packets = _packets(program, sending)
    sizes = (np.add.reduceat(packets, sending.messages.first[:-1]), program.size_bits)
    count, bits = (np.bincount(program.flow[mask], size[mask], flows) for size in sizes)
    part = np.minimum(1.0, sending.window / np.maximum(count, 1))
    count, bits = count * part, bits * part
    paths = paths_taken(ways.paths, ways.way[:flows])
    nic, last = paths.sends[paths.start[:-1]], paths.sends[paths.start[1:] - 1]
    sends = len(wiring.capacity_bps)
    on_send = np.bincount(paths.sends, np.repeat(bits, np.diff(paths.start)), sends)
    of_nic = np.bincount(nic, bits, sends)
    least = min((min(kind.buffer_bytes) for kind in queues.kinds), default=queues.buffer_bytes)
    if (on_send - of_nic).max(initial=0) > 8 * least:
        return 0
    (used,) = np.nonzero(np.bincount(last, bits, sends))
    sent_s = (of_nic[nic] / wiring.capacity_bps[nic]).max(initial=0)
    left = np.maximum(0, 1 - wiring.capacity_bps[used] * sent_s / on_send[used])
    return int((np.bincount(last, count, sends)[used] * left).sum())


def mean_rates(
    program: Program, start_s: Floats, finish_s: Floats, last_s: float
) -> tuple[Floats, Floats]:
    """The sum of all transfers' rates from each of some times on, as if each had been sent evenly.

    start_s: of each task, T; finish_s: of each transfer, X; those that never end are left out.
    last_s: when the last rate is 0.
    """
    task = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    begun_s = start_s[task]
    sent = np.isfinite(finish_s) & (finish_s > begun_s)
    begun_s, finish_s = begun_s[sent], finish_s[sent]
    rate_bps = program.size_bits[sent] / (finish_s - begun_s)
    ends_s, place = np.unique(np.concatenate((begun_s, finish_s)), return_inverse=True)
    change_bps = np.zeros(len(ends_s))
    np.add.at(change_bps, place, np.concatenate((rate_bps, -rate_bps)))
    carried = np.cumsum(np.cumsum(change_bps)[:-1] * np.diff(ends_s))
    edges_s = np.linspace(0.0, last_s, RATES + 1)
    if not len(carried):
        return np.array([0.0, last_s]), np.zeros(2)
    by_edge = np.interp(edges_s, ends_s, np.concatenate(([0.0], carried)))
    return edges_s, np.append(np.diff(by_edge) / np.diff(edges_s), 0.0)


def _data_sends(wirings: Sequence[Wiring], flows: int) -> Bools:
    """The sends on some way of these flows, which come before those of answers, 2L."""
    mask = np.zeros(len(wirings[0].capacity_bps), np.bool_)
    for wiring in wirings:
        ways = np.unique(wiring.ways.way[: wiring.ways.first[flows]])
        mask[paths_taken(wiring.ways.paths, ways).sends] = True
    return mask


def _advanced(run: PacketState, until_ps: int, progress: ProgressSink) -> PacketState:
    """The run at a time, or when nothing is to happen before it."""
    # In parts: a compiled function is not interrupted.
    while (state := loop.advance(run, _EVENTS_AT_ONCE, until_ps)) != loop.DONE or (
        run.due.min() == at.NEVER and resumed(run)
    ):
        if state == loop.FULL and run.counts.host_timers > run.counts.most_host_timers:
            run = with_wakes(run)
        elif state == loop.FULL:
            if len(run.packet) >= MOST_IN_FLIGHT:
                raise InputError(
                    f"after {run.counts.now_ps / 1e9:,.3f} ms {len(run.packet):,} packets are "
                    "in flight; more are not simulated",
                    hint=_FEWER,
                )
            run = grown(run)
        progress(Progress("simulating", int(run.counts.finished), len(run.transfer)))
    return run


def _outcome(
    run: PacketState,
    program: Program,
    wirings: Sequence[Wiring],
    sending: Sending,
    queues: Queues,
) -> PacketRun:
    lossless, pause = _paused(run, sending, queues)
    start, end = run.task.start_ps, run.task.end_ps
    finish = run.transfer.finish_ps[sending.messages.first[1:] - 1]
    # Timers may be left when all has ended.
    seconds = (end.max() if (end >= 0).all() else run.counts.now_ps) / PS
    start_s = np.where(start < 0, np.inf, start / PS)
    finish_s = np.where(finish < 0, np.inf, finish / PS)
    rate_times_s, rate_bps = mean_rates(program, start_s, finish_s, float(seconds))
    return PacketRun(
        start_s=start_s,
        end_s=np.where(end < 0, np.inf, end / PS),
        finish_s=finish_s,
        sent_bits=8 * run.port.carried.astype(np.float64),
        rate_times_s=rate_times_s,
        rate_bps=rate_bps,
        solves=0,
        packets=int(run.flow.sent.sum()),
        acks=int(run.counts.acks),
        packet_hops=int(run.counts.hops),
        highest_bytes=run.port.highest,
        marks=run.port.marks,
        drops=run.port.drops,
        marking=np.column_stack((run.marking.markable, run.marking.marked)),
        marked=run.flow.marked,
        cnps=run.flow.cnps,
        naks=run.flow.naks,
        retransmitted=run.flow.retransmitted,
        timeouts=run.flow.timeouts,
        out_of_order=run.flow.out_of_order,
        lost=int(run.counts.lost_packets),
        failed=int(run.counts.failed),
        lossless=lossless,
        pause=pause,
        buffer=run.buffer,
        data_sends=_data_sends(wirings, 1 + int(program.flow.max(initial=-1))),
        idle_s=float(run.port.free_ps.max() / PS),
    )


def _paused(
    run: PacketState, sending: Sending, queues: Queues
) -> tuple[tuple[int, ...], Records[Pause]]:
    """The lossless classes in use, and their rows of `pause`, with pauses that have not ended."""
    if queues.pausing is None:
        return (), run.pause.reshape(len(run.port), 0)
    order, _ = class_order(sending, queues.strict)
    used = tuple(
        traffic_class for traffic_class in queues.pausing.classes if traffic_class in order
    )
    pause = run.pause.reshape(len(run.port), len(order))
    pause = pause[:, [order.index(traffic_class) for traffic_class in used]]
    lasting = run.counts.now_ps - pause.closed_ps
    lasting[pause.is_closed == 0] = 0
    pause.paused_ps += lasting
    pause.longest_ps = np.maximum(pause.longest_ps, lasting)
    return used, pause


def _packets(program: Program, sending: Sending) -> Longs:
    """Of each run of equal messages, R."""
    flow = np.repeat(program.flow, np.diff(sending.messages.first))
    counts: Longs = sending.messages.count * packets_of(sending.messages, sending.mtu[flow])
    return counts


def _check_size(program: Program, ways: Ways, sending: Sending) -> None:
    flow = np.repeat(program.flow, np.diff(sending.messages.first))
    packets = _packets(program, sending)
    hops = int((packets * np.diff(ways.paths.start)[ways.way[ways.first[flow]]]).sum())
    if hops > MOST_HOPS:
        raise InputError(
            f"packet by packet this takes {int(packets.sum()):,} packets and {hops:,} packet-hops, "
            f"about {2 * hops / HOPS_PER_SECOND:,.0f} s; at most {MOST_HOPS:,} are simulated",
            hint="use --engine fluid, a smaller size or fewer ranks",
        )
    awaited = _awaited(sending)
    if awaited > MOST_AWAITED:
        raise InputError(
            f"receivers that take packets beyond gaps have windows of {awaited:,} packets; at most "
            f"{MOST_AWAITED:,} are simulated",
            hint="use a smaller transport.window, or fewer queue pairs",
        )


def _check_memory(program: Program, sending: Sending, queued: int) -> None:
    """Raises MachineError if the tables of flows, transfers and packets do not fit."""
    words = -(-_awaited(sending) // at.BITS) * at.BITMAPS + queued * PACKET_WORDS
    needed = (
        8 * words
        + len(sending.source) * dtype_of(PacketFlow).itemsize
        + program.transfers * dtype_of(Transfer).itemsize
    )
    check_memory(
        f"{len(sending.source):,} flows and at least {queued:,} packets in flight",
        needed,
        _FEWER,
    )


def _awaited(sending: Sending) -> int:
    """The packets of all windows beyond gaps."""
    return len(sending.reach) * int(sending.reach.max(initial=0))
