"""Cyclic buffer dependencies: none in fabrics that go up and then down, and rings are found."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from math import comb
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.progress import Progress
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.fabrics.kinds.fat_tree import FatTreeSpec
from rocelab.fabrics.kinds.hpn import HpnSpec
from rocelab.fabrics.kinds.rail import RailSpec
from rocelab.fabrics.roles import Role
from rocelab.labfile.model import LabSpec, RoutingSpec
from rocelab.planning import dependencies
from rocelab.planning.build import plan
from rocelab.planning.dependencies import LEAST_DESTINATIONS, Search, is_up_down, search
from rocelab.planning.fabric import Fabric, Observed, Prefix
from rocelab.planning.routes import expected_routes
from tests.helpers.labs import planned
from tests.helpers.long import mostly_long
from tests.helpers.networks import networks, ring
from tests.helpers.plain_dependencies import depends_on_itself, failures

ALL_LABS = sorted((Path(__file__).parents[3] / "labs").glob("*.yaml"))
LABS = [file for file in ALL_LABS if not file.stem.startswith(("deadlock", "ospf"))]
"""Those whose routes go up and then down by the kit's policy."""
SMALL = ("tiny", "two-leaves", "zones-small", "hpn-small", "rail-small", "fat-tree-4")


few = st.integers(1, 3)
two = st.integers(1, 2)
kinds = st.one_of(
    st.builds(
        ClosSpec,
        zones=two,
        racks=few,
        spines=two,
        links_per_pair=two,
        atsws=two,
        links_per_atsw=two,
    ),
    st.builds(RailSpec, kind=st.just("rail"), units=two, rails=two, spines=few, links_per_pair=two),
    st.builds(
        HpnSpec,
        kind=st.just("hpn"),
        segments=two,
        rails=two,
        ports_per_nic=st.just(2),
        planes=two,
        aggs=two,
        cores=two,
    ),
    st.builds(FatTreeSpec, kind=st.just("fat-tree"), k=st.sampled_from([2, 4])),
)


@st.composite
def planned_with_broken_links(draw: st.DrawFn) -> Fabric:
    """Of any kind; some links have failed before, of servers too."""
    routing = RoutingSpec(valley_free=False)
    fabric = plan(LabSpec(name="t", fabric=draw(kinds), routing=routing))
    broken = draw(st.sets(st.sampled_from(fabric.links), max_size=4))
    return replace(fabric, links=tuple(link for link in fabric.links if link not in broken))


@given(planned_with_broken_links() | networks(), st.randoms(use_true_random=False))
def test_the_search_agrees_with_a_plain_one(fabric: Fabric, random: Random) -> None:
    states = list(failures(fabric))
    match = search(fabric)
    assert match.states == len(states)
    most = 2
    if match.cycle is not None:
        assert depends_on_itself(fabric, match.cycle.without)
        most = len(match.cycle.without) - 1
    fewer = [failed for failed in states if len(failed) <= most]
    for failed in random.sample(fewer, min(len(fewer), 20)):
        assert not depends_on_itself(fabric, failed)


@pytest.mark.long
@pytest.mark.parametrize("file", LABS, ids=lambda file: file.stem)
def test_every_lab_that_ships_but_the_deadlocks_goes_up_and_then_down(file: Path) -> None:
    fabric = planned(file.stem)
    assert is_up_down(fabric) is fabric.is_tiered


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_the_plain_search_agrees_with_the_proof(name: str) -> None:
    fabric = planned(name)
    assert not any(depends_on_itself(fabric, failed) for failed in failures(fabric))
    assert search(fabric).cycle is None


def test_a_ring_of_four_depends_on_itself() -> None:
    fabric = ring("ab", "bc", "cd", "da")
    assert not is_up_down(fabric)
    cycle = search(fabric).cycle
    assert cycle is not None
    assert cycle.without == ()
    assert len(cycle.links) == 4
    # In the order of packets: each link begins where the one before ends, the last joins the first.
    round_trip = (*cycle.links, cycle.links[0])
    assert all(one.receiver == other.sender for one, other in pairwise(round_trip))
    assert str(cycle) in ("a -> b -> c -> d -> a", *turns("abcd"), *turns("dcba"))


def turns(names: str) -> list[str]:
    """The ring's names from each of them on."""
    around = [names[place:] + names[: place + 1] for place in range(len(names))]
    return [" -> ".join(way) for way in around]


def test_a_ring_of_three_has_no_path_of_two_links() -> None:
    assert search(ring("ab", "bc", "ca")).cycle is None


def test_a_cycle_after_one_failure_is_named_with_the_link() -> None:
    """Four switches of which a and c are not joined: b and d reach each other directly, until their
    link fails and the ring is left."""
    fabric = ring("ab", "bc", "cd", "da", "bd")
    assert search(replace(fabric, links=fabric.links[:-1])).cycle is not None
    cycle = search(fabric).cycle
    assert cycle is not None
    assert cycle.without == (fabric.links[-1],)
    assert str(cycle).endswith(", while b:d is down")


def test_switches_above_one_with_asns_of_their_own_are_searched() -> None:
    """Without the shared ASN a route may come down to a switch and go up again."""
    fabric = planned("zones-small")
    tops = [node for node in fabric.nodes if node.role is Role.ATSW]
    nodes = tuple(replace(node, asn=1) if node is tops[0] else node for node in fabric.nodes)
    assert not is_up_down(replace(fabric, nodes=nodes))


