"""Whether a fault's first effect fits its time stamp, with hand-made events and packets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from rocelab.faults.base import Fault
from rocelab.faults.fibre import BrokenFibre
from rocelab.faults.injector import InjectedChange
from rocelab.faults.kinds.carrier_down import CarrierDown
from rocelab.faults.kinds.daemon_hang import DaemonHang
from rocelab.faults.kinds.power_loss import SwitchPowerLoss
from rocelab.lab.lab import Lab
from rocelab.linux.linkwatch import LinkEvent
from rocelab.planning.fabric import DirectedLink
from rocelab.results.convergence import (
    FlowMeasurement,
    FlowSamples,
    MeasurementMethod,
    Window,
    measure_flow,
)
from rocelab.routes.path import Hop, Path
from rocelab.runs.effects import READ_DELAY_NS, late_carriers, late_losses
from tests.helpers.impaired import blackhole, grey_loss

MS = 10**6
STAMP_NS = 1_000 * 10**9
FABRIC = Lab.planned("zone-small").fabric
LINK = next(link for link in FABRIC.uplinks("rtsw1") if link.b.node == "ctsw2")
UP, DORMANT = 6, 5


def change(fault: Fault, took_ms: int = 0) -> InjectedChange:
    return InjectedChange(fault, True, STAMP_NS, took_ms * MS)


def event(node: str, interface: str, at_ms: float, **state: object) -> LinkEvent:
    fields = {"up": True, "carrier": False, "operstate": 2} | state
    return LinkEvent(STAMP_NS + round(at_ms * MS), node, interface, **fields)  # type: ignore[arg-type]


def late(fault: Fault, *events: LinkEvent, took_ms: int = 0) -> tuple[str, ...]:
    return late_carriers(FABRIC, [change(fault, took_ms)], events, resolution_ns=1 * MS)


@pytest.mark.parametrize(
    "fault", [CarrierDown((LINK,)), SwitchPowerLoss("ctsw2"), BrokenFibre((LINK,), "rtsw1")]
)
def test_a_carrier_that_goes_long_after_the_stamp_makes_the_run_invalid(fault: Fault) -> None:
    port = ("rtsw1", LINK.a.interface)
    assert late(fault, event(*port, 0.4)) == ()
    assert late(fault, event(*port, 1 + READ_DELAY_NS / MS)) == ()
    (problem,) = late(fault, event(*port, 939))
    assert "its first port lost its carrier 939 ms after the stamp of" in problem
    assert problem.endswith("(the limit is 11 ms)")


def test_the_first_of_a_fault_s_ports_counts() -> None:
    far = event("ctsw2", LINK.b.interface, 400)
    assert late(CarrierDown((LINK,)), event("rtsw1", LINK.a.interface, 1), far) == ()
    assert len(late(CarrierDown((LINK,)), far)) == 1


def test_what_the_stamp_itself_does_not_know_is_no_lateness() -> None:
    events = (event("rtsw1", LINK.a.interface, 60),)
    assert late(CarrierDown((LINK,)), *events, took_ms=50) == ()
    assert len(late(CarrierDown((LINK,)), *events, took_ms=40)) == 1


def test_other_ports_and_earlier_events_tell_nothing() -> None:
    before = event("rtsw1", LINK.a.interface, -300)
    other = event("rtsw2", LINK.a.interface, 1)
    back = event("rtsw1", LINK.a.interface, 2, carrier=True, operstate=UP)
    gone = event("rtsw1", LINK.a.interface, 500)
    assert late(CarrierDown((LINK,)), before, other, back) == ()
    assert len(late(CarrierDown((LINK,)), before, other, back, gone)) == 1


def test_a_dormant_port_is_dark_though_its_kernel_has_the_carrier() -> None:
    asleep = event("rtsw1", LINK.a.interface, 1, carrier=True, operstate=DORMANT)
    assert late(BrokenFibre((LINK,), "rtsw1"), asleep, event("rtsw1", LINK.a.interface, 500)) == ()


def test_what_takes_no_carrier_is_not_compared() -> None:
    assert late(DaemonHang("ctsw2", "bgpd"), event("rtsw1", LINK.a.interface, 939)) == ()


def path(*nodes: str) -> Path:
    hops = []
    for node, following in pairwise(nodes):
        link = next(one for one in FABRIC.links_of[node] if one.far(node).node == following)
        hops.append(Hop(DirectedLink(link, node), 1, 0, None))
    return Path(None, tuple(hops), nodes[-1])  # type: ignore[arg-type]


UPWARDS = path("srv1-1", "rtsw1", "ctsw1", "rtsw2", "srv2-1")
ELSEWHERE = path("srv3-1", "rtsw3", "ctsw1", "rtsw2", "srv2-1")
SEVERED = next(link for link in FABRIC.uplinks("rtsw1") if link.b.node == "ctsw1")


def measured(lost: range) -> FlowMeasurement:
    """1,000 packets/s; the event is at packet 200."""
    seq = np.arange(1000, dtype=np.int64)
    got = np.setdiff1d(seq, np.array(lost))
    samples = FlowSamples(seq, (seq - 200) * MS, got, (got - 200) * MS + 50_000)
    return measure_flow(
        samples, [Window(0, 800 * MS)], 1000.0, MeasurementMethod(10 * MS, 100 * MS)
    )


def losses(fault: Fault, flows: dict[int, tuple[Path, range]]) -> tuple[str, ...]:
    return late_losses(
        change(fault),
        {flow: one for flow, (one, _) in flows.items()},
        {flow: measured(lost) for flow, (_, lost) in flows.items()},
        resolution_ns=1 * MS,
        zero_ns=STAMP_NS,
    )


def test_a_blackhole_whose_packets_still_arrive_makes_the_run_invalid() -> None:
    hole = blackhole((SEVERED,), "ctsw1")
    assert losses(hole, {0: (UPWARDS, range(200, 260))}) == ()
    (problem,) = losses(hole, {0: (UPWARDS, range(298, 304))})
    assert "the first packet was lost 98 ms after the stamp of blackhole of rtsw1:" in problem


def test_of_the_flows_that_cross_a_blackhole_the_first_loss_counts() -> None:
    flows = {0: (UPWARDS, range(298, 304)), 1: (UPWARDS, range(201, 240))}
    assert losses(blackhole((SEVERED,)), flows) == ()


def test_flows_that_do_not_cross_what_is_severed_tell_nothing() -> None:
    late_ones = {0: (ELSEWHERE, range(298, 304))}
    assert losses(blackhole((SEVERED,)), late_ones) == ()
    towards_the_rack = {0: (UPWARDS, range(298, 304))}
    assert losses(blackhole((SEVERED,), "rtsw1"), towards_the_rack) == ()


def test_a_share_of_packets_lost_may_begin_late() -> None:
    assert losses(grey_loss((SEVERED,), 10_000), {0: (UPWARDS, range(298, 299))}) == ()
