"""Routes of irregular fabrics: all classes at once are as `spread` has one prefix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rocelab.base.arrays import NONE
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.routes import spread
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.graph import GraphRoutes, routes_of
from rocelab.routes.planned import planned_fibs


@st.composite
def graphs(draw: st.DrawFn) -> LabSpec | None:
    """A connected graph of switches with servers, some AS numbers shared; None if neighbours have
    one."""
    count = draw(st.integers(3, 9))
    pairs = [(node, draw(st.integers(1, node - 1))) for node in range(2, count + 1)]
    further = st.tuples(st.integers(1, count), st.integers(1, count))
    pairs += [pair for pair in draw(st.lists(further, max_size=12)) if pair[0] != pair[1]]
    links = [f"s{a}:p{n} -- s{b}:q{n}" for n, (a, b) in enumerate(pairs)]
    hosts = draw(st.sets(st.integers(1, count), min_size=1))
    links += [f"h{node}:e0 -- s{node}:h0" for node in sorted(hosts)]
    nodes: dict[str, dict[str, Any]] = {"s*": {"role": "leaf"}, "h*": {"role": "server"}}
    if draw(st.booleans()):
        asns = st.integers(65001, 65000 + count)
        nodes |= {f"s{n}": {"role": "leaf", "asn": draw(asns)} for n in range(1, count + 1)}
    fabric = {"kind": "graph", "nodes": nodes, "links": links}
    try:
        return LabSpec.model_validate({"name": "drawn", "fabric": fabric})
    except ValidationError as error:
        assert "one AS number" in str(error)
        return None


@settings(max_examples=60, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_every_group_is_that_of_the_prefix(spec: LabSpec | None, random: Any) -> None:
    if spec is None:
        return
    fabric, network = plan(spec), network_of(spec)
    up = np.array([not link.is_between_switches or random.random() < 0.8 for link in fabric.links])
    routes = routes_of(network, up)
    assert isinstance(routes, GraphRoutes)
    links = tuple(link for link, is_up in zip(fabric.links, up, strict=True) if is_up)
    live = replace(fabric, links=links)
    for nic in range(network.nics):
        home = network.home_leaves[network.nic_home[nic]]
        origins = [network.node_names[node] for node in home if node != NONE]
        groups = spread(live, origins)
        for node in np.flatnonzero(network.tier).tolist():
            name = network.node_names[node]
            if name in origins:
                continue
            hops = routes.next_hops(np.array([node], np.int32), np.array([nic], np.int32))
            members = [network.send_name(send) for send in routes.members(hops, 0).tolist()]
            ports = [str(link.port(name)) for link in groups.get(name, ())]
            assert sorted(members if hops.count[0] else []) == sorted(ports)


def test_a_spine_that_is_missing_is_on_no_path() -> None:
    clos = {"racks": 4, "spines": 4, "servers_per_rack": 2}
    overrides = {"remove": ["ctsw3", "rtsw1:ctsw4"]}
    spec = LabSpec.model_validate({"name": "x", "fabric": clos, "overrides": overrides})
    network = network_of(spec)
    routes = routes_of(network)
    leaf = np.array([network.node_number("rtsw1")], np.int32)
    far = next(nic for nic in range(network.nics) if network.nic_name(nic) == "srv2-1:1")
    hops = routes.next_hops(leaf, np.array([far], np.int32))
    names = [network.send_name(send) for send in routes.members(hops, 0).tolist()]
    assert names == ["rtsw1:ctsw1", "rtsw1:ctsw2"]
    # ctsw4 still reaches rack 1, around: by another rack, if racks passed routes on. They do not.
    back = np.array([network.node_number("ctsw4")], np.int32)
    near = next(nic for nic in range(network.nics) if network.nic_name(nic) == "srv1-1:1")
    assert routes.next_hops(back, np.array([near], np.int32)).count.tolist() == [0]


def test_a_link_that_is_changed_has_its_own_values_and_the_same_routes() -> None:
    clos = {"racks": 3, "spines": 2, "servers_per_rack": 1}
    change = {"rtsw1:ctsw2": {"delay": "7us", "mtu": 1500, "rate": "100G"}}
    spec = LabSpec.model_validate({"name": "x", "fabric": clos, "overrides": {"links": change}})
    network = network_of(spec)
    link = next(n for n in range(network.links) if network.link_name(n) == "rtsw1:ctsw2")
    assert network.rate_bps[link] == 10**11
    assert network.delay_ns[2 * link : 2 * link + 2].tolist() == [7000, 7000]
    plain = network_of(LabSpec.model_validate({"name": "x", "fabric": clos}))
    for nic in range(network.nics):
        for node in np.flatnonzero(network.tier).tolist():
            place = np.array([node], np.int32), np.array([nic], np.int32)
            groups = []
            for one in (network, plain):
                routes = routes_of(one)
                hops = routes.next_hops(*place)
                sends = routes.members(hops, 0).tolist() if hops.count[0] else []
                groups.append([one.send_name(send) for send in sends])
            assert groups[0] == groups[1]


@pytest.mark.parametrize(
    ("family", "prefix_of", "length", "ports"),
    [
        ("ipv4", "10.1.0.{}/31", "/30", ["e2", "e3", "e1"]),
        ("ipv6", "2001:db8::{}/127", "/126", ["e1", "e2", "e3"]),
    ],
)
def test_next_hops_are_in_the_order_of_their_gateways(
    family: str, prefix_of: str, length: str, ports: list[str]
) -> None:
    """Those of IPv6 are link-local, and follow from the links' numbers."""
    nodes = {"leaf*": {"role": "leaf"}, "spine*": {"role": "spine"}, "srv*": {"role": "server"}}
    pairs = {1: (4, 5), 2: (0, 1), 3: (3, 2)}
    links: list[object] = [
        {
            "a": f"leaf1:e{n}",
            "b": f"spine{n}:p1",
            "addresses": [prefix_of.format(end) for end in pair],
        }
        for n, pair in pairs.items()
    ]
    links += [f"spine{n} -- leaf2" for n in pairs]
    links += ["srv1:e -- leaf2:h", "srv2:e -- leaf1:h"]
    fabric = {"kind": "graph", "nodes": nodes, "links": links}
    keys = {"name": "x", "fabric": fabric, "addresses": {"family": family}}
    spec = LabSpec.model_validate(keys)
    network = network_of(spec)
    routes = routes_of(network)
    number = {network.nic_name(nic): nic for nic in range(network.nics)}

    def names(node: str, nic: str) -> list[str]:
        at = np.array([network.node_number(node)], np.int32)
        hops = routes.next_hops(at, np.array([number[nic]], np.int32))
        return [network.send_name(send) for send in routes.members(hops, 0).tolist()]

    assert names("leaf1", "srv1:1") == [f"leaf1:{port}" for port in ports]
    assert names("leaf1", "srv2:1") == ["leaf1:h"]
    (prefix,) = (
        prefix for prefix in plan(spec).prefixes_of["leaf2"] if prefix.prefix.endswith(length)
    )
    route = planned_fibs(plan(spec), [prefix])("leaf1").lookup(prefix.prefix.partition("/")[0])
    assert route is not None
    assert [hop.interface for hop in route.next_hops] == ports


