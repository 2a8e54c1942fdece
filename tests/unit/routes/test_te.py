"""Traffic engineering at size: the lab's placements and optimum, and the capacity after
failures."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from functools import cache
from types import FunctionType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocelab.base import compiling
from rocelab.base.arrays import NONE, Floats, Ints
from rocelab.base.errors import InputError
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.labfile.schemes.te import TeEngine
from rocelab.linux.fibtable import Fib
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.flows import Flows, Paths
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.routes import Routes
from rocelab.routes.arrays.te import fall_back, least_utilisation, place_te, utilisation
from rocelab.routes.demand import Demand, FlowKey
from rocelab.routes.network import FibNetwork as LabNetwork
from rocelab.routes.network import Path
from rocelab.routes.placing import lower_bound, place_cspf
from rocelab.routes.planned import planned_fibs
from rocelab.routes.te import optimum, search

GBPS = 10**9
LABS = ("zone-small", "zone-1-1", "zones-small", "hpn-small", "rail-small", "fat-tree-4")


@cache
def fabric_of(lab: str) -> Fabric:
    return build_fabric(load_spec(find_lab(lab)))


@cache
def network(lab: str) -> Network:
    return network_of(load_spec(find_lab(lab)))


@cache
def tables(lab: str) -> dict[str, Fib]:
    fabric = fabric_of(lab)
    fib_of = planned_fibs(fabric, fabric.prefixes)
    return {node.name: fib_of(node.name) for node in fabric.switches}


@cache
def clos(racks: int, spines: int, nics: int, zones: int = 1) -> Network:
    shape = ClosSpec(
        racks=racks, spines=spines, nics_per_server=nics, zones=zones, atsws=zones // 2 * 2
    )
    return network_of(LabSpec(name="t", fabric=shape))


def columns(*values: Sequence[int]) -> list[Ints]:
    return [np.array(value, np.int32) for value in values]


def flows_between(pairs: Sequence[tuple[int, int]], port: int = 0) -> Flows:
    numbers = range(len(pairs))
    source, destination = [a for a, _ in pairs], [b for _, b in pairs]
    return Flows(
        *columns(source, destination, [port] * len(pairs), [50_000 + n for n in numbers], numbers)
    )


def random_flows(net: Network, count: int, seed: int) -> tuple[Flows, Floats]:
    draw = random.Random(seed)
    source = [draw.randrange(net.nics) for _ in range(count)]
    server = net.nic_server
    others = [np.flatnonzero(server != server[nic]).tolist() for nic in source]
    ports = (net.nic_links != NONE).sum(axis=1)
    flows = Flows(
        *columns(
            source,
            [draw.choice(other) for other in others],
            [draw.randrange(int(ports[nic])) for nic in source],
            draw.sample(range(49_152, 65_536), count),
            range(count),
        )
    )
    return flows, np.array(
        [draw.choice((10, 25, 100, 133, 400)) * GBPS for _ in range(count)], float
    )


def permutation(net: Network, seed: int) -> Flows:
    return flows_between(list(enumerate(np.random.default_rng(seed).permutation(net.nics))))


def no_paths(flows: Flows) -> Paths:
    return Paths(np.zeros(len(flows) + 1, np.int64), np.zeros(0, np.int32))


def path_of(paths: Paths, flow: int) -> list[int]:
    return [int(send) for send in paths.sends[paths.start[flow] : paths.start[flow + 1]]]


def between_switches(net: Network) -> np.ndarray:
    return np.repeat(net.tier[net.lower] > 0, 2)


def greatest(net: Network, paths: Paths, rate_bps: Floats) -> float:
    return float(utilisation(paths, rate_bps, net.capacity_bps)[between_switches(net)].max())


def demands_of(fabric: Fabric, flows: Flows, rate_bps: Floats) -> tuple[Demand, ...]:
    nics = [nic for node in fabric.servers for nic in fabric.nics(node.name)]
    made = []
    for flow, rate in enumerate(rate_bps):
        source, destination = nics[flows.source[flow]], nics[flows.destination[flow]]
        first = source.links[flows.port[flow]]
        links = (first, *(link for link in source.links if link is not first))
        key = FlowKey(source.ip, destination.ip, int(flows.sport[flow]))
        made.append(Demand(key, float(rate), tuple(link.b.node for link in links)))
    return tuple(made)


def sends_of(fabric: Fabric, net: Network, flows: Flows, flow: int, path: Path) -> list[int]:
    first = 2 * int(net.nic_links[flows.source[flow], flows.port[flow]])
    return [first, *(fabric.directed_links.index(step.link) for step in path)]


@pytest.mark.parametrize("lab", LABS)
@settings(max_examples=12)
@given(count=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_cspf_places_every_flow_where_the_labs_controller_does(
    lab: str, count: int, seed: int
) -> None:
    fabric, net = fabric_of(lab), network(lab)
    flows, rate_bps = random_flows(net, count, seed)
    demands = demands_of(fabric, flows, rate_bps)
    expected = place_cspf(LabNetwork(fabric, tables(lab)), demands)
    placed = place_te(net, Routes(net), flows, rate_bps, TeEngine.CSPF, fallback=no_paths(flows))
    for flow, demand in enumerate(demands):
        path = expected.paths[demand.key]
        assert path_of(placed, flow) == sends_of(fabric, net, flows, flow, path)


@pytest.mark.parametrize("lab", LABS)
@settings(max_examples=5)
@given(count=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_the_optimum_is_the_labs_and_no_placement_beats_it(lab: str, count: int, seed: int) -> None:
    fabric, net = fabric_of(lab), network(lab)
    flows, rate_bps = random_flows(net, count, seed)
    routes = Routes(net)
    bound = least_utilisation(net, routes, flows, rate_bps)
    lab_bound = lower_bound(LabNetwork(fabric, tables(lab)), demands_of(fabric, flows, rate_bps))
    assert bound == pytest.approx(lab_bound, abs=1e-7)
    used = {
        engine: greatest(
            net,
            place_te(net, routes, flows, rate_bps, engine, fallback=no_paths(flows)),
            rate_bps,
        )
        for engine in TeEngine
    }
    assert bound - 1e-7 <= used[TeEngine.LP] <= used[TeEngine.CSPF] + 1e-9


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_a_permutation_on_a_non_blocking_fabric_is_placed_without_conflict(seed: int) -> None:
    net = clos(24, 9, 8)
    flows = permutation(net, seed)
    rate_bps = np.full(len(flows), 400.0 * GBPS)
    routes, fallback = Routes(net), no_paths(flows)
    assert least_utilisation(net, routes, flows, rate_bps) <= 8 / 9 + 1e-9
    placed = place_te(net, routes, flows, rate_bps, TeEngine.LP, fallback=fallback)
    assert greatest(net, placed, rate_bps) == pytest.approx(1.0)


def test_the_programme_is_solved_where_a_failed_link_makes_even_splitting_worse() -> None:
    """Spine 2 has lost rack 3: traffic to it should have spine 1 for itself."""
    net = clos(3, 2, 2)
    up = np.ones(net.links, np.bool_)
    up[(net.lower == net.home_leaves[2, 0]) & (net.upper == net.upper.min() + 1)] = False
    flows = flows_between([(0, 2), (1, 4)])
    rate_bps = np.full(2, 400.0 * GBPS)
    routes = Routes(net, up)
    # Evenly split, spine 1 would get half of one flow and all of the other: 1.5.
    assert least_utilisation(net, routes, flows, rate_bps) == pytest.approx(1.0)
    placed = place_te(net, routes, flows, rate_bps, TeEngine.LP, fallback=no_paths(flows))
    assert greatest(net, placed, rate_bps) == pytest.approx(1.0)
    assert not np.isin(placed.sends // 2, np.flatnonzero(~up)).any()


def test_an_optimum_too_large_to_solve_is_refused_with_a_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optimum, "MOST_VARIABLES", 3)
    net = clos(3, 2, 2)
    up = np.ones(net.links, np.bool_)
    up[(net.lower == net.home_leaves[2, 0]) & (net.upper == net.upper.min() + 1)] = False
    flows = flows_between([(0, 2), (1, 4)])
    with pytest.raises(InputError, match="variables") as raised:
        least_utilisation(net, Routes(net, up), flows, np.full(2, 400.0 * GBPS))
    assert raised.value.hint is not None
    assert "cspf" in raised.value.hint


def test_a_flow_that_nothing_leads_to_keeps_the_path_of_its_fallback() -> None:
    net = clos(2, 2, 1)
    up = np.ones(net.links, np.bool_)
    up[net.nic_links[1, 0]] = False
    flows = flows_between([(0, 1), (1, 0)])
    fallback = Paths(np.array([0, 2, 3]), np.array([7, 5, 3], np.int32))
    for engine in TeEngine:
        placed = place_te(net, Routes(net, up), flows, np.full(2, 1.0), engine, fallback=fallback)
        assert [path_of(placed, 0), path_of(placed, 1)] == [[7, 5], [3]]


def test_a_nic_that_has_lost_a_port_is_reached_by_its_other_switch() -> None:
    net = network("hpn-small")
    up = np.ones(net.links, np.bool_)
    up[net.nic_links[4, 0]] = False
    flows = flows_between([(0, 4), (4, 0)])
    placed = place_te(
        net, Routes(net, up), flows, np.full(2, 1.0), TeEngine.CSPF, fallback=no_paths(flows)
    )
    assert path_of(placed, 0)[-1] == 2 * net.nic_links[4, 1] + 1
    assert path_of(placed, 1)[0] == 2 * net.nic_links[4, 1]
    for flow in range(2):
        sends = path_of(placed, flow)
        assert net.receiver[sends[:-1]].tolist() == net.sender[sends[1:]].tolist()


def test_queue_pairs_that_a_switch_can_not_tell_apart_stay_together() -> None:
    net = clos(2, 4, 1)
    flows = Flows(*columns([0] * 4, [1] * 4, [0] * 4, [50_000, 50_000, 50_001, 50_002], range(4)))
    placed = place_te(
        net, Routes(net), flows, np.full(4, 1.0), TeEngine.CSPF, fallback=no_paths(flows)
    )
    paths = [tuple(path_of(placed, flow)) for flow in range(4)]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 3


def test_only_flows_over_what_has_failed_fall_back_until_the_next_round() -> None:
    net = clos(2, 4, 4)
    flows = flows_between([(n, 4 + n) for n in range(4)])
    te = place_te(net, Routes(net), flows, np.full(4, 1.0), TeEngine.CSPF, fallback=no_paths(flows))
    up = np.ones(net.links, np.bool_)
    up[path_of(te, 2)[1] // 2] = False
    hashed = Paths(np.arange(5) * 4, np.repeat(te.sends.reshape(4, 4)[:1], 4, axis=0).reshape(-1))
    after = fall_back(te, Routes(net, up), hashed)
    assert path_of(after, 2) == path_of(hashed, 2) != path_of(te, 2)
    for flow in (0, 1, 3):
        assert path_of(after, flow) == path_of(te, flow)


def test_utilisation_adds_the_parts_of_flows_and_is_infinite_on_dead_sends() -> None:
    paths = Paths(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.array([0.25, 0.75, 1.0]))
    used = utilisation(paths, np.array([8.0, 2.0]), np.array([4.0, 4.0, 0.0]))
    assert used.tolist() == [0.5, 2.0, 0.0]
    assert utilisation(paths, np.array([8.0, 2.0]), np.array([0.0, 4.0, 0.0]))[0] == np.inf


def test_code_that_is_not_compiled_finds_the_same_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network("zones-small")
    flows, rate_bps = random_flows(net, 30, 1)
    problem = net, Routes(net), flows, rate_bps
    before = [place_te(*problem, engine, fallback=no_paths(flows)) for engine in TeEngine]
    engine = [f"routes.te.{name}" for name in ("search", "even", "moves")]
    modules = [importlib.import_module(f"rocelab.{name}") for name in (*engine, "routes.arrays.te")]
    with monkeypatch.context() as patch:
        patch.setenv(compiling.OFF, "1")
        for module in modules:
            importlib.reload(module)
        plain = search.best_path
        after = [place_te(*problem, engine, fallback=no_paths(flows)) for engine in TeEngine]
    for module in modules:
        importlib.reload(module)
    assert isinstance(plain, FunctionType)
    for now, theirs in zip(after, before, strict=True):
        assert now.start.tolist() == theirs.start.tolist()
        assert now.sends.tolist() == theirs.sends.tolist()
