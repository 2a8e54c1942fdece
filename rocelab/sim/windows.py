"""What `transport.window` holds back: a queue pair has at most a window of packets under way.

Packet k leaves a round trip after packet k - window at the earliest. `limits_of` says it to the
fluid engine, which has no packets.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from rocelab.base.arrays import Floats, Longs
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.program import Limits

NO_WINDOW = 2**40
"""Packets: more than are sent."""


def serialised_s(
    packet_bits: Floats, acked_bits: Floats, ack_bits: int, sums_s: Floats, slowest_s: Floats
) -> Floats:
    """How long links serialise packets of flows and their ACK: the first packet and the ACK one
    link after the other, and the other packets only the slowest link, as they are sent on while
    they come. acked_bits: of all packets that an ACK is for; ack_bits: of an ACK. sums_s,
    slowest_s: seconds of a bit, over all links and over the slowest."""
    return (packet_bits + ack_bits) * sums_s + (acked_bits - packet_bits) * slowest_s


@dataclass(frozen=True, eq=False)
class Windowed:
    """F flows and their windows."""

    packets: Longs
    bits: Floats
    """Of all its packets on the wire."""

    window: Longs
    """Packets, NO_WINDOW for a flow without."""

    ack_every: Longs
    """The most packets that one ACK is for."""

    ack_bits: int
    """Of an ACK on the wire."""

    latency_s: Floats
    """Of its path, one way, without what links serialise."""

    ring: Longs
    """The ring that each flow is a hop of, -1 for one whose transfers begin by themselves."""

    rounds: Floats
    """In how many rounds of a ring its bytes leave, each after what the round before brought."""

    between_s: Floats
    """The latency that passes from round to round of a ring, the mean of its hops."""

    @property
    def packet_bits(self) -> Floats:
        """Of a mean packet."""
        mean: Floats = self.bits / np.maximum(1, self.packets)
        return mean


def round_trips_s(sent: Windowed, paths: Paths, capacity_bps: Floats) -> Floats:
    """From when a packet begins to leave until the ACK for it is back and opens the window, F,
    where nothing waits: the ACK comes after the last of the packets that it is for. Over the mean
    of the ways of a flow that takes several."""
    flow = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    bit_s = 1 / capacity_bps[paths.sends]
    weight_s = bit_s if paths.share is None else bit_s * paths.share
    sums_s = np.bincount(flow, weight_s, minlength=len(paths)).astype(np.float64)
    slowest_s = np.zeros(len(paths))
    np.maximum.at(slowest_s, flow, bit_s)
    acked_bits = sent.packet_bits * np.minimum(sent.window, sent.ack_every)
    on_links_s = serialised_s(sent.packet_bits, acked_bits, sent.ack_bits, sums_s, slowest_s)
    times_s: Floats = on_links_s + 2 * sent.latency_s
    return times_s


def limits_of(sent: Windowed, paths: Paths, capacity_bps: Floats) -> Limits | None:
    """The flows that a window can hold back, alone on their paths. A hop of a ring has one rate for
    all its rounds, in which windows and the latency between rounds pass together; those of its
    slowest hop pass for all."""
    if not ((sent.packets > sent.window) & (np.diff(paths.start) > 0)).any():
        return None
    lines_bps = _lines_bps(paths, capacity_bps)
    round_s = round_trips_s(sent, paths, capacity_bps)
    window_bits = sent.packet_bits * sent.window
    limits = Limits(np.arange(len(paths), dtype=np.int32), round_s, window_bits, lines_bps.copy())
    (hops,) = np.nonzero((sent.ring >= 0) & (sent.packets > 0))
    if len(hops):
        bits, ring = sent.bits[hops] / sent.rounds[hops], sent.ring[hops]
        full = np.maximum(0, np.ceil(bits / window_bits[hops] * (1 - 1e-12)) - 1)
        alone_s = full * round_s[hops] + (bits - full * window_bits[hops]) / lines_bps[hops]
        slowest_s = np.zeros(int(ring.max()) + 1)
        np.maximum.at(slowest_s, ring, bits / window_bits[hops] * round_s[hops])
        took_s = np.maximum(alone_s, slowest_s[ring] - sent.between_s[hops])
        limits.window_bits[hops], limits.line_bps[hops] = np.inf, bits / took_s
    with np.errstate(divide="ignore", invalid="ignore"):
        slowest_bps = np.minimum(limits.line_bps, limits.window_bits / round_s)
    is_kept = (sent.packets > sent.window) & (slowest_bps < lines_bps * (1 - 1e-9))
    if not is_kept.any():
        return None
    return Limits(*(getattr(limits, column.name)[is_kept] for column in fields(Limits)))


def _lines_bps(paths: Paths, capacity_bps: Floats) -> Floats:
    """What each flow sends at most, alone on its path, F."""
    flow = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    rates_bps = capacity_bps[paths.sends]
    if paths.share is not None:
        rates_bps = rates_bps / paths.share
    lines_bps = np.full(len(paths), np.inf)
    np.minimum.at(lines_bps, flow, rates_bps)
    return lines_bps
