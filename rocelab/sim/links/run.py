"""Runs a program whose flows begin at given times link by link, each link alone.

Link-level decomposition (Zhao et al., Scalable Tail Latency Estimation for Data Center Networks,
NSDI 2023) simulates each link with its flows as their NICs would send them, and adds up the delays
along paths. Here a link gets what the link before lets through, chunk by chunk, so that a delay is
counted once (`python -m bench.links_engine` compares both). Links that do not follow each other are
simulated side by side.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rocelab.base.arrays import Floats, Longs
from rocelab.base.errors import InputError
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.base.workers import in_vain, workers
from rocelab.planning.queues import BINS
from rocelab.routes.arrays.flows import Paths, paths_taken
from rocelab.routes.arrays.paths import along_paths
from rocelab.sim.engine.program import Program
from rocelab.sim.links.part import Links, pass_part, rounds_s
from rocelab.sim.links.traffic import (
    LinkTraffic,
    Part,
    chunks_of_flows,
    packets_of_flows,
    sizes_bytes,
    stages,
    traffic_of,
)
from rocelab.sim.packets.run import PacketRun, mean_rates
from rocelab.sim.packets.sending import Queues, Sending
from rocelab.sim.packets.state import Buffer, Pause, zeros
from rocelab.sim.packets.wiring import Wiring
from rocelab.sim.size import check_memory

MOST_S = 1200
HOPS_PER_SECOND = 2_500_000
"""Packet-hops per second, of data and ACKs, on a core of 2 GHz, for the estimate."""

CHUNK_BYTES = 150
"""Memory of a chunk: its columns, and intermediate ones."""


def run_links(
    program: Program,
    wirings: Sequence[Wiring],
    latency_s: Floats,
    sending: Sending,
    queues: Queues,
    progress: ProgressSink = no_progress,
) -> PacketRun:
    """Run a program whose tasks wait for no other to its end. The arguments are those of
    `rocelab.sim.packets.run.run_packets`, with one wiring in which each flow has one way, and
    counts are sums over links.

    Where a flow is longer than its window, all links are simulated with a packet per chunk first,
    for acknowledgements: the second time a NIC sends a chunk when they open the window, where other
    links than the NIC's hold them up. The arguments are those that `check_hops` accepts.
    """
    (wiring,) = wirings
    capacity_bps = wiring.capacity_bps
    rounds = _rounds(program, wiring, sending)
    traffic = rounds[-1]
    paths = traffic.paths
    sent_s = traffic.start_s[traffic.flow]
    round_s = rounds_s(traffic, capacity_bps, latency_s)
    with workers(_threads()) as pool:
        for batch in rounds:
            parts = list(stages(batch, len(capacity_bps)))
            own_queues = queues if batch is traffic else _for_chunks(queues, traffic)
            links = Links(batch, capacity_bps, latency_s, own_queues, round_s)
            left_s, sums, done = sent_s.copy(), Sums.none(len(batch), len(capacity_bps)), 0
            nic_s = left_s
            for number, stage in enumerate(parts):
                for passed in pool.map(partial(pass_part, links, left_s, _check_cancelled), stage):
                    left_s[passed.chunk] = passed.left_s
                    if passed.run is not None:
                        sums.add(passed.part, passed.run)
                    done += 1
                    progress(Progress("simulating", done, sum(map(len, parts))))
                if batch.is_coarse and number == 0:
                    nic_s = left_s.copy()
            if batch.is_coarse:
                sent_s = _opened_s(links, nic_s, left_s)
    answered_s = _answered_s(traffic, capacity_bps, latency_s)
    return sums.outcome(program, paths, left_s[traffic.last] + answered_s)


def _rounds(program: Program, wiring: Wiring, sending: Sending) -> list[LinkTraffic]:
    """The traffic of each time that all links are simulated, last the real one."""
    paths = paths_taken(wiring.ways.paths, np.arange(len(sending.source)))
    traffic = traffic_of(program, paths, sending)
    is_windowed = (traffic.a_window_before() >= 0).any()
    return [traffic.coarse(), traffic] if is_windowed else [traffic]


@dataclass(slots=True)
class Sums:
    """The counts of links so far, as in `PacketRun`."""

    by_flow: dict[str, Longs]
    """F."""

    by_send: dict[str, Longs]
    """2L."""

    marking: Longs
    sent_bits: Floats
    packets: int = 0
    """At the links of NICs."""

    acks: int = 0
    """At the links of NICs."""

    packet_hops: int = 0
    """Of each link once, though the next ones are run with it; NAKs and CNPs go back only over the
    link that dropped or marked."""

    failed: int = 0
    idle_s: float = 0.0

    @classmethod
    def none(cls, flows: int, sends: int) -> Sums:
        """Before the first link."""
        return cls(
            {name: np.zeros(flows, np.int64) for name in _BY_FLOW},
            {name: np.zeros(sends, np.int64) for name in _BY_SEND},
            np.zeros((BINS, 2), np.int64),
            np.zeros(sends),
        )

    def add(self, part: Part, run: PacketRun) -> None:
        """Add those of a part's links."""
        link = np.unique(part.link)
        places = 2 * np.arange(len(link))
        for name, sums in self.by_flow.items():
            np.add.at(sums, part.flow, getattr(run, name))
        for name, sums in self.by_send.items():
            sums[link] = getattr(run, name)[places]
        self.marking += run.marking
        self.sent_bits[link] += run.sent_bits[places]
        self.sent_bits[link ^ 1] += run.sent_bits[places + 1]
        self.failed += run.failed
        self.idle_s = max(self.idle_s, run.idle_s)
        self.packet_hops += run.packet_hops
        if part.before[0] < 0:
            self.packets += run.packets
            self.acks += run.acks
        else:
            self.packet_hops -= run.packets + run.acks + int(run.cnps.sum())

    def outcome(self, program: Program, paths: Paths, finish_s: Floats) -> PacketRun:
        """The outcome of a program whose flows end so."""
        task = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
        finish_s = finish_s[program.flow]
        end_s = program.delay_s.copy()
        np.maximum.at(end_s, task, finish_s)
        seconds = float(end_s[np.isfinite(end_s)].max(initial=0.0))
        rate_times_s, rate_bps = mean_rates(program, program.delay_s, finish_s, seconds)
        sends = len(self.sent_bits)
        data_sends = np.zeros(sends, np.bool_)
        data_sends[paths.sends] = True
        return PacketRun(
            start_s=program.delay_s,
            end_s=end_s,
            finish_s=finish_s,
            sent_bits=self.sent_bits,
            rate_times_s=rate_times_s,
            rate_bps=rate_bps,
            solves=0,
            packets=self.packets,
            acks=self.acks,
            packet_hops=self.packet_hops,
            marking=self.marking,
            lost=0,
            failed=self.failed,
            lossless=(),
            pause=zeros(Pause, 0).reshape(sends, 0),
            buffer=zeros(Buffer, 0),
            data_sends=data_sends,
            idle_s=self.idle_s,
            **self.by_flow,
            **self.by_send,
        )


