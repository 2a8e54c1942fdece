"""Small networks of switches that are wired anyhow, unlike the kinds of fabric that are planned."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

from hypothesis import strategies as st

from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.fabrics.roles import Role
from rocelab.labfile.model import LabSpec, RoutingSpec
from rocelab.planning.fabric import Fabric, Link, Node, Port, Prefix


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
        for one, other in map(tuple, pairs)
    ]
    prefixes = tuple(Prefix(f"198.18.{n}.0/24", (name,)) for n, name in enumerate(names))
    spec = LabSpec(name="ring", fabric=ClosSpec(), routing=RoutingSpec(valley_free=False))
    return Fabric(spec, switches + servers, tuple(links), prefixes, numbered=False)


@st.composite
def networks(draw: st.DrawFn) -> Fabric:
    """Up to six switches in a ring, each joined to each, or those of two kinds; a few links more or
    fewer. Some have no servers, some announce the same prefix."""
    names = "abcdef"[: draw(st.integers(4, 6))]
    products = [one + other for one, other in combinations(names, 2)]
    pairs = draw(
        st.sampled_from(
            [
                [one + other for one, other in pairwise(names + names[0])],
                products,
                [one + other for one in names[:2] for other in names[2:]],
                [one + other for one in names[:3] for other in names[3:]],
            ]
        )
    )
    missing = draw(st.sets(st.sampled_from(pairs), max_size=1))
    more = draw(st.lists(st.sampled_from(products), max_size=2))
    fabric = ring(*sorted({*pairs} - missing), *more)
    switches = st.sampled_from([node.name for node in fabric.switches])
    unwired = draw(st.sets(switches, max_size=2))
    shared = draw(st.lists(st.lists(switches, min_size=2, max_size=2, unique=True), max_size=2))
    kept = (link for link in fabric.links if link.b.node not in unwired or link.is_between_switches)
    prefixes = [Prefix(f"198.19.{number}.0/24", tuple(two)) for number, two in enumerate(shared)]
    return replace(fabric, links=tuple(kept), prefixes=(*fabric.prefixes, *prefixes))
