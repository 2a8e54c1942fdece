"""Paths predicted over planned and hand-made tables, and the frames that probe them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from rocelab.base.errors import InputError
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.jobs.flow import resolve_endpoints
from rocelab.jobs.placement import find_nic
from rocelab.labfile.model import HashingSpec, LabSpec, Numbering, RoutingSpec, SeedPlan
from rocelab.linux.fibtable import Fib, FibOf, NextHop, Route
from rocelab.planning.build import build_fabric, plan
from rocelab.planning.fabric import Fabric
from rocelab.routes.path import NoPathError, Path, no_route, possible_links, walk
from rocelab.routes.planned import planned_fibs
from rocelab.traffic.traceroute import ProbeFrames

ZONE = ClosSpec(racks=4, spines=4, servers_per_rack=2, links_per_pair=2)
THREE_TIERS = ClosSpec(zones=2, racks=3, spines=4, atsws=4)


@cache
def fabric_of(
    clos: ClosSpec,
    seed: SeedPlan | int = SeedPlan.PER_NODE,
    numbering: Numbering = Numbering.AUTO,
    max_paths: int = 128,
) -> Fabric:
    return build_fabric(
        LabSpec(
            name="lab",
            fabric=clos,
            hashing=HashingSpec(seed=seed),
            routing=RoutingSpec(numbering=numbering, max_paths=max_paths),
        )
    )


planned: dict[int, FibOf] = {}


def planned_tables(fabric: Fabric) -> FibOf:
    if id(fabric) not in planned:
        planned[id(fabric)] = planned_fibs(fabric, fabric.prefixes)
    return planned[id(fabric)]


def planned_walk(fabric: Fabric, source: str, destination: str, port: int) -> Path:
    fib_of = planned_tables(fabric)
    return walk(fabric, fib_of, find_nic(fabric, source), find_nic(fabric, destination), port)


@given(st.sampled_from([ZONE, THREE_TIERS]), st.data(), st.integers(1024, 65535))
def test_a_path_goes_up_then_down_over_links_that_exist(
    clos: ClosSpec, data: st.DataObject, port: int
) -> None:
    fabric = fabric_of(clos)
    servers = [node.name for node in fabric.servers]
    source, destination = data.draw(
        st.lists(st.sampled_from(servers), min_size=2, max_size=2, unique=True)
    )
    path = planned_walk(fabric, source, destination, port)
    tiers = [fabric.node(name).role.tier for name in path.nodes]
    top = tiers.index(max(tiers))
    assert tiers == [*range(top + 1), *reversed(range(top))]
    assert (path.nodes[0], path.nodes[-1]) == (source, destination)
    for hop, following in zip(path.hops, path.nodes[1:], strict=True):
        assert hop.link in fabric.directed_links
        assert hop.link.receiver == following
        assert 0 <= hop.index < hop.width


def test_servers_of_one_rack_meet_at_their_switch_without_a_choice() -> None:
    path = planned_walk(fabric_of(ZONE), "srv1-1", "srv1-2", 50000)
    assert path.nodes == ("srv1-1", "rtsw1", "srv1-2")
    assert [(hop.width, hop.flow_hash) for hop in path.hops] == [(1, None), (1, None)]


def test_many_flows_use_every_link_of_every_tier_with_seeds_per_node() -> None:
    fabric = fabric_of(THREE_TIERS)
    taken = Counter(
        hop.link
        for port in range(40000, 40400)
        for hop in planned_walk(fabric, "z1-srv1-1", "z2-srv1-1", port).hops
    )
    used_by_z1_spines = {link for link in taken if link.name.startswith("z1-ctsw")}
    assert len(used_by_z1_spines) == 16


def test_with_a_shared_seed_every_tier_repeats_the_first_choice() -> None:
    fabric = fabric_of(THREE_TIERS, seed=SeedPlan.SHARED)
    links = set()
    for port in range(40000, 40200):
        hops = planned_walk(fabric, "z1-srv1-1", "z2-srv1-1", port).hops
        assert hops[1].width == hops[2].width == 4
        assert hops[1].index == hops[2].index
        links.add(hops[2].link)
    assert len(links) == 4


def test_seed_zero_is_an_error_only_where_there_is_a_choice() -> None:
    fabric = fabric_of(ZONE, seed=0)
    assert planned_walk(fabric, "srv1-1", "srv1-2", 1).nodes == ("srv1-1", "rtsw1", "srv1-2")
    with pytest.raises(InputError, match=r"hashing\.seed"):
        planned_walk(fabric, "srv1-1", "srv2-1", 1)


def test_a_planned_table_orders_next_hops_by_gateway_address() -> None:
    fabric = fabric_of(ZONE)
    route = planned_fibs(fabric, fabric.prefixes)("rtsw1").lookup("198.18.0.9")
    assert route is not None
    gateways = [tuple(map(int, (hop.gateway or "").split("."))) for hop in route.next_hops]
    assert len(gateways) == 8
    assert gateways == sorted(gateways)


def test_the_longest_prefix_wins() -> None:
    short = Route("0.0.0.0/0", (NextHop("a", "10.0.0.1"),))
    middle = Route("10.0.0.0/8", (NextHop("b", "10.0.0.1"),))
    host = Route("10.1.2.3/32", (NextHop("c", None),))
    fib = Fib((middle, host, short))
    assert fib.lookup("192.0.2.1") is short
    assert fib.lookup("10.1.2.4") is middle
    assert fib.lookup("10.1.2.3") is host
    assert Fib((middle,)).lookup("11.0.0.0") is None


def test_groups_on_unnumbered_links_are_not_planned() -> None:
    fabric = fabric_of(ZONE, numbering=Numbering.UNNUMBERED)
    with pytest.raises(InputError, match=r"^rtsw1: .*unnumbered"):
        planned_walk(fabric, "srv1-1", "srv2-1", 1)


def test_a_group_cut_by_max_paths_is_not_planned() -> None:
    fabric = fabric_of(ZONE, max_paths=3)
    with pytest.raises(InputError, match=r"which 3 of the 8 next hops.*\n.*max_paths to 8"):
        planned_walk(fabric, "srv1-1", "srv2-1", 1)


def broken_walk(broken: str, routes: tuple[Route, ...]) -> None:
    fabric = fabric_of(ZONE)
    walk(
        fabric,
        lambda node: Fib(routes) if node == broken else planned_tables(fabric)(node),
        find_nic(fabric, "srv1-1"),
        find_nic(fabric, "srv2-1"),
        50000,
    )


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ((), "rtsw1: no route to 198.18.0.8"),
        ((Route("0.0.0.0/0", ()),), "rtsw1: 0.0.0.0/0 discards"),
        (
            (Route("0.0.0.0/0", (NextHop("ctsw1", None, carrier=False),)),),
            "rtsw1: 0.0.0.0/0 still uses rtsw1:ctsw1, whose link is down",
        ),
        ((Route("0.0.0.0/0", (NextHop("eth0", None),)),), "rtsw1: eth0 leads out of the fabric"),
        ((Route("0.0.0.0/0", (NextHop("srv1-1", None),)),), "srv1-1: .*comes back"),
        ((Route("0.0.0.0/0", (NextHop("srv1-2", None),)),), "srv1-2: a server got"),
    ],
)
def test_a_flow_that_does_not_arrive_is_an_error_that_names_the_node(
    routes: tuple[Route, ...], message: str
) -> None:
    with pytest.raises(NoPathError, match=f"^{message}"):
        broken_walk("rtsw1", routes)


def test_a_routing_loop_is_an_error_that_shows_the_way_round() -> None:
    with pytest.raises(NoPathError, match=r"^rtsw1: .*\(srv1-1 rtsw1 ctsw\d rtsw1\)"):
        fabric = fabric_of(ZONE)
        back = Fib((Route("0.0.0.0/0", (NextHop("rtsw1", None),)),))
        walk(
            fabric,
            lambda node: back if node.startswith("ctsw") else planned_tables(fabric)(node),
            find_nic(fabric, "srv1-1"),
            find_nic(fabric, "srv2-1"),
            50000,
        )


@pytest.mark.parametrize(
    ("server", "number", "message"),
    [
        ("srv9-9", 1, "srv9-9 is not in the fabric"),
        ("rtsw1", 1, "rtsw1 is a switch"),
        ("srv1-1", 2, "srv1-1 has no NIC 2"),
        ("srv1-1", 0, "srv1-1 has no NIC 0"),
    ],
)
def test_a_path_end_that_is_no_server_is_an_input_error(
    server: str, number: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        find_nic(fabric_of(ZONE), server, number)


def test_a_path_needs_two_servers() -> None:
    with pytest.raises(InputError, match="both on srv1-1"):
        planned_walk(fabric_of(ZONE), "srv1-1", "srv1-1", 1)


@given(st.integers(0, 65535), st.integers(1, 255), st.integers(0, 255))
def test_a_patched_probe_frame_is_the_one_that_scapy_builds(port: int, ttl: int, tag: int) -> None:
    frame = ProbeFrames(resolve_endpoints(fabric_of(ZONE), "srv1-1", "srv4-2"), tag).build(
        port, ttl
    )
    rebuilt = Ether(frame)
    assert (rebuilt[UDP].sport, rebuilt[IP].ttl, rebuilt[IP].id) == (port, ttl, tag << 8 | ttl)
    rebuilt[IP].chksum = None
    rebuilt[BTH].icrc = None
    assert bytes(rebuilt) == frame


@given(st.integers(0, 65535), st.integers(1, 255), st.integers(0, 255))
def test_a_probe_frame_over_ipv6_has_its_tag_and_hop_limit_in_the_psn(
    port: int, ttl: int, tag: int
) -> None:
    ends = resolve_endpoints(fabric_of(ZONE), "srv1-1", "srv4-2")
    over_ipv6 = replace(ends, source_ip="2001:db8::1", destination_ip="2001:db8::2")
    frame = ProbeFrames(over_ipv6, tag).build(port, ttl)
    rebuilt = Ether(frame)
    assert (rebuilt[UDP].sport, rebuilt[IPv6].hlim, rebuilt[IPv6].fl) == (port, ttl, port & 0x3FFF)
    assert rebuilt[BTH].psn == tag << 8 | ttl
    rebuilt[BTH].icrc = None
    assert bytes(rebuilt) == frame


def test_the_links_that_a_flow_can_take_are_those_of_every_source_port() -> None:
    fabric = fabric_of(THREE_TIERS)
    source, destination = find_nic(fabric, "z1-srv1-1"), find_nic(fabric, "z2-srv1-1")
    links = possible_links(fabric, planned_tables(fabric), source, destination)
    taken = {
        hop.link.link
        for port in range(2000, 4000)
        for hop in planned_walk(fabric, "z1-srv1-1", "z2-srv1-1", port).hops
    }
    assert set(links) == taken
    assert len(links) == len(taken) < len(fabric.links)
    assert [links[0].a.node, links[-1].a.node] == ["z1-srv1-1", "z2-srv1-1"]


def test_a_switch_without_a_route_ends_the_links_that_a_flow_can_take() -> None:
    fabric = fabric_of(ZONE)
    source, destination = find_nic(fabric, "srv1-1"), find_nic(fabric, "srv2-1")
    links = possible_links(fabric, lambda _: Fib(()), source, destination)
    assert links == source.links


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({}, "one by ctsw1, ctsw2, ctsw3 and ctsw4 is planned: `rocelab status zone` shows what"),
        (
            {"overrides": {"nodes": {"rtsw2": {"asn": 65001}, "rtsw1": {"asn": 65001}}}},
            "rtsw1 has AS number 65001 like rtsw2, and BGP drops a path with its own number",
        ),
        (
            {"overrides": {"remove": [f"rtsw1:ctsw{spine}" for spine in (1, 2, 3, 4)]}},
            "with routing.valley_free paths go up, then down",
        ),
        ({"routing": {"templates": "."}}, "the lab's own configuration decides"),
    ],
)
def test_a_missing_route_is_explained_by_the_plan(changes: dict[str, object], hint: str) -> None:
    fabric_keys = {"kind": "clos", "racks": 4, "spines": 4}
    keys = {"name": "zone", "fabric": fabric_keys, **changes}
    fabric = plan(LabSpec.model_validate(keys))
    nic = find_nic(fabric, "srv2-1")
    error = no_route(fabric, "rtsw1", nic.ip)
    assert error.message == f"rtsw1: no route to {nic.ip}"
    assert hint in (error.hint or "")
