"""The plan of a fabric as a JSON document: the contract of `rocelab plan --json`.

The JSON object has one line per node, link, session and prefix, so that plans can be compared with
`diff`, and the plan of a 32,256-GPU fabric is written while it is generated. The same fabric gives
the same bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from rocelab.fabrics.roles import Role
from rocelab.labfile.headroom import Headroom
from rocelab.labfile.pfc import PfcSpec
from rocelab.planning.addresses import address_plan
from rocelab.planning.dependencies import is_up_down, search
from rocelab.planning.fabric import Fabric, Link, Node, Port, Prefix, RouteBasis
from rocelab.planning.limits import lab_limits
from rocelab.planning.pfc import carve, nic_headrooms, nic_thresholds, slack_of
from rocelab.planning.pfc import warnings as pfc_warnings
from rocelab.planning.profiles import PortsByProfile, coarser, ports_by_profile
from rocelab.planning.routes import expected_width, spread, unreachable
from rocelab.planning.tenancy import leaves_of
from rocelab.planning.tenant import Tenant


@dataclass(frozen=True, slots=True)
class Uplinks:
    """The capacities of one switch of a role that has `switches`."""

    role: Role
    switches: int
    down_bps: int
    up_bps: int

    @property
    def ratio(self) -> str:
        """Downlink : uplink capacity, the smaller as 1, to four digits."""
        if self.down_bps <= self.up_bps:
            return f"1:{self.up_bps / self.down_bps:.4g}"
        return f"{self.down_bps / self.up_bps:.4g}:1"


@dataclass(frozen=True, slots=True)
class EcmpGroup:
    """The switches of one role and zone."""

    role: Role
    zone: int | None


@dataclass(frozen=True, slots=True)
class Width:
    """The number of next hops that `switches` switches of `group` must hold for a prefix."""

    group: EcmpGroup
    switches: int
    width: int


def group_of(node: Node) -> EcmpGroup:
    """The role and zone of a node."""
    return EcmpGroup(node.role, node.zone)


@dataclass(frozen=True, slots=True)
class PrefixOrigin:
    """The origin of a prefix: a group, and the groups directly above, which distinguish planes."""

    group: EcmpGroup
    above: frozenset[EcmpGroup]


Origins = tuple[PrefixOrigin, ...]
"""The origins of a prefix; that of a two-port NIC has two."""


def origins_of(fabric: Fabric, prefix: Prefix) -> Origins:
    """The common property of prefixes that have the same width in all switches of a group."""
    return tuple(
        PrefixOrigin(
            group_of(fabric.node(name)),
            frozenset(group_of(fabric.node(link.b.node)) for link in fabric.uplinks(name)),
        )
        for name in prefix.origins
    )


def expected_widths(fabric: Fabric) -> Mapping[Origins, tuple[Width, ...]]:
    """The ECMP width in every group that learns the prefixes of equal origins.

    A fabric looks the same from each switch of a role and zone, so the first prefix of each kind
    represents the others; a spread per prefix would take a minute for 2,178 of them.
    """
    first: dict[Origins, Prefix] = {}
    for prefix in fabric.prefixes:
        first.setdefault(origins_of(fabric, prefix), prefix)
    return {origins: _widths(fabric, prefix) for origins, prefix in first.items()}


def _widths(fabric: Fabric, prefix: Prefix) -> tuple[Width, ...]:
    reached = spread(fabric, prefix.origins)
    count = Counter(
        (group_of(node), expected_width(fabric, reached[node.name]))
        for node in fabric.switches
        if node.name in reached
    )
    return tuple(Width(group, switches, width) for (group, width), switches in count.items())


def plan_document(fabric: Fabric) -> Iterator[str]:
    """The JSON text of the plan, in pieces that end with a newline; of several networks by name
    that of each."""
    if fabric.parts:
        yield f'{{\n"lab": {json.dumps(fabric.name)},\n"networks": {{\n'
        for number, part in enumerate(fabric.parts):
            yield f"{',' * bool(number)}{json.dumps(part.network_name)}: "
            yield from plan_document(part)
        yield "}\n}\n"
        return
    yield "{\n"
    yield f'"lab": {json.dumps(fabric.name)},\n'
    yield f'"numbered": {json.dumps(fabric.numbered)},\n'
    if fabric.basis is not RouteBasis.PLANNED:
        yield f'"routes": {json.dumps(fabric.basis)},\n'
    yield from _array("uplinks", map(_uplinks, uplinks_by_tier(fabric)))
    yield ",\n"
    yield from _array("nodes", map(_node, fabric.nodes))
    yield ",\n"
    yield from _array("links", map(_link, fabric.links))
    yield ",\n"
    yield from _array("sessions", map(_session, fabric.sessions))
    yield ",\n"
    yield from _array("prefixes", map(_prefix, fabric.prefixes))
    yield ",\n"
    yield from _array("ecmp", _ecmp(fabric))
    yield ",\n"
    if fabric.tenants:
        yield from _array("tenants", (_tenant(fabric, tenant) for tenant in fabric.tenants))
        yield ",\n"
    yield from _array("addresses", map(asdict, address_plan(fabric)))
    warnings = (*lab_limits(fabric.spec), *unreachable(fabric))
    yield f',\n"warnings": {json.dumps(warnings)}'
    if fabric.spec.queues.pfc is not None:
        yield f',\n"pfc": {json.dumps(_pfc(fabric, fabric.spec.queues.pfc))}'
    kinds = ports_by_profile(fabric)
    if kinds:
        yield f',\n"profiles": {json.dumps(_profiles(fabric, kinds))}'
    yield "\n}\n"


def _array(key: str, items: Iterable[Mapping[str, object]]) -> Iterator[str]:
    yield f'"{key}": ['
    separator = "\n"
    for item in items:
        yield separator + json.dumps(item)
        separator = ",\n"
    yield "\n]"


def uplinks_by_tier(fabric: Fabric) -> tuple[Uplinks, ...]:
    """The capacities of every tier that has links down and up, lowest tier first; none in a fabric
    without tiers."""
    if not fabric.is_tiered:
        return ()
    down_bps: Counter[str] = Counter()
    up_bps: Counter[str] = Counter()
    for link in fabric.links:
        up_bps[link.a.node] += link.rate_bps
        down_bps[link.b.node] += link.rate_bps
    count = Counter(
        (node.role, down_bps[node.name], up_bps[node.name])
        for node in fabric.switches
        if down_bps[node.name] and up_bps[node.name]
    )
    groups = (Uplinks(role, switches, *rates) for (role, *rates), switches in count.items())
    return tuple(sorted(groups, key=lambda uplinks: uplinks.role.tier))


def _uplinks(tier: Uplinks) -> dict[str, object]:
    return {
        "role": tier.role.name,
        "switches": tier.switches,
        "down_bps": tier.down_bps,
        "up_bps": tier.up_bps,
        "ratio": tier.ratio,
    }


def _node(node: Node) -> dict[str, object]:
    return {
        "name": node.name,
        "role": node.role.name,
        "zone": node.zone,
        "asn": node.asn,
        "loopback": node.loopback,
        "hash_seed": node.hash_seed,
    }


def _port(port: Port) -> dict[str, object]:
    return {"node": port.node, "interface": port.interface, "address": port.address}


def _link(link: Link) -> dict[str, object]:
    return {
        "name": link.name,
        "a": _port(link.a),
        "b": _port(link.b),
        "rate_bps": link.rate_bps,
        "mtu": link.mtu,
    }


def _tenant(fabric: Fabric, tenant: Tenant) -> dict[str, object]:
    return {
        "name": tenant.name,
        "vni": tenant.vni,
        "subnets": tenant.subnets,
        "leaves": [
            {"node": leaf, "vtep": fabric.node(leaf).loopback} for leaf in leaves_of(fabric, tenant)
        ],
        "links": tenant.links,
    }


def _prefix(prefix: Prefix) -> dict[str, object]:
    return {"prefix": prefix.prefix, "origins": prefix.origins}


def _session(link: Link) -> dict[str, object]:
    return {"a": link.a.node, "b": link.b.node, "link": link.name}


def _pfc(fabric: Fabric, pfc: PfcSpec) -> dict[str, object]:
    carvings = carve(fabric, pfc)
    watchdog, dilation = pfc.watchdog, fabric.spec.dilation
    outcome = None if is_up_down(fabric) else search(fabric)
    cycle = outcome.cycle if outcome else None
    return {
        "classes": pfc.classes,
        "switches": [
            {
                "role": carving.role.name,
                "switches": carving.switches,
                "ports": carving.ports,
                "memory_bytes": carving.memory,
                "reserved_bytes": carving.reserved,
                "headroom_bytes": carving.headroom_pool,
                "shared_bytes": carving.shared,
                "xoff_bytes": carving.xoff,
                "xon_bytes": carving.xon,
                "marked_below_bytes": carving.marked_below,
                "links": [
                    {
                        **asdict(needed),
                        "needed": needed.total,
                        "lab_slack": slack_of(needed, fabric.spec),
                        "ports": ports,
                    }
                    for needed, ports in carving.headroom
                ],
            }
            for carving in carvings
        ],
        "nics": [_nic(pfc, needed) for needed in nic_headrooms(fabric, pfc)],
        "watchdog": None
        if watchdog is None
        else {
            "action": watchdog.action.value,
            "detection_ns": watchdog.detection,
            "restoration_ns": watchdog.restoration,
            "lab_detection_ns": round(watchdog.detection * dilation),
            "lab_restoration_ns": round(watchdog.restoration * dilation),
        },
        "warnings": pfc_warnings(fabric.spec.queues, pfc, carvings, nic_headrooms(fabric, pfc)),
        "up_down": outcome is None,
        "searched": outcome.states if outcome else None,
        "cycle": None
        if cycle is None
        else {
            "links": [{"link": link.name, "sender": link.sender} for link in cycle.links],
            "without": [link.name for link in cycle.without],
        },
    }


def _profiles(fabric: Fabric, kinds: Sequence[PortsByProfile]) -> dict[str, object]:
    names = {kind.profile.name: kind.profile for kind in kinds}
    return {
        "files": {name: profile.model_dump(mode="json") for name, profile in names.items()},
        "ports": [
            {
                "role": kind.place.role,
                "rate_bps": kind.place.rate_bps,
                "link_queues": kind.place.link,
                "ports": kind.ports,
                "profile": kind.profile.name,
                "like": kind.like,
                "queues": [
                    {
                        "queue": row.queue,
                        "dscps": row.dscps,
                        "buffer_profile": row.buffer,
                        "limit_bytes": row.limit,
                        "scheduler": row.scheduler,
                        "weight": row.weight,
                        "wred_profile": row.wred,
                        "kmin_bytes": None if row.line is None else row.line.kmin,
                        "kmax_bytes": None if row.line is None else row.line.kmax,
                        "pmax": None if row.line is None else row.line.pmax,
                    }
                    for row in kind.queues
                ],
                "lossless_group": None if kind.group is None else asdict(kind.group),
            }
            for kind in kinds
        ],
        "instead": coarser(fabric),
    }


def _nic(pfc: PfcSpec, needed: Headroom) -> dict[str, object]:
    xoff, xon = nic_thresholds(pfc, needed.total)
    return {
        "rate_bps": needed.rate_bps,
        "buffer_bytes": pfc.nic.buffer,
        "xoff_bytes": xoff,
        "xon_bytes": xon,
        "drain_ppm": pfc.nic.drain,
    }


def _ecmp(fabric: Fabric) -> Iterator[dict[str, object]]:
    described = {
        origins: [
            {
                "role": width.group.role.name,
                "zone": width.group.zone,
                "switches": width.switches,
                "width": width.width,
            }
            for width in widths
        ]
        for origins, widths in expected_widths(fabric).items()
    }
    for prefix in fabric.prefixes:
        yield {**_prefix(prefix), "widths": described[origins_of(fabric, prefix)]}