_BY_FLOW = ("marked", "cnps", "naks", "retransmitted", "timeouts", "out_of_order")
_BY_SEND = ("highest_bytes", "marks", "drops")


def _answered_s(traffic: LinkTraffic, capacity_bps: Floats, latency_s: Floats) -> Floats:
    """The time that an ACK takes back, F."""
    paths = traffic.paths
    link_s = latency_s[paths.sends] + traffic.ack_bits / capacity_bps[paths.sends]
    return np.add.reduceat(link_s, paths.start[:-1])


def _opened_s(links: Links, nic_s: Floats, over_s: Floats) -> Floats:
    """When the window opens for each chunk, C; for those that nothing behind the NIC holds up, when
    their flow starts, as the NIC's link counts their window when it is simulated alone. nic_s,
    over_s: when each chunk, as a single packet, has left the NIC's link and the last one."""
    traffic, flow = links.traffic, links.traffic.flow
    paths = traffic.paths
    bit_s, nic = 1 / links.capacity_bps[paths.sends], paths.start[:-1]
    sums_s, slowest_s = np.add.reduceat(bit_s, nic), np.maximum.reduceat(bit_s, nic)
    behind_s = traffic.wire_bits * (sums_s - bit_s[nic])[flow]
    latency_s = along_paths(paths, links.latency_s) - links.latency_s[paths.sends[nic]]
    behind_s += latency_s[flow] + traffic.packet_bits * slowest_s[flow]
    is_held = (over_s > nic_s + behind_s) | np.isinf(over_s)
    # Its packets, but for the first, are sent on as they come: on all links but the slowest.
    early_s = (traffic.wire_bits - traffic.packet_bits) * (sums_s - slowest_s)[flow]
    answered_s = over_s + _answered_s(traffic, links.capacity_bps, links.latency_s)[flow] - early_s
    opened_s, before = traffic.start_s[flow], traffic.a_window_before()
    waits = (before >= 0) & is_held[before]
    opened_s[waits] = np.maximum(opened_s, answered_s[before])[waits]
    return _in_order(opened_s, traffic.first)


