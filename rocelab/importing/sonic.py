"""What SONiC switches are configured with: a `config_db.json` of each.

The tables are DEVICE_METADATA, DEVICE_NEIGHBOR, DEVICE_NEIGHBOR_METADATA, PORT, INTERFACE,
PORTCHANNEL_INTERFACE and PORTCHANNEL_MEMBER, LOOPBACK_INTERFACE and BGP_NEIGHBOR, as SONiC's
configuration database has them (sonic-buildimage, src/sonic-yang-models).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from rocelab.base.family import Family
from rocelab.importing.topology import DrawnLink, DrawnNode, ImportedTopology

_TIERS = (
    ("server", 0),
    ("tor", 1),
    ("leaf", 2),
    ("spine", 3),
    ("core", 3),
    ("regional", 3),
)
"""Words of the types of DEVICE_METADATA, such as ToRRouter, with the tier of each."""
_NOT_READ = ("VLAN", "VXLAN_TUNNEL", "STATIC_ROUTE", "ACL_TABLE", "VRF", "BGP_PEER_RANGE")


@dataclass(frozen=True, slots=True)
class _Switch:
    """A switch's own database."""

    name: str
    tables: Mapping[str, Mapping[str, Any]]

    def table(self, name: str) -> Mapping[str, Any]:
        value = self.tables.get(name)
        return value if isinstance(value, Mapping) else {}

    @property
    def metadata(self) -> Mapping[str, Any]:
        return _mapping(self.table("DEVICE_METADATA").get("localhost"))


def is_sonic(document: Mapping[str, Any]) -> bool:
    """Whether a document is a switch's configuration database."""
    return "DEVICE_METADATA" in document or {"PORT", "DEVICE_NEIGHBOR"} <= document.keys()


def read_sonic(name: str, documents: Mapping[Path, Mapping[str, Any]]) -> ImportedTopology:
    """The topology of switches and their neighbours. A neighbour without a database of its own is
    known by what the others say of it."""
    switches = [_switch(file, document) for file, document in documents.items()]
    nodes: dict[str, DrawnNode] = {}
    for switch in switches:
        nodes[switch.name] = _node(switch)
    links: dict[frozenset[tuple[str, str]], DrawnLink] = {}
    left_out: list[str] = []
    configured: dict[str, tuple[str, ...]] = {}
    for switch in switches:
        for far, node in _neighbours(switch):
            nodes.setdefault(far, node)
        for link in _links(switch, left_out):
            key = frozenset(((link.a[0], link.a[1] or ""), (link.b[0], link.b[1] or "")))
            known = links.get(key)
            links[key] = link if known is None else _merged(known, link)
        configured[switch.name] = tuple(_rest(switch))
    return ImportedTopology(name, nodes, list(links.values()), left_out, configured, is_graph=True)


def _switch(file: Path, document: Mapping[str, Any]) -> _Switch:
    tables = {key: table for key, table in document.items() if isinstance(table, Mapping)}
    metadata = _mapping(_mapping(tables.get("DEVICE_METADATA")).get("localhost"))
    hostname = metadata.get("hostname")
    stem = file.stem.removesuffix("config_db").rstrip("_-.") or file.resolve().parent.name
    return _Switch(hostname if isinstance(hostname, str) and hostname else stem, tables)


def _node(switch: _Switch) -> DrawnNode:
    loopbacks = tuple(
        dict.fromkeys(
            str(ip_interface(prefix).ip)
            for key in switch.table("LOOPBACK_INTERFACE")
            for interface, _, prefix in [key.partition("|")]
            if interface == "Loopback0" and prefix and _is_interface(prefix)
        )
    )
    router_id = switch.metadata.get("bgp_router_id")
    return DrawnNode(
        is_switch=True,
        tier=_tier(switch.metadata.get("type")),
        group=_text(switch.metadata.get("type")),
        asn=_asn(switch.metadata.get("bgp_asn")),
        loopbacks=_one_a_family(loopbacks),
        router_id=router_id if isinstance(router_id, str) else None,
    )


