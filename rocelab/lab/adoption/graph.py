"""The fabric in a survey: roles, links and what a whole lab has. Pure.

A switch is what runs a routing daemon, is of a kind other than a plain Linux host, or has a group
that names a role, as the topologies that rocelab renders do. Tiers follow from the graph: switches
with hosts are the lowest, and each further step away from them is a tier more, up to three. Without
hosts, the switches with the fewest neighbours are the lowest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rocelab.base.sysctls import HASH_POLICY, HASH_SEED
from rocelab.fabrics.door import roles as known_roles
from rocelab.fabrics.roles import Role
from rocelab.lab.adoption.survey import Interface, NodeSurvey
from rocelab.labfile.adopted import (
    AdoptedLabSpec,
    AdoptedLink,
    AdoptedNodeSpec,
    AdoptedPort,
    AdoptedSpec,
)
from rocelab.labfile.model import HashingSpec, HashPolicy, LabSpec
from rocelab.labfile.queues import QueueEngine, QueuesSpec
from rocelab.planning.sessions import carries_session
from rocelab.planning.settings import POLICY_NUMBER
from rocelab.planning.shape import tiers

HOST_KINDS = frozenset({"", "linux", "host", "ext-container", "k8s-kind"})
ROLES_BY_TIER = (Role.SERVER, Role.LEAF, Role.SPINE, Role.CORE)


def lab_of(name: str, nodes: Sequence[NodeSurvey]) -> LabSpec:
    """The lab of surveyed nodes. `name` is one that rocelab takes."""
    role_of = roles(nodes)
    ordered = sorted(nodes, key=lambda node: (-role_of[node.name].tier, _natural(node.name)))
    links = [
        _link(role_of, near, far)
        for near, far in sorted(cables(nodes), key=lambda ends: _order(role_of, ends))
    ]
    wired = {(end.node, end.interface) for link in links for end in (link.a, link.b)}
    sessions = {(node.name, neighbour) for node in nodes for neighbour in node.neighbours}
    return AdoptedLabSpec(
        name=name,
        fabric=AdoptedSpec(
            kind="adopted",
            nodes=tuple(
                AdoptedNodeSpec(
                    name=node.name,
                    role=role_of[node.name].name,
                    asn=node.asn,
                    loopback=node.loopback,
                    hash_seed=node.settings.get(HASH_SEED, 0),
                    daemons=tuple(node.daemons),
                    peers=node.neighbours,
                )
                for node in ordered
            ),
            links=tuple(
                link.model_copy(update={"session": carries_session(link.a, link.b, sessions)})
                for link in links
            ),
            routes={
                node.name: {
                    prefix: hops
                    for prefix, hops in node.routes.items()
                    if all((node.name, hop) in wired for hop in hops)
                }
                for node in ordered
                if role_of[node.name].is_switch
            },
        ),
        hashing=_hashing(nodes, role_of),
        queues=QueuesSpec(engine=QueueEngine.OFF),
    )


def roles(nodes: Sequence[NodeSurvey]) -> Mapping[str, Role]:
    """The role of each node."""
    known = known_roles()
    named = {node.name: known[node.group] for node in nodes if node.group in known}
    switches = {node.name for node in nodes if _is_switch(node)}
    hosts = {node.name for node in nodes} - switches
    pairs = [(one[0], other[0]) for one, other in cables(nodes)]
    tier = tiers(pairs, hosts, switches)
    return {
        node.name: named.get(node.name) or ROLES_BY_TIER[tier.get(node.name, 1)] for node in nodes
    }


def _is_switch(node: NodeSurvey) -> bool:
    if node.group in known_roles():
        return known_roles()[node.group].is_switch
    return bool(node.daemons) or node.kind not in HOST_KINDS


End = tuple[str, Interface]
"""An interface and its node's name."""


def cables(nodes: Sequence[NodeSurvey]) -> Iterator[tuple[End, End]]:
    """Both ends of every veth pair between two nodes, each pair once."""
    at = {(node.name, port.index): port for node in nodes for port in node.interfaces}
    for node in nodes:
        for port in node.interfaces:
            if port.peer is None or port.peer not in at or port.peer[0] == node.name:
                continue
            far = (port.peer[0], at[port.peer])
            if (node.name, port.index) < (far[0], far[1].index):
                yield (node.name, port), far


def _order(role_of: Mapping[str, Role], ends: tuple[End, End]) -> tuple[object, ...]:
    low, high = _lower_first(role_of, *ends)
    return (role_of[low[0]].tier, _natural(low[0]), _natural(low[1].name), _natural(high[0]))


def _lower_first(role_of: Mapping[str, Role], one: End, other: End) -> tuple[End, End]:
    """The end nearer the servers first; between equals, the first by name."""
    in_order = sorted((one, other), key=lambda end: (role_of[end[0]].tier, _natural(end[0])))
    return in_order[0], in_order[1]


def _link(role_of: Mapping[str, Role], one: End, other: End) -> AdoptedLink:
    low, high = _lower_first(role_of, one, other)
    mtu = min(low[1].mtu, high[1].mtu)
    return AdoptedLink(a=_port(low), b=_port(high), mtu=mtu)


def _port(end: End) -> AdoptedPort:
    node, port = end
    return AdoptedPort(
        node=node,
        interface=port.name,
        index=port.index,
        mac=port.mac,
        address=next(iter(port.addresses), None),
    )


def _hashing(nodes: Sequence[NodeSurvey], role_of: Mapping[str, Role]) -> HashingSpec:
    """The hash policy that the switches have in common, the kernel's default otherwise."""
    values = {node.settings.get(HASH_POLICY, 0) for node in nodes if role_of[node.name].is_switch}
    policies = {number: policy for policy, number in POLICY_NUMBER.items()}
    policy = policies.get(next(iter(values)), HashPolicy.L3) if len(values) == 1 else HashPolicy.L3
    return HashingSpec(policy=HashPolicy.L3 if policy is HashPolicy.CUSTOM else policy)


def _natural(text: str) -> tuple[tuple[int, int | str], ...]:
    """A key by which leaf2 stands before leaf10."""
    return tuple(
        (0, int(part)) if part.isdecimal() else (1, part) for part in re.findall(r"\d+|\D+", text)
    )
