"""`hashing.weights: paths`: the weights of FRR and the kernels from BGP link bandwidth."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction

import pytest

from rocelab.jobs.placement import find_nic
from rocelab.lab.lab import RunningLab
from rocelab.linux.fib import read_fib
from rocelab.linux.fibwatch import FibWatch
from rocelab.routes.path import walk
from rocelab.routes.planned import planned_fibs
from rocelab.traffic.traceroute import probe_path
from tests.helpers.waiting import wait_for_tables
from tests.integration.conftest import MakeLab

pytestmark = [pytest.mark.side_by_side, pytest.mark.long]


ZONES = """
fabric: {kind: clos, zones: 2, racks: 2, spines: 4, atsws: 2, links_per_pair: 2}
hashing: {weights: paths}
"""

WHOLE_NUMBERS = Fraction(1, 200)
"""The tolerance of rounded weights."""


@pytest.fixture
def lab(make_lab: MakeLab) -> RunningLab:
    lab = make_lab("it-weights", ZONES)
    lab.start()
    return lab


@contextmanager
def watching(lab: RunningLab) -> Iterator[FibWatch]:
    with ExitStack() as stack:
        opened = {}
        for node in lab.fabric.switches:
            opened[node.name] = os.open(lab.node(node.name).netns, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, opened[node.name])
        yield stack.enter_context(FibWatch(opened))


def shares(lab: RunningLab, node: str, destination: str) -> dict[str, Fraction]:
    """The part of the hash space of each interface in a node's route to a server."""
    route = read_fib(lab.node(node).netns).lookup(find_nic(lab.fabric, destination).ip)
    assert route is not None
    total = sum(hop.weight for hop in route.next_hops)
    return {hop.interface: Fraction(hop.weight, total) for hop in route.next_hops}


def is_equal(lab: RunningLab, node: str, destination: str, width: int) -> bool:
    return list(shares(lab, node, destination).values()) == [Fraction(1, width)] * width


def test_a_healthy_fabric_has_equal_weights_and_is_planned_as_it_is(lab: RunningLab) -> None:
    widths = {"z2-rtsw1": 8, "z2-ctsw1": 2, "atsw1": 4, "z1-rtsw2": 8}
    with watching(lab) as watch:
        wait_for_tables(
            watch,
            lambda: all(is_equal(lab, name, "z1-srv1-1", n) for name, n in widths.items()),
        )
    planned = planned_fibs(lab.fabric, lab.fabric.prefixes)
    fib_of = lab.read_fibs()
    for node in lab.fabric.switches:
        for route in planned(node.name).routes:
            running = fib_of(node.name).lookup(route.prefix.partition("/")[0])
            assert running is not None
            assert {hop.interface for hop in running.next_hops} == {
                hop.interface for hop in route.next_hops
            }
            assert len({hop.weight for hop in running.next_hops}) == 1


def test_after_a_failure_switches_above_weigh_by_the_paths_left_and_then_equally_again(
    lab: RunningLab,
) -> None:
    source, destination = find_nic(lab.fabric, "z1-srv2-1"), find_nic(lab.fabric, "z1-srv1-1")
    link = lab.link("z1-rtsw1:z1-ctsw1")
    with watching(lab) as watch:
        link.down()
        expected = {f"z1-ctsw{i}": Fraction(1 if i == 1 else 2, 7) for i in range(1, 5)}
        wait_for_tables(watch, lambda: shares(lab, "atsw1", "z1-srv1-1") == expected)
        below = {
            f"{name}{parallel}": share / 2
            for name, share in expected.items()
            for parallel in ("", "-2")
        }
        wait_for_tables(watch, lambda: shares(lab, "z1-rtsw2", "z1-srv1-1") == below)

        ports = range(50_000, 50_200)
        seen = probe_path(lab.fabric, lambda name: lab.node(name).netns, source, destination, ports)
        fibs = {node.name: read_fib(lab.node(node.name).netns) for node in lab.fabric.switches}
        assert seen == {
            port: walk(lab.fabric, fibs.__getitem__, source, destination, port).nodes
            for port in ports
        }
        through_the_weaker = sum("z1-ctsw1" in nodes for nodes in seen.values())
        assert 10 < through_the_weaker < 45

        link.up()
        wait_for_tables(watch, lambda: is_equal(lab, "atsw1", "z1-srv1-1", 4))
        wait_for_tables(watch, lambda: is_equal(lab, "z1-rtsw2", "z1-srv1-1", 8))


def test_the_loss_of_a_whole_spine_below_one_aggregator_shows_in_the_other_zone(
    lab: RunningLab,
) -> None:
    with watching(lab) as watch:
        lab.link("z1-ctsw1:atsw1").down()
        # FRR hands the kernel whole numbers: 3 of 7 and 4 of 7 become 42 and 57, in FRR 10 190 and
        # 254.
        expected = Fraction(3, 7)
        wait_for_tables(
            watch,
            lambda: abs(shares(lab, "z2-ctsw1", "z1-srv1-1")["atsw1"] - expected) < WHOLE_NUMBERS,
        )
        assert is_equal(lab, "z1-rtsw2", "z1-srv1-1", 8)
