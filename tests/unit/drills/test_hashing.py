"""The predicted links of a drill's flows, and when there is no prediction."""

from __future__ import annotations

import pytest

from rocelab.drills.hashing import Prediction, predict
from rocelab.forwarding.fib import planned_fib
from rocelab.jobs.flow import permutation
from rocelab.plan.build import plan
from rocelab.plan.fabric import Fabric
from rocelab.spec.model import LabSpec


def fabric_of(**keys: object) -> Fabric:
    shape = {"racks": 2, "spines": 2, "servers_per_rack": 2}
    return plan(LabSpec.model_validate({"name": "t", "fabric": shape, **keys}))


def predicted(fabric: Fabric) -> Prediction | None:
    fibs = {node.name: planned_fib(fabric, node.name) for node in fabric.switches}
    flows = permutation(fabric, flows=8, rate_pps=100, payload_bytes=256, seed=1)
    return predict(fabric, fibs, [(flow, 10) for flow in flows])


def test_every_packet_is_predicted_on_one_uplink_and_one_downlink() -> None:
    found = predicted(fabric_of())
    assert found is not None
    assert sum(found.packets.values()) == 8 * 10 * 2


@pytest.mark.parametrize(
    "keys", [{"hashing": 0}, *({"scheme": kind} for kind in ("e-ecmp", "spray", "te", "resilient"))]
)
def test_what_does_not_follow_from_the_seeds_is_not_predicted(keys: dict[str, object]) -> None:
    assert predicted(fabric_of(**keys)) is None
