"""Which servers reach which, by the tables of switches."""

from __future__ import annotations

from rocelab.linux.fibtable import Fib, FibOf, NextHop, Route
from rocelab.routes.planned import planned_fibs
from rocelab.routes.reach import least_next_hops, unreached
from tests.helpers.labs import planned

FABRIC = planned("ospf-ibgp")
TARGET = "10.2.4.0/31"


def tables(**other: Route | None) -> FibOf:
    """The planned tables, with another route of a switch to TARGET, or none."""
    fib_of = planned_fibs(FABRIC, FABRIC.prefixes)

    def changed(node: str) -> Fib:
        fib = fib_of(node)
        if node not in other:
            return fib
        kept = tuple(route for route in fib.routes if route.prefix != TARGET)
        route = other[node]
        return Fib(kept if route is None else (*kept, route))

    return changed


def test_by_the_planned_tables_all_servers_reach_each_other() -> None:
    assert list(unreached(FABRIC, tables())) == []


def test_one_next_hop_that_leads_nowhere_is_enough_to_lose_packets() -> None:
    lost = list(unreached(FABRIC, tables(ctsw2=None)))

    # Of the six servers of other racks, to the first one of rack 4.
    assert [target for _, target in lost] == ["10.2.4.1"] * 6


def test_a_loop_reaches_nobody() -> None:
    back = Route(TARGET, (NextHop("rtsw1", "10.1.1.0"),))

    assert len(list(unreached(FABRIC, tables(ctsw1=back)))) == 6


def test_a_next_hop_without_carrier_loses_packets() -> None:
    dead = Route(TARGET, (NextHop("rtsw4", None, carrier=False),))

    assert ("10.2.1.1", "10.2.4.1") in list(unreached(FABRIC, tables(ctsw1=dead)))


def test_the_least_next_hops_are_those_of_the_narrowest_route() -> None:
    narrow = Route(TARGET, (NextHop("ctsw1", None),))

    assert least_next_hops(FABRIC, tables(), "rtsw1") == 2
    assert least_next_hops(FABRIC, tables(rtsw1=narrow), "rtsw1") == 1
    assert least_next_hops(FABRIC, tables(rtsw1=None), "rtsw1") == 0
    assert least_next_hops(FABRIC, tables(), "ctsw1") == 1