def _neighbours(switch: _Switch) -> Iterator[tuple[str, DrawnNode]]:
    asn_of = {
        row.get("name"): _asn(row.get("asn"))
        for row in map(_mapping, switch.table("BGP_NEIGHBOR").values())
    }
    types = switch.table("DEVICE_NEIGHBOR_METADATA")
    for row in map(_mapping, switch.table("DEVICE_NEIGHBOR").values()):
        far = row.get("name")
        if isinstance(far, str):
            kind = _mapping(types.get(far)).get("type")
            tier = _tier(kind)
            is_switch = tier != 0 if tier is not None or far in asn_of else None
            doubt = "" if is_switch is not None else "has no type and no BGP session"
            yield far, DrawnNode(is_switch, doubt, tier, _text(kind), asn=asn_of.get(far))


def _links(switch: _Switch, left_out: list[str]) -> Iterator[DrawnLink]:
    channel_of = {
        port: channel
        for channel, _, port in (key.partition("|") for key in switch.table("PORTCHANNEL_MEMBER"))
    }
    addresses = _addresses(switch)
    numbered: set[str] = set()
    for port, row in switch.table("DEVICE_NEIGHBOR").items():
        far, far_port = _mapping(row).get("name"), _mapping(row).get("port")
        if not isinstance(far, str):
            left_out.append(f"{switch.name}:{port} (its neighbour has no name)")
            continue
        settings = _mapping(switch.table("PORT").get(port))
        interface = channel_of.get(port, port)
        if interface in numbered:
            left_out.append(f"{switch.name}:{port} as a member of {interface}: its own link here")
        pairs = () if interface in numbered else addresses.get(interface, ())
        numbered.add(interface)
        speed, mtu = _number(settings.get("speed")), _number(settings.get("mtu"))
        yield DrawnLink(
            (switch.name, port),
            (far, far_port if isinstance(far_port, str) else None),
            None if speed is None else f"{speed}M" if speed % 1000 else f"{speed // 1000}G",
            mtu,
            addresses=pairs,
        )


def _addresses(switch: _Switch) -> dict[str, tuple[tuple[str, str], ...]]:
    """The addresses of each interface and of the neighbour on it, one pair a family."""
    far_of = {
        row.get("local_addr"): address
        for address, row in switch.table("BGP_NEIGHBOR").items()
        if isinstance(row, Mapping)
    }
    pairs: dict[str, dict[Family, tuple[str, str]]] = {}
    for table in ("INTERFACE", "PORTCHANNEL_INTERFACE"):
        for key in switch.table(table):
            interface, _, prefix = key.partition("|")
            if not prefix or not _is_interface(prefix):
                continue
            near = ip_interface(prefix)
            if near.is_link_local:
                continue  # the kernel's own
            far = far_of.get(str(near.ip)) or far_of.get(prefix.partition("/")[0])
            if isinstance(far, str) and _is_interface(far):
                both = (str(near), f"{ip_interface(far).ip}/{near.network.prefixlen}")
                pairs.setdefault(interface, {}).setdefault(Family.of(prefix), both)
    return {interface: tuple(of.values()) for interface, of in pairs.items()}


def _merged(known: DrawnLink, link: DrawnLink) -> DrawnLink:
    """A link of which both ends say something; what the first says counts."""
    turned = known.a != link.a
    addresses = tuple((b, a) for a, b in link.addresses) if turned else link.addresses
    return replace(
        known,
        rate=known.rate or link.rate,
        mtu=known.mtu or link.mtu,
        addresses=known.addresses or addresses,
    )


def _rest(switch: _Switch) -> Iterator[str]:
    """What is there and is not taken."""
    for name in _NOT_READ:
        if rows := switch.table(name):
            yield f"{name} of {len(rows)}"


def _tier(kind: object) -> int | None:
    text = _text(kind).lower()
    return next((tier for word, tier in _TIERS if word in text), None)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _asn(value: object) -> int | None:
    number = _number(value)
    return number if number else None


def _number(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 12 else None


def _one_a_family(addresses: tuple[str, ...]) -> tuple[str, ...]:
    return tuple({Family.of(text): text for text in reversed(addresses)}.values())


def _is_interface(text: str) -> bool:
    try:
        ip_interface(text)
    except ValueError:
        return False
    return True


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
