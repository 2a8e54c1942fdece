"""Compares a drill's figures of its probe flows with their captured packets. Pure.

From the packets of all servers' ports (`tests.adversary.observer`) and a measured repeat with its
instants it makes `Comparison`s: the reported figure, the true one, and the tolerance.

Times here are those of the wire: when a packet left its sender's port, as that kernel stamped it.
The product's times are its sender's clock readings. Definitions are those of docs/results.md: an
outage runs from the sending of its first lost packet to the sending of the next that arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

import numpy as np
import numpy.typing as npt

from rocelab.results.convergence import FlowConvergence, MeasurementMethod
from rocelab.results.probes import FlowRecord, ProbeRun, Timeline
from tests.adversary.observer import Packets, PortChange

Ints = npt.NDArray[np.int64]

NS_PER_S = 10**9
MAGIC = 0x526F4345
WIRE_DELAY_NS = 200_000
"""The limit from a sender's clock reading to its kernel's stamp of the packet: a system call, and
those of flows that send at the same instant."""

READ_DELAY_NS = 2_000_000
"""The longest delay from a port's change in the kernel to its stamp by the watch of ports."""

IMMEDIATE = frozenset({"carrier-down", "power-loss", "nic-port-down", "blackhole"})
"""Faults with an immediate first effect: a port loses carrier, or packets are lost."""

