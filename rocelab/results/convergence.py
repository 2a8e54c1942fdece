"""Convergence of one flow and of all flows, measured on the data plane.

From the numbered and stamped packets of senders, the arrivals at receivers and the instants of
faults and repairs come packets lost, reordered and duplicated, outages, and the convergence times
of RFC 6412 per flow, per event and overall.

All instants are nanoseconds of one clock. An outage is placed by the send times of its packets, so
that the delay of the path and the scheduling of the receiver do not affect it; only the
rate-derived method uses receive times. The packets around an outage and the uncertainty of the
event's instant limit the resolution, which every result carries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

NS_PER_S = 10**9
RATE_TOLERANCE = 0.01
"""An interval that lacks at most this share of its packets counts as full throughput: a sender may
be off its rate by as much (`rocelab.traffic.result.RATE_ERROR_LIMIT`)."""

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class FlowSamples:
    """What one flow's sender and receiver recorded. Raises ValueError for other input."""

    sent_seq: IntArray
    """In sending order, strictly rising."""

    sent_ns: IntArray
    """As `sent_seq`."""

    received_seq: IntArray
    """In order of arrival."""

    receive_ns: IntArray
    """As `received_seq`."""

    held_ns: IntArray | None = None
    """If known, bounds how long after its stamp each packet left."""

    def __post_init__(self) -> None:
        if self.sent_seq.shape != self.sent_ns.shape or self.sent_seq.ndim != 1:
            raise ValueError("sent_seq and sent_ns must be vectors of one length")
        if self.received_seq.shape != self.receive_ns.shape or self.received_seq.ndim != 1:
            raise ValueError("received_seq and receive_ns must be vectors of one length")
        if self.held_ns is not None and self.held_ns.shape != self.sent_ns.shape:
            raise ValueError("held_ns must be as long as sent_ns")
        if np.any(np.diff(self.sent_seq) <= 0) or np.any(np.diff(self.sent_ns) < 0):
            raise ValueError("sent_seq must rise strictly and sent_ns must never fall")


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which losses are attributed to one event: [start_ns, end_ns). The event happened
    at `start_ns`, or up to `uncertain_ns` later."""

    start_ns: int
    end_ns: int
    uncertain_ns: int = 0


@dataclass(frozen=True, slots=True)
class MeasurementMethod:
    """The parameters of the measurement; every figure depends on them and is reported with them."""

    sampling_interval_ns: int
    """The Packet Sampling Interval of the rate-derived method (RFC 6412 section 3.7.4)."""
    sustained_ns: int
    """The Sustained Convergence Validation Time (section 3.7.5): how long forwarding must stay
    whole before it counts as recovered."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A run of consecutive lost packets."""

    start_ns: int
    """When the first of them was sent."""
    end_ns: int | None
    """When the next packet that arrived was sent, None if none arrived after it."""
    lost: int
    event: int | None = None
    """The index of the event that it is attributed to, None outside all windows."""
    start_gap_ns: int = 0
    """How far before its start the packet before was sent, and how far before its end the last lost
    packet: connectivity went, and came back, at some instant in between. 0 without such a
    packet."""
    end_gap_ns: int = 0
    """How far before its start the packet before was sent, and how far before its end the last lost
    packet: connectivity went, and came back, at some instant in between. 0 without such a
    packet."""
    held_ns: int = 0
    """How much later than its stamp a packet at its ends may have left, because the sender did not
    get the CPU."""
    stray: bool = False
    """It is of one packet, and not of the first after its event: by itself it shows no loss of
    connectivity."""

    @property
    def resolution_ns(self) -> int:
        """The error bound of its length, in either direction."""
        return max(self.start_gap_ns, self.end_gap_ns) + self.held_ns


