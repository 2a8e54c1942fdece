"""Placing flows: the choices in fabrics' planned tables, and the quality of each engine's
choice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocelab.base import compiling
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.linux.fibtable import Fib, NextHop, Route
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import DirectedLink, Fabric
from rocelab.routes.demand import Demand, FlowKey
from rocelab.routes.entries import difference, program, wanted_entries
from rocelab.routes.multipath import select
from rocelab.routes.network import FibNetwork, FlowPlacement, Path
from rocelab.routes.placing import lower_bound, place_cspf, place_lp
from rocelab.routes.planned import planned_fibs
from rocelab.routes.steering import EntryKey, steering_hash
from tests.helpers.long import mostly_long

GBPS = 10**9

LABS = ("zone-1-1", "zones-small", "hpn-small", "fat-tree-4")


@cache
def fabric_of(lab: str) -> Fabric:
    return build_fabric(load_spec(find_lab(lab)))


@cache
def clos(racks: int, spines: int, servers: int, nics: int) -> Fabric:
    shape = ClosSpec(racks=racks, spines=spines, servers_per_rack=servers, nics_per_server=nics)
    return build_fabric(LabSpec(name="t", fabric=shape))


@cache
def tables(fabric_name: str) -> dict[str, Fib]:
    return tables_of(fabric_of(fabric_name))


def tables_of(fabric: Fabric) -> dict[str, Fib]:
    fib_of = planned_fibs(fabric, fabric.prefixes)
    return {node.name: fib_of(node.name) for node in fabric.switches}


def line_rate(fabric: Fabric) -> float:
    return fabric.links_of[fabric.servers[0].name][0].rate_bps


def demand(
    fabric: Fabric, source: tuple[str, int], destination: tuple[str, int], sport: int, rate: float
) -> Demand:
    nic = fabric.nics(source[0])[source[1]]
    far = fabric.nics(destination[0])[destination[1]]
    return Demand(FlowKey(nic.ip, far.ip, sport), rate, tuple(link.b.node for link in nic.links))


def random_demands(fabric: Fabric, count: int, seed: int) -> tuple[Demand, ...]:
    generator = random.Random(seed)
    nics = [(node.name, n) for node in fabric.servers for n in range(len(fabric.nics(node.name)))]
    made = []
    for sport in range(count):
        source = generator.choice(nics)
        destination = generator.choice([nic for nic in nics if nic[0] != source[0]])
        rate = generator.choice((10, 25, 50, 100, 133, 400)) * GBPS
        made.append(demand(fabric, source, destination, 50_000 + sport, rate))
    return tuple(made)


def permutation_demands(fabric: Fabric, seed: int) -> tuple[Demand, ...]:
    """Every NIC sends to one NIC at line rate, and every NIC receives from one."""
    nics = [(node.name, n) for node in fabric.servers for n in range(len(fabric.nics(node.name)))]
    shuffled = random.Random(seed).sample(nics, len(nics))
    return tuple(
        demand(fabric, a, b, 50_000 + index, line_rate(fabric))
        for index, (a, b) in enumerate(zip(nics, shuffled, strict=True))
        if a[0] != b[0]
    )


def check_paths(
    fabric: Fabric, fibs: dict[str, Fib], demands: Sequence[Demand], placed: FlowPlacement
) -> None:
    """Check that every flow arrives over next hops that each kernel offers, and that loads are the
    flows' sums."""
    server_of = {nic.ip: node.name for node in fabric.servers for nic in fabric.nics(node.name)}
    load: dict[DirectedLink, float] = {}
    for demand in demands:
        at = demand.ingresses[0]
        for step in placed.paths[demand.key]:
            route = fibs[at].lookup(demand.key.destination_ip)
            assert route is not None
            assert step.switch == at
            assert step.weights == tuple(hop.weight for hop in route.next_hops)
            hop = route.next_hops[step.index]
            assert (step.link.sender, step.link.port.interface) == (at, hop.interface)
            used = demand.rate_bps / step.link.link.rate_bps
            load[step.link] = load.get(step.link, 0) + used
            at = step.link.receiver
        assert at == server_of[demand.key.destination_ip]
    for link, used in placed.utilisation.items():
        assert used == pytest.approx(load[link])


