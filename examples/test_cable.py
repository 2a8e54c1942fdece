import pytest

pytestmark = pytest.mark.lab("tiny")


def test_a_pulled_cable_is_made_up_for_within_a_second(traffic, fault, measure):
    with measure(traffic(flows=16)) as run, fault("carrier-down", link="rtsw1:ctsw1"):
        run.hold("1s")
    assert run.affected_flows > 0
    assert run.full_convergence <= "1s"