@pytest.mark.parametrize(("first", "second", "reached"), [("1", "2", False), ("2", "1", True)])
def test_the_path_of_the_lowest_bgp_identifier_is_announced(
    first: str, second: str, reached: bool
) -> None:
    """c hears of o from a and b alike, and announces one of the two paths to d, which has a's AS
    number and refuses that by a."""
    nodes: dict[str, dict[str, object]] = {
        name: {"role": "leaf", "asn": asn}
        for name, asn in {"o": 1, "a": 10, "b": 20, "c": 30, "d": 10}.items()
    }
    nodes["a"]["router_id"], nodes["b"]["router_id"] = f"10.0.0.{first}", f"10.0.0.{second}"
    nodes["h"] = {"role": "server"}
    links = ["o:1 -- a:1", "o:2 -- b:1", "a:2 -- c:1", "b:2 -- c:2", "c:3 -- d:1", "h:0 -- o:3"]
    fabric = {"kind": "graph", "nodes": nodes, "links": links}
    spec = LabSpec.model_validate({"name": "x", "fabric": fabric})
    assert len(spread(plan(spec), ["o"])["c"]) == 2
    assert ("d" in spread(plan(spec), ["o"])) is reached
    network = network_of(spec)
    place = np.array([network.node_number("d")], np.int32), np.array([0], np.int32)
    assert (routes_of(network).next_hops(*place).count.tolist() == [1]) is reached


def test_a_leaf_passes_no_route_on_where_paths_have_no_valley() -> None:
    nodes = {"l*": {"role": "leaf"}, "s*": {"role": "spine"}, "h": {"role": "server"}}
    links = ["l1 -- s1", "l2 -- s1", "l2 -- s2", "l3 -- s2", "h -- l1"]
    for valley_free in (True, False):
        lab = {
            "name": "x",
            "fabric": {"kind": "graph", "nodes": nodes, "links": links},
            "routing": {"valley_free": valley_free},
        }
        spec = LabSpec.model_validate(lab)
        assert ("l3" in spread(plan(spec), ["l1"])) is not valley_free
        network = network_of(spec)
        place = np.array([network.node_number("l3")], np.int32), np.array([0], np.int32)
        count = routes_of(network).next_hops(*place).count.tolist()
        assert count == [0 if valley_free else 1]