DARK = IMMEDIATE - {"blackhole"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure of a valid result, and of the wire. None: not measured."""

    what: str
    claimed: float | None
    true: float | None
    allowed: float = 0.0

    @property
    def right(self) -> bool:
        if self.claimed is None or self.true is None:
            return self.claimed is self.true
        return abs(self.claimed - self.true) <= self.allowed

    def __str__(self) -> str:
        return f"{self.what}: claimed {self.claimed}, was {self.true} (allowed {self.allowed:g})"


@dataclass(frozen=True, slots=True)
class TrueOutage:
    """A run of packets of a flow that did not arrive. `uncertain_ns`: uncertainty of start and end,
    if a dead port refused the packet and no kernel stamped it."""

    start_ns: int
    end_ns: int | None
    lost: int
    uncertain_ns: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class FlowTruth:
    """A flow as captured: packets offered and at which rate, those that arrived, as RFC 4737 and
    RFC 5560 count them, and its outages in order."""

    offered: int
    offered_pps: float
    arrived: int
    reordered: int
    duplicated: int
    outages: tuple[TrueOutage, ...]
    longest_transit_ns: int


def flow_truth(
    packets: Packets, destination: int, flow: int, start_ns: int, end_ns: int
) -> FlowTruth | None:
    """A flow's packets that carry a send time in [start_ns, end_ns); None if none was captured.

    `packets` are all probes; `flow` is their flow number, `destination` the receiver's address. A
    sequence number that never left is a packet that a dead port refused. Raises ValueError if two
    packets have the same number: then captures of two runs were mixed up.
    """
    mine = packets[
        (packets["flow"] == flow)
        & (packets["stamp_ns"] >= start_ns)
        & (packets["stamp_ns"] < end_ns)
        & (packets["destination"] == destination)
    ]
    sent, came = mine[mine["outgoing"]], mine[~mine["outgoing"]]
    if not len(sent):
        return None
    sent = sent[np.argsort(sent["sequence"], kind="stable")]
    numbers = sent["sequence"].astype(np.int64)
    if np.any(np.diff(numbers) == 0):
        raise ValueError(f"a packet of flow {flow} left twice")
    first = numbers[0]
    offered = int(numbers[-1] - first) + 1
    every = np.arange(offered, dtype=np.int64)
    # From the first on: times since 1970 have more digits than a float.
    base_ns = int(sent["time_ns"][0])
    since_ns = np.interp(every, numbers - first, (sent["time_ns"] - base_ns).astype(np.float64))
    times = since_ns.astype(np.int64) + base_ns
    seen = np.zeros(offered, dtype=np.bool_)
    seen[numbers - first] = True
    times[numbers - first] = sent["time_ns"]
    came = came[np.argsort(came["time_ns"], kind="stable")]
    came_at = came["sequence"].astype(np.int64) - first
    arrived = np.zeros(offered, dtype=np.bool_)
    highest = reordered = duplicated = 0
    for place in came_at[(came_at >= 0) & (came_at < offered)].tolist():
        duplicated += bool(arrived[place])
        reordered += place < highest and not arrived[place]
        arrived[place] = True
        highest = max(highest, place)
    _check_same(sent, came)
    transit = came["time_ns"] - times[np.clip(came_at, 0, offered - 1)]
    return FlowTruth(
        offered,
        (offered - 1) * NS_PER_S / max(1, int(times[-1] - times[0])),
        int(np.count_nonzero(arrived)),
        reordered,
        duplicated,
        tuple(_outages(times, arrived, seen)),
        int(transit.max(initial=0)),
    )


def _check_same(sent: Packets, came: Packets) -> None:
    """Check that sent and received packets of a number are the same."""
    numbers, arrived = sent["sequence"], came["sequence"]
    places = np.minimum(np.searchsorted(numbers, arrived), len(numbers) - 1)
    if np.any(numbers[places] != arrived) or np.any(sent["stamp_ns"][places] != came["stamp_ns"]):
        raise ValueError("a packet arrived with another payload than it left with")


def _outages(
    times: Ints, arrived: npt.NDArray[np.bool_], seen: npt.NDArray[np.bool_]
) -> Iterator[TrueOutage]:
    place, count = 0, len(times)
    while place < count:
        if arrived[place]:
            place += 1
            continue
        end = place
        while end < count and not arrived[end]:
            end += 1
        # What no kernel stamped lies between its neighbours that one did.
        before = times[place - 1] if place else times[place]
        uncertain = 0 if seen[place] else int(times[place] - before) + 1
        yield TrueOutage(
            int(times[place]), int(times[end]) if end < count else None, end - place, uncertain
        )
        place = end


def compare_repeat(
    repeat: ProbeRun,
    timeline: Timeline,
    method: MeasurementMethod,
    packets: Packets,
    ports: Sequence[PortChange],
) -> list[Comparison]:
    """Comparisons of every figure of a valid repeat that the wire shows; `timeline` has the
    instants that the product used."""
    probes = packets[packets["magic"] == MAGIC]
    zero_ns = timeline.events[0].t_ns
    truths = {}
    comparisons: list[Comparison] = []
    for number, record in enumerate(repeat.flows):
        name = record.flow.name
        address = int(IPv4Address(record.flow.destination_ip))
        truth = flow_truth(probes, address, number, timeline.start_ns, timeline.end_ns)
        if truth is None:
            comparisons.append(Comparison(f"{name} was sent", record.measurement.sent, 0))
            continue
        truths[name] = truth
        comparisons += compare_flow(record, truth, zero_ns)
    events_ns = [event.t_ns for event in timeline.events]
    recoveries: dict[int, list[_Recovery]] = {}
    for record in repeat.flows:
        if record.flow.name in truths:
            for event, recovery in _recoveries(record, truths[record.flow.name], method):
                recoveries.setdefault(event, []).append(recovery)
    for index, event_ns in enumerate(events_ns):
        comparisons += _compare_event(repeat, index, event_ns, recoveries.get(index, []))
    comparisons += _compare_overall(repeat, truths)
    comparisons.append(_spanned(repeat, truths, events_ns))
    comparisons += compare_instants(repeat, timeline, truths, ports)
    return comparisons


def compare_flow(record: FlowRecord, truth: FlowTruth, zero_ns: int) -> Iterator[Comparison]:
    """Counts must be equal; each outage's start and end must be within the result's uncertainty."""
    name, claim = record.flow.name, record.measurement
    yield Comparison(f"{name} sent", claim.sent, truth.offered)
    yield Comparison(f"{name} received", claim.received, truth.arrived)
    yield Comparison(f"{name} reordered", claim.reordered, truth.reordered)
    yield Comparison(f"{name} duplicated", claim.duplicated, truth.duplicated)
    yield Comparison(f"{name} outages", len(claim.outages), len(truth.outages))
    if len(claim.outages) != len(truth.outages):
        return
    for number, (said, was) in enumerate(zip(claim.outages, truth.outages, strict=True)):
        what = f"{name} outage {number + 1}"
        allowed = said.resolution_ns + was.uncertain_ns + WIRE_DELAY_NS
        yield Comparison(f"{what} lost", said.lost, was.lost)
        yield Comparison(f"{what} start", said.start_ns, was.start_ns - zero_ns, allowed)
        true_end = None if was.end_ns is None else was.end_ns - zero_ns
        yield Comparison(f"{what} end", said.end_ns, true_end, allowed)


@dataclass(frozen=True, slots=True)
class _Recovery:
    """The effect of an event on a flow, by the wire: None if the flow did not recover for long
    enough; not `sure` if that is a close decision. `lost`: until the recovery."""

    flow: str
    said: FlowConvergence
    end_ns: int | None
    without_ns: int | None
    lost: int
    offered_pps: float
    sure: bool


def _recoveries(
    record: FlowRecord, truth: FlowTruth, method: MeasurementMethod
) -> Iterator[tuple[int, _Recovery]]:
    """For each event that cut the flow off, its first lasting recovery."""
    claim = record.measurement
    if len(claim.outages) != len(truth.outages):
        return
    held: dict[int, list[int]] = {}
    for place, outage in enumerate(claim.outages):
        if outage.event is not None:
            held.setdefault(outage.event, []).append(place)
    for event, places in held.items():
        said = claim.events[event]
        if said.stray or said.convergence_ns is None:
            # A recovery that another event cut short has no time to compare.
            continue
        yield event, _recovery(record, truth, places, method, said)


def _recovery(
    record: FlowRecord,
    truth: FlowTruth,
    places: Sequence[int],
    method: MeasurementMethod,
    said: FlowConvergence,
) -> _Recovery:
    """The first of these outages after which packets arrived for the required time."""
    outages, claimed = truth.outages, record.measurement.outages
    without_ns = lost = 0
    sure, cut_off = True, False
    for place in places:
        one = outages[place]
        lost += one.lost
        if one.end_ns is None:
            break
        without_ns += one.end_ns - one.start_ns
        cut_off |= not claimed[place].stray
        if not cut_off:
            continue
        if place + 1 < len(outages):
            good_ns = outages[place + 1].start_ns - one.end_ns
            # On the verge the wire and the sender's clock may see it differently, and both rightly.
            doubt_ns = sum(outage.resolution_ns for outage in claimed[place : place + 2])
            sure &= abs(good_ns - method.sustained_ns) > doubt_ns + 2 * WIRE_DELAY_NS
            if good_ns < method.sustained_ns:
                continue
        return _Recovery(
            record.flow.name, said, one.end_ns, without_ns, lost, truth.offered_pps, sure
        )
    return _Recovery(record.flow.name, said, None, None, lost, truth.offered_pps, sure)


def _compare_event(
    repeat: ProbeRun, index: int, event_ns: int, recoveries: Sequence[_Recovery]
) -> Iterator[Comparison]:
    said = repeat.events[index].convergence
    took_ns = repeat.events[index].event.took_ns
    what = f"event {index + 1}"
    for one in recoveries:
        if not one.sure:
            continue
        allowed = one.said.resolution_ns + took_ns + WIRE_DELAY_NS
        convergence = None if one.end_ns is None else one.end_ns - event_ns
        yield Comparison(
            f"{what} {one.flow} convergence", one.said.convergence_ns, convergence, allowed
        )
        yield Comparison(
            f"{what} {one.flow} loss of connectivity",
            one.said.loss_of_connectivity_ns,
            one.without_ns,
            allowed,
        )
        yield Comparison(
            f"{what} {one.flow} loss-derived convergence",
            one.said.loss_derived_ns,
            None if one.end_ns is None else one.lost * NS_PER_S / one.offered_pps,
            allowed,
        )
    ends = [one.end_ns for one in recoveries]
    known = [end - event_ns for end in ends if end is not None]
    allowed = said.resolution_ns + WIRE_DELAY_NS
    if said.full_convergence_ns is not None and all(one.sure for one in recoveries):
        yield Comparison(
            f"{what} full convergence", said.full_convergence_ns, max(known, default=None), allowed
        )
        yield Comparison(
            f"{what} first route",
            said.first_route_convergence_ns,
            min(known, default=None),
            allowed,
        )
        longest = max((one.without_ns or 0 for one in recoveries), default=None)
        yield Comparison(
            f"{what} loss of connectivity", said.loss_of_connectivity_ns, longest, allowed
        )
        offered_pps = sum(one.offered_pps for one in recoveries)
        yield Comparison(
            f"{what} loss-derived convergence",
            said.loss_derived_ns,
            sum(one.lost for one in recoveries) * NS_PER_S / offered_pps if recoveries else None,
            allowed,
        )


def _compare_overall(repeat: ProbeRun, truths: Mapping[str, FlowTruth]) -> Iterator[Comparison]:
    lost = sum(outage.lost for truth in truths.values() for outage in truth.outages)
    yield Comparison("packets lost", repeat.overall.lost, lost)
    touched = sum(bool(truth.outages) for truth in truths.values())
    if not repeat.overall.lost_outside_events:
        yield Comparison("flows affected", repeat.overall.affected_flows, touched)


def _spanned(
    repeat: ProbeRun, truths: Mapping[str, FlowTruth], events_ns: Sequence[int]
) -> Comparison:
    """Outages attributed to no event although one began during them: either its stamp is too late
    or they belong to it."""
    spanned = 0
    for record in repeat.flows:
        truth = truths.get(record.flow.name)
        if truth is None or len(truth.outages) != len(record.measurement.outages):
            continue
        for said, was in zip(record.measurement.outages, truth.outages, strict=True):
            slack_ns = said.resolution_ns + truth.longest_transit_ns
            spanned += said.event is None and any(
                was.start_ns + slack_ns < event_ns and (was.end_ns is None or event_ns < was.end_ns)
                for event_ns in events_ns
            )
    return Comparison("outages of no event in which one came", 0, spanned)


def compare_instants(
    repeat: ProbeRun,
    timeline: Timeline,
    truths: Mapping[str, FlowTruth],
    ports: Sequence[PortChange],
) -> Iterator[Comparison]:
    """Whether each event began at its stated time: no effect before, and immediate effects by then.
    An event of several changes begins with the first."""
    for index, (record, event) in enumerate(zip(repeat.events, timeline.events, strict=True)):
        if event.change != "begin" or event.kind not in IMMEDIATE:
            continue
        resolution_ns = record.convergence.resolution_ns + event.took_ns
        firsts = [
            was.start_ns
            for flow in repeat.flows
            if flow.flow.name in truths
            and len(truths[flow.flow.name].outages) == len(flow.measurement.outages)
            for said, was in zip(
                flow.measurement.outages, truths[flow.flow.name].outages, strict=True
            )
            if said.event == index
        ]
        if event.kind in DARK:
            near = [
                change.time_ns
                for change in ports
                if not change.running and abs(change.time_ns - event.t_ns) < NEAR_NS
            ]
            yield Comparison(
                f"event {index + 1}: the first port went dark",
                event.took_ns / 2,
                min(near) - event.t_ns if near else None,
                event.took_ns / 2 + READ_DELAY_NS,
            )
        if firsts:
            # A packet on its way to what breaks left before it broke.
            transit_ns = max(truth.longest_transit_ns for truth in truths.values())
            yield Comparison(
                f"event {index + 1}: the first packet was lost not before it",
                0,
                min(0, min(firsts) - event.t_ns),
                transit_ns + resolution_ns + WIRE_DELAY_NS,
            )


NEAR_NS = 300_000_000


def on_one_clock(packets: Packets, steps: Sequence[tuple[int, int, int]]) -> Packets:
    """`packets` with the stamps of a clock that was never set. Each step has its begin and end by
    the clock that was set, and its error."""
    mended = packets.copy()
    for from_ns, to_ns, off_ns in steps:
        within = (packets["time_ns"] >= from_ns) & (packets["time_ns"] < to_ns)
        mended["time_ns"][within] -= off_ns
    return mended


def ports_on_one_clock(
    ports: Sequence[PortChange], steps: Sequence[tuple[int, int, int]]
) -> tuple[PortChange, ...]:
    """As `on_one_clock`, for changes of ports."""
    mended = []
    for change in ports:
        for from_ns, to_ns, off_ns in steps:
            if from_ns <= change.time_ns < to_ns:
                change = replace(change, time_ns=change.time_ns - off_ns)
                break
        mended.append(change)
    return tuple(mended)
