"""A lab of the suite's own, looked into and broken in several ways."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from rocelab import FaultMaker, MeasureMaker, RunningLab, TrafficMaker

pytestmark = pytest.mark.lab("two-racks.yaml")


def bgp_uplinks(lab: RunningLab, switch: str) -> set[str]:
    """The interfaces that a switch's BGP routes leave by, as its kernel has them."""
    routes = lab.node(switch).exec(["ip", "route", "show", "proto", "bgp"]).stdout
    return {words.split()[0] for words in routes.split(" dev ")[1:]}


def test_a_rack_reaches_the_other_over_all_its_uplinks(lab: RunningLab) -> None:
    assert bgp_uplinks(lab, "rtsw1") == {"ctsw1", "ctsw1-2", "ctsw2", "ctsw2-2"}


def test_a_rack_leaves_a_spine_whose_bgp_has_died(lab: RunningLab, fault: FaultMaker) -> None:
    with fault("daemon-crash", switch="ctsw1", daemon="bgpd"):
        assert "bgpd" not in lab.node("ctsw1").daemons()
        assert wait_for(lambda: bgp_uplinks(lab, "rtsw1") == {"ctsw2", "ctsw2-2"})


def wait_for(condition: Callable[[], bool], limit_s: float = 60.0) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + limit_s
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds


def test_a_link_that_flaps_never_costs_a_flow_for_good(
    traffic: TrafficMaker, measure: MeasureMaker
) -> None:
    with measure(traffic(flows=12), sustained="300ms") as run:
        run.carry_out("flapping", link="rtsw1:ctsw1", period="800ms", count=2)
    assert run.restored
    assert run.lost_outside_events == 0