@pytest.mark.parametrize("lab", mostly_long(LABS, LABS[1:]))
@settings(max_examples=4)
@given(count=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_both_engines_use_only_what_the_tables_offer_and_none_beats_the_bound(
    lab: str, count: int, seed: int
) -> None:
    fabric, fibs = fabric_of(lab), tables(lab)
    demands = random_demands(fabric, count, seed)
    network = FibNetwork(fabric, fibs)
    cspf, (rounded, bound) = place_cspf(network, demands), place_lp(network, demands)
    for placed in (cspf, rounded):
        assert not placed.lost
        check_paths(fabric, fibs, demands, placed)
        assert placed.max_utilisation >= bound - 1e-6
    assert bound == pytest.approx(lower_bound(network, demands))


@given(
    shape=st.sampled_from([(2, 4, 2, 2), (4, 4, 4, 1), (4, 4, 2, 2), (6, 3, 3, 1), (3, 8, 1, 8)]),
    seed=st.integers(0, 10**6),
)
def test_a_permutation_on_a_non_blocking_fabric_is_placed_without_conflict(
    shape: tuple[int, int, int, int], seed: int
) -> None:
    fabric = clos(*shape)
    network = FibNetwork(fabric, tables_of(fabric))
    demands = permutation_demands(fabric, seed)
    placed, bound = place_lp(network, demands)
    assert bound <= 1 + 1e-6
    assert placed.max_utilisation <= 1 + 1e-6
    assert not placed.overloaded


@given(seed=st.integers(0, 10**6))
def test_cspf_places_the_same_whatever_the_order_of_the_demands(seed: int) -> None:
    fabric, fibs = fabric_of("zones-small"), tables("zones-small")
    demands = random_demands(fabric, 20, seed)
    shuffled = random.Random(seed).sample(demands, len(demands))
    first = place_cspf(FibNetwork(fabric, fibs), demands)
    assert place_cspf(FibNetwork(fabric, fibs), shuffled).paths == first.paths


def test_cspf_spreads_equal_flows_of_one_pair_evenly_over_all_uplinks() -> None:
    fabric = clos(2, 4, 1, 1)
    network = FibNetwork(fabric, tables_of(fabric))
    flows = [demand(fabric, ("srv1-1", 0), ("srv2-1", 0), 50_000 + n, 10 * GBPS) for n in range(8)]
    placed = place_cspf(network, flows)
    uplinks = {link: used for link, used in placed.utilisation.items() if link.sender == "rtsw1"}
    assert len(uplinks) == 4
    assert set(uplinks.values()) == {20 * GBPS / fabric.sessions[0].rate_bps}


def test_the_largest_flow_is_placed_first_and_small_ones_go_around_it() -> None:
    fabric = clos(2, 2, 2, 1)
    network = FibNetwork(fabric, tables_of(fabric))
    big = demand(fabric, ("srv1-1", 0), ("srv2-1", 0), 50_000, 300 * GBPS)
    small = [demand(fabric, ("srv1-2", 0), ("srv2-2", 0), 50_001 + n, 100 * GBPS) for n in range(3)]
    placed = place_cspf(network, [*small, big])
    link = placed.paths[big.key][0].link
    assert all(placed.paths[demand.key][0].link != link for demand in small)
    assert placed.max_utilisation == pytest.approx(300 / 400)


def test_what_does_not_fit_is_placed_where_it_overloads_least_and_told() -> None:
    fabric = clos(2, 2, 3, 1)
    network = FibNetwork(fabric, tables_of(fabric))
    flows = [
        demand(fabric, (f"srv1-{n}", 0), (f"srv2-{n}", 0), 50_000, 400 * GBPS) for n in (1, 2, 3)
    ]
    placed = place_cspf(network, flows)
    assert placed.max_utilisation == pytest.approx(2.0)
    # Two of the three flows share a path: its uplink and its downlink carry twice what they can.
    assert len(placed.overloaded) == 2
    up, down = sorted(placed.overloaded, key=lambda link: link.direction, reverse=True)
    assert (up.sender, up.receiver) == ("rtsw1", down.sender)
    assert down.sender in ("ctsw1", "ctsw2")
    assert lower_bound(network, flows) == pytest.approx(1.5)


def without(fibs: dict[str, Fib], switch: str, interface: str) -> dict[str, Fib]:
    """The tables once a switch's kernel has given up one of its next hops."""
    routes = (
        Route(route.prefix, tuple(hop for hop in route.next_hops if hop.interface != interface))
        for route in fibs[switch].routes
    )
    return {**fibs, switch: Fib(tuple(route for route in routes if route.next_hops))}


def test_no_path_is_taken_that_ends_at_a_switch_without_a_route() -> None:
    """A spine that has lost its link to the rack has no route there: no flow may come to it."""
    fabric = clos(2, 2, 1, 1)
    fibs = without(tables_of(fabric), "ctsw1", "rtsw2")
    flows = [demand(fabric, ("srv1-1", 0), ("srv2-1", 0), 50_000 + n, GBPS) for n in range(4)]
    for placed in (
        place_cspf(FibNetwork(fabric, fibs), flows),
        place_lp(FibNetwork(fabric, fibs), flows)[0],
    ):
        assert {path[0].link.receiver for path in placed.paths.values()} == {"ctsw2"}
        assert {len(path[0].weights) for path in placed.paths.values()} == {2}


def test_a_flow_that_nothing_leads_to_is_lost_and_others_are_placed() -> None:
    fabric = clos(2, 1, 2, 1)
    fibs = without(tables_of(fabric), "ctsw1", "rtsw2")
    gone = demand(fabric, ("srv1-1", 0), ("srv2-1", 0), 50_000, GBPS)
    local = demand(fabric, ("srv1-1", 0), ("srv1-2", 0), 50_000, GBPS)
    placed = place_cspf(FibNetwork(fabric, fibs), [gone, local])
    assert placed.lost == (gone.key,)
    assert set(placed.paths) == {local.key}


def test_a_path_through_a_rack_that_leaks_routes_is_placed_whole() -> None:
    fabric = clos(3, 2, 1, 1)
    fibs = without(without(tables_of(fabric), "rtsw1", "ctsw2"), "rtsw3", "ctsw1")
    flow = demand(fabric, ("srv1-1", 0), ("srv2-1", 0), 50_000, GBPS)
    leaked = tuple(
        Route(route.prefix, (NextHop("rtsw3", hop.gateway),)) if hop.interface == "rtsw2" else route
        for route in fibs["ctsw1"].routes
        for hop in route.next_hops
    )
    network = FibNetwork(fabric, {**fibs, "ctsw1": Fib(leaked)})
    path = place_cspf(network, [flow]).paths[flow.key]
    assert [step.switch for step in path] == ["rtsw1", "ctsw1", "rtsw3", "ctsw2", "rtsw2"]


def test_a_next_hop_without_carrier_is_not_taken_but_keeps_its_place_in_the_group() -> None:
    fabric = clos(2, 2, 1, 1)
    fibs = tables_of(fabric)
    routes = tuple(
        Route(
            route.prefix,
            tuple(
                NextHop(hop.interface, hop.gateway, carrier=hop.interface != "ctsw1")
                for hop in route.next_hops
            ),
        )
        for route in fibs["rtsw1"].routes
    )
    flow = demand(fabric, ("srv1-1", 0), ("srv2-1", 0), 50_000, GBPS)
    placed = place_cspf(FibNetwork(fabric, {**fibs, "rtsw1": Fib(routes)}), [flow])
    step = placed.paths[flow.key][0]
    assert (step.link.receiver, step.index, len(step.weights)) == ("ctsw2", 1, 2)


def every_path(network: FibNetwork, at: str, destination: str) -> Iterator[Path]:
    """All paths that the tables offer, in the kernels' order."""
    for step in network.steps(at, destination):
        if not step.link.is_between_switches:
            yield (step,)
        else:
            yield from (
                (step, *rest) for rest in every_path(network, step.link.receiver, destination)
            )


@pytest.mark.parametrize("lab", LABS)
@settings(max_examples=5)
@given(count=st.integers(1, 25), seed=st.integers(0, 10**6))
def test_cspf_gives_each_flow_in_turn_the_path_with_most_room(
    lab: str, count: int, seed: int
) -> None:
    fabric, fibs = fabric_of(lab), tables(lab)
    network = FibNetwork(fabric, fibs)
    demands = random_demands(fabric, count, seed)
    placed = place_cspf(network, demands)
    load_bps: dict[DirectedLink, float] = {}

    def used(path: Path, rate_bps: float) -> list[float]:
        links = [step.link for step in path if step.link.is_between_switches]
        after = [(load_bps.get(link, 0) + rate_bps) / link.link.rate_bps for link in links]
        return sorted(after, reverse=True)

    for demand in sorted(demands, key=lambda flow_demand: (-flow_demand.rate_bps, flow_demand.key)):
        paths = list(every_path(network, network.ingress(demand), demand.key.destination_ip))
        best = min(used(path, demand.rate_bps) for path in paths)
        chosen = placed.paths[demand.key]
        assert chosen in paths
        assert used(chosen, demand.rate_bps) == best
        for step in chosen:
            load_bps[step.link] = load_bps.get(step.link, 0) + demand.rate_bps


def test_a_controller_loads_neither_a_compiler_nor_a_solver_that_it_does_not_use() -> None:
    code = "import sys, rocelab.routes.placing; print({'numba', 'scipy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, compiling.OFF: "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "set()\n"


@given(weights=st.lists(st.integers(1, 256), min_size=1, max_size=64), data=st.data())
def test_the_hash_of_an_entry_makes_the_kernels_rule_take_that_next_hop(
    weights: list[int], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(weights) - 1))
    value = steering_hash(index, tuple(weights))
    assert 0 < value < 2**32
    assert select(value >> 1, weights) == index


