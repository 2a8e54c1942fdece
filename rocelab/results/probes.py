"""One measured run of probe flows under faults.

A frozen `ProbeRun` is built from the agents' records of each flow and the times of faults. It is a
part of the result document of a drill; docs/documents/ is generated from it.

Instants of a run (`t_ns`, `start_ns`, ...) are nanoseconds of the lab's clock relative to the run's
first event, so negative before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rocelab.base import quantities
from rocelab.results.convergence import (
    EventConvergence,
    FlowMeasurement,
    FlowSamples,
    MeasurementMethod,
    Overall,
    aggregate,
    aggregate_event,
    binned,
    event_windows,
    first_arrivals,
    measure_flow,
    offered_rate_pps,
)
from rocelab.results.health import HealthReport
from rocelab.results.stages import Stages
from rocelab.routes.balance import LinkLoad, Polarization, TierBalance


@dataclass(frozen=True, slots=True)
class FaultChange:
    """A fault that began or ended at `t_ns`."""

    t_ns: int
    kind: str
    begins: bool
    subject: str
    links: tuple[str, ...] = ()
    """The links that it is in, by name."""
    nodes: tuple[str, ...] = ()
    """The nodes that it is in as a whole."""
    dark: bool = False
    """Links or all links of the nodes have no carrier meanwhile."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something the drill did to the lab: a Convergence Event (RFC 6412 section 3.7.1)."""

    t_ns: int
    """The Convergence Event Instant, of the first of its changes."""
    kind: str
    """That of the fault, `several faults` for more than one."""
    change: Literal["begin", "end"]
    """`begin` if a fault began, `end` if faults only ended."""
    subject: str
    """What was broken, `rtsw1:ctsw2`; with more than four, the first four and how many more."""
    changes: int = 1
    """How many changes of the lab it stands for: changes that follow each other within
    `measure.sustained` are one event, from the first of them."""
    took_ns: int = 0
    """The uncertainty of the instant: the kernel or the daemon did it between `t_ns` and `t_ns` +
    `took_ns`; it is part of `resolution_ns`."""
    faults: tuple[FaultChange, ...] = ()
    """Each of its changes; empty in documents from before it was recorded."""

    @property
    def title(self) -> str:
        """A title for people."""
        text = f"{self.kind} of {self.subject}"
        if self.changes > 1:
            text += f" ({self.changes} changes)"
        return f"{text} ends" if self.change == "end" else text


def rebased(event: Event, zero_ns: int) -> Event:
    """The event with its instants relative to `zero_ns`."""
    faults = tuple(replace(change, t_ns=change.t_ns - zero_ns) for change in event.faults)
    return replace(event, t_ns=event.t_ns - zero_ns, faults=faults)


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault by hand that a lab had while something was sent in it that allows this."""

    kind: str
    subject: str
    begins_ns: int | None
    """When it began, in ns of the lab after the start of what was sent; None: before."""
    ends_ns: int | None
    """When it ended, likewise; None: it lasted beyond the end."""

    @property
    def text(self) -> str:
        """What it was, when it began and how long it lasted, for people."""
        named = f"{self.kind} of {self.subject}"
        if self.begins_ns is None:
            if self.ends_ns is None:
                return f"{named}, from before the start to the end"
            return (
                f"{named}, from before the start until {quantities.duration(self.ends_ns)} after it"
            )
        begins = f"{named}, from {quantities.duration(self.begins_ns)} after the start"
        if self.ends_ns is None:
            return f"{begins} to the end"
        return f"{begins} for {quantities.duration(self.ends_ns - self.begins_ns)}"


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow's name and 5-tuple; the protocol is UDP."""

    name: str
    source: str
    destination: str
    source_ip: str
    destination_ip: str
    source_port: int
    destination_port: int


@dataclass(frozen=True, slots=True)
class Rate:
    """Packets sent and received per interval; interval i starts at start_ns + i x interval_ns.

    Sent packets are binned by send time, received ones (first copies) by receive time.
    """

    start_ns: int
    interval_ns: int
    sent: tuple[int, ...]
    received: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """One flow: its identity, its measurement, and its throughput over time."""

    flow: Flow
    measurement: FlowMeasurement
    rate: Rate
    path: tuple[str, ...] = ()
    """The links that it crossed before the first event, by the kernels' tables and hashes then;
    empty where these do not determine it."""


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One event and its effect on all flows together."""

    event: Event
    convergence: EventConvergence


@dataclass(frozen=True, slots=True)
class FibChange:
    """A change of a switch's kernel FIB as netlink reported it."""

    t_ns: int
    node: str
    prefix: str
    action: Literal["new", "replace", "delete"]
    width_before: int | None
    """Next hops, None if there was no route or it is unknown."""
    width_after: int | None
    """Next hops, None if there was no route or it is unknown."""


