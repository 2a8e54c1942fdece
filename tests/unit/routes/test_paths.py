"""Paths of the simulator: those of `rocelab predict`, and the divided flows of fluid limits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from rocelab.base.errors import InputError
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import HashingSpec, HashWeights, LabSpec, RoutingSpec
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import DirectedLink, Fabric
from rocelab.prediction.matrix import FlowRow, matrix_of, rows_of_jobs
from rocelab.prediction.predictor import asked_fabric
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Flows, Paths
from rocelab.routes.arrays.graph import routes_of
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.paths import flows_per_send, paths_of
from rocelab.routes.arrays.routes import PlannedGroups, Routes
from rocelab.routes.models import Model
from rocelab.routes.multipath import Flow5, multipath_hash
from rocelab.routes.resilient import filled, without
from rocelab.routes.steering import ROCE_PORT
from tests.helpers.groups import sends_to
from tests.helpers.hop_by_hop import links_of

LABS = {
    "tiny": 4,
    "zone-small": 8,
    "zone-1-1": 16,
    "zone-1-1125": 32,
    "zone-1-2": 16,
    "uplinks-16": 16,
    "unnumbered": 4,
    "zones-small": 8,
    "zones-1-7": 14,
    "zones-1-28": 28,
    "rail-small": 16,
    "hpn-small": 8,
    "hpn-single-plane": 8,
    "hpn-single-tor": 8,
    "fat-tree-4": 16,
    "half-migrated": 31,
}
"""The labs of the catalog that are small enough, and their NICs."""


def scheme_of(kind: str) -> SchemeSpec:
    scheme: SchemeSpec = TypeAdapter(SchemeSpec).validate_python(kind)
    return scheme


@cache
def spec_of(name: str) -> LabSpec:
    return load_spec(find_lab(name))


@cache
def rows_of(name: str) -> tuple[FlowRow, ...]:
    """An AlltoAll over all NICs, and a ring with 16 QPs on random NICs."""
    every = {"pattern": "alltoall", "ranks": LABS[name], "size": "4MB", "transport": {"qps": 2}}
    ring = {"pattern": "allreduce", "ranks": LABS[name], "size": "64MB", "transport": {"qps": 16}}
    jobs = [every, {**ring, "placement": "random", "seed": 5}]
    plans = plan_jobs(plan(spec_of(name)), [JobSpec.model_validate(job) for job in jobs])
    return tuple(rows_of_jobs(plans))


@cache
def case(name: str) -> tuple[Network, PlannedGroups, Flows]:
    network = network_of(spec_of(name))
    return network, routes_of(network), matrix_of(network, rows_of(name)).flows


def apart(name: str) -> list[FlowRow]:
    """The flows that leave their server."""
    return [row for row in rows_of(name) if row.source.server != row.destination.server]


def links_on(fabric: Fabric, paths: Paths) -> list[tuple[DirectedLink, ...]]:
    sends = np.split(paths.sends, paths.start[1:-1])
    return [tuple(fabric.directed_links[send] for send in path) for path in sends]


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*LABS} - {"unnumbered"}))
@pytest.mark.parametrize(
    ("scheme", "model"),
    [
        ("ecmp", Model.KERNEL),
        ("e-ecmp", Model.KERNEL),
        ("path-pinning", Model.KERNEL),
        ("ecmp", Model.CRC16),
        ("ecmp", Model.CRC32),
    ],
)
def test_flows_led_at_once_take_the_links_that_each_takes_alone(
    name: str, scheme: str, model: Model
) -> None:
    network, routes, _ = case(name)
    fabric = asked_fabric(plan(spec_of(name)), scheme_of(scheme))
    rows = apart(name)
    rows = rows[:: -(-len(rows) // 100)]  # of any source and destination; one by one takes long
    flows = matrix_of(network, rows).flows
    paths = paths_of(network, routes, flows, scheme=scheme_of(scheme), model=model)

    assert links_on(fabric, paths) == links_of(fabric, rows, model)


@pytest.mark.parametrize(
    "hashing",
    [
        {"policy": "l3", "seed": 7},
        {"policy": "custom", "fields": ["source-port", "destination-ip"], "seed": "per-tier"},
    ],
)
def test_a_switch_hashes_what_the_spec_says(hashing: dict[str, object]) -> None:
    update = {"hashing": HashingSpec.model_validate(hashing)}
    asked = spec_of("fat-tree-4").model_copy(update=update)
    rows, network = apart("fat-tree-4")[::5], network_of(asked)
    paths = paths_of(network, Routes(network), matrix_of(network, rows).flows)

    assert links_on(plan(asked), paths) == links_of(plan(asked), rows)


def sends_of(paths: Paths, flow: int) -> list[int]:
    values: list[int] = paths.sends[paths.start[flow] : paths.start[flow + 1]].tolist()
    return values


def joined_up(network: Network, flows: Flows, paths: Paths) -> None:
    """Every path is one, from its source's server to its destination's, without a detour."""
    for flow in range(0, len(flows), 9):
        sends = sends_of(paths, flow)
        if not sends:
            continue
        assert network.sender[sends[0]] == network.nic_server[flows.source[flow]]
        assert network.receiver[sends[-1]] == network.nic_server[flows.destination[flow]]
        assert sends[-1] // 2 in network.nic_links[flows.destination[flow]]
        assert network.receiver[sends[:-1]].tolist() == network.sender[sends[1:]].tolist()
        assert len(set(network.receiver[sends].tolist())) == len(sends)


@pytest.mark.long
@settings(max_examples=20)
@given(st.data())
def test_flows_keep_to_links_that_are_up_and_all_arrive_that_can(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["zone-1-1", "zones-1-28", "hpn-small", "hpn-single-plane"]))
    scheme = data.draw(st.sampled_from(["ecmp", "e-ecmp", "path-pinning", "resilient"]))
    network, _, flows = case(name)
    down = data.draw(st.sets(st.integers(0, network.links - 1), max_size=network.links // 6))
    up = np.ones(network.links, np.bool_)
    up[list(down)] = False
    routes = Routes(network, up)
    paths = paths_of(network, routes, flows, scheme=scheme_of(scheme))

    joined_up(network, flows, paths)
    assert not set((paths.sends // 2).tolist()) & down
    for flow in range(0, len(flows), 9):
        uplinks, nic = network.nic_links[flows.source[flow]], int(flows.destination[flow])
        ways = sorted(
            set(uplinks.tolist()) - down, key=lambda link: link != uplinks[flows.port[flow]]
        )
        reached = bool(ways) and not set(network.nic_links[nic].tolist()) <= down
        leads_on = reached and len(sends_to(routes, nic, int(network.upper[ways[0]]))) > 0
        assert bool(sends_of(paths, flow)) == leads_on


def test_a_flow_leaves_by_the_other_port_while_its_own_is_down() -> None:
    network, routes, flows = case("hpn-small")
    up = np.ones(network.links, np.bool_)
    up[network.nic_links[0, 0]] = False
    before = paths_of(network, routes, flows)
    after = paths_of(network, Routes(network, up), flows)

    moved = np.flatnonzero((flows.source == 0) & (flows.port == 0)).tolist()
    assert len(moved)
    assert {sends_of(before, flow)[0] for flow in moved} == {2 * network.nic_links[0, 0]}
    assert {sends_of(after, flow)[0] for flow in moved} == {2 * network.nic_links[0, 1]}
    to_it = np.flatnonzero(flows.destination == 0).tolist()
    assert {sends_of(after, flow)[-1] for flow in to_it} == {2 * network.nic_links[0, 1] + 1}


def test_a_flow_to_a_nic_without_a_link_has_no_path() -> None:
    network, _, flows = case("zone-1-1")
    up = np.ones(network.links, np.bool_)
    up[network.nic_links[3]] = False
    paths = paths_of(network, Routes(network, up), flows)

    lost = np.flatnonzero(np.diff(paths.start) == 0)
    touched = (flows.source == 3) | (flows.destination == 3)
    assert lost.tolist() == np.flatnonzero(touched).tolist()


def test_resilient_groups_keep_to_the_kernels_tables_when_members_go() -> None:
    network, _, flows = case("zone-1-2")
    leaf, spines = network.node_number("rtsw1"), 8
    uplinks = np.flatnonzero(network.lower == leaf)
    up = np.ones(network.links, np.bool_)
    up[uplinks[[2, 5]]] = False
    scheme = scheme_of("resilient")
    paths = paths_of(network, Routes(network, up), flows, scheme=scheme)

    first = without(filled([None] * 128, [1] * spines), [1] * spines, 2)
    seven = [hop - (hop > 2) for hop in first]
    left = [0, 1, 3, 4, 6, 7]
    table = [left[hop - (hop > 4)] for hop in without(seven, [1] * 7, 4)]
    ips = [network.ip(nic) for nic in range(network.nics)]
    policy, seed = network.spec.hashing.policy, int(network.hash_seed[leaf])
    checked = 0
    for flow in range(len(flows)):
        sends = sends_of(paths, flow)
        if len(sends) == 4 and network.sender[sends[1]] == leaf:
            ends = ips[flows.source[flow]], ips[flows.destination[flow]]
            five = Flow5(*ends, 17, int(flows.sport[flow]), ROCE_PORT)
            bucket = multipath_hash(five, seed, policy) % 128
            assert sends[1] == 2 * uplinks[table[bucket]]
            checked += 1
    assert checked > 100


@pytest.mark.parametrize("name", ["zones-1-28", "hpn-single-plane", "fat-tree-4"])
@pytest.mark.parametrize("kind", ["spray", "flowlet"])
def test_parts_of_a_flow_are_all_of_it_between_any_two_tiers(name: str, kind: str) -> None:
    network, routes, flows = case(name)
    paths = paths_of(network, routes, flows, scheme=scheme_of(kind))
    assert paths.share is not None
    for flow in range(0, len(flows), 7):
        part = slice(paths.start[flow], paths.start[flow + 1])
        sends, share = paths.sends[part], paths.share[part]
        assert len(set(sends.tolist())) == len(sends)
        tier = network.tier
        crossing = np.stack((tier[network.sender[sends]], tier[network.receiver[sends]]), axis=1)
        for way in np.unique(crossing, axis=0):
            crossed = share[(crossing == way).all(axis=1)]
            assert crossed.sum() == pytest.approx(1.0, abs=1e-12)


def test_spray_divides_evenly_over_every_group_and_flowlet_over_a_leafs_alone() -> None:
    network, routes, flows = case("zones-1-28")
    sprayed = paths_of(network, routes, flows, scheme=scheme_of("spray"))
    assert sprayed.share is not None
    longest = int(np.argmax(np.diff(sprayed.start)))
    part = slice(sprayed.start[longest], sprayed.start[longest + 1])

    # 1 up, 2 spines, each to 5 ATSWs, each to 2 spines, to the leaf, down.
    assert np.unique(sprayed.share[part], return_counts=True)[1].tolist() == [20, 4, 2]
    assert np.unique(sprayed.share[part]).tolist() == [0.1, 0.5, 1.0]

    flowlets = paths_of(network, routes, flows, scheme=scheme_of("flowlet"))
    assert flowlets.share is not None
    part = slice(flowlets.start[longest], flowlets.start[longest + 1])
    tier = network.tier[network.sender[flowlets.sends[part]]]
    assert set(flowlets.share[part][tier == 1].tolist()) == {0.5, 1.0}
    assert np.count_nonzero(tier == 2) <= 4


def test_what_can_not_be_known_is_refused() -> None:
    network, _, flows = case("zone-small")
    for update, words in (
        ({"hashing": HashingSpec(seed=0)}, "hash seed 0"),
        ({"hashing": HashingSpec(weights=HashWeights.PATHS)}, "weights by paths"),
        ({"routing": RoutingSpec(max_paths=4)}, "rtsw1: which 4 of the 8 next hops"),
    ):
        other = network_of(network.spec.model_copy(update=update))
        with pytest.raises(InputError, match=words):
            paths_of(other, Routes(other), flows)


def test_no_flows_have_no_paths() -> None:
    network, routes, _ = case("tiny")
    none = np.empty(0, np.int32)

    paths = paths_of(network, routes, Flows(none, none, none, none, none))
    assert len(paths) == 0
    assert flows_per_send(network, paths).sum() == 0
