"""Runs the packet engine on links that are alone: each has only the links right before it.

The packets of a chunk come one after the other from the link before, and the last one when it has
come to the end of that link.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from rocelab.base.arrays import Floats, Ints, Longs
from rocelab.base.progress import ProgressSink
from rocelab.jobs.messages import Messages
from rocelab.routes.arrays.flows import Paths, ways_along
from rocelab.routes.arrays.paths import along_paths
from rocelab.sim.engine.program import Program
from rocelab.sim.links.traffic import LinkTraffic, Part
from rocelab.sim.links.turns import begins_in_turn
from rocelab.sim.packets.run import PacketRun, run_packets
from rocelab.sim.packets.sending import Queues, Sending
from rocelab.sim.packets.wiring import Wiring
from rocelab.sim.windows import serialised_s


@dataclass(frozen=True, eq=False)
class Links:
    """The links of a network, 2L, and their F flows."""

    traffic: LinkTraffic
    capacity_bps: Floats
    latency_s: Floats
    """Of each send, 2L."""

    queues: Queues
    round_s: Floats
    """F, as in `rounds_s`."""


@dataclass(frozen=True, eq=False)
class Passed:
    """A part that was run. chunk: the chunks that come to it; left_s: when each has come to the end
    of its link, inf if it never does. The part's links in ascending order are the even ports of
    `run`, which is None where no chunk comes to it."""

    part: Part
    chunk: Longs
    left_s: Floats
    run: PacketRun | None


def pass_part(links: Links, left_s: Floats, progress: ProgressSink, part: Part) -> Passed:
    """Run the links of a part. left_s: when each chunk has come to the end of the link before, or
    when it may leave its NIC, C; inf for one that never does. What a round trip takes beyond the
    links that are run is spread over them as latency, for windows, marks and timeouts; of it only
    the link's own latency, and not the way of the ACK, is in the times that are returned."""
    traffic = links.traffic
    chunk, passage = _chunks(traffic, part)
    comes = np.isfinite(left_s[chunk])
    if not comes.any():
        return Passed(part, chunk[:0], np.empty(0), None)
    chunk, passage = chunk[comes], passage[comes]
    ports, real = _ports(part, len(links.capacity_bps))
    capacity_bps = links.capacity_bps[real]
    comes_s = left_s[chunk]
    if ports.shape[1] > 1:
        before = ports[passage, 0]
        takes_s = traffic.wire_bits[chunk] / capacity_bps[before]
        comes_s = begins_in_turn(comes_s, takes_s, before, np.lexsort((-comes_s, before)))
        paced_s = traffic.wire_bits[chunk] / _slowest_bps(links, part)[passage]
        is_paced = (paced_s > takes_s) & (not traffic.is_coarse)
        comes_s[is_paced] = np.minimum(comes_s, left_s[chunk] - paced_s)[is_paced]
    count, way_s = len(chunk), _other_delay_s(links, part, capacity_bps[ports]) / 2
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
    sending = _sending_of(traffic.sending, part.flow, traffic.payload_bytes[chunk])
    if traffic.is_coarse:
        # The first of two ports sends a chunk on as a whole, which the window holds too.
        sending = replace(sending, window=sending.window + ports.shape[1] - 1)
    paths = Paths(np.arange(len(ways) + 1) * ways.shape[1], ways.reshape(-1))
    run = run_packets(
        program,
        [Wiring(0.0, capacity_bps, ways_along(paths))],
        np.full(len(capacity_bps), way_s / ports.shape[1]),
        sending,
        _queues_of(links.queues, real),
        progress,
    )
    answered_s = 2 * way_s + (traffic.ack_bits / capacity_bps[ports]).sum(axis=1)[passage]
    over_s = run.finish_s - answered_s
    if ports.shape[1] > 1:
        # Its packets come faster than a slow link has let them through, the last one not.
        last_s = _last_bits(traffic, chunk) / capacity_bps[ports[passage, 1]]
        over_s[is_paced] = np.maximum(over_s, left_s[chunk] + last_s)[is_paced]
    return Passed(part, chunk, over_s + links.latency_s[part.link[passage]], run)


