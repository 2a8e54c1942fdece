"""Cyclic buffer dependencies: none in fabrics that go up and then down, and rings are found."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from rocelab.plan import dependencies
from rocelab.plan.build import plan
from rocelab.plan.dependencies import (
    MOST_TRUNKS_OF_PAIRS,
    find_cycle,
    is_up_down,
    scope,
    searched_failures,
)
from rocelab.plan.fabric import Fabric, Link, Node, Observed, Port, Prefix, Role
from rocelab.plan.routes import expected_routes
from rocelab.spec.fabrics import ClosSpec
from rocelab.spec.model import LabSpec, RoutingSpec
from tests.helpers.labs import planned

ALL_LABS = sorted((Path(__file__).parents[3] / "labs").glob("*.yaml"))
LABS = [file for file in ALL_LABS if not file.stem.startswith("deadlock")]
SMALL = ("tiny", "two-leaves", "zones-small", "hpn-small", "rail-small", "fat-tree-4")


def port(node: str, role: Role, far: str) -> Port:
    return Port(node, role, far, 1, None, "02:00:00:00:00:01")


def ring(*pairs: str) -> Fabric:
    """Switches named by a letter, joined by pairs of letters, each with a server and an ASN of its
    own; all of them announce what they learn, as leaves of a Clos do not."""
    names = sorted({letter for pair in pairs for letter in pair})
    switches = tuple(
        Node(name, Role.SPINE, None, 65000 + number, None, 0) for number, name in enumerate(names)
    )
    servers = tuple(Node(f"srv-{name}", Role.SERVER, None, None, None, 0) for name in names)
    links = [
        Link(port(f"srv-{name}", Role.SERVER, name), port(name, Role.SPINE, "srv"), 10**9, 9000)
        for name in names
    ]
    links += [
        Link(port(one, Role.SPINE, other), port(other, Role.SPINE, one), 10**9, 9000)
        for one, other in pairs
    ]
    prefixes = tuple(Prefix(f"198.18.{n}.0/24", (name,)) for n, name in enumerate(names))
    spec = LabSpec(name="ring", fabric=ClosSpec(), routing=RoutingSpec(valley_free=False))
    return Fabric(spec, switches + servers, tuple(links), prefixes, numbered=False)


def searched(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What the search finds, without the proof by policy."""
    monkeypatch.setattr(dependencies, "is_up_down", lambda _: False)
    found = find_cycle(fabric)
    return None if found is None else str(found)