@dataclass(frozen=True, slots=True)
class HashingRun:
    """Where undisturbed traffic landed under one seed plan."""

    hashing: str
    own: bool
    """Whether it is the phase's own plan, under which the faults ran."""
    loads: tuple[LinkLoad, ...]
    tiers: tuple[TierBalance, ...]
    polarizations: tuple[Polarization, ...]
    """Empty if no flow has two choices in a row, as in two tiers joined by single links."""
    misplaced_packets: int | None = None
    """How many took another link than the prediction from FIBs and seeds: 0 if model and kernel
    agree, None if the seeds or the scheme do not allow a prediction."""


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How well the machine carried a faulted run."""

    lag_p99_ns: int
    """How late packets left against their deadlines, of the worst flow."""
    lag_max_ns: int
    """How late packets left against their deadlines, of the worst flow."""
    stall_ns: int | None
    """The longest time in which a flow did not send just as an event cut it off or as it came back,
    or any flow as an event came; None if no flow sent both before and after one. It limits the
    resolution of this repeat's convergence times."""
    agents_cpu_s: float
    """CPU time of the senders, forwarding included."""
    stolen_s: float
    """CPU time that the hypervisor kept from this machine ("steal" of /proc/stat)."""


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """One run of probes. Instants (`t_ns`, `start_ns`, `end_ns`) are relative to its first event,
    negative before it; without an event to its start."""

    problems: tuple[str, ...]
    """Why the run is invalid; empty when it is valid. The figures of an invalid run count in no
    headline."""
    overall: Overall
    """The KPIs."""
    events: tuple[EventRecord, ...]
    flows: tuple[FlowRecord, ...]
    fib: tuple[FibChange, ...]
    hashing: tuple[HashingRun, ...]
    """Where undisturbed traffic landed, by seed plan."""
    fidelity: Fidelity | None = None
    stages: tuple[Stages, ...] = ()
    """Of each event, empty without `measure.stages`."""
    health: HealthReport | None = None
    """The SLIs of the whole faulted run, warm-up and repair included, None without `health`; it
    affects neither verdicts nor validity."""

    @property
    def valid(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class Timeline:
    """One clock for a repeat, in its raw nanoseconds: the events in order and when the counted
    traffic ended. `event_window_ns` bounds how long after an event losses are attributed to it."""

    events: tuple[Event, ...]
    start_ns: int
    end_ns: int
    event_window_ns: int

    @property
    def zero_ns(self) -> int:
        """The instant from which a run's times count: its first event or, without one, its
        start."""
        return self.events[0].t_ns if self.events else self.start_ns


def probe_run(
    samples: Mapping[Flow, FlowSamples],
    timeline: Timeline,
    method: MeasurementMethod,
    fib: Sequence[FibChange] = (),
    hashing: Sequence[HashingRun] = (),
    problems: Sequence[str] = (),
) -> ProbeRun:
    """A run from its agents' records, all in one raw clock; the result is relative to the first
    event. Raises ValueError without flows, and if events are not in order."""
    zero = timeline.zero_ns
    events = tuple(rebased(event, zero) for event in timeline.events)
    end_ns = timeline.end_ns - zero
    spans = event_windows([e.t_ns for e in events], timeline.event_window_ns, end_ns)
    windows = [
        replace(span, uncertain_ns=event.took_ns) for span, event in zip(spans, events, strict=True)
    ]
    records = []
    for flow, raw in samples.items():
        shifted = replace(raw, sent_ns=raw.sent_ns - zero, receive_ns=raw.receive_ns - zero)
        measurement = measure_flow(shifted, windows, offered_rate_pps(raw.sent_ns), method)
        rate = _rate(shifted, timeline.start_ns - zero, end_ns, method.sampling_interval_ns)
        records.append(FlowRecord(flow, measurement, rate))
    measurements = [record.measurement for record in records]
    convergences = [
        aggregate_event(measurements, index, event.took_ns) for index, event in enumerate(events)
    ]
    return ProbeRun(
        problems=tuple(problems),
        overall=aggregate(measurements, convergences),
        events=tuple(EventRecord(*pair) for pair in zip(events, convergences, strict=True)),
        flows=tuple(records),
        fib=tuple(
            FibChange(c.t_ns - zero, c.node, c.prefix, c.action, c.width_before, c.width_after)
            for c in sorted(fib, key=lambda change: change.t_ns)
        ),
        hashing=tuple(hashing),
    )


def _rate(samples: FlowSamples, start_ns: int, end_ns: int, interval_ns: int) -> Rate:
    """Rates, binned with a border at 0, the first event, so that no bin spans it."""
    aligned = start_ns // interval_ns * interval_ns
    bins = max(0, -(-(end_ns - aligned) // interval_ns))
    arrived = samples.receive_ns[first_arrivals(samples)]
    return Rate(
        start_ns=aligned,
        interval_ns=interval_ns,
        sent=tuple(binned(samples.sent_ns, aligned, interval_ns, bins).tolist()),
        received=tuple(binned(arrived, aligned, interval_ns, bins).tolist()),
    )