def rounds_s(traffic: LinkTraffic, capacity_bps: Floats, latency_s: Floats) -> Floats:
    """How long it takes from packets to their ACK where nothing waits, F. latency_s: of each send,
    2L."""
    paths = traffic.paths
    bit_s, nic = 1 / capacity_bps[paths.sends], paths.start[:-1]
    sums_s, slowest_s = np.add.reduceat(bit_s, nic), np.maximum.reduceat(bit_s, nic)
    found_s: Floats = _serialised_s(traffic, np.arange(len(traffic)), sums_s, slowest_s)
    return found_s + 2 * along_paths(paths, latency_s)


def _serialised_s(traffic: LinkTraffic, flow: Longs, sums_s: Floats, slowest_s: Floats) -> Floats:
    """`serialised_s` of some flows."""
    packet_bits = traffic.packet_bits[traffic.first[:-1][flow]]
    return serialised_s(packet_bits, traffic.acked_bits[flow], traffic.ack_bits, sums_s, slowest_s)


def _other_delay_s(links: Links, part: Part, ports_bps: Floats) -> float:
    """What a round trip takes but for what these ports serialise, P x 1 or 2: the mean of packets,
    since windows hold back long flows."""
    bit_s = 1 / ports_bps
    here_s = _serialised_s(links.traffic, part.flow, bit_s.sum(axis=1), bit_s.max(axis=1))
    found_s = links.round_s[part.flow] - here_s
    return max(0.0, float(np.average(found_s, weights=links.traffic.packets[part.flow])))


def _slowest_bps(links: Links, part: Part) -> Floats:
    """The lowest rate of the links that each passage's flow has passed, P."""
    paths = links.traffic.paths
    first = paths.start[part.flow]
    rates = np.full(len(part.flow), np.inf)
    for hop in range(int(part.hop.max())):
        (rows,) = np.nonzero(part.hop > hop)
        bps = links.capacity_bps[paths.sends[first[rows] + hop]]
        rates[rows] = np.minimum(rates[rows], bps)
    return rates


def _last_bits(traffic: LinkTraffic, chunk: Longs) -> Longs:
    """On the wire, the last packet of each chunk, but for its own header."""
    mtu = traffic.sending.mtu[traffic.flow[chunk]]
    bits: Longs = 8 * (
        traffic.sending.overhead_bytes + (traffic.payload_bytes[chunk] - 1) % mtu + 1
    )
    return bits


def _chunks(traffic: LinkTraffic, part: Part) -> tuple[Longs, Longs]:
    """The chunks of each passage of a part, and the passage that each is of."""
    counts = np.diff(traffic.first)[part.flow]
    passage = np.repeat(np.arange(len(counts)), counts)
    begin = np.cumsum(counts) - counts
    return np.arange(len(passage)) + (traffic.first[part.flow] - begin)[passage], passage


def _ports(part: Part, sends: int) -> tuple[Ints, Longs]:
    """The ports of each passage, P x 2: that of the link before, alone with the flows that go on to
    the link, and the link's; P x 1 for links of NICs. The send of the network whose settings each
    port has, those of the ways back too."""
    used, place = np.unique(part.link, return_inverse=True)
    ports, real = place[:, None], used
    if part.before[0] >= 0:
        pairs, pair = np.unique(place * sends + part.before, return_inverse=True)
        ports = np.stack((len(used) + pair, place), axis=1)
        real = np.concatenate((used, pairs % sends))
    return (2 * ports).astype(np.int32), np.repeat(real, 2)


def _queues_of(queues: Queues, sends: Longs) -> Queues:
    """The queues of ports that have the settings of these sends."""
    kind, unlimited = queues.kind, queues.unlimited
    if unlimited is not None:
        queues = replace(queues, unlimited=unlimited[sends])
    return queues if isinstance(kind, int) else replace(queues, kind=kind[sends])


def _sending_of(sending: Sending, flow: Longs, payload_bytes: Longs) -> Sending:
    """How some of the flows send messages of these sizes, each a transfer."""
    of_flow = {
        field.name: getattr(sending, field.name)[flow]
        for field in fields(Sending)
        if field.name not in ("messages", "rules", "admission", "gathering", "family")
    }
    count = len(payload_bytes)
    messages = Messages(np.arange(count + 1), np.ones(count, np.int64), payload_bytes)
    return Sending(messages=messages, rules=sending.rules, family=sending.family, **of_flow)