class FakeTable:
    """A table that records the order of its writes."""

    def __init__(self, entries: dict[EntryKey, int]) -> None:
        self.entries = dict(entries)
        self.calls: list[str] = []

    def read_entries(self) -> dict[EntryKey, int]:
        return dict(self.entries)

    def write_entries(self, entries: Mapping[EntryKey, int]) -> None:
        self.calls.append("write")
        self.entries.update(entries)

    def remove_entries(self, keys: Iterable[EntryKey]) -> None:
        self.calls.append("remove")
        for key in keys:
            del self.entries[key]


def key(sport: int) -> EntryKey:
    return EntryKey("rtsw1", "198.18.0.1", "198.18.0.9", sport)


def test_programming_writes_what_differs_before_it_removes_what_is_gone() -> None:
    table = FakeTable({key(1): 1, key(2): 2, key(3): 3})
    diff = program(table, {key(2): 2, key(3): 7, key(4): 4})
    assert table.entries == {key(2): 2, key(3): 7, key(4): 4}
    assert diff.changed == {key(3): 7, key(4): 4}
    assert diff.removed == (key(1),)
    assert table.calls == ["write", "remove"]


def test_programming_what_is_there_already_touches_nothing() -> None:
    table = FakeTable({key(1): 1})
    assert program(table, {key(1): 1}).size == 0
    assert table.calls == []


def test_entries_are_made_only_where_the_kernel_has_a_choice() -> None:
    fabric = clos(2, 2, 1, 1)
    flow = demand(fabric, ("srv1-1", 0), ("srv2-1", 0), 50_000, GBPS)
    placed = place_cspf(FibNetwork(fabric, tables_of(fabric)), [flow])
    assert len(placed.paths[flow.key]) == 3
    assert [entry.node for entry in wanted_entries(placed)] == ["rtsw1"]


@given(
    present=st.dictionaries(st.integers(1, 9), st.integers(0, 3)),
    wanted=st.dictionaries(st.integers(1, 9), st.integers(0, 3)),
)
def test_the_difference_applied_to_any_table_gives_the_wanted_one(
    present: dict[int, int], wanted: dict[int, int]
) -> None:
    before = {key(sport): value for sport, value in present.items()}
    after = {key(sport): value for sport, value in wanted.items()}
    diff = difference(before, after)
    changed = {key: value for key, value in before.items() if key not in diff.removed}
    assert {**changed, **diff.changed} == after
