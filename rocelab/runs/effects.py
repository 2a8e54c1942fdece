"""Checks that the immediate effects of faults were observed at their stamps.

Compares the stamped changes of a run with the kernel's port events and with the packets of flows. A
first effect later than the stated resolution explains is a problem: convergence would be counted
from an instant at which nothing was broken yet.

Faults that act later by nature (a daemon that hangs, a hold timer, a leak, a share of packets lost)
are not compared: their instant is the call itself, and `rocelab.faults.injector` checks that it had
an effect.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from rocelab.base import quantities
from rocelab.faults.base import CarrierFault, SeveringFault
from rocelab.faults.injector import InjectedChange
from rocelab.lab.lab import RunningLab
from rocelab.linux.linkwatch import LinkEvent, LinkWatch
from rocelab.observe.timeline import POLL_S, opened_namespaces
from rocelab.planning.fabric import Fabric
from rocelab.results.convergence import FlowMeasurement
from rocelab.routes.path import Path

READ_DELAY_NS = 10_000_000
"""A port event is stamped when it is read, at most this much later on a machine that still carries
a run (docs/convergence.md, "Clock and resolution")."""


OPERSTATE_DORMANT = 5
"""IF_OPER_DORMANT (linux/if.h)."""


@contextmanager
def link_events(lab: RunningLab) -> Iterator[Sequence[LinkEvent]]:
    """The port changes of a lab's switches, collected while the context lasts.

    Raises OSError if the lab is not up; at the end, the error that ended the reading.
    """
    events: list[LinkEvent] = []
    is_over = threading.Event()
    with (
        opened_namespaces(lab, lab.fabric.switches) as namespaces,
        LinkWatch(namespaces) as watch,
        ThreadPoolExecutor(1, "link-events") as pool,
    ):

        def read() -> None:
            while not is_over.is_set():
                events.extend(watch.events(POLL_S))

        reading = pool.submit(read)
        try:
            yield events
        finally:
            is_over.set()
        reading.result()


def late_carriers(
    fabric: Fabric,
    changes: Sequence[InjectedChange],
    events: Sequence[LinkEvent],
    resolution_ns: float,
) -> tuple[str, ...]:
    """Faults whose port events came later than their stamp and the resolution explain.

    The first event of any of a fault's ports counts, from its stamp on.
    """
    limit_ns = resolution_ns + READ_DELAY_NS
    delays = []
    for change in changes:
        if not change.begins or not isinstance(change.fault, CarrierFault):
            continue
        ports = frozenset(change.fault.dark_ports(fabric))
        dark_ns = (
            event.time_ns
            for event in events
            if (event.node, event.interface) in ports
            and event.time_ns >= change.t_ns
            and not (event.up and event.carrier and event.operstate != OPERSTATE_DORMANT)
        )
        first_ns = min(dark_ns, default=None)
        if first_ns is None:
            continue
        late_ns = first_ns - change.t_ns - change.took_ns
        if late_ns > limit_ns:
            delays.append(_late(change, "its first port lost its carrier", late_ns, limit_ns))
    return tuple(delays)


def late_losses(
    change: InjectedChange,
    paths: Mapping[int, Path],
    measured: Mapping[int, FlowMeasurement],
    resolution_ns: float,
    zero_ns: int,
) -> tuple[str, ...]:
    """Whether the first fault lost its first packet later than stamp and resolution explain.

    `paths` and `measured` are of flows by id; `zero_ns` is the first event's instant, from which
    outages count. From then on every packet of a flow across the severed link is lost.
    """
    if not change.begins or not isinstance(change.fault, SeveringFault):
        return ()
    severed = frozenset(change.fault.severed())
    firsts_ns = [
        outage.start_ns
        for flow, path in paths.items()
        if severed.intersection(hop.link for hop in path.hops)
        for outage in measured[flow].outages
        if outage.event == 0
    ]
    if not firsts_ns:
        return ()
    late_ns = min(firsts_ns) + zero_ns - change.t_ns - change.took_ns
    if late_ns <= resolution_ns:
        return ()
    return (_late(change, "the first packet was lost", late_ns, resolution_ns),)


def _late(change: InjectedChange, what: str, late_ns: float, limit_ns: float) -> str:
    return (
        f"not valid because {what} {quantities.duration(late_ns)} after the stamp of "
        f"{change.fault.kind} of {change.fault.subject} (the limit is "
        f"{quantities.duration(limit_ns)})"
    )