def test_only_what_servers_send_can_be_paused() -> None:
    fabric = ring("ab", "bc", "cd", "da")
    without = tuple(link for link in fabric.links if link.is_between_switches)
    assert search(replace(fabric, links=without)).cycle is None


def test_a_switch_without_servers_sends_nothing() -> None:
    """A ring but for what a would send to c; f, which announces the same as a, is far away."""
    fabric = ring("ab", "bc", "cd", "da", "be", "ef")
    shared = replace(fabric, prefixes=(*fabric.prefixes, Prefix("198.19.0.0/24", ("a", "f"))))
    assert search(shared).cycle is not None
    links = tuple(link for link in fabric.links if link.a.node != "srv-a")
    assert search(replace(shared, links=links)).cycle is None


def test_an_adopted_lab_has_the_routes_that_it_had() -> None:
    """Those of a ring, and those in which each switch reaches the others directly."""
    fabric = ring("ab", "bc", "cd", "da", "ac", "bd")
    cycle = search(fabric).cycle
    assert cycle is not None
    assert len(cycle.without) == 2
    around = expected_routes(ring("ab", "bc", "cd", "da"))
    seen = replace(fabric, prefixes=(), observed=Observed(around, frozenset(), {}))
    cycle = search(seen).cycle
    assert cycle is not None
    assert cycle.without == ()
    seen = replace(seen, observed=Observed(expected_routes(fabric), frozenset(), {}))
    assert search(seen).cycle is None


@pytest.mark.parametrize("name", ["deadlock", "deadlock-watchdog"])
def test_racks_that_share_no_spine_go_through_a_third_and_close_a_ring(name: str) -> None:
    fabric = planned(name)
    assert not is_up_down(fabric)
    cycle = search(fabric).cycle
    assert cycle is not None
    assert [link.name for link in cycle.without] == ["rtsw1:ctsw1", "rtsw2:ctsw2"]
    assert {link.sender for link in cycle.links} == {"rtsw3", "rtsw4", "ctsw1", "ctsw2"}
    assert str(cycle).endswith(", while rtsw1:ctsw1 and rtsw2:ctsw2 are down")
    # Whole, or with one cable broken, its shortest paths go up and then down.
    assert not any(
        depends_on_itself(fabric, failed) for failed in failures(fabric) if len(failed) < 2
    )


def test_the_same_fabric_with_a_valley_free_policy_has_no_cycle() -> None:
    free = plan(planned("deadlock").spec.model_copy(update={"routing": RoutingSpec()}))
    assert is_up_down(free)
    assert not any(depends_on_itself(free, failed) for failed in failures(free))


@pytest.mark.long
def test_the_cycle_of_a_fabric_is_the_same_in_every_process() -> None:
    code = (
        "from rocelab.planning.build import plan; "
        "from rocelab.planning.dependencies import search; "
        "from rocelab.labfile.catalog import find_lab; from rocelab.labfile.load import load_spec; "
        "print(search(plan(load_spec(find_lab('deadlock')))).cycle)"
    )
    texts = {
        subprocess.run(
            (sys.executable, "-c", code),
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(texts) == 1


def with_valleys(spec: LabSpec) -> Fabric:
    routing = spec.routing.model_copy(update={"valley_free": False})
    return plan(spec.model_copy(update={"routing": routing}))


@pytest.mark.parametrize(
    "name", mostly_long(("meta-32k", "hpn-pod", "zone-252x18"), ("zone-252x18",))
)
def test_large_fabrics_that_are_not_up_down_are_searched_with_every_failure(name: str) -> None:
    fabric = with_valleys(planned(name).spec)
    assert not is_up_down(fabric)
    count = len(fabric.trunks)
    assert search(fabric) == Search(None, 1 + count + comb(count, 2), count, pairs=True)


@pytest.mark.parametrize(
    ("most", "states", "alone", "pairs"),
    [
        (0, 0, 0, False),
        (1, 1, 0, False),
        (2, 3, 2, False),
        (3, 4, 3, False),
        (4, 5, 4, False),
        (100, 11, 4, True),
    ],
)
def test_what_takes_too_long_is_not_called_searched(
    most: int, states: int, alone: int, pairs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this tree's links, ab and ac are alike. `most` is of states of its links."""
    tree = ring("ab", "ac", "ad", "de")
    monkeypatch.setattr(dependencies, "MOST_STEPS", most * 4 * LEAST_DESTINATIONS)
    assert search(tree) == Search(None, states, alone, pairs)


def test_pairs_count_only_if_all_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    star = ring("ab", "ac", "ad")
    for most, states in ((2, 1 + 3), (3, 1 + 3 + 3)):
        monkeypatch.setattr(dependencies, "MOST_STEPS", most * 3 * LEAST_DESTINATIONS)
        assert search(star).states == states


def test_of_an_adopted_lab_only_the_present_routes_are_known() -> None:
    fabric = replace(ring("ab", "bc", "cd", "da"), observed=Observed({}, frozenset(), {}))
    match = search(fabric)
    assert match == Search(None, 1, 0, pairs=False)


def test_a_search_tells_how_many_states_it_has_followed() -> None:
    progress: list[Progress] = []
    search(ring("ab", "bc", "ca"), progress.append)
    _, *followed = progress
    assert [step.done for step in followed] == list(range(followed[0].total))
    assert len(followed) > 1
