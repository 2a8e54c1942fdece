"""The state of nodes and the values of links, from readings."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rocelab.lab.lab import Lab
from rocelab.live.events import CarrierEvent, FaultEvent, NodeEvent
from rocelab.live.state import Condition, LabState, NodeState, condition
from rocelab.live.values import values_of
from rocelab.observe.health.ports import PortReading
from rocelab.observe.health.reading import Reading
from rocelab.observe.health.sample import Places, Sample
from rocelab.planning.fabric import Fabric
from rocelab.planning.queues import lab_rate_bps
from rocelab.results.health import Sli


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return Lab.planned("tiny").fabric


def reading(
    fabric: Fabric,
    time_ns: int = 10**9,
    dark: tuple[str, ...] = (),
    down: tuple[str, ...] = (),
    narrow: dict[str, int] | None = None,
    sent: dict[str, tuple[int, int]] | None = None,
) -> Reading:
    """Ports `dark` have no carrier, sessions of links `down` are down; `sent`: packets, bytes."""
    ports = {}
    for link in fabric.links:
        for port in (link.a, link.b):
            packets, size = (sent or {}).get(str(port), (0, 0))
            carrier = str(port) not in dark
            ports[port.node, port.interface] = PortReading(carrier, 0, 0, packets, 0, size, 0, 0)
    sessions = {link.name: link.name not in down for link in fabric.sessions}
    return Reading(time_ns, ports, {}, {}, {}, narrow or {}, sessions)


def test_a_node_is_as_planned_where_nothing_is_missing(fabric: Fabric) -> None:
    assert condition(fabric, "rtsw1", reading(fabric)) == Condition()
    assert condition(fabric, "srv1-1", reading(fabric)) == Condition()


def test_a_port_or_a_session_that_is_missing_degrades_a_node(fabric: Fabric) -> None:
    for now, expected in (
        (reading(fabric, dark=("rtsw1:ctsw1",)), Condition(NodeState.DEGRADED, 1, 0, 0)),
        (reading(fabric, down=("rtsw1:ctsw1",)), Condition(NodeState.DEGRADED, 0, 1, 0)),
        (
            reading(fabric, dark=("rtsw1:ctsw1",), narrow={"rtsw1": 3}),
            Condition(NodeState.DEGRADED, 1, 0, 3),
        ),
    ):
        assert condition(fabric, "rtsw1", now) == expected
        assert condition(fabric, "rtsw2", now) == Condition()


def test_a_node_that_only_lacks_next_hops_is_rerouted_for_a_cause_elsewhere(fabric: Fabric) -> None:
    state = condition(fabric, "rtsw1", reading(fabric, narrow={"rtsw1": 3}))
    assert state == Condition(NodeState.REROUTED, 0, 0, 3)


def test_nodes_are_in_zones_as_the_picture_of_the_fabric_names_them() -> None:
    state = LabState(Lab.planned("hpn-small").fabric, read_only=False)
    zones = {node["name"]: node["zone"] for node in state.document()["nodes"]}  # type: ignore[attr-defined]
    assert zones["core1"] is None
    assert (zones["p2-agg1"], zones["s1-tor1a"], zones["srv2-1"]) == (
        "plane 2",
        "segment 1",
        "segment 2",
    )


def test_nodes_and_links_of_a_lab_with_several_networks_say_theirs() -> None:
    document = LabState(Lab.planned("two-networks").fabric, read_only=False).document()
    assert document["networks"] == ["backend", "frontend"]
    nodes = {node["name"]: node["networks"] for node in document["nodes"]}  # type: ignore[attr-defined]
    links = {link["name"]: link["network"] for link in document["links"]}  # type: ignore[attr-defined]
    assert list(nodes["srv1-1"]) == ["backend", "frontend"]
    assert nodes["sto1"] == {"frontend": None}
    assert (links["srv1-1:fsw1"], links["srv1-1:rtsw1"]) == ("frontend", "backend")
    one = LabState(Lab.planned("tiny").fabric, read_only=False).document()
    assert one["networks"] == []


def test_a_node_without_carrier_or_without_sessions_is_down(fabric: Fabric) -> None:
    both = ("rtsw1:ctsw1", "rtsw1:ctsw2")
    now = condition(fabric, "rtsw1", reading(fabric, down=both))
    assert now == Condition(NodeState.DOWN, 0, 2, 0)
    now = condition(fabric, "srv1-1", reading(fabric, dark=("srv1-1:rtsw1",)))
    assert now == Condition(NodeState.DOWN, 1, 0, 0)


def test_a_node_that_cannot_be_read_has_no_condition(fabric: Fabric) -> None:
    empty = Reading(1, {}, {}, {}, {}, {}, {})
    assert condition(fabric, "rtsw1", empty) is None


def test_events_change_the_state(fabric: Fabric) -> None:
    state = LabState(fabric, read_only=True)
    state.apply(CarrierEvent(5, "rtsw1:ctsw1", "rtsw1", "ctsw1", carrier=False))
    state.apply(NodeEvent(5, "rtsw1", "degraded", 1, 0, 0))
    state.apply(FaultEvent(5, 1, "carrier-down", "rtsw1:ctsw1", True, 9))
    document = state.document()
    assert document["read_only"] is True
    assert [fault["number"] for fault in document["faults"]] == [1]
    state.apply(CarrierEvent(6, "rtsw1:ctsw1", "rtsw1", "ctsw1", carrier=True))
    state.apply(NodeEvent(6, "rtsw1", "ok", 0, 0, 0))
    state.apply(FaultEvent(6, 1, "carrier-down", "rtsw1:ctsw1", False, None))
    assert state.document() == LabState(fabric, read_only=True).document()


def test_values_have_the_direction_of_their_link_and_leave_out_zeros(fabric: Fabric) -> None:
    direction, link = next(
        (number, directed_link)
        for number, directed_link in enumerate(fabric.directed_links)
        if directed_link.name == "rtsw1:ctsw1" and directed_link.sender == "ctsw1"
    )
    # In half a second the half of what the lab's link carries in it.
    rate_bps = lab_rate_bps(link.link, fabric.spec.dilation)
    size = rate_bps // 8 // 4 - 24
    before = reading(fabric, 10**9)
    now = reading(fabric, 15 * 10**8, sent={str(link.port): (1, size)})
    values: dict[Sli, dict[str, float]] = {sli: {} for sli in Sli}
    values[Sli.QUEUE_DROPS] = {"rtsw1:ctsw1 to rtsw1": 3.0}
    values[Sli.PAUSE_SHARE] = {"rtsw1:ctsw1 to ctsw1": 0.25}
    sample = Sample(now.time_ns, 5 * 10**8, values)
    snapshot = SimpleNamespace(places=Places(fabric), sample=sample, reading=now)
    assert values_of(fabric, before, snapshot) == {  # type: ignore[arg-type]
        "load": {direction: 0.5},
        "marks": {},
        "drops": {direction: 6.0},
        "pauses": {direction - 1: 0.25},
        "errors": {},
    }