@pytest.mark.long
@pytest.mark.parametrize("file", LABS, ids=lambda file: file.stem)
def test_every_lab_that_ships_but_the_deadlocks_goes_up_and_then_down(file: Path) -> None:
    fabric = planned(file.stem)
    assert is_up_down(fabric)
    assert find_cycle(fabric) is None


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_the_search_agrees_with_the_proof(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert searched(planned(name), monkeypatch) is None


def test_a_ring_of_four_depends_on_itself() -> None:
    fabric = ring("ab", "bc", "cd", "da")
    assert not is_up_down(fabric)
    found = find_cycle(fabric)
    assert found is not None
    assert found.without == ()
    assert len(found.links) == 4
    # In the order of packets: each link begins where the one before ends, the last joins the first.
    round_trip = (*found.links, found.links[0])
    assert all(one.receiver == other.sender for one, other in pairwise(round_trip))
    assert str(found) in ("a -> b -> c -> d -> a", *turns("abcd"), *turns("dcba"))


def turns(names: str) -> list[str]:
    """The ring's names from each of them on."""
    around = [names[place:] + names[: place + 1] for place in range(len(names))]
    return [" -> ".join(way) for way in around]


def test_a_ring_of_three_has_no_path_of_two_links() -> None:
    assert find_cycle(ring("ab", "bc", "ca")) is None


def test_a_cycle_after_one_failure_is_named_with_the_link() -> None:
    """Four switches of which a and c are not joined: b and d reach each other directly, until their
    link fails and the ring is left."""
    fabric = ring("ab", "bc", "cd", "da", "bd")
    assert find_cycle(replace(fabric, links=fabric.links[:-1])) is not None
    found = find_cycle(fabric)
    assert found is not None
    assert found.without == (fabric.links[-1],)
    assert str(found).endswith(", while b:d is down")


def test_switches_above_one_with_asns_of_their_own_are_searched() -> None:
    """Without the shared ASN a route may come down to a switch and go up again."""
    fabric = planned("zones-small")
    tops = [node for node in fabric.nodes if node.role is Role.ATSW]
    nodes = tuple(replace(node, asn=1) if node is tops[0] else node for node in fabric.nodes)
    assert not is_up_down(replace(fabric, nodes=nodes))


def test_only_what_servers_send_can_be_paused() -> None:
    fabric = ring("ab", "bc", "cd", "da")
    without = tuple(link for link in fabric.links if link.is_between_switches)
    assert find_cycle(replace(fabric, links=without)) is None


def test_an_adopted_lab_has_the_routes_that_it_had() -> None:
    """Those of a ring, and those in which each switch reaches the others directly."""
    fabric = ring("ab", "bc", "cd", "da", "ac", "bd")
    found = find_cycle(fabric)
    assert found is not None
    assert len(found.without) == 2
    around = expected_routes(ring("ab", "bc", "cd", "da"))
    seen = replace(fabric, prefixes=(), observed=Observed(around, frozenset(), {}))
    found = find_cycle(seen)
    assert found is not None
    assert found.without == ()
    seen = replace(seen, observed=Observed(expected_routes(fabric), frozenset(), {}))
    assert find_cycle(seen) is None


@pytest.mark.parametrize("name", ["deadlock", "deadlock-watchdog"])
def test_racks_that_share_no_spine_go_through_a_third_and_close_a_ring(name: str) -> None:
    fabric = planned(name)
    assert not is_up_down(fabric)
    found = find_cycle(fabric)
    assert found is not None
    assert [link.name for link in found.without] == ["rtsw1:ctsw1", "rtsw2:ctsw2"]
    assert {link.sender for link in found.links} == {"rtsw3", "rtsw4", "ctsw1", "ctsw2"}
    assert str(found).endswith(", while rtsw1:ctsw1 and rtsw2:ctsw2 are down")
    # Whole, or with one cable broken, its shortest paths go up and then down.
    for failed in ((), *((link,) for link in fabric.trunks)):
        left = replace(fabric, links=tuple(link for link in fabric.links if link not in failed))
        assert not dependencies._cycle(left, expected_routes(left))


def test_the_same_fabric_with_a_valley_free_policy_has_no_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = planned("deadlock").spec.model_copy(update={"routing": RoutingSpec()})
    assert is_up_down(plan(free))
    assert searched(plan(free), monkeypatch) is None


@pytest.mark.long
def test_the_cycle_of_a_fabric_is_the_same_in_every_process() -> None:
    code = (
        "from rocelab.plan.build import plan; from rocelab.plan.dependencies import find_cycle; "
        "from rocelab.spec.catalog import find_lab; from rocelab.spec.load import load_spec; "
        "print(find_cycle(plan(load_spec(find_lab('deadlock')))))"
    )
    found = {
        subprocess.run(
            (sys.executable, "-c", code),
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(found) == 1


def test_pairs_of_failures_are_searched_in_small_fabrics_only() -> None:
    few = ring("ab", "bc", "cd", "da")
    assert max(map(len, searched_failures(few))) == 2
    assert scope(few).endswith("of any two links")
    trunks = few.trunks * (MOST_TRUNKS_OF_PAIRS // 4 + 1)
    many = replace(few, links=(*few.links, *trunks))
    assert len(searched_failures(many)) == len(many.trunks) + 1
    assert scope(many).endswith("of any one link")
    adopted = replace(few, observed=Observed({}, frozenset(), {}))
    assert (searched_failures(adopted), scope(adopted)) == (((),), "")


def test_in_large_fabrics_some_links_fail_and_in_the_largest_nothing_is_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four prefixes and four links: 16 steps for each state of the links, of which there are 11."""
    few = ring("ab", "bc", "cd", "da")
    for most, failed, said in (
        (11 * 16, 2, ", also after the failure of any two links"),
        (3 * 16, 1, ", also after the failure of 2 of its 4 links alone"),
        (16, 0, ", as long as no link fails"),
    ):
        monkeypatch.setattr(dependencies, "MOST_STEPS", most)
        found = searched_failures(few)
        assert len(found) == most // 16
        assert (found[0], max(map(len, found))) == ((), failed)
        assert scope(few) == said
    monkeypatch.setattr(dependencies, "MOST_STEPS", 3 * 16)
    assert {link for each in searched_failures(few) for link in each} == set(few.trunks[::2])
    monkeypatch.setattr(dependencies, "MOST_STEPS", 15)
    assert searched_failures(few) == ()
    assert find_cycle(few) is None


def test_32k_gpus_whose_routes_are_not_up_down_are_answered_at_once() -> None:
    spec = planned("meta-32k").spec
    routing = spec.routing.model_copy(update={"valley_free": False})
    fabric = plan(spec.model_copy(update={"routing": routing}))
    assert not is_up_down(fabric)
    assert searched_failures(fabric) == ()
