"""FRR configuration of a switch: eBGP to RFC 7938 over every switch-to-switch link.

The files are zebra.conf, bgpd.conf and, with BFD, bfdd.conf. The policy is valley-free by ASN: all
CTSWs of a zone share one, so no path crosses two of them; a switch of the lowest tier announces its
own prefixes only, and those above accept nothing else from it. With `routing.valley_free: false`
each switch has an ASN of its own, and announces and accepts all prefixes. A NIC with two ports is
announced as a prefix of its own, by each of its switches while that switch reaches it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocelab.base.family import Family
from rocelab.base.templates import template
from rocelab.fabrics.roles import Role
from rocelab.labfile.base import MS, SECOND
from rocelab.labfile.model import HashWeights, RoutingSpec
from rocelab.labfile.policy import PolicySpec
from rocelab.planning.fabric import Fabric, Link, Node
from rocelab.planning.tenancy import tenant_links

FAMILY_WORDS = {Family.IPV4: "ip", Family.IPV6: "ipv6"}
"""The word of FRR's commands about addresses and prefixes of a family."""
LOG_FOLDER = Path("/var/log/frr")
FABRIC_LIST = "FABRIC"
OWN_LIST = "OWN"
NICS_LIST = "NICS"
PATHS_MAP = "PATHS"
COMMUNITIES_MAP = "COMMUNITIES"
SMALL_FABRIC_SESSIONS = 256
"""In larger fabrics upper tiers announce only once all their neighbours are up (`update-delay`),
and the lower end of a session opens it: upper ends, some with hundreds of neighbours, would try
each of them every second until it runs."""
COALESCE_MS = 100
"""How long bgpd waits to announce in one go to neighbours that come up together; FRR's own default
grows with the number of neighbours, to 10 s."""


@dataclass(frozen=True, slots=True)
class _PrefixList:
    name: str
    match: str


@dataclass(frozen=True, slots=True)
class _PeerGroup:
    """Neighbours of one role and their common settings.

    If all share one ASN, as CTSWs of a zone do, the group has it: setting a neighbour's ASN and
    then its group resets it, and a reset writes 640 KiB of bgpd's memory.
    """

    name: str
    asn: int | None
    maximum_prefix: int
    accept: str | None
    announce: str | None
    map_in: str | None
    map_out: str | None
    passive: bool
    unnumbered: bool


@dataclass(frozen=True, slots=True)
class _Neighbor:
    peer: str
    asn: int | None
    group: str
    accept: str | None
    unnumbered: bool
    password: str | None
    gtsm: bool


@dataclass(frozen=True, slots=True)
class _Interface:
    name: str
    description: str
    addresses: list[str]
    """The commands that set them."""


@dataclass(frozen=True, slots=True)
class _Bfd:
    interval_ms: int
    multiplier: int


@dataclass(frozen=True, slots=True)
class _Timers:
    keepalive_s: int
    hold_s: int
    connect_s: int
    advertisement_s: int | None


@dataclass(frozen=True, slots=True)
class _Evpn:
    """What a switch does for tenants besides passing on what others announce."""

    is_vtep: bool
    """Whether tunnels end at it."""


def daemons(fabric: Fabric) -> tuple[str, ...]:
    """The FRR daemons that every switch of the fabric runs, in start order."""
    return ("zebra", "bfdd", "bgpd") if fabric.spec.routing.bfd else ("zebra", "bgpd")


def frr_configuration(
    fabric: Fabric, node: Node, log_folder: Path = LOG_FOLDER, *, interfaces: bool = True
) -> Mapping[str, str]:
    """Configuration text of each daemon of `node`, by daemon name.

    Without `interfaces`, the caller sets the addresses.

    Raises ValueError for a server, which runs none.
    """
    context = variables(fabric, node, interfaces=interfaces) | {"log_folder": log_folder}
    return {daemon: template(f"frr/{daemon}.conf.j2").render(context) for daemon in daemons(fabric)}


def base_configuration(node: Node, daemon: str, log_folder: Path, defaults: str) -> str:
    """What a daemon reads whose configuration comes from elsewhere: its profile, its name and its
    log."""
    variables = {"node": node, "daemon": daemon, "log_folder": log_folder, "defaults": defaults}
    return template("frr/base.conf.j2").render(variables)


def configuration_bodies(fabric: Fabric, node: Node) -> Mapping[str, str]:
    """The configuration of each daemon of `node` without its name and its log, addresses included.

    For one file that all daemons read. Raises ValueError for a server, which runs none.
    """
    context = variables(fabric, node, interfaces=True)
    bodies = {}
    for daemon in daemons(fabric):
        file = template(f"frr/{daemon}.conf.j2")
        bodies[daemon] = "".join(file.blocks["body"](file.new_context(context)))
    return bodies


