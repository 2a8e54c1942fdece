"""Fabrics whose switches run files of the user's own, and what was observed of them."""

from __future__ import annotations

import numpy as np

from rocelab.labfile.adopted import recorded_spec
from rocelab.labfile.model import LabSpec
from rocelab.labfile.observed import ObservedLabSpec, ObservedSpec, with_observed
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import RouteBasis
from rocelab.planning.routes import expected_routes, expected_width, spread
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.graph import routes_of
from tests.helpers.labs import planned

LAB = "ospf-ibgp"
OBSERVED = ObservedSpec(
    basis="observed",
    still_s=3.2,
    peers={"rtsw1": ("10.0.0.1", "10.0.0.2"), "ctsw1": ("10.0.0.11",)},
    daemons={"rtsw1": ("zebra", "ospfd", "bgpd")},
    routes={"rtsw1": {"10.2.4.0/31": ("ctsw1", "ctsw2")}},
)


def test_numbers_and_addresses_are_those_of_the_files() -> None:
    fabric = planned(LAB)

    leaf = fabric.node("rtsw3")
    assert (leaf.asn, leaf.loopback) == (65000, "10.0.0.13")
    assert [str(link.port("rtsw3").address) for link in fabric.links_of["rtsw3"]] == [
        *("10.2.3.0/31", "10.2.3.2/31", "10.1.1.4/31", "10.1.2.4/31")
    ]
    assert [nic.ip for nic in fabric.nics("srv3-2")] == ["10.2.3.3"]
    assert fabric.numbered
    assert [prefix.prefix for prefix in fabric.prefixes_of["rtsw3"]] == [
        *("10.0.0.13/32", "10.2.3.0/31", "10.2.3.2/31")
    ]


def test_the_arrays_have_the_same_addresses() -> None:
    fabric = planned(LAB)
    network = network_of(fabric.spec)

    ips = [nic.ip for server in fabric.servers for nic in fabric.nics(server.name)]
    assert [network.ip(nic) for nic in range(network.nics)] == ips


def test_before_a_lab_is_up_its_routes_are_assumed_to_be_shortest_paths() -> None:
    fabric = planned(LAB)

    assert fabric.basis is RouteBasis.ASSUMED
    reached = spread(fabric, ("rtsw4",))
    assert [link.name for link in reached["rtsw1"]] == ["rtsw1:ctsw1", "rtsw1:ctsw2"]
    # A policy without valleys would keep the other spine away.
    assert len(reached["ctsw1"]) == 1


def test_a_record_has_what_was_observed_and_the_fabric_expects_it() -> None:
    spec = with_observed(planned(LAB).spec, OBSERVED)
    again = recorded_spec(spec.model_dump(mode="json"))

    assert isinstance(again, ObservedLabSpec)
    assert again == spec
    fabric = build_fabric(again)
    assert (fabric.basis, fabric.is_adopted) == (RouteBasis.OBSERVED, False)
    hops = expected_routes(fabric)["rtsw1"]["10.2.4.0/31"]
    assert [link.name for link in hops] == ["rtsw1:ctsw1", "rtsw1:ctsw2"]
    assert expected_width(fabric, hops) == 2
    assert (fabric.session_ends["rtsw1"], fabric.session_ends["rtsw2"]) == (2, 0)


def test_a_lab_of_the_kit_s_policy_is_planned() -> None:
    fabric = planned("tiny")

    assert fabric.basis is RouteBasis.PLANNED
    assert fabric.session_ends["ctsw1"] == 4


def test_a_switch_without_a_file_is_as_planned() -> None:
    texts = {"rtsw1": "interface ctsw1\n ip address 10.1.0.0/31\nexit\n"}
    spec = LabSpec.model_validate(
        {
            "name": "mine",
            "fabric": {"racks": 2, "spines": 1},
            "routing": {"config": {"files": {"rtsw1": "a.conf"}, "texts": texts}},
        }
    )
    plain = build_fabric(
        LabSpec.model_validate({"name": "mine", "fabric": {"racks": 2, "spines": 1}})
    )
    fabric = build_fabric(spec)

    assert fabric.node("rtsw2") == plain.node("rtsw2")
    assert fabric.links_of["srv1-1"][0].b.address == plain.links_of["srv1-1"][0].b.address
    assert fabric.links_of["ctsw1"][0].a.address == "10.1.0.0/31"


def test_a_simulation_takes_the_observed_next_hops_while_all_links_are_up() -> None:
    routes = {"rtsw1": {"10.2.4.0/31": ("ctsw2",), "10.2.4.2/31": ("ctsw2",)}}
    observed = OBSERVED.model_copy(update={"routes": routes})
    network = network_of(with_observed(planned(LAB).spec, observed))
    leaf = np.array([network.node_number("rtsw1")], np.int32)
    nic = np.array([n for n in range(network.nics) if network.nic_name(n) == "srv4-1:1"], np.int32)

    def members(link_up: np.ndarray | None = None) -> list[str]:
        groups = routes_of(network, link_up)
        sends = groups.members(groups.next_hops(leaf, nic), 0)
        return [network.send_name(int(send)) for send in sends]

    assert members() == ["rtsw1:ctsw2"]
    up = np.ones(network.links, np.bool_)
    up[[n for n in range(network.links) if network.link_name(n) == "rtsw4:ctsw1"]] = False
    assert members(up) == ["rtsw1:ctsw2"]
    up[:] = True
    up[[n for n in range(network.links) if network.link_name(n) == "rtsw2:ctsw1"]] = False
    assert members(up) == ["rtsw1:ctsw1", "rtsw1:ctsw2"]


def test_an_ipv6_lab_has_the_files_ipv6_addresses() -> None:
    text = (
        "interface lo\n ipv6 address 2001:db8::11/128\nexit\n"
        "interface srv1-1\n ipv6 address fe80::1/64\n ipv6 address 2001:db8:2::/127\nexit\n"
    )
    fabric = build_fabric(
        LabSpec.model_validate(
            {
                "name": "mine",
                "fabric": {"racks": 2, "spines": 1},
                "addresses": {"family": "ipv6"},
                "routing": {"config": {"files": {"rtsw1": "a.conf"}, "texts": {"rtsw1": text}}},
            }
        )
    )

    assert fabric.node("rtsw1").loopback == "2001:db8::11"
    assert [nic.ip for nic in fabric.nics("srv1-1")] == ["2001:db8:2::1"]
    assert [prefix.prefix for prefix in fabric.prefixes_of["rtsw1"]] == [
        *("2001:db8::11/128", "2001:db8:2::/127")
    ]
