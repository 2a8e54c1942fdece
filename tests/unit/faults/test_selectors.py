"""Nodes and links that a file calls by their place, in fabrics with tiers and without."""

from __future__ import annotations

import pytest

from rocelab.base.errors import InputError
from rocelab.faults.asked import asked_fault
from rocelab.faults.base import SeriesSpec
from rocelab.faults.kinds.carrier_down import CarrierDownSpec
from rocelab.faults.selectors import LinkSelector, node_name, with_names
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric

NODES = {"leaf*": {"role": "leaf"}, "spine*": {"role": "spine"}, "srv*": {"role": "server"}}
LINKS = [
    "leaf1:eth1/1 -- spine1:p1",
    "leaf1:eth1/2 -- spine2:p1",
    "leaf2:eth1/1 -- spine1:p2",
    "leaf2:eth1/2 -- leaf1:eth1/3",
    "srv1:e0 -- leaf1:h0",
    "srv1:e1 -- leaf2:h0",
]


@pytest.fixture(name="fabric")
def _fabric() -> Fabric:
    fabric = {"kind": "graph", "nodes": NODES, "links": LINKS}
    return plan(LabSpec.model_validate({"name": "uneven", "fabric": fabric}))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("leaf#1", "leaf1"),
        ("rtsw#2", "leaf2"),
        ("spine#2", "spine2"),
        ("server#1", "srv1"),
        ("leaf2", "leaf2"),
    ],
)
def test_a_place_is_of_the_tier_that_its_role_has_elsewhere(
    fabric: Fabric, text: str, name: str
) -> None:
    """All switches of a fabric without tiers are of one."""
    assert not fabric.is_tiered
    assert node_name(fabric, text) == name


def test_without_leaves_the_first_is_the_first_switch_with_a_server() -> None:
    nodes = {"core*": {"role": "core"}, "srv*": {"role": "server"}}
    links = ["core1:e0 -- core2:e0", "core2:e1 -- core3:e1", "srv1:e0 -- core3:e2"]
    fabric = {"kind": "graph", "nodes": nodes, "links": [*links, "srv2:e0 -- core2:e2"]}
    planned = plan(LabSpec.model_validate({"name": "cores", "fabric": fabric}))

    assert [node_name(planned, f"leaf#{number}") for number in (1, 2)] == ["core2", "core3"]
    with pytest.raises(InputError, match="has no leaf#3"):
        node_name(planned, "leaf#3")


def test_without_spines_they_are_the_switches_next_to_the_first_leaf() -> None:
    nodes = {"core*": {"role": "core"}, "srv*": {"role": "server"}}
    links = ["core1:e0 -- core3:e0", "core1:e1 -- core3:e1", "core1:e2 -- core2:e0"]
    fabric = {"kind": "graph", "nodes": nodes, "links": [*links, "srv1:e0 -- core1:e9"]}
    planned = plan(LabSpec.model_validate({"name": "cores", "fabric": fabric}))

    assert [node_name(planned, f"spine#{number}") for number in (1, 2)] == ["core3", "core2"]
    with pytest.raises(InputError, match="has no spine#3: 2 nodes of its tier"):
        node_name(planned, "spine#3")


def test_between_takes_places_and_every_cable(fabric: Fabric) -> None:
    spec = CarrierDownSpec.model_validate({"kind": "carrier-down", "between": ["leaf#2", "leaf#1"]})
    named = with_names(spec, fabric)
    assert named.between == ("leaf2", "leaf1")
    assert [link.name for link in named.find(fabric, None)] == ["leaf2:eth1/2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("leaf#3", "has no leaf#3: 2 nodes of its tier"), ("lef#1", "lef is not a role of nodes")],
)
def test_a_place_that_is_not_there_is_named(fabric: Fabric, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        node_name(fabric, text)


@pytest.mark.parametrize(
    ("selector", "link"),
    [
        ("leaf1:eth1/2", "leaf1:eth1/2"),
        ("leaf1:eth1-2", "leaf1:eth1/2"),
        ("spine1:leaf2", "leaf2:eth1/1"),
        ("spine1:leaf#2", "leaf2:eth1/1"),
        ({"node": "leaf1", "uplink": 3}, "leaf2:eth1/2"),
        ({"node": "srv1", "uplink": 2}, "srv1:e1"),
    ],
)
def test_a_link_is_found_by_port_interface_neighbour_and_number(
    fabric: Fabric, selector: object, link: str
) -> None:
    assert LinkSelector.model_validate(selector).find(fabric).name == link


def test_ports_are_named_as_on_the_switch_wherever_a_fault_is_written(fabric: Fabric) -> None:
    fault = asked_fault("carrier-down", ["link=leaf1:eth1-2"])
    assert not isinstance(fault, SeriesSpec)
    assert fault.resolve(fabric).subject == "leaf1:eth1/2"
    assert fabric.port_name("leaf1", "eth1-2") == "leaf1:eth1/2"
    assert fabric.port_name("leaf1", "eth9") == "leaf1:eth9"


def test_a_switch_without_tiers_has_no_uplink_to_a_server(fabric: Fabric) -> None:
    with pytest.raises(InputError, match="leaf1 has no uplink 4") as refused:
        LinkSelector.model_validate({"node": "leaf1", "uplink": 4}).find(fabric)
    assert refused.value.hint == "it has 3"
