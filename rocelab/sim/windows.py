"""What `transport.window` holds back: a queue pair has at most a window of packets under way.

Packet k leaves a round trip after packet k - window at the earliest. `held_back` says how much
longer transfers of a fluid, which knows no windows, take at least if they obey them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Floats, Longs
from rocelab.routes.arrays.flows import Paths
from rocelab.routes.arrays.paths import along_paths


def serialised_s(
    packet_bits: Floats, acked_bits: Floats, ack_bits: int, sums_s: Floats, slowest_s: Floats
) -> Floats:
    """How long links serialise packets of flows and their ACK: the first packet and the ACK one
    link after the other, and the other packets only the slowest link, as they are sent on while
    they come. acked_bits: of all packets that an ACK is for; ack_bits: of an ACK. sums_s,
    slowest_s: seconds of a bit, over all links and over the slowest."""
    return (packet_bits + ack_bits) * sums_s + (acked_bits - packet_bits) * slowest_s


@dataclass(frozen=True, eq=False)
class Sent:
    """X transfers of a fluid, those of a flow one after the other. Times are inf for never."""

    flow: Longs
    begin_s: Floats
    """When its first bit left."""

    end_s: Floats
    """When its last bit left."""

    over_s: Floats
    """When its last bit had come."""

    packets: Longs
    bits: Floats
    """Of all its packets on the wire."""

    window: Longs
    """Of its queue pair."""

    ack_every: Longs
    """The most packets that one ACK is for."""

    ack_bits: int
    """Of an ACK on the wire."""


def round_trips_s(sent: Sent, paths: Paths, capacity_bps: Floats, latency_s: Floats) -> Floats:
    """From when a packet begins to leave until the ACK for it is back and opens the window, X,
    where nothing waits: the ACK comes after the last of the packets that it is for. Over the mean
    of the ways of a flow that takes several. latency_s: of each send, 2L."""
    flow = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    bit_s = 1 / capacity_bps[paths.sends]
    weight_s = bit_s if paths.share is None else bit_s * paths.share
    sums_s = np.bincount(flow, weight_s, minlength=len(paths)).astype(np.float64)
    slowest_s = np.zeros(len(paths))
    np.maximum.at(slowest_s, flow, bit_s)
    packet_bits: Floats = sent.bits / sent.packets
    acked_bits: Floats = packet_bits * np.minimum(sent.window, sent.ack_every)
    of_flows = sums_s[sent.flow], slowest_s[sent.flow]
    on_links_s = serialised_s(packet_bits, acked_bits, sent.ack_bits, *of_flows)
    times_s: Floats = on_links_s + 2 * along_paths(paths, latency_s)[sent.flow]
    return times_s


def held_back(sent: Sent, round_s: Floats) -> Floats:
    """How many times as long each transfer takes at least with its window, X; 1 where that holds
    nothing back, and for transfers that never end. Packets of a transfer leave evenly."""
    order = np.lexsort((sent.end_s, sent.flow))
    flow, end_s = sent.flow[order], sent.end_s[order]
    packets, window = sent.packets[order], sent.window[order]
    is_first = np.diff(flow, prepend=-1) != 0
    # A queue pair sends one transfer after the other.
    begin_s = np.where(
        is_first,
        sent.begin_s[order],
        np.maximum(sent.begin_s[order], np.concatenate(([0.0], end_s[:-1]))),
    )
    took_s = end_s - begin_s
    before = np.cumsum(packets) - packets
    of_flow = np.maximum.accumulate(np.where(is_first, before, 0))
    inside = (packets - 1) // window
    gap_s = round_s[order]
    with np.errstate(invalid="ignore"):
        extra_s = inside * np.maximum(0.0, gap_s - window * took_s / packets)
        # The first window that ends in a transfer and begins before it.
        number = before + packets - inside * window - 0.5
        knots = np.stack((before, before + packets), axis=1).reshape(-1)
        times_s = np.stack((begin_s, end_s), axis=1).reshape(-1)
        apart_s = np.interp(number, knots, times_s) - np.interp(number - window, knots, times_s)
        crosses = number - window > of_flow
        extra_s += np.where(crosses, np.maximum(0.0, gap_s - apart_s), 0.0)
        ratio = 1 + extra_s / (sent.over_s[order] - begin_s)
    factors = np.ones(len(order))
    factors[order] = np.where(np.isfinite(ratio), ratio, 1.0)
    return factors