@dataclass(frozen=True, slots=True)
class FlowConvergence:
    """What one event did to one flow. Times are None if there is nothing to measure: the flow was
    not affected, or it did not recover, or another event hit it before its recovery had lasted; in
    the last case it still counts as `restored`."""

    affected: bool
    restored: bool
    lost: int
    """Convergence Packet Loss, until recovery; `lost_after_recovery` are losses after it, still
    inside the event's window."""
    lost_after_recovery: int
    convergence_ns: int | None
    """Route-Specific Convergence Time (RFC 6412 section 3.6.3): from the Convergence Event Instant
    (3.2.2) to the flow's recovery, which must last `Method.sustained_ns`. If the network found no
    other path, that is the repair. RFC 6412 counts packets lost due to the convergence event
    (3.7.2). Every packet counts that is lost from the event on, but only an outage that is not
    `stray` has a recovery: forwarding was whole right before a stray packet and right after it, so
    its place tells nothing of the event."""
    loss_derived_ns: float | None
    """Route-Specific Loss-Derived Method (3.5.3): Convergence Packet Loss (3.7.2) divided by the
    flow's offered rate."""
    loss_of_connectivity_ns: int | None
    """Route Loss of Connectivity Period (3.6.5): the summed duration of the outages until
    recovery."""
    rate_derived_ns: int | None
    """Rate-Derived Method (3.5.1), see `rate_derived_convergence`."""
    resolution_ns: int = 0
    """The error bound of its times from the packets sent around the outages: a packet interval for
    each outage, or more if the sender was late there."""
    stray: bool = False
    """Every outage was `stray`: they cannot be told from accidental losses, and have no times."""


@dataclass(frozen=True, slots=True)
class FlowMeasurement:
    """All measurements of one flow."""

    sent: int
    received: int
    lost: int
    """The sum of the events' `lost` and `lost_after_recovery`, and of `lost_outside_events`."""

    lost_outside_events: int
    reordered: int
    duplicated: int
    unexpected: int
    """Arrivals with a number that was never sent; they count nowhere else."""

    offered_pps: float
    resolution_ns: float
    """The packet interval: an outage of k packets lasted between k - 1 and k + 1 of them."""

    outages: tuple[Outage, ...]
    events: tuple[FlowConvergence, ...]


@dataclass(frozen=True, slots=True)
class EventConvergence:
    """What one event did to all flows together. Times cover the affected flows whose loss was not
    `stray`: None if there is none, or if one of them did not recover."""

    affected_flows: int
    restored: bool
    lost: int
    lost_after_recovery: int
    first_route_convergence_ns: int | None
    """First Route Convergence Time (RFC 6412 section 3.6.2), from the event to the recovery of the
    first affected flow."""
    full_convergence_ns: int | None
    """Full Convergence Time (3.6.1), to the recovery of the last one."""
    loss_derived_ns: float | None
    """Loss-Derived Convergence Time (3.6.4): packets lost by the affected flows divided by their
    offered rate, an average over them. Flows that never crossed the failed element are left out:
    the method assumes that all of the offered load did."""
    rate_derived_ns: int | None
    """Rate-Derived Method (3.5.1), of the last affected flow whose throughput it saw fall; None
    without one."""
    loss_of_connectivity_ns: int | None
    """Longest Route Loss of Connectivity Period (3.6.5) of any flow."""
    resolution_ns: int = 0
    """The error bound of these times: that of the affected flows plus the uncertainty of the
    event's instant."""
    stray_flows: int = 0
    """Affected flows whose loss was `stray`."""


@dataclass(frozen=True, slots=True)
class Overall:
    """The figures of one run: sums over flows, and each time of the worst event."""

    flows: int
    affected_flows: int
    """Flows affected by any event."""

    restored: bool
    """Whether every affected flow recovered and no flow ended in an outage."""

    sent: int
    received: int
    lost: int
    lost_outside_events: int
    reordered: int
    duplicated: int
    first_route_convergence_ns: int | None
    full_convergence_ns: int | None
    loss_derived_ns: float | None
    rate_derived_ns: int | None
    loss_of_connectivity_ns: int | None
    resolution_ns: float
    """The largest of the events', and at least the packet interval."""


def event_windows(events_ns: Sequence[int], limit_ns: int, end_ns: int) -> tuple[Window, ...]:
    """The window of each event: until the next one, for at most `limit_ns`, and never past
    `end_ns`, the end of the traffic. Raises ValueError if events are not in order or not before
    `end_ns`."""
    spans = tuple(pairwise([*events_ns, end_ns]))
    if any(at >= following for at, following in spans):
        raise ValueError("events must be in order of time, and before the end of the traffic")
    return tuple(Window(at, min(at + limit_ns, following)) for at, following in spans)


