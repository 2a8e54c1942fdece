"""The fault in a suite of pytest: packets are lost, and BGP does not see it."""

import pytest

from rocelab import FaultMaker, MeasureMaker, RunningLab, TrafficMaker


@pytest.mark.lab("small-hall")
def test_a_hole_loses_packets_and_no_route_changes(
    lab: RunningLab, traffic: TrafficMaker, fault: FaultMaker, measure: MeasureMaker
) -> None:
    with (
        lab.watch_routes() as watch,
        measure(traffic(flows=8), accept_invalid=True) as run,
        fault("route-hole", switch="row1", server="srv2-1"),
    ):
        run.hold("500ms")
        changes = watch.events(0)
    assert not changes
    assert run.lost_packets > 0
