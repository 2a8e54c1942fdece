"""Flows that begin at given times, cut into chunks, and the links they cross, in an order.

A chunk is what one link hands on to the next: a few packets of a flow. Links are in stages, so that
all links before a link are in earlier stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from rocelab.base.arrays import Floats, Longs
from rocelab.base.errors import InputError
from rocelab.jobs.messages import on_wire
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.program import Program
from rocelab.sim.packets.sending import Sending

CHUNK_PACKETS = 16
"""In a chunk: as many as `transport.ack_every` by default. Chunks are alike and fill a window, so
that they are longer, up to 31, where it is not a multiple. The packets of a chunk are taken to come
one after the other: with shorter chunks flows that share a link mix better, and there are more
events."""

PART_PACKETS = 200_000
"""Packets of links that are simulated together: enough that a run is longer than its making, and
few enough that its tables stay in the processor's cache."""

MOST_STAGES = 64
"""More than paths have that go up, then down."""


@dataclass(frozen=True, eq=False)
class LinkTraffic:
    """F flows in C chunks. All bits are those on the wire."""

    paths: Paths
    sending: Sending
    start_s: Floats
    """F."""

    packets: Longs
    """F."""

    window: Longs
    """F. In chunks, which have as many packets as the flow's window."""

    first: Longs
    """F + 1. The chunks of flow f are first[f] up to first[f + 1]."""

    flow: Longs
    """C."""

    payload_bytes: Longs
    """C."""

    wire_bits: Floats
    """C."""

    packet_bits: Floats
    """C. Bits of a chunk's first packet."""

    acked_bits: Floats
    """F. Bits of the packets that an ACK is for, when its ACKs are closest."""

    is_coarse: bool = False
    """A chunk is a packet."""

    def __len__(self) -> int:
        return len(self.start_s)

    @property
    def last(self) -> Longs:
        """The last chunk of each flow, F."""
        return self.first[1:] - 1

    @property
    def ack_bits(self) -> int:
        """An acknowledgement on the wire."""
        return 8 * self.sending.ack_bytes

    @property
    def most_packets(self) -> Longs:
        """Of a chunk of each flow, F."""
        return -(-self.sending.window // self.window)

    @property
    def hops(self) -> Longs:
        """Links on each flow's path, F."""
        return np.diff(self.paths.start)

    def coarse(self) -> LinkTraffic:
        """The same with a chunk as a single packet of as many bytes on the wire."""
        further = -(-self.payload_bytes // self.sending.mtu[self.flow]) - 1
        overhead_bytes = self.sending.overhead_bytes
        payload_bytes = self.payload_bytes + overhead_bytes * np.maximum(0, further)
        mtu = self.most_packets * (self.sending.mtu + overhead_bytes)
        ack_every = np.ones_like(self.window)
        sending = replace(self.sending, mtu=mtu, window=self.window, ack_every=ack_every)
        return replace(
            self,
            sending=sending,
            packets=np.diff(self.first),
            payload_bytes=payload_bytes,
            is_coarse=True,
        )

    def a_window_before(self) -> Longs:
        """The chunk whose acknowledgement opens the window for each chunk, C; -1 for none."""
        window = self.window[self.flow]
        number = np.arange(len(self.flow))
        return np.where(number - self.first[self.flow] >= window, number - window, -1)


def traffic_of(program: Program, paths: Paths, sending: Sending) -> LinkTraffic:
    """The traffic of a program whose tasks wait for no other, and whose transfers have a flow
    each."""
    size_bytes = sizes_bytes(program, sending, len(paths))
    packets = packets_of_flows(size_bytes, sending)
    window = _windows(sending)
    first = np.concatenate(([0], np.cumsum(chunks_of_flows(packets, sending))))
    flow = np.repeat(np.arange(len(paths)), np.diff(first))
    number = np.arange(len(flow)) - first[flow]
    begin, end = (
        -(-count * sending.window[flow] // window[flow]) * sending.mtu[flow]
        for count in (number, number + 1)
    )
    payload = np.minimum(end, size_bytes[flow]) - begin
    wire_bits = _wire_bits(payload, sending, flow)
    packet_bits = _wire_bits(np.minimum(payload, sending.mtu[flow]), sending, flow)
    # ACKs are sent for at ends of windows, and each time after ack_every packets.
    acked_bits = np.gcd(sending.window, sending.ack_every) * packet_bits[first[:-1]]
    start_s = np.zeros(len(paths))
    start_s[program.flow] = np.repeat(program.delay_s, np.diff(program.first_transfer))
    return LinkTraffic(
        paths=paths,
        sending=sending,
        start_s=start_s,
        packets=packets,
        window=window,
        first=first,
        flow=flow,
        payload_bytes=payload,
        wire_bits=wire_bits,
        packet_bits=packet_bits,
        acked_bits=np.minimum(acked_bits, wire_bits[first[:-1]]),
    )


def sizes_bytes(program: Program, sending: Sending, flows: int) -> Longs:
    """The payload of each flow, F."""
    messages = sending.messages
    run_flow = np.repeat(program.flow, np.diff(messages.first))
    size_bytes = np.zeros(flows, np.int64)
    np.add.at(size_bytes, run_flow, messages.count * messages.size_bytes)
    return size_bytes


def packets_of_flows(size_bytes: Longs, sending: Sending) -> Longs:
    """Of each flow, F."""
    packets: Longs = np.maximum(1, -(-size_bytes // sending.mtu))
    return packets


def chunks_of_flows(packets: Longs, sending: Sending) -> Longs:
    """Of each flow, F: its chunk j begins at its packet ceil(j * sending.window / window)."""
    return (packets - 1) * _windows(sending) // sending.window + 1


def _windows(sending: Sending) -> Longs:
    """The chunks of each flow's window, F."""
    windows: Longs = np.maximum(1, sending.window // CHUNK_PACKETS)
    return windows


def _wire_bits(payload_bytes: Longs, sending: Sending, flow: Longs) -> Floats:
    wire_bytes = on_wire(payload_bytes, sending.mtu[flow], sending.overhead_bytes)
    bits: Floats = 8 * wire_bytes.astype(np.float64)
    return bits


@dataclass(frozen=True, eq=False)
class Part:
    """Links of one stage. Of each of P passages of a flow through a link, link by link: the flow,
    the link, and the link that the flow comes from, -1 for none: the link is that of its NIC.
    hop: how many links of its path the flow has passed."""

    flow: Longs
    link: Longs
    before: Longs
    hop: Longs


def stages(traffic: LinkTraffic, sends: int) -> Iterator[list[Part]]:
    """The parts of each stage, which depend on none of the same stage. sends: of the network.
    Raises InputError if links follow each other in a ring."""
    paths = traffic.paths
    flow = np.repeat(np.arange(len(paths)), traffic.hops)
    link = paths.sends.astype(np.int64)
    before = np.concatenate(([-1], link[:-1]))
    before[paths.start[:-1]] = -1
    hop = np.arange(len(link)) - paths.start[flow]
    stage = _stage_of(before, link, sends)[link]
    order = np.lexsort((flow, link, stage))
    ends = np.cumsum(np.bincount(stage))
    for begin, end in pairwise([0, *ends.tolist()]):
        members = order[begin:end]
        packets = traffic.packets[flow[members]]
        (heads,) = np.nonzero(np.diff(link[members], prepend=-1))
        number = (np.cumsum(packets) - packets)[heads] // PART_PACKETS
        cuts = heads[np.diff(number, prepend=-1) > 0][1:]
        yield [
            Part(flow[rows], link[rows], before[rows], hop[rows])
            for rows in np.split(members, cuts)
        ]


def _stage_of(before: Longs, link: Longs, sends: int) -> Longs:
    """One more than the highest stage of the links before it, of each send, 2L. Raises InputError
    if links follow each other in a ring."""
    (inner,) = np.nonzero(before >= 0)
    pairs = np.unique(before[inner] * sends + link[inner])
    earlier, later = np.divmod(pairs, sends)
    levels = np.zeros(sends, np.int64)
    for _ in range(MOST_STAGES):
        if (levels[later] > levels[earlier]).all():
            return levels
        np.maximum.at(levels, later, levels[earlier] + 1)
    raise InputError(
        "paths follow each other in a ring, so that no link of it can be simulated before the next",
        hint="use --engine packets",
    )
