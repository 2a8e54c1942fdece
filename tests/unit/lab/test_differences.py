"""How a switch's table differs from the plan."""

from __future__ import annotations

import socket

from rocelab.base.family import Family
from rocelab.lab.differences import (
    Difference,
    DifferenceKind,
    route_differences,
)
from rocelab.linux.fib import RTPROT_KERNEL, KernelHop, KernelRoute
from rocelab.planning.routes import expected_routes
from tests.helpers.labs import planned

RTPROT_STATIC, RTPROT_BGP, UNICAST = 4, 186, 1
FABRIC = planned("zone-small")
NODE = FABRIC.node("rtsw1")
EXPECTED = expected_routes(FABRIC)["rtsw1"]
PREFIX = next(prefix for prefix, links in EXPECTED.items() if len(links) == 8)


def route(prefix: str, *indexes: int, protocol: int = RTPROT_BGP) -> KernelRoute:
    address, length = prefix.split("/")
    destination = int.from_bytes(socket.inet_aton(address), "big")
    hops = tuple(KernelHop(index, b"", 1) for index in indexes)
    return KernelRoute(Family.IPV4, destination, int(length), 20, protocol, UNICAST, 0, hops)


def table() -> dict[str, KernelRoute]:
    learnt = {
        prefix: route(prefix, *(link.port("rtsw1").index for link in links))
        for prefix, links in EXPECTED.items()
    }
    return {**learnt, "198.18.0.0/31": route("198.18.0.0/31", 2, protocol=RTPROT_KERNEL)}


def differences(changed: dict[str, KernelRoute]) -> dict[DifferenceKind, tuple[str, ...]]:
    parts = route_differences(FABRIC, NODE, EXPECTED, changed.values())
    return {kind: subjects for kind, subjects in parts.items() if subjects}


def test_the_planned_table_differs_in_nothing() -> None:
    assert differences(table()) == {}


def test_a_missing_and_a_narrow_route_are_named_with_their_widths() -> None:
    whole = table()
    indexes = [hop.interface for hop in whole[PREFIX].hops]
    assert differences({**whole, PREFIX: route(PREFIX, *indexes[:5])}) == {
        DifferenceKind.MISSING: (f"{PREFIX} (5 of 8 next hops)",)
    }
    del whole[PREFIX]
    assert differences(whole) == {DifferenceKind.MISSING: (f"{PREFIX} (0 of 8 next hops)",)}


def test_a_route_that_somebody_added_is_named() -> None:
    extra = route("192.0.2.0/24", 4, protocol=RTPROT_STATIC)
    assert differences({**table(), extra.prefix: extra}) == {
        DifferenceKind.EXTRA: ("192.0.2.0/24",)
    }


def test_a_route_by_another_port_is_named_though_it_is_wide_enough() -> None:
    whole = table()
    indexes = [hop.interface for hop in whole[PREFIX].hops]
    server_port = FABRIC.downlinks("rtsw1")[0].port("rtsw1").index
    moved = route(PREFIX, *indexes, server_port)
    assert differences({**whole, PREFIX: moved}) == {DifferenceKind.PORTS: (PREFIX,)}


def test_a_sentence_names_three_and_counts_the_rest() -> None:
    kind, subjects = DifferenceKind.EXTRA, ("a", "b", "c", "d", "e")
    assert str(Difference("rtsw1", kind, subjects)) == (
        "rtsw1: routes that are not planned: a; b; c; and 2 more"
    )