def offered_rate_pps(sent_ns: IntArray) -> float:
    """The actual rate of a sender, packets/s, over its whole run. Raises ValueError for fewer than
    two packets or no time between them."""
    if len(sent_ns) < 2 or sent_ns[-1] <= sent_ns[0]:
        raise ValueError("a rate needs at least two packets sent at different times")
    return (len(sent_ns) - 1) * NS_PER_S / int(sent_ns[-1] - sent_ns[0])


def first_arrivals(samples: FlowSamples) -> BoolArray:
    """A mask of the arrivals that count: numbers that were sent, the first copy of each.

    RFC 5560 counts further copies as duplicates, and RFC 4737 leaves them out of reordering.
    """
    known = np.isin(samples.received_seq, samples.sent_seq)
    first = np.zeros(len(samples.received_seq), dtype=np.bool_)
    first[np.unique(samples.received_seq, return_index=True)[1]] = True
    return known & first


def reordered_packets(received_seq: IntArray) -> int:
    """Type-P-Reordered packets (RFC 4737 section 3.3) of a sequence without duplicates.

    A packet is reordered when its number is below the next expected one, which is one more than
    the highest that has arrived before it. A gap left by loss is not reordering.
    """
    if len(received_seq) < 2:
        return 0
    return int(np.count_nonzero(received_seq[1:] < np.maximum.accumulate(received_seq)[:-1]))


def find_outages(
    sent_ns: IntArray, delivered: BoolArray, held_ns: IntArray | None = None
) -> tuple[Outage, ...]:
    """The runs of lost packets, in order. All arrays are in sending order and have the same
    length."""
    held_ns = np.zeros_like(sent_ns) if held_ns is None else held_ns
    edges = np.diff(np.concatenate(([False], ~delivered, [False])).astype(np.int8))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    gaps_ns = np.diff(sent_ns)
    return tuple(
        Outage(
            start_ns=int(sent_ns[start]),
            end_ns=int(sent_ns[end]) if end < len(sent_ns) else None,
            lost=int(end - start),
            start_gap_ns=int(gaps_ns[start - 1]) if start else 0,
            end_gap_ns=int(gaps_ns[end - 1]) if end < len(sent_ns) else 0,
            held_ns=int(max(held_ns[start], held_ns[end] if end < len(sent_ns) else 0)),
        )
        for start, end in zip(starts, ends, strict=True)
    )


def binned(instants_ns: IntArray, start_ns: int, interval_ns: int, bins: int) -> IntArray:
    """How many instants fall into each of `bins` intervals from `start_ns` on."""
    index = (instants_ns - start_ns) // interval_ns
    inside = index[(index >= 0) & (index < bins)]
    return np.bincount(inside, minlength=bins).astype(np.int64)


