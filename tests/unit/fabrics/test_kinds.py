"""The kinds of fabric: every one is wired as its source says, and every switch learns its way."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.fabrics.fabric_spec import FabricSpec
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.fabrics.kinds.fat_tree import FatTreeSpec
from rocelab.fabrics.kinds.hpn import HpnSpec
from rocelab.fabrics.kinds.rail import RailSpec
from rocelab.fabrics.layout import IFNAMSIZ
from rocelab.fabrics.roles import Role
from rocelab.jobs.placement import find_nic
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric
from rocelab.planning.routes import expected_routes
from rocelab.planning.zones import divisions
from rocelab.routes.path import walk
from rocelab.routes.planned import planned_fibs
from tests.helpers.labs import planned

few = st.integers(1, 3)
rails = st.builds(
    RailSpec,
    kind=st.just("rail"),
    units=few,
    servers_per_unit=few,
    rails=few,
    spines=few,
    links_per_pair=few,
)
fat_trees = st.builds(
    FatTreeSpec,
    kind=st.just("fat-tree"),
    k=st.sampled_from([2, 4, 6]),
    servers_per_edge=st.none() | few,
)


@st.composite
def hpns(draw: st.DrawFn) -> HpnSpec:
    ports = draw(st.integers(1, 2))
    planes = draw(st.integers(1, ports))
    return HpnSpec(
        kind="hpn",
        segments=draw(few),
        servers_per_segment=draw(few),
        rails=draw(few),
        ports_per_nic=ports,
        planes=planes,
        aggs=draw(few),
        links_per_pair=draw(few),
        cores=draw(st.integers(1 if planes == 2 else 0, 3)),
        links_per_core=draw(few),
    )


kinds = rails | fat_trees | hpns()


def fabric_of(kind: FabricSpec) -> Fabric:
    return build_fabric(LabSpec(name="t", fabric=kind))


def switches_of(fabric: Fabric, role: Role) -> list[str]:
    return [node.name for node in fabric.nodes if node.role is role]


@given(kinds)
def test_names_addresses_and_macs_are_all_different(kind: FabricSpec) -> None:
    fabric = fabric_of(kind)
    for node in fabric.nodes:
        interfaces = [link.port(node.name).interface for link in fabric.links_of[node.name]]
        assert len(set(interfaces)) == len(interfaces)
        assert all(len(interface) <= IFNAMSIZ for interface in interfaces)
    ports = [port for link in fabric.links for port in (link.a, link.b)]
    assert len({port.mac for port in ports}) == len(ports)
    alone = [port.ip for port in ports if not port.is_shared]
    shared = {(port.node, port.ip) for port in ports if port.is_shared}
    addresses = alone + [ip for _, ip in shared]
    loopbacks = {(node.name, node.loopback) for node in fabric.switches}
    addresses += [ip for name, ip in loopbacks if (name, ip) not in shared and ip is not None]
    assert len(set(addresses)) == len(addresses)


@given(kinds)
def test_every_leaf_learns_the_way_to_every_nic_that_is_not_its_own(kind: FabricSpec) -> None:
    fabric = fabric_of(kind)
    routes = expected_routes(fabric)
    for server in fabric.servers:
        for nic in fabric.nics(server.name):
            holding = fabric.prefixes_holding(nic.ip)
            for leaf in (node.name for node in fabric.switches if node.is_leaf):
                is_own = any(leaf in prefix.origins for prefix in holding)
                assert is_own or any(prefix.prefix in routes[leaf] for prefix in holding)


@given(kinds, st.integers(0, 2**16 - 1), st.data())
def test_a_flow_arrives_from_any_port_of_any_nic(
    kind: FabricSpec, sport: int, data: st.DataObject
) -> None:
    fabric = fabric_of(kind)
    names = [server.name for server in fabric.servers]
    if len(names) < 2:
        return
    one, other = data.draw(st.permutations(names))[:2]
    source, destination = find_nic(fabric, one), find_nic(fabric, other)
    fib_of = planned_fibs(fabric, fabric.prefixes)
    for port in range(len(source.links)):
        path = walk(fabric, fib_of, source, destination, sport, leaves_by=port)
        assert path.nodes[0] == one
        assert path.nodes[-1] == other


@given(hpns())
def test_two_planes_share_no_switch_below_the_cores(hpn: HpnSpec) -> None:
    fabric = fabric_of(hpn)
    for server in fabric.servers:
        for nic in fabric.nics(server.name):
            assert len(nic.links) == hpn.ports_per_nic
            assert len({link.b.node for link in nic.links}) == hpn.ports_per_nic
            above = [{up.b.node for up in fabric.uplinks(link.b.node)} for link in nic.links]
            if hpn.planes == 2:
                assert not above[0] & above[1]
            elif hpn.ports_per_nic == 2:
                assert above[0] == above[1]


@given(hpns())
def test_both_switches_of_a_nic_with_two_ports_announce_it(hpn: HpnSpec) -> None:
    fabric = fabric_of(hpn)
    for server in fabric.servers:
        for nic in fabric.nics(server.name):
            tors = tuple(link.b.node for link in nic.links)
            prefix = next((p for p in fabric.prefixes_holding(nic.ip) if p.per_port), None)
            assert (prefix is None) == (hpn.ports_per_nic == 1)
            assert prefix is None or prefix.origins == tors


@given(rails)
def test_a_leaf_holds_the_same_nic_of_every_server_of_its_unit(rail: RailSpec) -> None:
    fabric = fabric_of(rail)
    leaf_of: dict[tuple[int | None, int], set[str]] = {}
    for server in fabric.servers:
        for nic in fabric.nics(server.name):
            leaf_of.setdefault((server.zone, nic.number), set()).add(nic.links[0].b.node)
    assert all(len(leaves) == 1 for leaves in leaf_of.values())
    assert len(set.union(*leaf_of.values())) == rail.units * rail.rails


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_every_switch_of_a_fat_tree_has_k_ports(k: int) -> None:
    fabric = fabric_of(FatTreeSpec(kind="fat-tree", k=k))

    assert len(fabric.servers) == k**3 // 4
    assert len(fabric.switches) == 5 * k * k // 4
    assert all(len(fabric.links_of[node.name]) == k for node in fabric.switches)


@pytest.mark.parametrize("k", [4, 6])
def test_servers_of_two_pods_have_as_many_paths_as_there_are_cores(k: int) -> None:
    fabric = fabric_of(FatTreeSpec(kind="fat-tree", k=k))
    fib_of = planned_fibs(fabric, fabric.prefixes)
    source, destination = find_nic(fabric, "p1-srv1-1"), find_nic(fabric, "p2-srv1-1")
    paths = {walk(fabric, fib_of, source, destination, sport).nodes for sport in range(600)}

    assert len(paths) == len(switches_of(fabric, Role.CORE))


def test_the_hpn_pod_has_the_published_ports() -> None:
    """Qian et al., SIGCOMM 2024, section 6: 15,360 GPUs; ToRs of 128 down and 60 up, aggregation
    switches of 120 down and 8 up."""
    fabric = planned("hpn-pod")
    gpus = sum(len(fabric.nics(server.name)) for server in fabric.servers)
    ports = {
        role: Counter(
            (len(fabric.downlinks(name)), len(fabric.uplinks(name)))
            for name in switches_of(fabric, role)
        )
        for role in (Role.TOR, Role.AGG)
    }

    assert gpus == 15_360
    assert ports == {Role.TOR: {(128, 60): 240}, Role.AGG: {(120, 8): 120}}


def test_the_superpod_and_the_large_fat_tree_have_their_published_sizes() -> None:
    superpod, tree = planned("rail-superpod"), planned("fat-tree-48")

    assert sum(len(superpod.nics(server.name)) for server in superpod.servers) == 1024
    assert len(switches_of(superpod, Role.LEAF)) == 32
    assert {len(superpod.links_of[name]) for name in switches_of(superpod, Role.SPINE)} == {64}
    assert len(tree.servers) == 27_648
    assert len(tree.switches) == 2_880


@pytest.mark.parametrize(
    ("lab", "down_gbps", "up_gbps"),
    [
        ("zone-1-1", 1600, 1600),
        ("zone-1-2", 1600, 3200),
        ("zone-1-1125", 3200, 3600),
        ("zone-256x32", 6400, 12800),
    ],
)
def test_the_zones_have_the_uplink_ratio_they_are_named_for(
    lab: str, down_gbps: int, up_gbps: int
) -> None:
    fabric = planned(lab)
    rack = switches_of(fabric, Role.RTSW)[0]
    down = sum(link.rate_bps for link in fabric.downlinks(rack)) // 10**9
    up = sum(link.rate_bps for link in fabric.uplinks(rack)) // 10**9

    assert (down, up) == (down_gbps, up_gbps)


@pytest.mark.parametrize(
    ("lab", "down", "up"),
    [
        ("zones-1-7", 7, 1),
        ("zones-1-28", 14, 5),
        pytest.param("meta-32k", 252, 36, marks=pytest.mark.long),
        ("llama3-24k", 192, 28),
        pytest.param("zones-28-24k", 192, 69, marks=pytest.mark.long),
    ],
)
def test_the_spines_of_several_zones_have_the_ratio_they_are_named_for(
    lab: str, down: int, up: int
) -> None:
    fabric = planned(lab)
    spine = switches_of(fabric, Role.CTSW)[0]

    assert (len(fabric.downlinks(spine)), len(fabric.uplinks(spine))) == (down, up)


def test_clos_is_the_kind_that_need_not_be_said() -> None:
    said = LabSpec.model_validate({"name": "t", "fabric": {"kind": "clos", "racks": 3}})

    assert LabSpec.model_validate({"name": "t", "fabric": {"racks": 3}}) == said
    assert isinstance(said.fabric, ClosSpec)


@pytest.mark.parametrize(
    ("fabric", "message"),
    [
        ({"kind": "hpn", "planes": 2, "ports_per_nic": 1}, "two planes need NICs with two ports"),
        ({"kind": "fat-tree", "k": 5}, "an even number"),
        (
            {"kind": "rail", "units": 64, "rails": 16, "spines": 128, "links_per_pair": 32},
            "at most 1,048,576 links",
        ),
    ],
)
def test_what_can_not_be_built_is_refused(fabric: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LabSpec.model_validate({"name": "t", "fabric": fabric})


@pytest.mark.parametrize(
    ("lab", "zones"),
    [
        ("zone-small", {"AI zone": ({"ctsw", "rtsw", "server"}, 1)}),
        ("zones-small", {"AI zone": ({"ctsw", "rtsw", "server"}, 2), None: ({"atsw"}, 0)}),
        ("rail-small", {"unit": ({"leaf", "server"}, 2), None: ({"spine"}, 0)}),
        (
            "hpn-small",
            {
                "segment": ({"tor", "server"}, 2),
                "plane": ({"agg"}, 2),
                None: ({"core"}, 0),
            },
        ),
        ("hpn-single-plane", {"segment": ({"tor", "server"}, 2), "plane": ({"agg"}, 1)}),
        ("fat-tree-4", {"pod": ({"edge", "agg", "server"}, 4), None: ({"core"}, 0)}),
    ],
)
def test_a_zone_is_called_what_it_is_and_holds_its_tiers(
    lab: str, zones: dict[str | None, tuple[set[str], int]]
) -> None:
    divided = divisions(planned(lab))
    assert {
        division.word: ({str(role) for role in division.roles}, len(division.zones))
        for division in divided
    } == zones