def variables(fabric: Fabric, node: Node, *, interfaces: bool) -> dict[str, object]:
    """What the templates of a switch are rendered with, but for the folder of logs."""
    if node.asn is None or node.loopback is None:
        raise ValueError(f"{node.name} is a {node.role.name} and runs no routing daemon")
    routing, policy = fabric.spec.routing, policy_of(fabric, node)
    shared = {role for role, asns in _neighbour_asns(fabric, node).items() if len(asns) == 1}
    bfd = routing.bfd and _Bfd(routing.bfd.interval // MS, routing.bfd.multiplier)
    return {
        "node": node,
        "families": fabric.spec.addresses.families,
        "networks": [
            prefix.prefix for prefix in fabric.prefixes_of[node.name] if not prefix.per_port
        ],
        "nics_list": NICS_LIST if _nic_blocks(fabric, node.name) else None,
        "interfaces": _interfaces(fabric, node) if interfaces else [],
        "prefix_lists": _prefix_lists(fabric, node),
        "groups": _peer_groups(fabric, node),
        "neighbors": [
            _neighbor(fabric, node, link, shared) for link in _session_links(fabric, node)
        ],
        "bfd": bfd,
        "timers": _timers(routing, policy),
        "policy": policy,
        "communities_map": COMMUNITIES_MAP if policy.communities else None,
        "coalesce_ms": COALESCE_MS,
        "read_only_s": _read_only_s(fabric, node),
        "graceful_restart": routing.graceful_restart,
        "max_paths": routing.max_paths,
        # Elsewhere paths of equal length have the same AS numbers, or those of one zone.
        "compare_router_ids": not fabric.is_regular,
        "paths_map": PATHS_MAP if fabric.spec.hashing.weights is HashWeights.PATHS else None,
        "evpn": _Evpn(bool(tenant_links(fabric, node.name))) if fabric.tenants else None,
    }


def policy_of(fabric: Fabric, node: Node) -> PolicySpec:
    """The values of `routing.policy` for a switch."""
    return fabric.spec.routing.policy_of(node.name, node.role.name)


def _timers(routing: RoutingSpec, policy: PolicySpec) -> _Timers:
    interval = policy.advertisement_interval
    return _Timers(
        keepalive_s=(policy.keepalive or routing.keepalive) // SECOND,
        hold_s=(policy.hold or routing.hold) // SECOND,
        connect_s=(policy.connect_retry or routing.connect_retry) // SECOND,
        advertisement_s=None if interval is None else interval // SECOND,
    )


def _read_only_s(fabric: Fabric, node: Node) -> int:
    """Longest time a restarted switch waits for all its neighbours before it announces; 0: none.

    FRR's read-only mode (`update-delay`): a CTSW with hundreds of neighbours announces all prefixes
    at once, not each to all neighbours as they come up one by one.
    """
    if len(fabric.sessions) <= SMALL_FABRIC_SESSIONS or not fabric.downlinks(node.name):
        return 0
    return 0 if node.is_leaf else 300


def _session_links(fabric: Fabric, node: Node) -> tuple[Link, ...]:
    links = fabric.links_of[node.name]
    return tuple(link for link in links if link.is_between_switches)


def _interfaces(fabric: Fabric, node: Node) -> list[_Interface]:
    loopbacks = (ip for ip in (node.loopback, node.other_loopback) if ip is not None)
    addresses = [
        f"{FAMILY_WORDS[Family.of(ip)]} address {ip}/{Family.of(ip).bits}" for ip in loopbacks
    ]
    loopback = _Interface("lo", "loopback", addresses)
    return [loopback, *(_interface(link, node) for link in fabric.links_of[node.name])]


def _interface(link: Link, node: Node) -> _Interface:
    far = link.far(node.name)
    port = link.port(node.name)
    addresses = [
        f"{FAMILY_WORDS[Family.of(address)]} address {address}"
        for address in (port.address, port.other_address)
        if address is not None
    ]
    if port.is_shared and Family.of(port.ip) is Family.IPV4:
        addresses[0] = f"ip address {port.ip} peer {far.ip}/32"
    return _Interface(port.interface, f"{far.node} {far.interface}", addresses)


def _prefix_lists(fabric: Fabric, node: Node) -> list[_PrefixList]:
    lists = [_PrefixList(FABRIC_LIST, match) for match in _space(fabric)]
    valley_free = fabric.valley_free
    if node.is_leaf:
        lists += _own_prefixes(fabric, node.name, OWN_LIST) if valley_free else []
        lists += [_PrefixList(NICS_LIST, block) for block in _nic_blocks(fabric, node.name)]
    if not valley_free:
        return lists
    below = dict.fromkeys(link.a.node for link in fabric.downlinks(node.name))
    for name in below:
        if fabric.node(name).is_leaf:
            lists += _own_prefixes(fabric, name, name)
    return lists


def _space(fabric: Fabric) -> list[str]:
    """Prefix-list patterns of everything that a switch may announce."""
    return [
        prefix if prefix.endswith(f"/{bits}") else f"{prefix} le {bits}"
        for prefix in fabric.space
        if (bits := Family.of(prefix).bits)
    ]


def _own_prefixes(fabric: Fabric, leaf: str, name: str) -> list[_PrefixList]:
    """The prefix list that a switch of the lowest tier announces."""
    always = [prefix.prefix for prefix in fabric.prefixes_of[leaf] if not prefix.per_port]
    aggregates = (one.prefix for one in policy_of(fabric, fabric.node(leaf)).aggregates)
    matches = (*always, *_nic_blocks(fabric, leaf), *aggregates)
    return [_PrefixList(name, match) for match in matches]


def _nic_blocks(fabric: Fabric, switch: str) -> list[str]:
    """Prefix-list patterns for the addresses of NICs with two ports, one of them on this switch."""
    prefixes = fabric.prefixes_of[switch]
    if not any(prefix.per_port for prefix in prefixes):
        return []
    shared = (
        prefix.prefix for prefix in prefixes if len(prefix.origins) > 1 and not prefix.per_port
    )
    return [f"{prefix} ge {Family.of(prefix).bits}" for prefix in shared]


def _peer_groups(fabric: Fabric, node: Node) -> list[_PeerGroup]:
    """One group per role of neighbour: the lowest tier may announce its own prefixes, others the
    fabric's; without a valley-free policy all may."""
    groups = []
    valley_free, policy = fabric.valley_free, policy_of(fabric, node)
    paths_map = PATHS_MAP if fabric.spec.hashing.weights is HashWeights.PATHS else None
    for role, asns in _neighbour_asns(fabric, node).items():
        from_leaf = role.tier == 1 and valley_free
        groups.append(
            _PeerGroup(
                name=_group_name(role),
                asn=asns[0] if len(asns) == 1 else None,
                maximum_prefix=policy.maximum_prefix or _most_prefixes(fabric, node, role) + 1,
                accept=None if from_leaf else FABRIC_LIST,
                announce=OWN_LIST if node.is_leaf and valley_free else None,
                map_in=policy.map_for("in", role.name),
                map_out=policy.map_for("out", role.name) or paths_map,
                passive=_waits(fabric, node.role, role),
                unnumbered=not fabric.numbered,
            )
        )
    return groups


def opens_from_above(fabric: Fabric) -> bool:
    """Whether the upper end of each BGP session opens it, and the lower end waits.

    bgpd opens a session a second after it has read its configuration. Upper ends are few: if they
    start early, leaves start within that second.
    """
    return fabric.numbered and len(fabric.sessions) <= SMALL_FABRIC_SESSIONS


def _waits(fabric: Fabric, near: Role, far: Role) -> bool:
    """Whether a switch waits for neighbours of that role to open their sessions."""
    return near.tier < far.tier if opens_from_above(fabric) else near.tier > far.tier


def _most_prefixes(fabric: Fabric, node: Node, role: Role) -> int:
    """The most prefixes that a neighbour of that role has to announce."""
    if role.tier != 1 or not fabric.valley_free:
        return len(fabric.prefixes) + _aggregates(fabric)
    below = (link.a.node for link in fabric.downlinks(node.name))
    return max(
        len(fabric.prefixes_of[name]) + len(policy_of(fabric, fabric.node(name)).aggregates)
        for name in below
    )


def _aggregates(fabric: Fabric) -> int:
    if not fabric.spec.routing.policy:
        return 0
    return sum(len(policy_of(fabric, node).aggregates) for node in fabric.switches)


def _seen_asn(fabric: Fabric, node: Node) -> int | None:
    """The AS number that neighbours see of a switch."""
    local_as = policy_of(fabric, node).local_as
    return node.asn if local_as is None else local_as.asn


def _neighbour_asns(fabric: Fabric, node: Node) -> dict[Role, list[int]]:
    """The distinct ASNs of a switch's neighbours, by their role."""
    by_role: dict[Role, list[int]] = {}
    for link in _session_links(fabric, node):
        far = fabric.node(link.far(node.name).node)
        asns = by_role.setdefault(far.role, [])
        asn = _seen_asn(fabric, far)
        if asn is not None and asn not in asns:
            asns.append(asn)
    return by_role


def _neighbor(fabric: Fabric, node: Node, link: Link, shared: set[Role]) -> _Neighbor:
    far = link.far(node.name)
    peer = fabric.node(far.node)
    unnumbered = far.address is None
    near_policy, far_policy = policy_of(fabric, node), policy_of(fabric, peer)
    return _Neighbor(
        peer=link.port(node.name).interface if unnumbered else far.ip,
        asn=None if peer.role in shared else _seen_asn(fabric, peer),
        group=_group_name(peer.role),
        accept=peer.name if peer.is_leaf and fabric.valley_free else None,
        unnumbered=unnumbered,
        password=near_policy.password or far_policy.password,
        gtsm=near_policy.gtsm or far_policy.gtsm,
    )


def _group_name(role: Role) -> str:
    return f"{role.name.upper()}S"