def rate_derived_convergence(
    sent_ns: IntArray, arrived_ns: IntArray, window: Window, method: MeasurementMethod
) -> int | None:
    """Convergence time by the Rate-Derived Method (RFC 6412 section 3.5.1), in ns.

    Throughput is sampled over whole intervals of `method.sampling_interval_ns` from the event on.
    It is below the offered load in an interval if the packets that arrived are fewer than those
    sent by more than RATE_TOLERANCE of these, and by more than one (one may be on its way at each
    border). The result runs from the event to the first border after which throughput stays at the
    offered load for `method.sustained_ns`: 0 if it never fell, None if it did not return for that
    long. Its resolution is the sampling interval, and it does not see a single lost packet.
    """
    interval = method.sampling_interval_ns
    end = min(window.end_ns, int(sent_ns[-1]) + 1) if len(sent_ns) else window.start_ns
    bins = max(0, (end - window.start_ns) // interval)
    offered = binned(sent_ns, window.start_ns, interval, bins)
    arrived = binned(arrived_ns, window.start_ns, interval, bins)
    below = np.flatnonzero(offered - arrived > np.maximum(1, RATE_TOLERANCE * offered))
    if not len(below):
        return 0
    needed = math.ceil(method.sustained_ns / interval)
    good_after = np.diff(np.append(below, bins)) - 1
    recoveries = np.flatnonzero(good_after >= needed)
    return int(below[recoveries[0]] + 1) * interval if len(recoveries) else None


def measure_flow(
    samples: FlowSamples, windows: Sequence[Window], offered_pps: float, method: MeasurementMethod
) -> FlowMeasurement:
    """All figures of one flow.

    `windows` are disjoint and in order, one per event (`event_windows`). An outage is attributed to
    an event if it starts in its window, or less than a packet interval before: that packet was on
    its way when the event came. Raises ValueError if `offered_pps` is not positive.
    """
    if not offered_pps > 0:
        raise ValueError(f"the offered rate must be positive, got {offered_pps}")
    resolution_ns = NS_PER_S / offered_pps
    counted = first_arrivals(samples)
    arrived_seq = samples.received_seq[counted]
    known = int(np.count_nonzero(np.isin(samples.received_seq, samples.sent_seq)))
    delivered = np.isin(samples.sent_seq, arrived_seq)
    outages = tuple(
        _attributed(outage, windows, resolution_ns)
        for outage in find_outages(samples.sent_ns, delivered, samples.held_ns)
    )
    last_sent_ns = int(samples.sent_ns[-1]) if len(samples.sent_ns) else 0
    arrived_ns = samples.receive_ns[counted]
    events = []
    for index, window in enumerate(windows):
        event_outages = [outage for outage in outages if outage.event == index]
        watched_until_ns, cut_short = _watched(outages, index, last_sent_ns)
        # An outage may outlast its window: then the next event, the repair, ended it.
        watched = Window(
            window.start_ns, max(window.end_ns, watched_until_ns if event_outages else 0)
        )
        rate_ns = rate_derived_convergence(samples.sent_ns, arrived_ns, watched, method)
        events.append(
            _flow_convergence(
                event_outages, window, watched_until_ns, cut_short, offered_pps, method, rate_ns
            )
        )
    return FlowMeasurement(
        sent=len(samples.sent_seq),
        received=len(arrived_seq),
        lost=int(np.count_nonzero(~delivered)),
        lost_outside_events=sum(outage.lost for outage in outages if outage.event is None),
        reordered=reordered_packets(arrived_seq),
        duplicated=known - len(arrived_seq),
        unexpected=len(samples.received_seq) - known,
        offered_pps=offered_pps,
        resolution_ns=resolution_ns,
        outages=outages,
        events=tuple(events),
    )


def _watched(outages: Sequence[Outage], event: int, last_sent_ns: int) -> tuple[int, bool]:
    """Until when forwarding of the flow was observed after an event's outages, and whether another
    event's outage ended it."""
    places = [place for place, outage in enumerate(outages) if outage.event == event]
    if not places or places[-1] + 1 == len(outages):
        return last_sent_ns, False
    following = outages[places[-1] + 1]
    return following.start_ns, following.event is not None


def _attributed(outage: Outage, windows: Sequence[Window], resolution_ns: float) -> Outage:
    for index, window in reversed(list(enumerate(windows))):
        if window.start_ns - resolution_ns < outage.start_ns < window.end_ns and (
            outage.end_ns is None or outage.end_ns > window.start_ns
        ):
            return replace(outage, event=index, stray=_is_stray(outage, window))
    return outage


def _is_stray(outage: Outage, window: Window) -> bool:
    # When the event came: the next packet, or the one on its way, is lost.
    late_ns = outage.start_ns - window.start_ns - window.uncertain_ns
    return outage.lost == 1 and outage.end_ns is not None and late_ns > 2 * outage.resolution_ns


def _flow_convergence(
    outages: Sequence[Outage],
    window: Window,
    watched_until_ns: int,
    cut_short: bool,
    offered_pps: float,
    method: MeasurementMethod,
    rate_derived_ns: int | None,
) -> FlowConvergence:
    if not outages:
        return FlowConvergence(False, True, 0, 0, None, None, None, None)
    # A recovery follows a loss of connectivity, which stray packets before it do not show.
    first = next((at for at, outage in enumerate(outages) if not outage.stray), len(outages) - 1)
    recovered_at: int | None = None
    until_recovery = list(outages[:first])
    for index, outage in enumerate(outages[first:], first):
        until_recovery.append(outage)
        following = outages[index + 1].start_ns if index + 1 < len(outages) else watched_until_ns
        if outage.end_ns is not None and following - outage.end_ns >= method.sustained_ns:
            recovered_at = outage.end_ns
            break
    lost = sum(outage.lost for outage in until_recovery)
    connectivity_ns = [o.end_ns - o.start_ns for o in until_recovery if o.end_ns is not None]
    resolution_ns = sum(outage.resolution_ns for outage in until_recovery)
    sustained = recovered_at is not None
    restored = sustained or (cut_short and outages[-1].end_ns is not None)
    if outages[first].stray:
        return FlowConvergence(
            True, restored, lost, 0, None, None, None, None, resolution_ns, stray=True
        )
    return FlowConvergence(
        affected=True,
        restored=restored,
        lost=lost,
        lost_after_recovery=sum(outage.lost for outage in outages) - lost,
        convergence_ns=None if recovered_at is None else recovered_at - window.start_ns,
        loss_derived_ns=lost * NS_PER_S / offered_pps if sustained else None,
        loss_of_connectivity_ns=sum(connectivity_ns) if restored else None,
        rate_derived_ns=rate_derived_ns,
        resolution_ns=resolution_ns,
    )


def aggregate_event(
    flows: Sequence[FlowMeasurement], event: int, uncertain_ns: int = 0
) -> EventConvergence:
    """One event over all flows; `event` is its index, `uncertain_ns` the uncertainty of its
    instant."""
    affected = [flow for flow in flows if flow.events[event].affected]
    every = [flow.events[event] for flow in affected]
    cut_off = [flow for flow in affected if not flow.events[event].stray]
    outages = [flow.events[event] for flow in cut_off]
    recoveries = [one.convergence_ns for one in outages if one.convergence_ns is not None]
    offered_pps = sum(flow.offered_pps for flow in cut_off)
    lost = sum(one.lost for one in outages)
    sustained = len(recoveries) == len(outages)
    return EventConvergence(
        affected_flows=len(affected),
        restored=all(one.restored for one in every),
        lost=sum(one.lost for one in every),
        lost_after_recovery=sum(one.lost_after_recovery for one in every),
        first_route_convergence_ns=min(recoveries, default=None),
        full_convergence_ns=_largest([one.convergence_ns for one in outages]),
        loss_derived_ns=lost * NS_PER_S / offered_pps if outages and sustained else None,
        rate_derived_ns=_largest(
            [one.rate_derived_ns for one in outages if one.rate_derived_ns != 0]
        ),
        loss_of_connectivity_ns=_largest([one.loss_of_connectivity_ns for one in outages]),
        resolution_ns=max((one.resolution_ns for one in outages), default=0) + uncertain_ns,
        stray_flows=len(affected) - len(cut_off),
    )


def aggregate(flows: Sequence[FlowMeasurement], events: Sequence[EventConvergence]) -> Overall:
    """One run over all flows and events. Raises ValueError without flows."""
    if not flows:
        raise ValueError("nothing to aggregate: no flows")
    felt = [event for event in events if event.affected_flows > event.stray_flows]
    rates = [
        one.rate_derived_ns
        for flow in flows
        for one in flow.events
        if one.affected and not one.stray
    ]
    firsts = [event.first_route_convergence_ns for event in felt]
    loss_derived = [event.loss_derived_ns for event in felt]
    known_loss_derived = [value for value in loss_derived if value is not None]
    whole = len(known_loss_derived) == len(loss_derived)
    return Overall(
        flows=len(flows),
        affected_flows=sum(any(one.affected for one in flow.events) for flow in flows),
        restored=all(event.restored for event in events)
        and all(outage.end_ns is not None for flow in flows for outage in flow.outages),
        sent=sum(flow.sent for flow in flows),
        received=sum(flow.received for flow in flows),
        lost=sum(flow.lost for flow in flows),
        lost_outside_events=sum(flow.lost_outside_events for flow in flows),
        reordered=sum(flow.reordered for flow in flows),
        duplicated=sum(flow.duplicated for flow in flows),
        first_route_convergence_ns=_largest(firsts),
        full_convergence_ns=_largest([event.full_convergence_ns for event in felt]),
        loss_derived_ns=max(known_loss_derived, default=None) if whole else None,
        rate_derived_ns=_largest([rate for rate in rates if rate != 0]),
        loss_of_connectivity_ns=_largest([event.loss_of_connectivity_ns for event in felt]),
        resolution_ns=max(
            *(flow.resolution_ns for flow in flows),
            *(float(one.resolution_ns) for one in felt),
            0.0,
        ),
    )


def _largest(times_ns: Sequence[int | None]) -> int | None:
    """The largest time; None if one is missing, since it could be larger."""
    known = [time for time in times_ns if time is not None]
    return max(known, default=None) if len(known) == len(times_ns) else None
