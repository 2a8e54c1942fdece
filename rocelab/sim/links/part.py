"""Runs the packet engine on links that are alone: each has only the links right before it.

The packets of a chunk come one after the other from the link before, and the last one when it has
left that link.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from rocelab.arrays import Floats, Ints, Longs
from rocelab.jobs.messages import Messages
from rocelab.progress import ProgressSink
from rocelab.sim.engine.program import Program
from rocelab.sim.fabric.flows import Paths, ways_along
from rocelab.sim.links.traffic import Part, Traffic
from rocelab.sim.packets.run import PacketRun, run_packets
from rocelab.sim.packets.sending import ACK_BYTES, Queues, Sending
from rocelab.sim.packets.wiring import Wiring

ACK_BITS = 8 * ACK_BYTES
NEVER_S = 1e6
"""When chunks come to a link that never leave the one before: after all others."""


@dataclass(frozen=True, eq=False)
class Links:
    """The links of a network, 2L, and their flows."""

    traffic: Traffic
    capacity_bps: Floats
    latency_s: float
    queues: Queues


@dataclass(frozen=True, eq=False)
class Passed:
    """A part that was run. chunk: its chunks; left_s: when each has left its link. The part's links
    in ascending order are the even ports of `run`."""

    part: Part
    chunk: Longs
    left_s: Floats
    run: PacketRun


def pass_part(links: Links, left_s: Floats, progress: ProgressSink, part: Part) -> Passed:
    """Run the links of a part. left_s: when each chunk has left the link before, or when it may
    leave its NIC, C. The latency of the whole path is spread over the links that are run; neither
    it nor the way of the ACK is in the times that are returned."""
    traffic = links.traffic
    chunk, passage = _chunks(traffic, part)
    ports, capacity_bps = _ports(part, links.capacity_bps)
    comes_s = left_s[chunk]
    if ports.shape[1] > 1:
        comes_s = comes_s - traffic.wire_bits[chunk] / capacity_bps[ports[passage, 0]]
    count, way_s = len(chunk), links.latency_s * float(traffic.hops[part.flow].mean())
    program = Program(
        after_start=np.zeros(count + 1, np.int64),
        after=np.empty(0, np.int32),
        delay_s=np.maximum(comes_s, 0.0),
        latency_s=np.zeros(count),
        first_transfer=np.arange(count + 1),
        flow=passage.astype(np.int32),
        size_bits=traffic.wire_bits[chunk],
    )
    # ACKs take the ports of the ways back, which nothing else does.
    ways = np.concatenate((ports, ports[:, ::-1] ^ 1))
    paths = Paths(np.arange(len(ways) + 1) * ways.shape[1], ways.reshape(-1))
    run = run_packets(
        program,
        [Wiring(0.0, capacity_bps, ways_along(paths))],
        way_s / ports.shape[1],
        _sending_of(traffic.sending, part.flow, traffic.payload_bytes[chunk]),
        links.queues,
        progress,
    )
    answered_s = 2 * way_s + (ACK_BITS / capacity_bps[ports]).sum(axis=1)[passage]
    return Passed(part, chunk, np.minimum(run.finish_s - answered_s, NEVER_S), run)


def _chunks(traffic: Traffic, part: Part) -> tuple[Longs, Longs]:
    """The chunks of each passage of a part, and the passage that each is of."""
    counts = np.diff(traffic.first)[part.flow]
    passage = np.repeat(np.arange(len(counts)), counts)
    begin = np.cumsum(counts) - counts
    return np.arange(len(passage)) + (traffic.first[part.flow] - begin)[passage], passage


def _ports(part: Part, capacity_bps: Floats) -> tuple[Ints, Floats]:
    """The ports of each passage, P x 2: that of the link before, alone with the flows that go on to
    the link, and the link's; P x 1 for links of NICs. The capacity of all ports, to which those of
    the ways back belong."""
    used, place = np.unique(part.link, return_inverse=True)
    ports, real = place[:, None], used
    if part.before[0] >= 0:
        sends = len(capacity_bps)
        pairs, pair = np.unique(place * sends + part.before, return_inverse=True)
        ports = np.stack((len(used) + pair, place), axis=1)
        real = np.concatenate((used, pairs % sends))
    return (2 * ports).astype(np.int32), np.repeat(capacity_bps[real], 2)


def _sending_of(sending: Sending, flow: Longs, payload_bytes: Longs) -> Sending:
    """How some of the flows send messages of these sizes, each a transfer."""
    of_flow = {
        field.name: getattr(sending, field.name)[flow]
        for field in fields(Sending)
        if field.name not in ("messages", "rules")
    }
    count = len(payload_bytes)
    messages = Messages(np.arange(count + 1), np.ones(count, np.int64), payload_bytes)
    return Sending(messages=messages, rules=sending.rules, **of_flow)
