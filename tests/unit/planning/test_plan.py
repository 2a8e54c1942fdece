"""Planning: names, addresses, ASNs, sessions and routes of a Clos."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.fabrics.layout import IFNAMSIZ
from rocelab.fabrics.roles import Role
from rocelab.labfile.model import LabSpec, Numbering
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.planning.routes import expected_routes, expected_width, spread
from tests.helpers.labs import planned

SPACE = ip_network("198.18.0.0/15")


def clos(**fabric: int) -> Fabric:
    return plan(LabSpec.model_validate({"name": "unit", "fabric": {"kind": "clos", **fabric}}))


def fabrics() -> st.SearchStrategy[Fabric]:
    return st.builds(
        clos,
        zones=st.integers(1, 3),
        racks=st.integers(1, 4),
        spines=st.integers(1, 3),
        links_per_pair=st.integers(1, 2),
        servers_per_rack=st.integers(0, 2),
        nics_per_server=st.integers(1, 2),
        atsws=st.integers(1, 2),
        links_per_atsw=st.integers(1, 2),
    )


def test_the_shortest_spec_is_a_whole_fabric() -> None:
    fabric = clos(racks=4, spines=2)
    assert [node.name for node in fabric.nodes] == [
        *("ctsw1", "ctsw2"),
        *("rtsw1", "srv1-1", "rtsw2", "srv2-1", "rtsw3", "srv3-1", "rtsw4", "srv4-1"),
    ]
    assert len(fabric.sessions) == 8


def test_racks_of_a_zone_have_their_own_asn_and_its_spines_share_one() -> None:
    fabric = clos(zones=2, racks=3, spines=2, atsws=2)
    racks = [node.asn for node in fabric.nodes if node.role is Role.RTSW]
    assert len(set(racks)) == len(racks) == 6
    spines = {(node.zone, node.asn) for node in fabric.nodes if node.role is Role.CTSW}
    assert len(spines) == 2
    assert len({node.asn for node in fabric.nodes if node.role is Role.ATSW}) == 1


@given(fabrics())
def test_addresses_are_unique_and_inside_the_benchmarking_space(fabric: Fabric) -> None:
    ports = [port.address for link in fabric.links for port in (link.a, link.b)]
    loopbacks = [node.loopback for node in fabric.switches]
    addresses = [ip_interface(port).ip for port in ports if port] + [
        ip_address(loopback) for loopback in loopbacks if loopback
    ]
    assert max(Counter(addresses).values()) == 1
    assert all(address in SPACE for address in addresses)


@given(fabrics())
def test_the_two_ends_of_a_link_share_a_31(fabric: Fabric) -> None:
    for link in fabric.links:
        assert link.a.address is not None
        assert link.b.address is not None
        a, b = ip_interface(link.a.address), ip_interface(link.b.address)
        assert a.network == b.network
        assert a.network.prefixlen == 31


@given(fabrics())
def test_a_rack_s_prefix_holds_its_nics_and_its_loopback_and_no_other_s(fabric: Fabric) -> None:
    prefixes = {p.origins[0]: ip_network(p.prefix) for p in fabric.prefixes}
    for first, one in prefixes.items():
        for second, other in prefixes.items():
            assert first == second or not one.overlaps(other)
    for server in fabric.servers:
        rack = fabric.uplinks(server.name)[0].b.node
        assert all(ip_address(nic.ip) in prefixes[rack] for nic in fabric.nics(server.name))
    for node in fabric.switches:
        assert node.loopback is not None
        assert ip_address(node.loopback) in prefixes[node.name]


@given(fabrics())
def test_interface_names_fit_linux_and_are_unique_on_their_node(fabric: Fabric) -> None:
    for node in fabric.nodes:
        names = [link.port(node.name).interface for link in fabric.links_of[node.name]]
        assert len(set(names)) == len(names)
        assert all(len(name) <= IFNAMSIZ for name in names)


def test_the_same_spec_gives_the_same_fabric() -> None:
    assert clos(zones=2, racks=3, spines=2, atsws=2) == clos(zones=2, racks=3, spines=2, atsws=2)


@given(fabrics())
def test_every_switch_learns_every_rack_at_the_width_of_its_tier(fabric: Fabric) -> None:
    clos = fabric.spec.fabric
    routes = expected_routes(fabric)
    for rack in (node for node in fabric.switches if node.role is Role.RTSW):
        prefix = fabric.prefixes_of[rack.name][0].prefix
        for node in fabric.switches:
            if node.name == rack.name:
                assert prefix not in routes[node.name]
                continue
            same_zone = node.zone == rack.zone
            expected = {
                Role.RTSW: clos.spines * clos.links_per_pair,
                Role.CTSW: clos.links_per_pair if same_zone else clos.atsws * clos.links_per_atsw,
                Role.ATSW: clos.spines * clos.links_per_atsw,
            }[node.role]
            assert expected_width(fabric, routes[node.name][prefix]) == expected


def test_spines_of_a_zone_do_not_learn_each_other_s_loopback() -> None:
    reached = spread(clos(zones=2, racks=2, spines=2, atsws=1), ["z1-ctsw1"])
    assert "z1-ctsw2" not in reached
    assert {"z1-rtsw1", "z2-rtsw2", "z2-ctsw1", "atsw1"} <= set(reached)


def test_max_paths_caps_the_expected_width() -> None:
    spec = {"name": "unit", "fabric": {"racks": 2, "spines": 8}, "routing": {"max_paths": 4}}
    fabric = plan(LabSpec.model_validate(spec))
    links = expected_routes(fabric)["rtsw1"][fabric.prefixes_of["rtsw2"][0].prefix]
    assert len(links) == 8
    assert expected_width(fabric, links) == 4


@pytest.mark.parametrize(
    ("plan_name", "distinct"), [("per-node", 6), ("per-tier", 2), ("shared", 1), (77, 1)]
)
def test_hash_seeds_differ_as_the_plan_says(plan_name: str | int, distinct: int) -> None:
    spec = {"name": "unit", "fabric": {"racks": 4, "spines": 2}, "hashing": plan_name}
    fabric = plan(LabSpec.model_validate(spec))
    seeds = {node.hash_seed for node in fabric.switches}
    assert len(seeds) == distinct
    assert 0 not in seeds


def test_a_fabric_too_large_for_numbered_links_is_unnumbered_by_default() -> None:
    fabric = planned("meta-32k")
    assert fabric.spec.routing.numbering is Numbering.AUTO
    assert not fabric.numbered
    assert len(fabric.servers) * 8 == 32_256


def test_numbered_links_that_do_not_fit_are_an_error_with_the_way_out() -> None:
    fabric = {"zones": 8, "racks": 252, "spines": 18, "servers_per_rack": 2, "nics_per_server": 8}
    spec = {
        "name": "unit",
        "fabric": {**fabric, "atsws": 18},
        "routing": {"numbering": "numbered"},
    }
    with pytest.raises(InputError, match="unnumbered"):
        plan(LabSpec.model_validate(spec))
