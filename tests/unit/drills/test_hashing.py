"""The predicted links of a drill's flows, and when there is no prediction."""

from __future__ import annotations

import pytest

from rocelab.drills.hashing import predict
from rocelab.jobs.flow import permutation
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.prediction.loads import LinkLoads
from rocelab.routes.balance import polarization
from rocelab.routes.planned import planned_fibs


def fabric_of(**keys: object) -> Fabric:
    shape = {"racks": 2, "spines": 2, "servers_per_rack": 2}
    return plan(LabSpec.model_validate({"name": "t", "fabric": shape} | keys))


def predicted(fabric: Fabric, flows: int = 8) -> LinkLoads | None:
    fib_of = planned_fibs(fabric, fabric.prefixes)
    fibs = {node.name: fib_of(node.name) for node in fabric.switches}
    sent = permutation(fabric, flows=flows, rate_pps=100, payload_bytes=256, seed=1)
    return predict(fabric, fibs, [(flow, 10) for flow in sent])


def test_every_packet_is_predicted_on_one_uplink_and_one_downlink() -> None:
    prediction = predicted(fabric_of())
    assert prediction is not None
    assert prediction.packets is not None
    between = zip(fabric_of().directed_links, prediction.packets.tolist(), strict=True)
    assert sum(packets for link, packets in between if link.is_between_switches) == 8 * 10 * 2


def test_parallel_links_to_each_rack_are_offered_apart() -> None:
    shape = {"racks": 3, "spines": 2, "servers_per_rack": 4, "links_per_pair": 2}
    prediction = predicted(fabric_of(fabric=shape), flows=96)
    assert prediction is not None
    (down,) = map(polarization, prediction.choices)
    assert (down.first, down.second) == ("rtsw up", "ctsw down")
    # Each spine has two links to each of three racks.
    assert down.used_links == down.offered_links == 2 * 3 * 2


@pytest.mark.parametrize(
    "keys", [{"hashing": 0}, *({"scheme": kind} for kind in ("e-ecmp", "spray", "te", "resilient"))]
)
def test_what_does_not_follow_from_the_seeds_is_not_predicted(keys: dict[str, object]) -> None:
    assert predicted(fabric_of(**keys)) is None