def _in_order(opened_s: Floats, first: Longs) -> Floats:
    """These times, C, but none before that of an earlier chunk of its flow."""
    number = np.arange(len(opened_s)) - np.repeat(first[:-1], np.diff(first))
    step = 1
    while step <= number.max():
        (later,) = np.nonzero(number >= step)
        opened_s[later] = np.maximum(opened_s[later], opened_s[later - step])
        step *= 2
    return opened_s


def _for_chunks(queues: Queues, traffic: LinkTraffic) -> Queues:
    """Queues that take a chunk as a single packet where they take its first one."""
    further = int((traffic.most_packets - 1).max()) * (
        int(traffic.sending.mtu.max()) + traffic.sending.overhead_bytes
    )
    kinds = tuple(
        replace(kind, buffer_bytes=tuple(bytes_ + further for bytes_ in kind.buffer_bytes))
        for kind in queues.kinds
    )
    return replace(queues, buffer_bytes=queues.buffer_bytes + further, kinds=kinds)


def _threads() -> int:
    """The processors of this process; one where it is a worker beside others."""
    return int(os.environ.get("NUMBA_NUM_THREADS") or len(os.sched_getaffinity(0)))


def _check_cancelled(_: Progress) -> None:
    if in_vain():
        raise CancelledError


_SMALLER = "use --engine fluid, a shorter duration, a lower load or fewer NICs"


def check_hops(program: Program, wirings: Sequence[Wiring], sending: Sending) -> None:
    """Raises InputError for a run that would take too long, MachineError for one that does not fit.
    Calls no compiled function."""
    # What is too large by far is refused before it has an array for each chunk.
    paths = paths_taken(wirings[0].ways.paths, np.arange(len(sending.source)))
    packets = packets_of_flows(sizes_bytes(program, sending, len(paths)), sending)
    _check_time(int((packets * (2 * np.diff(paths.start) - 1)).sum()))
    chunks = int(chunks_of_flows(packets, sending).sum())
    check_memory(f"{chunks:,} chunks of flows", CHUNK_BYTES * chunks, _SMALLER)
    rounds = _rounds(program, wirings[0], sending)
    _check_time(sum(int((batch.packets * (2 * batch.hops - 1)).sum()) for batch in rounds))


def _check_time(hops: int) -> None:
    """Raises InputError for so many packet-hops if they take too long."""
    threads = _threads()
    seconds = hops / HOPS_PER_SECOND / threads
    if seconds > MOST_S:
        raise InputError(
            f"link by link this takes {hops:,} packet-hops, about {seconds:,.0f} s on {threads} "
            f"processors; at most {MOST_S:,} s are simulated",
            hint=_SMALLER,
        )
